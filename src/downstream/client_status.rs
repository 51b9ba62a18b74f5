//! Client status (CSDS) on the addresses for clients. Only clients whose rule of permissions has `client_status` may ask.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Body;
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

    async fn converse(
        &self,
        method: StatusMethod,
        frames: &mut Frames<impl Body<Data = Bytes> + Unpin>,
        out: mpsc::Sender<Bytes>,
    ) -> Status {
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
            let made = match frames.paused(self.status.answer(&request)).await {
                Ok(made) => made,
                Err(failure) => return failure.into(),
            };
            if frames.paused(out.send(made.into())).await.is_err() || method == StatusMethod::Fetch {
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::pin::pin;

    use futures_util::future::poll_immediate;
    use futures_util::{StreamExt, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use weir_core::xds::{IdentityPattern, Network, PermissionRule, Permissions};

    use super::*;
    use crate::downstream::frames::framed;
    use crate::downstream::incomplete::IncompleteRequests;
    use crate::downstream::sent_ahead::SentAhead;
    use crate::memory::{Budget, GroupMembership, Memory};
    use crate::relay::views_to;
    use crate::transcode::Transcoder;

    fn call() -> StatusCall {
        let rule = PermissionRule {
            share: 1,
            name: "all".into(),
            identities: vec![IdentityPattern::Network(Network::parse("127.0.0.0/8").unwrap())],
            node: Vec::new(),
            types: None,
            names: Vec::new(),
            secrets: Vec::new(),
            tenant: None,
            relays_for: Vec::new(),
            client_status: true,
        };
        StatusCall {
            status: Arc::new(ClientStatus::new(Arc::new(views_to("http://server")), Arc::new(Transcoder::envoy))),
            permissions: Arc::new(LivePermissions::new(Permissions::of(vec![rule]))),
            peer: Arc::new(Peer::at((Ipv4Addr::LOCALHOST, 1).into())),
            drain: Drain::new().1,
        }
    }

    #[tokio::test]
    async fn what_a_client_sends_while_it_reads_no_status_is_charged_to_it() {
        let memory = Memory::new(Budget::unlimited(), Arc::default(), Arc::default());
        let (account, ahead) = (memory.connect(GroupMembership::default()), Arc::new(SentAhead::default()));
        ahead.charge_to(account.charge(0));
        let before = memory.used();
        let inbound = IncompleteRequests::new(1 << 10, 0, Arc::default()).connection_with(ahead.clone());
        let two = [(); 2].map(|()| Ok::<_, &str>(Frame::data(framed(b""))));
        let body = StreamBody::new(stream::iter(two).chain(stream::pending()));
        let (mut frames, call) = (Frames::new(body, 1 << 10, inbound), call());
        let (out, unread) = mpsc::channel(1);
        let mut answering = pin!(call.converse(StatusMethod::Stream, &mut frames, out));
        assert!(poll_immediate(answering.as_mut()).await.is_none(), "the second status waits for the client");
        ahead.note_came(60 << 10);
        account.tell();
        assert_eq!((unread.len(), memory.used() - before), (1, 60 << 10));
    }
}
