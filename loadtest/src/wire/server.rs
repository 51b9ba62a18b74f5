//! The control plane's side of one stream: it stores what the relay requested and what it sent last, and sends the differences.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse};
use weir_core::proto::{Request, Response};

use super::Variant;
use crate::content::{Item, is_full_state, message_name};

pub type Set = BTreeMap<String, Item>;

/// The resources by message name, separately for `*` and for names, since they may differ.
#[derive(Debug, Default)]
pub struct Truth {
    pub wildcard: BTreeMap<String, Set>,
    pub named: BTreeMap<String, Set>,
    /// A part of every version. Another epoch gives equal contents other versions.
    pub epoch: u64,
    /// In how many parts a delta server sends its first response to `*`, with a pause after each part.
    pub pieces: usize,
}

/// What is sent on a stream.
#[derive(Debug)]
pub enum Out {
    Response(Box<Response>),
    Pause(Duration),
    /// Ends the stream with this gRPC status.
    End(u8),
}

pub struct Server {
    pub variant: Variant,
    number: usize,
    out: UnboundedSender<Out>,
    subscriptions: BTreeMap<String, Topic>,
    said: u64,
}

/// One type on one stream.
#[derive(Debug, Default)]
struct Topic {
    url: String,
    wildcard: bool,
    named_once: bool,
    names: BTreeSet<String>,
    /// What the server assumes that the relay has.
    sent: Set,
}

impl Server {
    pub fn new(number: usize, variant: Variant, out: UnboundedSender<Out>) -> Self {
        Self { variant, number, out, subscriptions: BTreeMap::new(), said: 0 }
    }

    pub fn read(&mut self, request: Request, truth: &Truth) {
        match request {
            Request::Sotw(request) => self.read_sotw(request, truth),
            Request::Delta(request) => self.read_delta(request, truth),
        }
    }

    /// Sends the changes of one type.
    pub fn push(&mut self, kind: &str, truth: &Truth) {
        let Some(subscription) = self.subscriptions.get(kind) else { return };
        let visible = subscription.visible(kind, truth);
        let changed: Vec<_> =
            visible.values().filter(|now| subscription.sent.get(&now.name) != Some(now)).cloned().collect();
        let gone: Vec<_> = subscription.sent.keys().filter(|name| !visible.contains_key(*name)).cloned().collect();
        if changed.is_empty() && gone.is_empty() {
            return;
        }
        match self.variant {
            Variant::Delta => self.say_delta(kind, changed, gone, truth),
            Variant::Sotw => self.say_sotw(kind, changed, visible, truth),
        }
    }

    /// Sends all resources again. Their versions are new if the epoch is.
    pub fn repeat(&mut self, kind: &str, truth: &Truth) {
        let Some(subscription) = self.subscriptions.get(kind) else { return };
        let all: Vec<_> = subscription.sent.values().cloned().collect();
        match self.variant {
            Variant::Delta => self.say_delta(kind, all, Vec::new(), truth),
            Variant::Sotw => self.say_sotw(kind, all, subscription.sent.clone(), truth),
        }
    }

    /// Sends exactly these items, valid or not, if the relay has requested the type on this stream. Returns the nonce.
    pub fn say(&mut self, kind: &str, items: &[Item], version: &str) -> Option<String> {
        let subscription = self
            .subscriptions
            .get(kind)
            .filter(|subscription| subscription.wildcard || !subscription.names.is_empty())?;
        if self.out.is_closed() {
            return None;
        }
        let type_url = subscription.url.clone();
        let nonce = self.next_nonce();
        let response = match self.variant {
            Variant::Sotw => Response::Sotw(DiscoveryResponse {
                version_info: version.into(),
                resources: items.iter().map(Item::sotw).collect(),
                type_url,
                nonce: nonce.clone(),
                ..Default::default()
            }),
            Variant::Delta => Response::Delta(DeltaDiscoveryResponse {
                resources: items.iter().map(|item| item.wrapper(version.into())).collect(),
                type_url,
                nonce: nonce.clone(),
                ..Default::default()
            }),
        };
        self.send(Out::Response(Box::new(response)));
        Some(nonce)
    }

    pub fn end(&mut self, status: u8) {
        self.subscriptions.clear();
        self.send(Out::End(status));
    }

    fn read_sotw(&mut self, request: DiscoveryRequest, truth: &Truth) {
        let kind = message_name(&request.type_url).to_owned();
        let full_state = is_full_state(&kind);
        let subscription = self.subscriptions.entry(kind.clone()).or_default();
        subscription.url = request.type_url;
        let mut names: BTreeSet<_> = request.resource_names.into_iter().collect();
        subscription.named_once |= !names.is_empty();
        let wildcard = names.remove("*") || (names.is_empty() && full_state && !subscription.named_once);
        let joined = wildcard && !subscription.wildcard;
        let added: Vec<_> = names.difference(&subscription.names).cloned().collect();
        let shrunk = subscription.names.difference(&names).next().is_some();
        subscription.sent.retain(|name, _| wildcard || names.contains(name));
        (subscription.wildcard, subscription.names) = (wildcard, names);
        let visible = subscription.visible(&kind, truth);
        if full_state {
            if (joined || !added.is_empty() || shrunk) && (subscription.wildcard || !subscription.names.is_empty()) {
                self.say_sotw(&kind, Vec::new(), visible, truth);
            }
            return;
        }
        let news: Vec<_> = visible.into_values().filter(|item| joined || added.contains(&item.name)).collect();
        if !news.is_empty() || joined {
            self.say_sotw(&kind, news, Set::new(), truth);
        }
    }

