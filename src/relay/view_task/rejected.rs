//! Resources of servers that the relay rejected: each is logged and counted once, and shown until it is replaced.

use super::ViewTask;
use crate::protocol::sources::StreamId;
use crate::protocol::upstream::{Stream, TypeSummary};
use crate::relay::report::RejectedReport;

/// Returns the rejected resources of a type, up to a limit, and how many there are.
pub(super) fn rejected_of_type(stream: &Stream, of: &TypeSummary) -> (Vec<RejectedReport>, usize) {
    let unnamed = of.unnamed.map(|reason| RejectedReport { name: None, version: None, reason: reason.to_string() });
    let count = of.rejected + usize::from(unnamed.is_some());
    let named = stream.rejected(of.kind).map(|(name, rejection)| RejectedReport {
        name: Some(name.to_string()),
        version: Some(rejection.version.clone()).filter(|version| !version.is_empty()),
        reason: rejection.reason.to_string(),
    });
    (unnamed.into_iter().chain(named).take(MAX_SHOWN).collect(), count)
}

impl ViewTask {
    /// Logs and counts the rejected resources of the last response.
    pub(super) fn note_rejected(&mut self, id: StreamId) {
        let Some(stream) = self.sources.stream(id) else { return };
        let rejected = stream.take_rejected();
        if rejected.is_empty() {
            return;
        }
        let (view, server) = (self.view_id.as_str(), self.connectors[id.server].describe());
        for of_type in rejected {
            let (type_url, news) = (of_type.kind.name(), of_type.news);
            let count = news.entries.len() + news.more;
            self.incidents.rejected(&server, &of_type.kind, &self.table, count);
            for (name, nack) in news.entries.iter().take(MAX_LOGGED) {
                let name = name.as_ref().map(tracing::field::display);
                let (version, reason) = (&nack.version, &*nack.reason);
                tracing::warn!(view, server, type_url, name, version, reason, "resource rejected");
            }
            if count > MAX_LOGGED {
                let count = count - MAX_LOGGED;
                tracing::warn!(view, server, type_url, count, "more resources rejected");
            }
        }
    }
}

/// How many resources of a type `/upstreams` shows.
const MAX_SHOWN: usize = 20;
/// How many resources of a response are logged.
const MAX_LOGGED: usize = 20;
