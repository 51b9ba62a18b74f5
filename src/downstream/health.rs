//! `grpc.health.v1`: the readiness of the relay, by service.

use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tokio::sync::mpsc;
use weir_core::xds::service_names;

use super::drain::Drain;
use super::frames::Frames;
use super::slot::Status;
use crate::relay::Readiness;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inquiry {
    Check,
    Watch,
}

#[derive(Clone, PartialEq, ::prost::Message)]
struct Request {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, ::prost::Message)]
struct Response {
    #[prost(int32, tag = "1")]
    status: i32,
}

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;
const SERVICE_UNKNOWN: i32 = 3;
const NAME: &str = "grpc.health.v1.Health";

impl Inquiry {
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        match path.strip_prefix('/')?.strip_prefix(NAME)? {
            "/Check" => Some(Self::Check),
            "/Watch" => Some(Self::Watch),
            _ => None,
        }
    }
}

/// The context of a call.
pub(super) struct Health {
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) drain: Drain,
    /// Whether the services of v2 are served.
    pub(crate) v2: bool,
}

impl Health {
    /// Sends responses to `out`, and returns the status of the call. A watch ends when the relay ends or its client leaves.
    pub(crate) async fn answer(mut self, inquiry: Inquiry, frames: &mut Frames, out: mpsc::Sender<Bytes>) -> Status {
        let request = match frames.next().await.map(|message| message.map(Request::decode)) {
            Ok(Some(Ok(request))) => request,
            Ok(_) => return Status::invalid("invalid request: expected a HealthCheckRequest"),
            Err(status) => return status,
        };
        let known = request.service.is_empty() || service_names(self.v2).any(|name| name == request.service);
        match (inquiry, known) {
            (Inquiry::Check, false) => return Status::not_found("unknown service"),
            (Inquiry::Check, true) => drop(out.send(status(self.readiness.is_ready())).await),
            (Inquiry::Watch, known) => {
                let watch = async {
                    match known {
                        true => self.watch(&out).await,
                        false => self.watch_unknown(&out).await,
                    }
                };
                tokio::select! {
                    () = watch => {}
                    status = more(frames) => return status,
                }
            }
        }
        Status::ok()
    }

    async fn watch_unknown(&mut self, out: &mpsc::Sender<Bytes>) {
        let _ = out.send(message(SERVICE_UNKNOWN)).await; // the client may have disconnected
        tokio::select! {
            () = self.drain.begins() => {}
            () = out.closed() => {}
        }
    }

    /// Sends the readiness and each change of it. A slow watcher gets only the newest state.
    async fn watch(&mut self, out: &mpsc::Sender<Bytes>) {
        let mut sent = None;
        loop {
            let ready = self.readiness.is_ready();
            if sent != Some(ready) {
                tokio::select! {
                    biased;
                    room = out.reserve() => match room {
                        Ok(room) => room.send(status(ready)),
                        Err(_) => return,
                    },
                    () = self.drain.begins() => return,
                }
                sent = Some(ready);
            }
            tokio::select! {
                () = self.readiness.changed_from(ready) => {}
                () = self.drain.begins() => {
                    if ready {
                        let _ = out.try_send(status(false)); // a slow watcher learns it from the end of the call
                    }
                    return;
                }
                () = out.closed() => return,
            }
        }
    }
}

/// Waits for anything after the only request of the call, which is an error. Unread data would occupy the flow-control window that the streams
/// of a connection share.
async fn more(frames: &mut Frames) -> Status {
    match frames.next().await {
        Ok(None) => pending().await,
        Ok(Some(_)) => Status::invalid("invalid request: expected one HealthCheckRequest, and no more"),
        Err(status) => status,
    }
}

fn status(ready: bool) -> Bytes {
    message(if ready { SERVING } else { NOT_SERVING })
}

fn message(status: i32) -> Bytes {
    Response { status }.encode_to_vec().into()
}
