//! The control plane's end of one stream, with the resources that it has sent on it: the test says what there is, and the difference is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_core::proto::discovery::{DeltaDiscoveryResponse, DiscoveryResponse};
use weir_core::proto::{Any, Response};
use weir_core::protocol::session::Variant;

use crate::plane::{Plane, Stream};
use crate::resources::wrapped;

/// Names, and what their bodies have after the name.
pub type Bodies = BTreeMap<String, Vec<u8>>;

/// Returns resources that have only their names.
pub fn bare<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Bodies {
    names.into_iter().map(|name| (name.as_ref().to_owned(), Vec::new())).collect()
}

pub struct Speaker {
    pub stream: Stream,
    /// What the relay has, by type.
    pub sent: BTreeMap<&'static str, Bodies>,
    asked: BTreeSet<String>,
}

/// The next version. Each version is used only once.
static VERSION: AtomicUsize = AtomicUsize::new(1);

impl Speaker {
    /// Accepts a stream as a server that compares its resources with `sent`, as if the relay had stated these versions. An empty `sent` after
    /// one that was not: a control plane that has forgotten everything.
    pub async fn of(plane: &mut Plane, sent: BTreeMap<&'static str, Bodies>) -> Self {
        Self { stream: plane.stream().await, sent, asked: BTreeSet::new() }
    }

    /// Waits until the relay requests a type.
    pub async fn is_asked(&mut self, url: &str) {
        while !self.asked.contains(url) {
            self.asked.insert(self.stream.request().await.type_url().to_owned());
        }
    }

    /// Sends the resources of a type, once it is requested.
    pub async fn has(&mut self, url: &'static str, set: Bodies) {
        self.is_asked(url).await;
        self.set(url, set);
    }

    /// Sends the resources of a type: all of them in SotW, the difference in delta.
    pub fn set(&mut self, url: &'static str, set: Bodies) {
        let (nonce, type_url) = (VERSION.fetch_add(1, Ordering::Relaxed).to_string(), url.to_owned());
        let before = self.sent.entry(url).or_default();
        let response = match self.stream.variant {
            Variant::Sotw => Response::Sotw(DiscoveryResponse {
                version_info: nonce.clone(),
                resources: set.iter().map(|(name, content)| body(url, name, content)).collect(),
                type_url,
                nonce,
                ..Default::default()
            }),
            Variant::Delta => {
                let news = set.iter().filter(|(name, content)| before.get(*name) != Some(*content));
                Response::Delta(DeltaDiscoveryResponse {
                    resources: news.map(|(name, content)| wrapped(name, &nonce, body(url, name, content))).collect(),
                    removed_resources: before.keys().filter(|name| !set.contains_key(*name)).cloned().collect(),
                    type_url,
                    nonce,
                    ..Default::default()
                })
            }
        };
        self.stream.respond(&response);
        *before = set;
    }
}

fn body(url: &str, name: &str, content: &[u8]) -> Any {
    let length = u8::try_from(name.len()).unwrap();
    let value = [&[0x0a, length], name.as_bytes(), content].concat().into();
    Any { type_url: url.to_owned(), value }
}
