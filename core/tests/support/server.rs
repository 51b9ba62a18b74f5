//! A scripted control plane: it serves both variants, has one of the habits of real ones, and can fail in several ways.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::time::Duration;

use weir_core::proto::discovery::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use weir_core::proto::{Any, Request, Response};
use weir_core::protocol::moment::Moment;

/// A name of one type, and what a server may have under it.
pub trait Name: Copy + Ord + Debug {
    type Kind: Copy + Ord + Debug;
    type Content: Copy + PartialEq + Debug;

    fn kind(self) -> Self::Kind;

    fn text(self) -> String;

    /// Reads a name. `None` for one that no server has.
    fn read(kind: Self::Kind, text: &str) -> Option<Self>;

    fn kind_of(url: &str) -> Self::Kind;

    fn url(kind: Self::Kind) -> &'static str;

    /// Whether a SotW response lists all resources of the type, so that a first request without names means all of them.
    fn is_full_state(kind: Self::Kind) -> bool;

    fn packed(self, content: Self::Content) -> Any;

    /// Returns the version of one replica for a content. It has a dot, and no version of another origin has one.
    fn version(content: Self::Content, replica: u64) -> String;
}

/// How a server treats connections now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Fine,
    /// Connections fail.
    Refuses,
    /// Connections succeed, and nothing is sent. Calls are not answered either. Streams end.
    Hangs,
    /// Like `Hangs`, but existing streams do not end: what was sent on them is read and answered when the server continues.
    HalfOpen,
    /// Only calls are answered.
    Mute,
    /// Streams end before the first response.
    Rejects,
    /// Streams end after the first response.
    AnswersOnce,
}

impl Health {
    pub fn answers_calls(self) -> bool {
        !matches!(self, Self::Hangs | Self::HalfOpen)
    }

    pub fn speaks(self) -> bool {
        matches!(self, Self::Fine | Self::AnswersOnce)
    }
}

/// How a server treats the versions that the relay states, and how it sends what it has.
#[derive(Debug, Clone)]
pub struct Habit<K> {
    /// It does not send again what is stated in its version. Other servers send everything again.
    pub compares: bool,
    pub removes_stated: Stated,
    /// It lists names that do not exist as removed when they are requested. Other servers are silent.
    pub removes_unknown: bool,
    /// If nothing is new, it sends an empty response to the first request of a set. Other servers are silent.
    pub says_nothing_is_new: bool,
    /// Its versions are those of one replica, and each stream reaches another.
    pub replicas: bool,
    /// Sets are sent one resource at a time, with this pause.
    pub pieces: Option<Duration>,
    /// Where the removals are in a set that is sent in pieces.
    pub removals: Removals,
    /// The types whose requests it never answers.
    pub unanswered: BTreeSet<K>,
}

/// Which names a server removes that are stated and that it does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stated {
    /// All of them if it compares, otherwise none.
    IfItCompares,
    /// Those that are stated in one of its own versions.
    InOwnVersions,
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removals {
    InFirstPiece,
    InLastPiece,
    /// In a response of their own, a pause after the last piece.
    Apart,
}

impl<K> Habit<K> {
    fn removes(&self, version: &str) -> bool {
        match self.removes_stated {
            Stated::IfItCompares => self.compares,
            Stated::InOwnVersions => version.contains('.'),
            Stated::All => true,
        }
    }
}

#[derive(Debug)]
pub struct Server<N: Name> {
    pub health: Health,
    pub habit: Habit<N::Kind>,
    pub content: BTreeMap<N, N::Content>,
    /// Resources that are sent without a body for now.
    pub broken: BTreeSet<N>,
    /// How often each type has changed, for its SotW versions.
    pub changes: BTreeMap<N::Kind, u32>,
    streams: u64,
}

/// What one stream has requested and was sent.
#[derive(Debug)]
pub struct ServerStream<N: Name> {
    of: BTreeMap<N::Kind, Asked<N>>,
    replica: u64,
    nonce: u32,
    /// Requests that the server has not read yet.
    pub unread: VecDeque<Request>,
    /// Responses, each with the time at which it is sent.
    pub out: VecDeque<(Moment, Response)>,
}

#[derive(Debug)]
struct Asked<N: Name> {
    wildcard: bool,
    names: BTreeSet<N>,
    /// What the server assumes that the client has.
    given: BTreeMap<N, N::Content>,
    nonce: String,
}

