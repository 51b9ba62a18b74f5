//! The reports of a session for the admin address.

use super::SessionHandle;
use crate::protocol::session::Summary;
use crate::relay::report::{AnswersSource, ClientReport, ClientTypeReport, NackCounts};

impl SessionHandle {
    pub(crate) fn report(&self) -> ClientReport {
        let session = self.lock();
        let of_type = |summary: Summary| ClientTypeReport {
            kind: summary.kind.name().to_owned(),
            wildcard: summary.wildcard,
            names: summary.names,
            pending: summary.pending,
            nacked: summary.nacked,
            last_nack: summary.last_nack.map(|verdict| verdict.message.to_string()),
        };
        ClientReport {
            session: self.id.0,
            peer: self.peer.to_string(),
            node: self.node_id.clone(),
            view: self.key.clone(),
            variant: self.variant.name(),
            unsupported_requests: session.unsupported_requests(),
            types: session.summaries().map(of_type).collect(),
        }
    }
}

impl AnswersSource for SessionHandle {
    fn count(&self, into: &mut NackCounts) {
        self.lock().answers().for_each(|answers| into.add(&answers, &self.node_id, &self.user_agent));
    }
}
