//! Streams without a session: health, client status and load reports. Each is answered by a task of its own, on the shared runtime, since it may ask
//! all views, or on that of load reports.

use std::future::pending;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Response;
use tokio::runtime::Handle;
use tokio::sync::{SetOnce, mpsc, oneshot};

use super::any_body::{AnyBody, grpc_response};
use super::connections::ConnectionPlace;
use super::frames::Frames;
use super::lifetime::Lifetime;
use super::slot::Status;
use super::stream::LINGER;
use crate::memory::{GivesWay, StreamPlace};
use crate::shared_runtime;

/// Everything that can end a stream without a session.
pub(super) struct EndConditions {
    lifetime: Lifetime,
    /// The stream's entry among those of its connection; `None` for a unary call.
    place: Option<(Arc<Yielding>, StreamPlace)>,
}

/// Ends the stream when other clients need its memory.
#[derive(Default)]
struct Yielding(SetOnce<Status>);

impl EndConditions {
    /// Returns what ends a stream of this connection. `is_unary`: the call has a single, immediate response.
    pub(super) fn by(place: &ConnectionPlace, is_unary: bool) -> Self {
        let lifetime = place.lifetime();
        if is_unary {
            return Self { lifetime: lifetime.of_unary(), place: None };
        }
        let (yielding, quota) = (Arc::<Yielding>::default(), place.quota());
        let gives_way: Weak<dyn GivesWay> = Arc::downgrade(&yielding) as _;
        let place = quota.account().map(|account| account.enter_stream(gives_way));
        Self { lifetime, place: place.map(|place| (yielding, place)) }
    }

    async fn ends(self) -> Status {
        let Self { lifetime, place } = self;
        let given_way = async {
            match &place {
                Some((yielding, _)) => yielding.0.wait().await.clone(),
                None => pending().await,
            }
        };
        tokio::select! {
            end = lifetime.ends() => end,
            end = given_way => end,
        }
    }
}

impl GivesWay for Yielding {
    fn give_way(&self, why: &str) -> bool {
        self.0.set(Status::exhausted(why)).is_ok() // once for each stream
    }
}

/// Responds with the messages and the final status of a new task, which `held` may end. After the status it reads and drops what still comes.
/// Without a runtime the task runs on the shared one.
pub(super) fn answered_apart(
    runtime: Option<&Handle>,
    messages: mpsc::Receiver<Bytes>,
    held: EndConditions,
    mut frames: Frames,
    answer: impl for<'a> FnOnce(&'a mut Frames) -> BoxFuture<'a, Status> + Send + 'static,
) -> Response<AnyBody> {
    let (status, end) = oneshot::channel();
    let answered = async move {
        let end = tokio::select! {
            end = answer(&mut frames) => end,
            end = held.ends() => end,
        };
        let _ = status.send(end); // the client may have disconnected
        let _ = tokio::time::timeout(LINGER, frames.drain()).await;
    };
    match runtime {
        Some(runtime) => runtime.spawn(answered),
        None => shared_runtime::spawn(answered),
    };
    grpc_response(AnyBody::Messages(messages, Some(end)))
}
