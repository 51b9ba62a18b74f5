//! A simple control plane: it stores what it last sent on each stream, and sends differences.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weir_core::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse};
use weir_core::proto::{Request, Response};

use crate::content::{Content, Kind};

pub type Set = BTreeMap<String, Content>;

/// The resources for one node. Those for `*` and those for names may differ.
#[derive(Debug, Default, Clone)]
pub struct Truth {
    pub wildcard: BTreeMap<Kind, Set>,
    pub named: BTreeMap<Kind, Set>,
}

impl Truth {
    pub fn of(&self, kind: Kind, wildcard: bool) -> &Set {
        static NONE: Set = Set::new();
        if wildcard { self.wildcard.get(&kind) } else { self.named.get(&kind) }.unwrap_or(&NONE)
    }
}

/// A response in flight to the relay, and its meaning by a naive reading.
#[derive(Debug, Clone)]
pub struct Sent {
    pub response: Response,
    pub kind: Kind,
    pub wildcard: bool,
    pub set: Vec<Content>,
    pub gone: Vec<String>,
    /// Whether it is the complete set of a full-state type, and is no older than the request for these names.
    pub complete: bool,
    pub requested: BTreeSet<String>,
    /// Whether it ends the initial set of a delta server. Nothing on the wire shows that.
    pub last_piece: bool,
}

/// The server's side of one stream.
#[derive(Debug, Default)]
pub struct Server {
    subscriptions: BTreeMap<Kind, Topic>,
    nonce: u64,
    pub out: VecDeque<Sent>,
    pub nacked: u64,
}

#[derive(Debug, Default)]
struct Topic {
    delta: bool,
    wildcard: bool,
    named_once: bool,
    names: BTreeSet<String>,
    /// What the server assumes that the other side has.
    sent: BTreeMap<String, Content>,
    told_absent: BTreeSet<String>,
    /// Names in the first request of the stream, and names that were sent on it since.
    known: BTreeSet<String>,
}

impl Server {
    pub fn read(&mut self, request: Request, truth: &Truth, pieces: bool, epoch: u64) {
        match request {
            Request::Sotw(request) => self.read_sotw(request, truth, epoch),
            Request::Delta(request) => self.read_delta(request, truth, pieces, epoch),
        }
    }

    /// Sends a change on this stream, if the stream subscribes to it.
    pub fn push(&mut self, kind: Kind, truth: &Truth, epoch: u64) {
        let Some(subscription) = self.subscriptions.get_mut(&kind) else { return };
        let visible = subscription.visible(kind, truth);
        let changed: Vec<_> =
            visible.values().filter(|now| subscription.sent.get(&now.name) != Some(now)).cloned().collect();
        let gone: Vec<_> = subscription.sent.keys().filter(|name| !visible.contains_key(*name)).cloned().collect();
        if changed.is_empty() && gone.is_empty() {
            return;
        }
        if subscription.delta {
            self.send_delta(kind, changed, gone, epoch, false);
        } else if kind.full_state() {
            self.send_full(kind, visible, epoch);
        } else {
            // A partial SotW type cannot report removals.
            gone.iter().for_each(|name| drop(subscription.sent.remove(name)));
            if !changed.is_empty() {
                self.send_sotw(kind, changed, epoch, false);
            }
        }
    }

    /// Sends everything again under new versions.
    pub fn repeat(&mut self, kind: Kind, epoch: u64) {
        let Some(subscription) = self.subscriptions.get(&kind) else { return };
        let all: Vec<_> = subscription.sent.values().cloned().collect();
        match (subscription.delta, kind.full_state()) {
            _ if all.is_empty() => {}
            (true, _) => self.send_delta(kind, all, Vec::new(), epoch, false),
            (false, full) => self.send_sotw(kind, all, epoch, full),
        }
    }

