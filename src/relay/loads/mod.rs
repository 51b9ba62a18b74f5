//! Load reports (LRS): which control plane those of a client go to, and whether they go there one by one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tokio::sync::mpsc;

use super::views::{Refused, Views};
use crate::proto::loads::LoadStatsRequest;
use crate::xds::SharingKey;

/// What becomes of the reports of clients (LRS-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadsMode {
    /// Clients are told that there is no such method.
    Off,
    /// An upstream stream for each of a client's, with the same messages.
    PassThrough,
}

/// One stream of loads as it is handed on: what came first from below, what comes after it, and where answers go. Both ways
/// are bounded, and whoever reads slowly is sent slowly.
pub struct LoadLink {
    pub first: Bytes,
    pub reports: mpsc::Receiver<Bytes>,
    pub answers: mpsc::Sender<Bytes>,
}

/// How a stream of loads ended, as gRPC says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadEnd {
    Refused(Refused),
    Unreadable,
    /// The control plane cannot be reached, or is no longer.
    Unreachable(String),
    /// By the control plane's own word.
    Said {
        code: u16,
        message: String,
    },
}

/// Opens streams of loads to control planes. The edge implements it.
pub trait LoadConnector: Send + Sync {
    /// Carries messages between a link and the server that is active for the key, until either side has ended. Dropping the
    /// future resets the stream.
    fn carry(&self, key: &SharingKey, link: LoadLink) -> Pin<Box<dyn Future<Output = LoadEnd> + Send>>;
}

pub struct Loads {
    mode: LoadsMode,
    views: Arc<Views>,
    connector: Arc<dyn LoadConnector>,
}

impl Loads {
    pub fn new(mode: LoadsMode, views: Arc<Views>, connector: Arc<dyn LoadConnector>) -> Self {
        Self { mode, views, connector }
    }

    pub fn are_served(&self) -> bool {
        self.mode != LoadsMode::Off
    }

    /// Serves a client's stream from its first message to its end. Dropping the future is how a client leaves in the middle.
    pub async fn serve(&self, link: LoadLink) -> LoadEnd {
        let Ok(first) = LoadStatsRequest::decode(link.first.clone()) else { return LoadEnd::Unreadable };
        let key = match self.views.identify(first.node.as_ref()) {
            Ok(identity) => identity.key().clone(),
            Err(refused) => return LoadEnd::Refused(refused),
        };
        tracing::debug!(%key, "stream of loads began");
        self.connector.carry(&key, link).await
    }
}
