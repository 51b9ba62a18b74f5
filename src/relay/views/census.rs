//! All client streams at a glance.

use super::Views;
use crate::relay::report::{Census, ClientReport};

impl Views {
    /// Counts all client streams, and keeps so many of those that have been behind for longest.
    pub(crate) async fn census(&self, laggards: usize) -> (Census, Vec<ClientReport>) {
        let (mut census, mut after) = (Census::with_laggards(laggards), 0);
        loop {
            let chunk = self.clients.after(after, CHUNK);
            let Some(last) = chunk.last() else { break };
            after = last.id.0;
            chunk.iter().for_each(|session| session.count_in(&mut census));
            drop(chunk);
            tokio::task::yield_now().await;
        }
        let sessions = census.laggards().into_iter().filter_map(|session| self.clients.get(session));
        let reports = sessions.map(|session| session.report()).collect();
        (census, reports)
    }
}

/// How many streams are looked at between two turns of other tasks.
const CHUNK: usize = 256;
