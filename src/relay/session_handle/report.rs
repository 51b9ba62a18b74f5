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
    pub key: String,
    pub variant: &'static str,
    /// Requests for types that are not served here, left unanswered.
    pub unserved: usize,
    pub types: Vec<TypeReport>,
}

#[derive(Debug, Serialize)]
pub struct TypeReport {
    #[serde(rename = "type")]
    pub kind: String,
    pub wildcard: bool,
    pub names: usize,
    pub owed: usize,
    /// The text of the latest refusal, and whether nothing was accepted since.
    pub refused: Option<String>,
    pub refusing: bool,
}

impl SessionHandle {
    pub fn report(&self) -> ClientReport {
        let session = self.lock();
        let of_type = |summary: Summary| TypeReport {
            kind: summary.kind.name().to_owned(),
            wildcard: summary.wildcard,
            names: summary.names,
            owed: summary.owed,
            refusing: summary.nacked,
            refused: summary.last_nack.map(|verdict| verdict.message.clone()),
        };
        ClientReport {
            session: self.id.0,
            peer: self.peer.clone(),
            node: self.node_id.clone(),
            key: self.key.clone(),
            variant: if self.variant == Variant::Sotw { "sotw" } else { "delta" },
            unserved: session.unsupported_requests(),
            types: session.summaries().map(of_type).collect(),
        }
    }
}
