//! What waits, over all views and sessions.

use super::Views;
use crate::relay::command::ask;
use crate::relay::report::WaitReport;

impl Views {
    /// Returns all waits, with so many of the oldest. A wait beyond its bound is counted when it is first read.
    pub(crate) async fn waits(&self, limit: usize) -> WaitReport {
        let mut report = WaitReport::keeping(limit);
        for owner in self.owners() {
            if let Some(of) = ask(&owner, move |view| view.waits(limit)).await {
                report.add(&of.view, None, &of.servers, of.list);
            }
        }
        for chunk in self.clients.waiting().chunks(CHUNK) {
            let sessions = chunk.iter().filter_map(|session| self.clients.get(*session));
            sessions.for_each(|session| session.add_waits(&mut report));
            tokio::task::yield_now().await;
        }
        self.incidents.waits.note(&report.beyond);
        report
    }
}

/// How many streams are looked at between two turns of other tasks.
const CHUNK: usize = 256;
