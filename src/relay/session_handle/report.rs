//! What a session says of itself at the admin address.

use serde::Serialize;

use super::SessionHandle;
use crate::protocol::session::{Summary, Variant};

/// One session in a report.
#[derive(Debug, Serialize)]
pub struct ClientReport {
    pub session: u64,
    pub peer: String,
    pub node: String,
    pub view: String,
    pub variant: &'static str,
    /// Requests for types that are not served here, left unanswered.
    pub unsupported_requests: usize,
    pub types: Vec<TypeReport>,
}

#[derive(Debug, Serialize)]
pub struct TypeReport {
    #[serde(rename = "type")]
    pub kind: String,
    pub wildcard: bool,
    pub names: usize,
    pub pending: usize,
    /// The text of the latest refusal, and whether nothing was accepted since.
    pub last_nack: Option<String>,
    pub nacked: bool,
}

impl SessionHandle {
    pub fn report(&self) -> ClientReport {
        let session = self.lock();
        let of_type = |summary: Summary| TypeReport {
            kind: summary.kind.name().to_owned(),
            wildcard: summary.wildcard,
            names: summary.names,
            pending: summary.owed,
            nacked: summary.nacked,
            last_nack: summary.last_nack.map(|verdict| verdict.message.clone()),
        };
        ClientReport {
            session: self.id.0,
            peer: self.peer.clone(),
            node: self.node_id.clone(),
            view: self.key.clone(),
            variant: if self.variant == Variant::Sotw { "sotw" } else { "delta" },
            unsupported_requests: session.unsupported_requests(),
            types: session.summaries().map(of_type).collect(),
        }
    }
}
