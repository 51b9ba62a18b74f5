//! A scripted xDS client: it requests, ACKs and reads only when the check calls its methods.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bytes::{BufMut, Bytes};
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request as Call, Status};
use tonic_prost::ProstCodec;
use weir_core::proto::discovery::{
    self, DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use weir_core::proto::node::Node;

use super::Variant;
use super::received::{ClientCache, Received};

/// How a client connects to a server.
#[derive(Clone)]
pub struct Opening {
    pub target: String,
    pub path: String,
    pub variant: Variant,
    /// The node in the first request.
    pub node: Option<Node>,
    /// How many bytes the server may send before the client reads them.
    pub window: Option<u32>,
    /// The time limit for an expected response.
    pub patience: Duration,
}

pub struct Client {
    opening: Opening,
    requests: mpsc::UnboundedSender<Bytes>,
    responses: mpsc::Receiver<Result<Received, Status>>,
    first: bool,
    /// The subscribed names by type URL; `last` has the last version and nonce of each.
    wants: BTreeMap<String, BTreeSet<String>>,
    last: BTreeMap<String, (String, String)>,
    nonces: BTreeSet<String>,
    pub held: ClientCache,
}

impl Opening {
    pub async fn connect(&self) -> anyhow::Result<Client> {
        let grpc = self.channel().await?;
        #[allow(clippy::disallowed_methods, reason = "requests of one check")]
        let (requests, queue) = mpsc::unbounded_channel();
        let (sender, responses) = mpsc::channel(1);
        let path = PathAndQuery::from_maybe_shared(self.path.clone())?;
        match self.variant {
            Variant::Sotw => tokio::spawn(listen::<DiscoveryResponse>(grpc, path, queue, sender)),
            Variant::Delta => tokio::spawn(listen::<DeltaDiscoveryResponse>(grpc, path, queue, sender)),
        };
        Ok(Client {
            opening: self.clone(),
            requests,
            responses,
            first: true,
            wants: BTreeMap::new(),
            last: BTreeMap::new(),
            nonces: BTreeSet::new(),
            held: ClientCache::default(),
        })
    }

    async fn channel(&self) -> anyhow::Result<Grpc<Channel>> {
        let endpoint = Endpoint::from_shared(self.target.clone())?.connect_timeout(self.patience);
        let endpoint = endpoint.initial_stream_window_size(self.window);
        let channel = endpoint.connect().await.with_context(|| format!("cannot reach {}", self.target))?;
        Ok(Grpc::new(channel).max_decoding_message_size(usize::MAX))
    }
}

/// Makes a single fetch.
pub async fn fetch(opening: &Opening, request: DiscoveryRequest) -> anyhow::Result<Result<Received, Status>> {
    let mut grpc = opening.channel().await?;
    grpc.ready().await?;
    let path = PathAndQuery::from_maybe_shared(opening.path.clone())?;
    let call = Call::new(Bytes::from(request.encode_to_vec()));
    let answer = timeout(opening.patience, grpc.unary(call, path, Encoded::<DiscoveryResponse>(PhantomData))).await;
    let answer = answer.with_context(|| format!("{} was not answered at all", opening.path))?;
    Ok(answer.map(|response| response.into_inner().into()))
}

async fn listen<R>(
    mut grpc: Grpc<Channel>,
    path: PathAndQuery,
    queue: mpsc::UnboundedReceiver<Bytes>,
    sender: mpsc::Sender<Result<Received, Status>>,
) where
    R: Message + Default + Into<Received> + 'static,
{
    let end = async {
        if let Err(error) = grpc.ready().await {
            return Status::unavailable(error.to_string());
        }
        let call = Call::new(UnboundedReceiverStream::new(queue));
        let mut responses = match grpc.streaming(call, path, Encoded::<R>(PhantomData)).await {
            Ok(call) => call.into_inner(),
            Err(status) => return status,
        };
        loop {
            match responses.message().await {
                Ok(Some(response)) => drop(sender.send(Ok(response.into())).await),
                Ok(None) => return Status::ok("the server ended the stream"),
                Err(status) => return status,
            }
        }
    };
    tokio::select! {
        status = end => drop(sender.send(Err(status)).await), // the receiver may be dropped
        () = sender.closed() => {}
    }
}

impl Client {
    /// Subscribes to these names of a type instead of the current ones, with the requests of the variant. A first request without names is
    /// the legacy wildcard.
    pub fn want(&mut self, url: &str, names: &[&str]) {
        let names: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
        let before = self.wants.get(url).cloned().unwrap_or_default();
        match self.opening.variant {
            Variant::Sotw => {
                let (version_info, response_nonce) = self.last.get(url).cloned().unwrap_or_default();
                self.send_sotw(DiscoveryRequest {
                    type_url: url.into(),
                    resource_names: names.into_iter().collect(),
                    version_info,
                    response_nonce,
                    ..Default::default()
                });
            }
            Variant::Delta => self.send_delta(DeltaDiscoveryRequest {
                type_url: url.into(),
                resource_names_subscribe: names.difference(&before).cloned().collect(),
                resource_names_unsubscribe: before.difference(&names).cloned().collect(),
                ..Default::default()
            }),
        }
    }

    /// Returns the client with a longer time limit for expected responses.
    pub fn patient(mut self, patience: Duration) -> Self {
        self.opening.patience = patience;
        self
    }

    /// Returns the last version and nonce of a type.
    pub fn last(&self, url: &str) -> (String, String) {
        self.last.get(url).cloned().unwrap_or_default()
    }

    pub fn ack(&mut self, sent: &Received) {
        self.answer(sent, None);
    }

    pub fn nack(&mut self, sent: &Received) {
        let nack = discovery::Status { code: 13, message: "not to my liking".into() };
        self.answer(sent, Some(nack));
    }

    pub fn send_sotw(&mut self, mut request: DiscoveryRequest) {
        request.node = request.node.or_else(|| self.node_at_first());
        self.wants.insert(request.type_url.clone(), request.resource_names.iter().cloned().collect());
        self.send_raw(request.encode_to_vec());
    }

    pub fn send_delta(&mut self, mut request: DeltaDiscoveryRequest) {
        request.node = request.node.or_else(|| self.node_at_first());
        let wants = self.wants.entry(request.type_url.clone()).or_default();
        wants.extend(request.resource_names_subscribe.iter().cloned());
        wants.retain(|name| !request.resource_names_unsubscribe.contains(name));
        self.send_raw(request.encode_to_vec());
    }

    /// Sends bytes as a request.
    pub fn send_raw(&mut self, request: Vec<u8>) {
        self.first = false;
        let _ = self.requests.send(request.into()); // the server may have ended the stream
    }

    /// Returns the next response, which has to be of this type.
    pub async fn sent(&mut self, url: &str) -> anyhow::Result<Received> {
        let patience = self.opening.patience;
        match timeout(patience, self.next()).await {
            Err(_) => bail!("nothing came for {}; held: {}", short(url), self.held),
            Ok(Err(status)) => bail!("the stream ended: {:?} {}", status.code(), status.message()),
            Ok(Ok(sent)) => {
                let sent = sent?;
                ensure!(sent.url == url, "expected {}, and was sent {sent:?}", short(url));
                Ok(sent)
            }
        }
    }

    /// Returns the next response, which has to be of this type, and ACKs it.
    pub async fn takes(&mut self, url: &str) -> anyhow::Result<Received> {
        let sent = self.sent(url).await?;
        self.ack(&sent);
        Ok(sent)
    }

    /// Reads and ACKs responses until the client's resources satisfy a condition.
    pub async fn until(&mut self, what: &str, holds: impl Fn(&ClientCache) -> bool) -> anyhow::Result<Vec<Received>> {
        let patience = self.opening.patience;
        let mut all = Vec::new();
        let waited = timeout(patience, async {
            while !holds(&self.held) {
                let sent = self.next().await.map_err(|status| anyhow::anyhow!("the stream ended: {status:?}"))??;
                self.ack(&sent);
                all.push(sent);
            }
            anyhow::Ok(())
        });
        match waited.await {
            Ok(done) => done.map(|()| all),
            Err(_) => bail!("never came to have {what}; was sent {all:?}, and holds {}", self.held),
        }
    }

    /// Reads and ACKs responses of a type until exactly these names were removed.
    pub async fn until_removed(&mut self, url: &str, names: &[&str]) -> anyhow::Result<Vec<Received>> {
        let expected: BTreeSet<&str> = names.iter().copied().collect();
        let mut all = Vec::new();
        loop {
            let sent = self.takes(url).await.with_context(|| format!("{names:?} were never removed"))?;
            all.push(sent);
            let removed: BTreeSet<&str> = all.iter().flat_map(|sent| &sent.removed).map(String::as_str).collect();
            ensure!(removed.is_subset(&expected), "{removed:?} were removed");
            if removed == expected {
                return Ok(all);
            }
        }
    }

    /// Reads and ACKs responses until none has arrived for this long.
    pub async fn until_quiet(&mut self, quiet: Duration) -> anyhow::Result<Vec<Received>> {
        let mut all = Vec::new();
        let start = Instant::now();
        while let Ok(next) = timeout(quiet, self.next()).await {
            ensure!(start.elapsed() < self.opening.patience, "it does not go quiet; was sent {} responses", all.len());
            let sent = next.map_err(|status| anyhow::anyhow!("the stream ended: {status:?}"))??;
            self.ack(&sent);
            all.push(sent);
        }
        Ok(all)
    }

    /// Checks that nothing arrives for this long.
    pub async fn receives_nothing(&mut self, quiet: Duration, why: &str) -> anyhow::Result<()> {
        match timeout(quiet, self.next()).await {
            Err(_) => Ok(()),
            Ok(Ok(sent)) => bail!("{why}, and yet it was sent {:?}", sent?),
            Ok(Err(status)) => bail!("{why}, and yet the stream ended: {:?} {}", status.code(), status.message()),
        }
    }

    pub async fn ended(&mut self) -> anyhow::Result<Code> {
        match timeout(self.opening.patience, self.next()).await {
            Err(_) => bail!("the stream was not ended"),
            Ok(Ok(sent)) => bail!("was sent {:?} instead of being ended", sent?),
            Ok(Err(status)) => Ok(status.code()),
        }
    }

    /// Returns the next response, checked and applied to the client's resources; or how the stream ended.
    pub async fn next(&mut self) -> Result<anyhow::Result<Received>, Status> {
        let sent = self.responses.recv().await.unwrap_or_else(|| Err(Status::unknown("the connection is gone")))?;
        let checked = sent.check().and_then(|()| {
            ensure!(self.nonces.insert(sent.nonce.clone()), "nonce {:?} for the second time", sent.nonce);
            Ok(())
        });
        self.held.take(&sent);
        self.last.insert(sent.url.clone(), (sent.version.clone(), sent.nonce.clone()));
        Ok(checked.map(|()| sent))
    }

    fn answer(&mut self, sent: &Received, error_detail: Option<discovery::Status>) {
        let (type_url, response_nonce) = (sent.url.clone(), sent.nonce.clone());
        match sent.variant {
            Variant::Sotw => {
                // On the stream of a single type, the client may have requested it without a type URL.
                let wants = self.wants.get(&sent.url).or_else(|| self.wants.get(""));
                let resource_names = wants.into_iter().flatten().cloned().collect();
                let version_info = sent.version.clone();
                self.send_sotw(DiscoveryRequest {
                    version_info,
                    resource_names,
                    type_url,
                    response_nonce,
                    error_detail,
                    ..Default::default()
                });
            }
            Variant::Delta => {
                self.send_delta(DeltaDiscoveryRequest { type_url, response_nonce, error_detail, ..Default::default() })
            }
        }
    }

    fn node_at_first(&self) -> Option<Bytes> {
        let node = self.opening.node.as_ref().filter(|_| self.first)?;
        Some(node.encode_to_vec().into())
    }
}

fn short(url: &str) -> &str {
    url.rsplit('.').next().unwrap_or_default()
}

/// A codec for requests that are already encoded, so that a check may send what no message type can express.
struct Encoded<R>(PhantomData<R>);

impl<R: Message + Default + 'static> Codec for Encoded<R> {
    type Encode = Bytes;
    type Decode = R;
    type Encoder = AsItIs;
    type Decoder = <ProstCodec<R, R> as Codec>::Decoder;

    fn encoder(&mut self) -> AsItIs {
        AsItIs
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<R, R>::default().decoder()
    }
}

struct AsItIs;

impl Encoder for AsItIs {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}
