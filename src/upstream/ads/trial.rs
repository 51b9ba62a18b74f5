//! Types on a stream of their own: whether the server takes them, and nothing else.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request as Call, Status};
use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::{PROOF, Trial, TrialEnd};

use super::codec::RawResponses;
use super::stream::{DELTA_PATH, SOTW_PATH, delta_request, end_in_order, is_of_server, server_status, sotw_request};
use super::{AdsConnector, Connected};

/// Requests the types, and waits until something is shown. Trials at one server take turns.
pub(super) async fn try_types(connector: &AdsConnector, trial: &Trial) -> TrialEnd {
    let Some(_turn) = connector.shared().trial_turn().await else { return TrialEnd::Lost };
    let open = async {
        match trial.variant {
            Variant::Sotw => open::<DiscoveryRequest>(connector, trial, SOTW_PATH, sotw_request).await,
            Variant::Delta => open::<DeltaDiscoveryRequest>(connector, trial, DELTA_PATH, delta_request).await,
        }
    };
    timeout(LIMIT, open).await.unwrap_or(TrialEnd::Lost)
}

async fn open<Q>(
    connector: &AdsConnector,
    trial: &Trial,
    path: &'static str,
    inner: fn(Request) -> Option<Q>,
) -> TrialEnd
where
    Q: prost::Message + Default + 'static,
{
    let Ok(Connected { slot, served: _served, channel, metadata }) = connector.connect(0).await else {
        return TrialEnd::Lost;
    };
    let mut grpc = connector.limited(channel);
    if grpc.ready().await.is_err() {
        return TrialEnd::Lost;
    }
    let closes = Arc::new(Notify::new());
    let requests: Vec<Q> = trial.requests.iter().cloned().filter_map(inner).collect();
    let (is_one, until_closed) = (requests.len() == 1, closes.clone());
    let requests = stream::iter(requests).chain(stream::pending());
    let mut call = Call::new(requests.take_until(Box::pin(async move { until_closed.notified().await })));
    *call.metadata_mut() = metadata;
    let lasts = sleep_until(Instant::now() + PROOF);
    let call = grpc.streaming(call, PathAndQuery::from_static(path), RawResponses::<Q>::default());
    let (answered, has_answered) = (Notify::new(), AtomicBool::new(false));
    let mut served = pin!(async {
        let mut responses = match call.await {
            Ok(call) => call.into_inner(),
            Err(status) => return status,
        };
        loop {
            match responses.message().await {
                // Of several, any may be what is answered.
                Ok(Some(_)) if is_one => {
                    has_answered.store(true, Ordering::Relaxed);
                    answered.notify_one();
                }
                Ok(Some(_)) => {}
                Ok(None) => return Status::ok("the server ended the stream"),
                Err(status) => return status,
            }
        }
    });
    let end = tokio::select! {
        biased;
        status = &mut served => return match () {
            () if has_answered.load(Ordering::Relaxed) => TrialEnd::Taken,
            () if is_of_server(&status) => TrialEnd::Ended(server_status(&status)),
            () => TrialEnd::Lost,
        },
        () = answered.notified() => TrialEnd::Taken,
        () = lasts => TrialEnd::Taken,
    };
    end_in_order(&closes, served).await;
    drop(slot); // not before the stream
    end
}

/// How long a trial takes at most, with its connection.
const LIMIT: Duration = Duration::from_secs(10);