    fn read_delta(&mut self, request: DeltaDiscoveryRequest, truth: &Truth) {
        let kind = message_name(&request.type_url).to_owned();
        let first = !self.subscriptions.contains_key(&kind);
        let subscription = self.subscriptions.entry(kind.clone()).or_default();
        subscription.url = request.type_url;
        let on = request.resource_names_subscribe;
        let off = request.resource_names_unsubscribe;
        let legacy = first && on.is_empty() && off.is_empty() && is_full_state(&kind);
        let joined = legacy || on.iter().any(|name| name == "*");
        subscription.wildcard |= joined;
        let requested: Vec<_> = on.into_iter().filter(|name| name != "*").collect();
        subscription.names.extend(requested.iter().cloned());
        for name in off {
            subscription.wildcard &= name != "*";
            subscription.names.remove(&name);
            subscription.sent.remove(&name);
        }
        let (wildcard, names) = (subscription.wildcard, subscription.names.clone());
        subscription.sent.retain(|name, _| wildcard || names.contains(name));
        let visible = subscription.visible(&kind, truth);
        if joined && wildcard {
            let stated = request.initial_resource_versions;
            let current = |item: &&Item| stated.get(&item.name) == Some(&version_of(item, truth.epoch));
            subscription.sent.extend(visible.values().filter(current).map(|item| (item.name.clone(), item.clone())));
            let fresh: Vec<_> = visible.values().filter(|item| !current(item)).cloned().collect();
            let gone = stated.keys().filter(|name| !visible.contains_key(*name)).cloned().collect();
            self.say_first(&kind, fresh, gone, truth);
        }
        let (here, absent): (Vec<_>, Vec<_>) = requested.into_iter().partition(|name| visible.contains_key(name));
        if !here.is_empty() || !absent.is_empty() {
            let here = here.iter().filter_map(|name| visible.get(name).cloned()).collect();
            self.say_delta(&kind, here, absent, truth);
        }
    }

    fn say_first(&mut self, kind: &str, fresh: Vec<Item>, gone: Vec<String>, truth: &Truth) {
        let size = fresh.len().div_ceil(truth.pieces.max(1)).max(1);
        let mut pieces: Vec<_> = fresh.chunks(size).map(<[Item]>::to_vec).collect();
        let last = pieces.pop().unwrap_or_default();
        for piece in pieces {
            self.say_delta(kind, piece, Vec::new(), truth);
            self.send(Out::Pause(BETWEEN_PIECES));
        }
        self.say_delta(kind, last, gone, truth);
    }

    fn say_delta(&mut self, kind: &str, set: Vec<Item>, gone: Vec<String>, truth: &Truth) {
        let nonce = self.next_nonce();
        let Some(subscription) = self.subscriptions.get_mut(kind) else { return };
        gone.iter().for_each(|name| drop(subscription.sent.remove(name)));
        let response = DeltaDiscoveryResponse {
            resources: set.iter().map(|item| item.wrapper(version_of(item, truth.epoch))).collect(),
            type_url: subscription.url.clone(),
            nonce,
            removed_resources: gone,
            ..Default::default()
        };
        subscription.sent.extend(set.into_iter().map(|item| (item.name.clone(), item)));
        self.send(Out::Response(Box::new(Response::Delta(response))));
    }

    /// Sends new items, or all items of a full-state type.
    fn say_sotw(&mut self, kind: &str, news: Vec<Item>, everything: Set, truth: &Truth) {
        let nonce = self.next_nonce();
        let Some(subscription) = self.subscriptions.get_mut(kind) else { return };
        let set: Vec<_> = if is_full_state(kind) { everything.into_values().collect() } else { news };
        if is_full_state(kind) {
            subscription.sent.clear();
        }
        let response = DiscoveryResponse {
            version_info: format!("{}.{nonce}", truth.epoch),
            resources: set.iter().map(Item::sotw).collect(),
            type_url: subscription.url.clone(),
            nonce,
            ..Default::default()
        };
        subscription.sent.extend(set.into_iter().map(|item| (item.name.clone(), item)));
        if !is_full_state(kind) && response.resources.is_empty() {
            return; // types that are not full-state cannot report removals
        }
        self.send(Out::Response(Box::new(Response::Sotw(response))));
    }

    fn next_nonce(&mut self) -> String {
        self.said += 1;
        format!("s{}-{}", self.number, self.said)
    }

    fn send(&self, out: Out) {
        let _ = self.out.send(out); // the other side may have disconnected
    }
}

impl Topic {
    fn visible(&self, kind: &str, truth: &Truth) -> Set {
        let mut visible = truth.wildcard.get(kind).filter(|_| self.wildcard).cloned().unwrap_or_default();
        if let Some(named) = truth.named.get(kind) {
            visible.extend(self.names.iter().filter_map(|name| Some((name.clone(), named.get(name)?.clone()))));
        }
        visible
    }
}

fn version_of(item: &Item, epoch: u64) -> String {
    let sum = item.body.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    format!("{epoch}.{sum:x}")
}

const BETWEEN_PIECES: Duration = Duration::from_millis(100);
