//! Client status (CSDS) on the addresses for clients. Only clients whose rule of permissions has `client_status` may ask.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use weir_core::xds::Peer;

use super::drain::Drain;
use super::frames::Frames;
use super::slot::Status;
use crate::client_status::{ClientStatus, Failure, SERVICE};
use crate::relay::LivePermissions;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatusMethod {
    Fetch,
    Stream,
}

impl StatusMethod {
    pub(super) fn of_path(path: &str) -> Option<Self> {
        match path.strip_prefix(SERVICE)? {
            "FetchClientStatus" => Some(Self::Fetch),
            "StreamClientStatus" => Some(Self::Stream),
            _ => None,
        }
    }
}

/// The context of a call.
pub(super) struct StatusCall {
    pub(super) status: Arc<ClientStatus>,
    pub(super) permissions: Arc<LivePermissions>,
    pub(super) peer: Arc<Peer>,
    pub(super) drain: Drain,
}

impl StatusCall {
    /// Answers each request, and returns the status of the call.
    pub(super) async fn answer(self, method: StatusMethod, frames: &mut Frames, out: mpsc::Sender<Bytes>) -> Status {
        let (gone, mut drain) = (out.clone(), self.drain.clone());
        tokio::select! {
            status = self.converse(method, frames, out) => status,
            () = gone.closed() => Status::ok(),
            () = drain.begins() => Status::unavailable(drain.reason().message()),
        }
    }

    async fn converse(&self, method: StatusMethod, frames: &mut Frames, out: mpsc::Sender<Bytes>) -> Status {
        loop {
            let request = match frames.next().await {
                Ok(Some(request)) => request,
                Ok(None) => return Status::ok(),
                Err(status) => return status,
            };
            // The permission may end while the stream is open.
            if !self.permissions.current().let_see_status(&self.peer) {
                tracing::debug!(peer = %self.peer, "client status not permitted");
                let reason = format!("no rule of permissions with client_status is for {}", self.peer);
                return Status::denied(reason);
            }
            let made = match self.status.answer(&request).await {
                Ok(made) => made,
                Err(failure) => return failure.into(),
            };
            if out.send(made.into()).await.is_err() || method == StatusMethod::Fetch {
                return Status::ok();
            }
        }
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let text = failure.to_string();
        match failure {
            Failure::Invalid(_) => Self::invalid(text),
            Failure::TooLong(_) => Self::exhausted(text),
            Failure::Stopped => Self::unavailable(text),
        }
    }
}
