//! A client like an Envoy that has lost its stream: it connects with resources, states them, applies everything that it is sent, and records which
//! resources it loses.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prost::Message;
use tokio::task::JoinHandle;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use weir_core::proto::node::Node;
use weir_core::protocol::session::Variant;

use crate::client::{Client, PATIENCE, node};
use crate::{CDS, LDS};

pub struct Holder {
    record: Arc<Mutex<Record>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default, Clone)]
pub struct Record {
    pub holds: BTreeSet<String>,
    /// The names that the client was sent, and the number of responses.
    pub heard: BTreeSet<String>,
    pub responses: usize,
    /// The version of the last SotW response.
    pub version: String,
    /// The resources that the client had to delete, in order, and the names that were reported to it as absent.
    pub lost: Vec<String>,
    pub absent: BTreeSet<String>,
}

/// A client's subscription.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    pub url: &'static str,
    /// No names mean everything.
    pub names: &'static [&'static str],
    pub cluster: &'static str,
}

pub const ALL_CLUSTERS: Wish = Wish { url: CDS, names: &[], cluster: "web" };

/// A version that no server in these tests uses.
pub const UNKNOWN: &str = "of another life";

impl Holder {
    /// Connects a client without resources.
    pub async fn new(relay: SocketAddr, variant: Variant, wish: Wish) -> Self {
        Self::with(relay, variant, wish, &[], "").await
    }

    /// Connects a client with these resources, in unknown versions. In SotW it cannot state their names.
    pub async fn of(relay: SocketAddr, variant: Variant, wish: Wish, holds: &[String]) -> Self {
        Self::with(relay, variant, wish, holds, UNKNOWN).await
    }

    pub async fn with(relay: SocketAddr, variant: Variant, wish: Wish, holds: &[String], version: &str) -> Self {
        Self::starting(relay, variant, node(wish.cluster), wish, holds, version).await
    }

    /// Connects a client without resources that states this node.
    pub async fn as_node(relay: SocketAddr, variant: Variant, wish: Wish, node: &Node) -> Self {
        Self::starting(relay, variant, Some(node.encode_to_vec().into()), wish, &[], "").await
    }

    async fn starting(
        relay: SocketAddr,
        variant: Variant,
        node: Option<bytes::Bytes>,
        wish: Wish,
        holds: &[String],
        version: &str,
    ) -> Self {
        let client = Client::connect(relay, variant).await;
        ask(&client, node, wish, holds, version);
        let holds = holds.iter().cloned().collect();
        let record = Arc::new(Mutex::new(Record { holds, ..Record::default() }));
        Self { record: record.clone(), task: tokio::spawn(listen(client, wish, record)) }
    }

    pub fn record(&self) -> Record {
        self.record.lock().unwrap().clone()
    }

    pub async fn until(&self, what: &str, holds: impl Fn(&Record) -> bool) {
        self.within(PATIENCE, what, holds).await;
    }

    pub async fn within(&self, patience: Duration, what: &str, holds: impl Fn(&Record) -> bool) {
        let looking = async {
            while !holds(&self.record()) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let late = tokio::time::timeout(patience, looking).await.is_err();
        assert!(!late, "not within {patience:?}: {what}: {:?}", self.record());
    }

    /// Forgets the losses so far, which were expected.
    pub fn forget_losses(&self) {
        let mut record = self.record.lock().unwrap();
        (record.lost, record.absent) = Default::default();
    }

    pub fn has_lost_nothing(&self) {
        let Record { lost, absent, responses, .. } = self.record();
        assert!(lost.is_empty(), "{} were deleted, in {responses} responses: {lost:?}", lost.len());
        assert!(absent.is_empty(), "said not to exist: {absent:?}");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn ask(client: &Client, node: Option<bytes::Bytes>, wish: Wish, holds: &[String], version: &str) {
    let type_url = wish.url.to_owned();
    let names = wish.names.iter().map(ToString::to_string).collect();
    match client {
        Client::Sotw(requests, _) => {
            let version_info = version.to_owned();
            let request =
                DiscoveryRequest { node, type_url, resource_names: names, version_info, ..Default::default() };
            requests.send(request).unwrap();
        }
        Client::Delta(requests, _) => {
            let request = DeltaDiscoveryRequest {
                node,
                type_url,
                resource_names_subscribe: names,
                initial_resource_versions: holds.iter().map(|name| (name.clone(), version.to_owned())).collect(),
                ..Default::default()
            };
            requests.send(request).unwrap();
        }
    }
}

async fn listen(mut client: Client, wish: Wish, record: Arc<Mutex<Record>>) {
    let full_state = matches!((&client, wish.url), (Client::Sotw(..), CDS | LDS));
    while let Ok(Some(sent)) = client.next_forever().await {
        client.ack(wish.url, wish.names, &sent);
        let mut record = record.lock().unwrap();
        let set: BTreeSet<_> = sent.set.into_iter().collect();
        let lost: Vec<_> = match full_state {
            true => record.holds.difference(&set).cloned().collect(),
            false => sent.removed.iter().filter(|name| record.holds.contains(*name)).cloned().collect(),
        };
        record.holds.retain(|name| !lost.contains(name));
        record.absent.extend(sent.removed.into_iter().filter(|name| !lost.contains(name)));
        record.lost.extend(lost);
        record.heard.extend(set.iter().cloned());
        record.holds.extend(set);
        record.responses += 1;
        record.version = sent.version;
    }
}
