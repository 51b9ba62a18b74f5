//! `grpc.health.v1`: whether the relay serves, by service. While it drains it says that it does not.

use bytes::Bytes;
use prost::Message;
use tokio::sync::mpsc;

use super::drain::Drain;
use super::frames::Frames;
use super::slot::Status;
use crate::xds::service_names;

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
    pub fn of_path(path: &str) -> Option<Self> {
        match path.strip_prefix('/')?.strip_prefix(NAME)? {
            "/Check" => Some(Self::Check),
            "/Watch" => Some(Self::Watch),
            _ => None,
        }
    }
}

/// Answers into `out`, and says how the call ends. Watching ends with the relay or with whoever watches.
pub(super) async fn answer(
    inquiry: Inquiry,
    mut frames: Frames,
    v2: bool,
    mut drain: Drain,
    out: mpsc::Sender<Bytes>,
) -> Status {
    let request = match frames.next().await.map(|message| message.map(Request::decode)) {
        Ok(Some(Ok(request))) => request,
        Ok(_) => return Status::invalid("no request that can be read"),
        Err(status) => return status,
    };
    let known = request.service.is_empty() || service_names(v2).any(|name| name == request.service);
    // There is room for both words that a watcher may be told.
    let say = |status| drop(out.try_send(Response { status }.encode_to_vec().into()));
    match (inquiry, known) {
        (Inquiry::Check, false) => return Status::not_found("no such service"),
        (Inquiry::Watch, false) => say(SERVICE_UNKNOWN),
        (_, true) => say(if drain.has_begun() { NOT_SERVING } else { SERVING }),
    }
    if inquiry == Inquiry::Watch {
        tokio::select! {
            () = drain.begins() => if known { say(NOT_SERVING) },
            () = out.closed() => {}
        }
    }
    Status::ok()
}
