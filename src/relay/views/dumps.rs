//! What dumps and client status are made of: views, and what clients were sent.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::Views;
use crate::relay::command::{Command, ask};
use crate::relay::report::{AnswersSource, ClientHoldings, HoldingsSource, ViewReport, ViewSnapshot};

/// A view that can be dumped.
pub(crate) struct DumpSource(mpsc::Sender<Command>);

impl Views {
    /// Returns all views, the hub's last.
    pub(crate) fn dump_sources(&self) -> Vec<DumpSource> {
        self.owners().into_iter().map(DumpSource).collect()
    }

    /// Returns the state of a view by the hash of its key.
    pub(crate) async fn snapshot_of(&self, view: &str) -> Option<ViewSnapshot> {
        for source in self.dump_sources() {
            if let Some(found) = source.snapshot().await.filter(|found| found.view == view) {
                return Some(found);
            }
        }
        None
    }

    /// Returns what a client was sent by the number of its stream.
    pub(crate) async fn client_of(&self, session: u64) -> Option<ClientHoldings> {
        let client = self.client(session)?;
        tokio::task::spawn_blocking(move || client.holdings()).await.ok()
    }
}

impl DumpSource {
    /// Returns the report and the state of the view. None if it has ended.
    pub(crate) async fn view(&self) -> Option<(ViewReport, ViewSnapshot)> {
        ask(&self.0, |view| (view.report(), view.snapshot())).await
    }

    /// Returns the sessions of the view.
    pub(crate) async fn clients(&self) -> Vec<Arc<dyn AnswersSource>> {
        ask(&self.0, |view| view.sessions().sessions).await.unwrap_or_default()
    }

    async fn snapshot(&self) -> Option<ViewSnapshot> {
        ask(&self.0, |view| view.snapshot()).await
    }
}