    fn read_sotw(&mut self, request: DiscoveryRequest, truth: &Truth, epoch: u64) {
        self.nacked += u64::from(request.error_detail.is_some());
        let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.url() == request.type_url) else { return };
        let first = !self.subscriptions.contains_key(&kind);
        let subscription = self.subscriptions.entry(kind).or_default();
        let mut names: BTreeSet<_> = request.resource_names.into_iter().collect();
        subscription.named_once |= !names.is_empty();
        let wildcard = names.remove("*") || (names.is_empty() && kind.full_state() && !subscription.named_once);
        let joined = wildcard && !subscription.wildcard;
        let added: Vec<_> = names.difference(&subscription.names).cloned().collect();
        let shrunk = subscription.names.difference(&names).next().is_some();
        subscription.sent.retain(|name, _| wildcard || names.contains(name));
        (subscription.wildcard, subscription.names) = (wildcard, names);
        if first {
            subscription.known.clone_from(&subscription.names);
        }
        let visible = subscription.visible(kind, truth);
        if kind.full_state() {
            if (joined || !added.is_empty() || shrunk) && (subscription.wildcard || !subscription.names.is_empty()) {
                self.send_full(kind, visible, epoch);
            }
            return;
        }
        let wanted = |content: &Content| (first && wildcard) || joined || added.contains(&content.name);
        let news: Vec<_> = visible.into_values().filter(wanted).collect();
        if !news.is_empty() || joined {
            self.send_sotw(kind, news, epoch, false);
        }
    }

    fn read_delta(&mut self, request: DeltaDiscoveryRequest, truth: &Truth, pieces: bool, epoch: u64) {
        self.nacked += u64::from(request.error_detail.is_some());
        let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.url() == request.type_url) else { return };
        let first = !self.subscriptions.contains_key(&kind);
        let subscription = self.subscriptions.entry(kind).or_default();
        subscription.delta = true;
        let on = request.resource_names_subscribe;
        let off = request.resource_names_unsubscribe;
        let legacy = first && on.is_empty() && off.is_empty() && kind.full_state();
        let joined = legacy || on.iter().any(|name| name == "*");
        subscription.wildcard |= joined;
        let requested: Vec<_> = on.into_iter().filter(|name| name != "*").collect();
        subscription.names.extend(requested.iter().cloned());
        for name in off {
            if name == "*" {
                subscription.wildcard = false;
            }
            subscription.names.remove(&name);
            subscription.sent.remove(&name);
            subscription.told_absent.remove(&name);
        }
        if !subscription.wildcard {
            let names = subscription.names.clone();
            subscription.sent.retain(|name, _| names.contains(name));
        }
        let visible = subscription.visible(kind, truth);
        let stated = request.initial_resource_versions;
        let current = |content: &Content| stated.get(&content.name) == Some(&version_of(content, epoch));
        if joined && subscription.wildcard {
            for content in visible.values().filter(|content| current(content)) {
                subscription.sent.insert(content.name.clone(), content.clone());
            }
            let fresh: Vec<_> = visible.values().filter(|content| !current(content)).cloned().collect();
            let gone: Vec<_> = stated.keys().filter(|name| !visible.contains_key(*name)).cloned().collect();
            self.send_initial(kind, fresh, gone, pieces, epoch);
        }
        let (mut set, mut gone) = (Vec::new(), Vec::new());
        for name in requested {
            match visible.get(&name) {
                Some(content) => set.push(content.clone()),
                None => gone.push(name),
            }
        }
        if !set.is_empty() || !gone.is_empty() {
            self.send_delta(kind, set, gone, epoch, false);
        }
    }

    fn send_initial(&mut self, kind: Kind, fresh: Vec<Content>, gone: Vec<String>, pieces: bool, epoch: u64) {
        let mut chunks: Vec<Vec<Content>> = match pieces {
            true => fresh.into_iter().map(|content| vec![content]).collect(),
            false => vec![fresh],
        };
        let last = chunks.pop().unwrap_or_default();
        chunks.into_iter().for_each(|chunk| self.send_delta(kind, chunk, Vec::new(), epoch, false));
        self.send_delta(kind, last, gone, epoch, true);
    }

    fn send_delta(&mut self, kind: Kind, set: Vec<Content>, gone: Vec<String>, epoch: u64, last_piece: bool) {
        self.nonce += 1;
        let Some(subscription) = self.subscriptions.get_mut(&kind) else { return };
        for content in &set {
            subscription.sent.insert(content.name.clone(), content.clone());
        }
        gone.iter().for_each(|name| drop(subscription.sent.remove(name)));
        let response = DeltaDiscoveryResponse {
            resources: set.iter().map(|content| content.wrapper(version_of(content, epoch))).collect(),
            type_url: kind.url().into(),
            nonce: format!("n{}", self.nonce),
            removed_resources: gone.clone(),
            ..Default::default()
        };
        let (wildcard, requested) = (subscription.wildcard, BTreeSet::new());
        let response = Response::Delta(response);
        self.out.push_back(Sent { response, kind, wildcard, set, gone, complete: false, requested, last_piece });
    }

    fn send_full(&mut self, kind: Kind, visible: Set, epoch: u64) {
        if let Some(subscription) = self.subscriptions.get_mut(&kind) {
            subscription.sent = visible.clone();
        }
        self.send_sotw(kind, visible.into_values().collect(), epoch, true);
    }

    fn send_sotw(&mut self, kind: Kind, set: Vec<Content>, epoch: u64, complete: bool) {
        self.nonce += 1;
        let Some(subscription) = self.subscriptions.get_mut(&kind) else { return };
        for content in &set {
            subscription.sent.insert(content.name.clone(), content.clone());
        }
        subscription.known.extend(set.iter().map(|content| content.name.clone()));
        subscription.known.retain(|name| subscription.names.contains(name));
        let (wildcard, requested) = (subscription.wildcard, subscription.known.clone());
        let response = Response::Sotw(DiscoveryResponse {
            version_info: format!("{epoch}.{}", self.nonce),
            resources: set.iter().map(Content::sotw).collect(),
            type_url: kind.url().into(),
            nonce: format!("n{}", self.nonce),
            ..Default::default()
        });
        self.out.push_back(Sent {
            response,
            kind,
            wildcard,
            set,
            gone: Vec::new(),
            complete,
            requested,
            last_piece: false,
        });
    }
}

impl Topic {
    fn visible(&self, kind: Kind, truth: &Truth) -> Set {
        let mut visible = if self.wildcard { truth.of(kind, true).clone() } else { Set::new() };
        let named = truth.of(kind, false);
        visible.extend(self.names.iter().filter_map(|name| Some((name.clone(), named.get(name)?.clone()))));
        visible
    }
}

/// Returns the server's own version of a content. Another instance, with another epoch, has another version for it.
fn version_of(content: &Content, epoch: u64) -> String {
    format!("{epoch}.{}.{}.{:?}", content.serial, content.metadata, content.alias)
}
