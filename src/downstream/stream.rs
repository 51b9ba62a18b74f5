//! One gRPC stream: the methods that are served, and the task that reads a stream's requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;

use super::frames::Frames;
use super::slot::{Slot, Status};
use crate::proto::Request;
use crate::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use crate::protocol::session::Variant;
use crate::relay::Views;

/// The variant that a path asks for.
pub(super) fn variant_of(path: &str) -> Option<Variant> {
    match path {
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources" => Some(Variant::Sotw),
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources" => Some(Variant::Delta),
        _ => None,
    }
}

/// Reads requests for as long as the stream lives, whether or not its replies get anywhere.
pub(super) async fn read(mut frames: Frames, slot: Arc<Slot>, views: Arc<Views>, variant: Variant, peer: String) {
    let end = tokio::select! {
        end = converse(&mut frames, &slot, &views, variant, &peer) => end,
        () = slot.over.notified() => None,
    };
    if let Some(status) = end {
        slot.end(status);
    }
    if let Some(seat) = slot.seat() {
        seat.leave().await;
        tracing::debug!(session = seat.id.0, node = %seat.node_id, %peer, "stream ended");
    }
    // What is still on its way is read and dropped: data for a stream that was reset would count against the connection.
    let _ = tokio::time::timeout(LINGER, frames.drain()).await;
}

/// Until the client has said its last. `Some` is how the stream ends by it.
async fn converse(frames: &mut Frames, slot: &Slot, views: &Views, variant: Variant, peer: &str) -> Option<Status> {
    loop {
        let message = match frames.next().await {
            Ok(Some(message)) => message,
            Ok(None) => return Some(Status::ok()),
            Err(status) => return Some(status),
        };
        let Ok(request) = decode(message, variant) else {
            return Some(Status::invalid("a request that cannot be read"));
        };
        if slot.seat().is_none() {
            match views.seat(&request, variant, true, peer.to_owned()).await {
                Ok(seat) => {
                    tracing::debug!(session = seat.id.0, node = %seat.node_id, key = %seat.key, peer, ?variant, "stream began");
                    slot.sit(seat);
                }
                Err(refused) => {
                    tracing::warn!(peer, %refused, "stream refused");
                    return Some(refused.into());
                }
            }
        }
        if let Some(seat) = slot.seat() {
            seat.take(request).await;
        }
    }
}

fn decode(message: Bytes, variant: Variant) -> Result<Request, prost::DecodeError> {
    match variant {
        Variant::Sotw => DiscoveryRequest::decode(message).map(Request::Sotw),
        Variant::Delta => DeltaDiscoveryRequest::decode(message).map(Request::Delta),
    }
}

/// How long a client is listened to after the last word.
const LINGER: Duration = Duration::from_secs(5);