impl<N: Name> Default for Asked<N> {
    fn default() -> Self {
        Self { wildcard: false, names: BTreeSet::new(), given: BTreeMap::new(), nonce: String::new() }
    }
}

impl<N: Name> ServerStream<N> {
    /// Whether all resources of a type were requested.
    pub fn is_set(&self, kind: N::Kind) -> bool {
        self.of.get(&kind).is_some_and(|asked| asked.wildcard)
    }

    /// Returns the next response, if it is due by now.
    pub fn next(&mut self, now: Moment) -> Option<Response> {
        let due = self.out.front().is_some_and(|(at, _)| *at <= now);
        due.then(|| self.out.pop_front()).flatten().map(|(_, response)| response)
    }

    /// Returns when the next response is sent: none overtakes another.
    fn free_at(&self, now: Moment) -> Moment {
        now.max(self.out.back().map_or(now, |(at, _)| *at))
    }
}

impl<N: Name> Server<N> {
    pub fn new(habit: Habit<N::Kind>, content: BTreeMap<N, N::Content>) -> Self {
        let (broken, changes) = (BTreeSet::new(), BTreeMap::new());
        Self { health: Health::Fine, habit, content, broken, changes, streams: 0 }
    }

    pub fn accept(&mut self) -> ServerStream<N> {
        self.streams += 1;
        let replica = if self.habit.replicas { self.streams } else { 0 };
        ServerStream { of: BTreeMap::new(), replica, nonce: 0, unread: VecDeque::new(), out: VecDeque::new() }
    }

    /// Reads a request, and queues the responses to it.
    pub fn hear(&self, request: &Request, to: &mut ServerStream<N>, now: Moment) {
        match request {
            Request::Delta(request) => self.hear_delta(request, to, now),
            Request::Sotw(request) => self.hear_sotw(request, to, now),
        }
    }

    pub fn hear_delta(&self, request: &DeltaDiscoveryRequest, to: &mut ServerStream<N>, now: Moment) {
        let kind = N::kind_of(&request.type_url);
        if self.habit.unanswered.contains(&kind) {
            return;
        }
        let (first, replica) = (!to.of.contains_key(&kind), to.replica);
        let asked = to.of.entry(kind).or_default();
        let (on, off) = (&request.resource_names_subscribe, &request.resource_names_unsubscribe);
        let legacy = first && on.is_empty() && off.is_empty() && N::is_full_state(kind);
        let everything = legacy || on.iter().any(|name| name == "*");
        let begins = everything && !asked.wildcard;
        asked.wildcard |= everything;
        for key in off.iter().filter_map(|name| N::read(kind, name)) {
            asked.names.remove(&key);
            asked.given.remove(&key);
        }
        if off.iter().any(|name| name == "*") {
            asked.wildcard = false;
            asked.given.retain(|key, _| asked.names.contains(key));
        }
        let requested: BTreeSet<N> = on.iter().filter_map(|name| N::read(kind, name)).collect();
        asked.names.extend(&requested);
        if on.is_empty() && !everything {
            return;
        }
        let stated = &request.initial_resource_versions;
        let mut sent = Vec::new();
        let of_kind = self.content.iter().filter(|(key, _)| key.kind() == kind);
        for (key, content) in of_kind.filter(|(key, _)| everything || requested.contains(*key)) {
            asked.given.insert(*key, *content);
            let version = N::version(*content, replica);
            if !(self.habit.compares && stated.get(&key.text()) == Some(&version)) {
                sent.push(*key);
            }
        }
        let exists = |name: &str| N::read(kind, name).is_some_and(|key| self.content.contains_key(&key));
        let unknown = on.iter().filter(|_| self.habit.removes_unknown);
        let stated = stated.iter().filter(|(_, version)| self.habit.removes(version)).map(|(name, _)| name);
        let gone = unknown.chain(stated).filter(|name| *name != "*" && !exists(name)).cloned().collect();
        self.send_delta(kind, &sent, gone, begins && self.habit.says_nothing_is_new, to, now);
    }

