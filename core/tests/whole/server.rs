//! A control plane of the world. It has contents of its own, and the habits of real ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use weir_core::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse};
use weir_core::proto::{Request, Response};
use weir_core::protocol::moment::Moment;

use crate::content::{Content, Key, Kind};

/// How a server treats connections now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Fine,
    /// Connections fail.
    Refuses,
    /// Nothing is sent, and calls are not answered. What was sent to the server is read when it continues.
    Hangs,
    /// Only calls are answered.
    Mute,
    /// Streams end before the first response.
    Rejects,
}

impl Health {
    pub fn answers_calls(self) -> bool {
        self != Self::Hangs
    }

    pub fn speaks(self) -> bool {
        self == Self::Fine
    }
}

/// How a server treats stated versions, and how it sends what it has.
#[derive(Debug, Clone)]
pub struct Habit {
    /// It compares what it has with what is stated. Other servers send everything again, and remove nothing that is only stated.
    pub compares: bool,
    /// If nothing is new, it sends an empty response to the first request of a type. Other servers are silent.
    pub says_nothing_is_new: bool,
    /// It lists names that do not exist as removed when they are requested. Other servers are silent.
    pub removes_unknown: bool,
    /// Its versions are those of one replica, and each stream reaches another.
    pub replicas: bool,
    /// Sets are sent one resource at a time, with this pause.
    pub pieces: Option<Duration>,
    /// Removals come with the first piece, and not with the last one.
    pub removes_first: bool,
    /// The types whose requests it never answers.
    pub unanswered: BTreeSet<Kind>,
}

#[derive(Debug)]
pub struct Server {
    pub health: Health,
    pub habit: Habit,
    pub content: BTreeMap<Key, Content>,
    /// How often each type has changed, for its SotW versions.
    pub changes: BTreeMap<Kind, u32>,
    streams: u16,
}

impl ServerStream {
    /// Whether all resources of a type were requested.
    pub fn is_set(&self, kind: Kind) -> bool {
        self.of.get(&kind).is_some_and(|asked| asked.wildcard)
    }
}

/// What one stream has requested and was sent.
#[derive(Debug, Default)]
pub struct ServerStream {
    of: BTreeMap<Kind, Asked>,
    replica: u16,
    nonce: u32,
    /// Requests that the server has not read yet.
    pub unread: VecDeque<Request>,
    /// Responses, each with the time at which it is sent.
    pub out: VecDeque<(Moment, Response)>,
}

#[derive(Debug, Default)]
struct Asked {
    wildcard: bool,
    names: BTreeSet<Key>,
    /// What the server assumes that the client has.
    given: BTreeMap<Key, u32>,
    nonce: String,
}

impl Server {
    pub fn new(habit: Habit, content: BTreeMap<Key, Content>) -> Self {
        Self { health: Health::Fine, habit, content, changes: BTreeMap::new(), streams: 0 }
    }

    pub fn accept(&mut self) -> ServerStream {
        self.streams += 1;
        let replica = if self.habit.replicas { self.streams } else { 0 };
        ServerStream { replica, ..ServerStream::default() }
    }

    /// Reads a request, and queues the responses to it.
    pub fn hear(&self, request: &Request, to: &mut ServerStream, now: Moment) {
        let kind = Kind::of(request.type_url());
        if self.habit.unanswered.contains(&kind) {
            return;
        }
        match request {
            Request::Delta(request) => self.hear_delta(kind, request, to, now),
            Request::Sotw(request) => self.hear_sotw(kind, request, to, now),
        }
    }

    fn hear_delta(&self, kind: Kind, request: &DeltaDiscoveryRequest, to: &mut ServerStream, now: Moment) {
        let (first, replica) = (!to.of.contains_key(&kind), to.replica);
        let asked = to.of.entry(kind).or_default();
        let (on, off) = (&request.resource_names_subscribe, &request.resource_names_unsubscribe);
        let legacy = first && on.is_empty() && off.is_empty() && kind.full_state();
        let everything = legacy || on.iter().any(|name| name == "*");
        let begins = everything && !asked.wildcard;
        asked.wildcard = (asked.wildcard || everything) && !off.iter().any(|name| name == "*");
        for key in off.iter().filter_map(|name| Key::read(kind, name)) {
            asked.names.remove(&key);
            asked.given.remove(&key);
        }
        let requested: BTreeSet<Key> = on.iter().filter_map(|name| Key::read(kind, name)).collect();
        asked.names.extend(&requested);
        if on.is_empty() && !everything {
            return;
        }
        let stated = &request.initial_resource_versions;
        let wanted: Vec<Key> = self
            .content
            .keys()
            .copied()
            .filter(|key| key.0 == kind && (everything || requested.contains(key)))
            .collect();
        let mut sent = Vec::new();
        for key in wanted {
            let serial = self.content[&key].serial;
            let version = version(serial, replica);
            asked.given.insert(key, serial);
            if !(self.habit.compares && stated.get(&key.text()) == Some(&version)) {
                sent.push(key);
            }
        }
        let exists = |name: &str| Key::read(kind, name).is_some_and(|key| self.content.contains_key(&key));
        let unknown = on.iter().filter(|_| self.habit.removes_unknown);
        let stated = stated.keys().filter(|_| self.habit.compares);
        let gone = unknown.chain(stated).filter(|name| *name != "*" && !exists(name)).cloned();
        let gone: BTreeSet<String> = gone.collect();
        let says = begins && self.habit.says_nothing_is_new;
        self.send_delta(kind, &sent, gone, says, to, now);
    }

