//! Tries types on a stream of their own, to find out whether the server takes them.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use prost::Message;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Request as Call, Status};
use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::{PROOF, ServerStatus, TrialEnd};

use super::super::connection_pool::StreamSlot;
use super::codec::RawResponses;
use super::methods::{DELTA_PATH, SOTW_PATH};
use super::stream::{delta_request, end_in_order, is_of_server, server_status, sotw_request};
use super::{AdsConnector, Connected};
use crate::relay::{KeyHeaders, TypeTrial};

/// Requests the types, and waits for a result. Trials at one server take turns.
pub(super) async fn try_types(connector: &AdsConnector, trial: &TypeTrial) -> TrialEnd {
    let Some(_turn) = connector.shared().trial_turn().await else { return TrialEnd::Lost };
    let shown = async {
        let Ok(connected) = connector.connect(0, &trial.headers).await else { return TrialEnd::Lost };
        trial.begun().await;
        let requests = &trial.trial.requests;
        match ended((connector, &trial.headers), &connected, trial.trial.variant, requests).await {
            StreamResult::Taken(answered) => TrialEnd::Taken(answered),
            StreamResult::Ended(status) if requests.len() == 1 => {
                // On the same connection: another connection may lead to another server.
                let compared = std::slice::from_ref(&trial.trial.compared);
                match ended((connector, &trial.headers), &connected, trial.trial.variant, compared).await {
                    StreamResult::Taken(_) => TrialEnd::Refused(status),
                    StreamResult::Ended(_) | StreamResult::Nothing => TrialEnd::Lost,
                }
            }
            StreamResult::Ended(_) => TrialEnd::EndedForAny,
            StreamResult::Nothing => TrialEnd::Lost,
        }
    };
    timeout(LIMIT, shown).await.unwrap_or(TrialEnd::Lost)
}

/// The result of a stream.
enum StreamResult {
    /// The server has answered these of the requests. The others did not make it end the stream.
    Taken(BTreeSet<usize>),
    /// The server has ended the stream by a status that may be about the requests.
    Ended(ServerStatus),
    Nothing,
}

/// A connector, and the headers of clients that the server is shown.
type ShowingTo<'a> = (&'a AdsConnector, &'a KeyHeaders);

async fn ended(on: ShowingTo<'_>, connected: &Connected, variant: Variant, requests: &[Request]) -> StreamResult {
    match variant {
        Variant::Sotw => open::<DiscoveryRequest>(on, connected, SOTW_PATH, requests, sotw_request).await,
        Variant::Delta => open::<DeltaDiscoveryRequest>(on, connected, DELTA_PATH, requests, delta_request).await,
    }
}

async fn open<Q>(
    (connector, headers): ShowingTo<'_>,
    connected: &Connected,
    path: &'static str,
    requests: &[Request],
    inner: fn(Request) -> Option<Q>,
) -> StreamResult
where
    Q: Message + Default + 'static,
{
    let Connected { slot, channel, metadata, served: _ } = connected;
    let answers = Arc::new(Answers::of(requests));
    let closes = Arc::new(Notify::new());
    let requests: Vec<Q> = requests.iter().cloned().filter_map(inner).collect();
    let on = (connector.clone(), slot.clone(), channel.clone(), metadata.clone());
    let stream = serve(on, path, requests, answers.clone(), closes.clone());
    let mut stream: Pin<Box<dyn Future<Output = Status> + Send>> = Box::pin(stream);
    let lasts = sleep_until(Instant::now() + PROOF);
    tokio::select! {
        biased;
        status = &mut stream => return match () {
            () if answers.has_all() => StreamResult::Taken(answers.taken()),
            () if is_of_server(&status) => match server_status(&status, &connector.redaction(headers)) {
                status if status.may_concern_request() => StreamResult::Ended(status),
                _ => StreamResult::Nothing,
            },
            () => StreamResult::Nothing,
        },
        () = answers.all.notified() => {}
        () = lasts => {}
    }
    // No caller waits for this: it ends within a second.
    tokio::spawn(async move { end_in_order(&closes, stream).await });
    StreamResult::Taken(answers.taken())
}

/// Sends the requests, and notes the answers until the stream ends.
async fn serve<Q>(
    (connector, _slot, channel, metadata): (AdsConnector, Arc<StreamSlot>, Channel, MetadataMap),
    path: &'static str,
    requests: Vec<Q>,
    answers: Arc<Answers>,
    closes: Arc<Notify>,
) -> Status
where
    Q: Message + Default + 'static,
{
    let mut grpc = connector.limited(channel);
    if let Err(error) = grpc.ready().await {
        return Status::from_error(error.into());
    }
    let requests = stream::iter(requests).chain(stream::pending());
    let mut call = Call::new(requests.take_until(Box::pin(async move { closes.notified().await })));
    *call.metadata_mut() = metadata;
    let call = grpc.streaming(call, PathAndQuery::from_static(path), RawResponses::<Q>::default()).await;
    let mut responses = match call {
        Ok(call) => call.into_inner(),
        Err(status) => return status,
    };
    loop {
        match responses.message().await {
            Ok(Some(message)) => match message.content(connector.message_bytes()).await {
                Ok(message) => answers.note(&message),
                Err(status) => return status,
            },
            Ok(None) => return Status::ok("the server ended the stream"),
            Err(status) => return status,
        }
    }
}

/// Which requests the server has answered.
struct Answers {
    urls: Vec<String>,
    taken: Mutex<BTreeSet<usize>>,
    all: Notify,
}

/// The type of a response of either variant.
#[derive(Clone, PartialEq, prost::Message)]
struct TypeOfResponse {
    #[prost(string, tag = "4")]
    type_url: String,
}

impl Answers {
    fn of(requests: &[Request]) -> Self {
        let urls = requests.iter().map(|request| request.type_url().to_owned()).collect();
        Self { urls, taken: Mutex::default(), all: Notify::new() }
    }

    fn note(&self, message: &[u8]) {
        let Ok(TypeOfResponse { type_url }) = TypeOfResponse::decode(message) else { return };
        let at = self.urls.iter().position(|url| *url == type_url);
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).extend(at);
        if self.has_all() {
            self.all.notify_one();
        }
    }

    fn taken(&self) -> BTreeSet<usize> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn has_all(&self) -> bool {
        self.taken().len() == self.urls.len()
    }
}

/// How long a trial takes at most, with its connection.
const LIMIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use weir_core::proto::discovery::{DeltaDiscoveryResponse, DiscoveryResponse};

    use super::*;

    #[test]
    fn a_trial_has_all_answers_when_there_is_one_of_each_type_in_either_variant() {
        let request =
            |type_url: &str| Request::Sotw(DiscoveryRequest { type_url: type_url.into(), ..Default::default() });
        let answers = Answers::of(&["x/one", "x/two"].map(request));
        let sotw =
            |type_url: &str| DiscoveryResponse { type_url: type_url.into(), ..Default::default() }.encode_to_vec();
        for (message, taken) in [(&b"no message"[..], vec![]), (&sotw("x/other"), vec![]), (&sotw("x/two"), vec![1])] {
            answers.note(message);
            assert_eq!((answers.taken(), answers.has_all()), (taken.into_iter().collect(), false));
        }
        let delta = DeltaDiscoveryResponse { type_url: "x/one".into(), ..Default::default() };
        answers.note(&delta.encode_to_vec());
        assert!(answers.has_all());
    }
}