    fn send_delta(
        &self,
        kind: N::Kind,
        sent: &[N],
        gone: BTreeSet<String>,
        even_if_empty: bool,
        to: &mut ServerStream<N>,
        now: Moment,
    ) {
        let gone: Vec<String> = gone.into_iter().collect();
        let mut at = to.free_at(now);
        let Some(pause) = self.habit.pieces.filter(|_| sent.len() > 1) else {
            if !sent.is_empty() || !gone.is_empty() || even_if_empty {
                self.say(kind, sent, gone, to, at);
            }
            return;
        };
        let place_of_removals = match self.habit.removals {
            Removals::InFirstPiece => Some(0),
            Removals::InLastPiece => Some(sent.len() - 1),
            Removals::Apart => None,
        };
        for (place, key) in sent.iter().enumerate() {
            let gone = if place_of_removals == Some(place) { gone.clone() } else { Vec::new() };
            self.say(kind, std::slice::from_ref(key), gone, to, at);
            at = at + pause;
        }
        if place_of_removals.is_none() && !gone.is_empty() {
            self.say(kind, &[], gone, to, at);
        }
    }

    fn say(&self, kind: N::Kind, keys: &[N], gone: Vec<String>, to: &mut ServerStream<N>, at: Moment) {
        to.nonce += 1;
        let response = DeltaDiscoveryResponse {
            resources: keys.iter().map(|key| self.wrapper(*key, to.replica)).collect(),
            removed_resources: gone,
            type_url: N::url(kind).into(),
            nonce: to.nonce.to_string(),
            ..Default::default()
        };
        to.out.push_back((at, Response::Delta(response)));
    }

    fn wrapper(&self, key: N, replica: u64) -> Resource {
        let content = self.content[&key];
        let resource = (!self.broken.contains(&key)).then(|| key.packed(content));
        Resource { name: key.text(), version: N::version(content, replica), resource, ..Default::default() }
    }

    fn hear_sotw(&self, request: &DiscoveryRequest, to: &mut ServerStream<N>, now: Moment) {
        let kind = N::kind_of(&request.type_url);
        if self.habit.unanswered.contains(&kind) {
            return;
        }
        let current = self.sotw_version(kind, to.replica);
        let first = !to.of.contains_key(&kind);
        let asked = to.of.entry(kind).or_default();
        if !first && !request.response_nonce.is_empty() && request.response_nonce != asked.nonce {
            return; // the request answers an earlier response, and another request follows
        }
        let names: BTreeSet<N> = request.resource_names.iter().filter_map(|name| N::read(kind, name)).collect();
        let legacy = request.resource_names.is_empty() && N::is_full_state(kind) && (first || asked.wildcard);
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

    fn send_sotw(&self, kind: N::Kind, to: &mut ServerStream<N>, now: Moment) {
        let (version, at) = (self.sotw_version(kind, to.replica), to.free_at(now));
        let Some(asked) = to.of.get_mut(&kind) else { return };
        let wanted = |key: &&N| key.kind() == kind && (asked.wildcard || asked.names.contains(*key));
        let keys: Vec<N> = self.content.keys().filter(wanted).copied().collect();
        if keys.is_empty() && !asked.wildcard {
            return;
        }
        to.nonce += 1;
        asked.nonce = to.nonce.to_string();
        asked.given = keys.iter().map(|key| (*key, self.content[key])).collect();
        let response = DiscoveryResponse {
            version_info: version,
            resources: keys.iter().map(|key| key.packed(self.content[key])).collect(),
            type_url: N::url(kind).into(),
            nonce: asked.nonce.clone(),
            ..Default::default()
        };
        to.out.push_back((at, Response::Sotw(response)));
    }

    fn sotw_version(&self, kind: N::Kind, replica: u64) -> String {
        format!("{}-{replica}", self.changes.get(&kind).copied().unwrap_or_default() + 1)
    }

    /// Sends a resource that has changed, or its removal, if the stream subscribes to it.
    pub fn push(&self, key: N, sotw: bool, to: &mut ServerStream<N>, now: Moment) {
        let kind = key.kind();
        let Some(asked) = to.of.get_mut(&kind) else { return };
        if self.habit.unanswered.contains(&kind) || !(asked.wildcard || asked.names.contains(&key)) {
            return;
        }
        if sotw {
            return self.send_sotw(kind, to, now);
        }
        match self.content.get(&key) {
            Some(content) => {
                if asked.given.insert(key, *content) != Some(*content) {
                    self.send_delta(kind, &[key], BTreeSet::new(), false, to, now);
                }
            }
            None => {
                if asked.given.remove(&key).is_some() {
                    self.send_delta(kind, &[], [key.text()].into(), false, to, now);
                }
            }
        }
    }
}