    fn send_delta(
        &self,
        kind: Kind,
        sent: &[Key],
        gone: BTreeSet<String>,
        even_if_empty: bool,
        to: &mut ServerStream,
        now: Moment,
    ) {
        let mut at = now.max(to.out.back().map_or(now, |(at, _)| *at));
        let replica = to.replica;
        let say = |to: &mut ServerStream, at, keys: &[Key], gone: Vec<String>| {
            to.nonce += 1;
            let wrapper = |key: &Key| self.content[key].wrapper(*key, version(self.content[key].serial, replica));
            let response = DeltaDiscoveryResponse {
                resources: keys.iter().map(wrapper).collect(),
                removed_resources: gone,
                type_url: kind.url().into(),
                nonce: to.nonce.to_string(),
                ..Default::default()
            };
            to.out.push_back((at, Response::Delta(response)));
        };
        let gone: Vec<String> = gone.into_iter().collect();
        match self.habit.pieces.filter(|_| sent.len() > 1) {
            Some(pause) => {
                let at_removals = if self.habit.removes_first { 0 } else { sent.len() - 1 };
                for (place, key) in sent.iter().enumerate() {
                    let gone = if place == at_removals { gone.clone() } else { Vec::new() };
                    say(to, at, std::slice::from_ref(key), gone);
                    at = at + pause;
                }
            }
            None if sent.is_empty() && gone.is_empty() && !even_if_empty => {}
            None => say(to, at, sent, gone),
        }
    }

    fn hear_sotw(&self, kind: Kind, request: &DiscoveryRequest, to: &mut ServerStream, now: Moment) {
        let current = self.sotw_version(kind, to.replica);
        let first = !to.of.contains_key(&kind);
        let asked = to.of.entry(kind).or_default();
        if !first && !request.response_nonce.is_empty() && request.response_nonce != asked.nonce {
            return; // the request answers an earlier response, and another request follows
        }
        let names: BTreeSet<Key> = request.resource_names.iter().filter_map(|name| Key::read(kind, name)).collect();
        let legacy = request.resource_names.is_empty() && kind.full_state() && (first || asked.wildcard);
        let everything = legacy || request.resource_names.iter().any(|name| name == "*");
        let grows = everything && !asked.wildcard || names.iter().any(|key| !asked.names.contains(key));
        (asked.wildcard, asked.names) = (everything, names);
        let has_it = first && self.habit.compares && request.version_info == current && !current.is_empty();
        if has_it && !self.habit.says_nothing_is_new {
            return;
        }
        // A request that states another version than the current one, and is no NACK, gets a response.
        let lacks_it = request.version_info != current && request.error_detail.is_none();
        if first || grows || lacks_it {
            self.send_sotw(kind, to, now);
        }
    }

    fn send_sotw(&self, kind: Kind, to: &mut ServerStream, now: Moment) {
        let version = self.sotw_version(kind, to.replica);
        let Some(asked) = to.of.get_mut(&kind) else { return };
        let wanted = |key: &&Key| key.0 == kind && (asked.wildcard || asked.names.contains(key));
        let keys: Vec<Key> = self.content.keys().filter(wanted).copied().collect();
        if keys.is_empty() && !asked.wildcard {
            return;
        }
        to.nonce += 1;
        asked.nonce = to.nonce.to_string();
        asked.given = keys.iter().map(|key| (*key, self.content[key].serial)).collect();
        let response = DiscoveryResponse {
            version_info: version,
            resources: keys.iter().map(|key| self.content[key].any(*key)).collect(),
            type_url: kind.url().into(),
            nonce: asked.nonce.clone(),
            ..Default::default()
        };
        let at = now.max(to.out.back().map_or(now, |(at, _)| *at));
        to.out.push_back((at, Response::Sotw(response)));
    }

    fn sotw_version(&self, kind: Kind, replica: u16) -> String {
        format!("{}-{replica}", self.changes.get(&kind).copied().unwrap_or_default() + 1)
    }

    /// Sends a resource that has changed, or its removal, if the stream subscribes to it.
    pub fn push(&self, key: Key, sotw: bool, to: &mut ServerStream, now: Moment) {
        let Some(asked) = to.of.get_mut(&key.0) else { return };
        if self.habit.unanswered.contains(&key.0) || !(asked.wildcard || asked.names.contains(&key)) {
            return;
        }
        if sotw {
            return self.send_sotw(key.0, to, now);
        }
        match self.content.get(&key) {
            Some(content) => {
                if asked.given.insert(key, content.serial) != Some(content.serial) {
                    self.send_delta_now(key, to, now);
                }
            }
            None => {
                if asked.given.remove(&key).is_some() {
                    self.send_delta(key.0, &[], [key.text()].into(), false, to, now);
                }
            }
        }
    }

    fn send_delta_now(&self, key: Key, to: &mut ServerStream, now: Moment) {
        self.send_delta(key.0, &[key], BTreeSet::new(), false, to, now);
    }
}

fn version(serial: u32, replica: u16) -> String {
    format!("{serial}.{replica}")
}
