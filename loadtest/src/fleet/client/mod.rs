//! One client as a state machine: messages go in, requests come out. It has no socket and no clock.

mod stream;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::stream::Stream;
use super::behaviour::{Behaviour, Follow};
use crate::bodies::Stamp;
use crate::checks::{self, Check, History, Note, Truth, Violation};
use crate::kind::{Kind, ads_path};
use crate::subscription::{Name, Names, Response, Topic};
use crate::wire::Variant;

/// What the caller has to do, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    Open(StreamKey, &'static str),
    Send(StreamKey, Vec<u8>),
    Cancel(StreamKey),
}

/// Index of a stream among those of the client.
pub type StreamKey = usize;

/// The result of a message.
#[derive(Debug, Default)]
pub struct Outcome {
    pub actions: Vec<Action>,
    /// The newest change in the message, if it is newer than what the client has seen.
    pub change: Option<Stamp>,
    pub is_acked: bool,
}

/// What all clients of a fleet have in common.
#[derive(Clone)]
pub struct Shared {
    pub names: Arc<Names>,
    pub truth: Option<Truth>,
    pub checks: Arc<BTreeSet<Check>>,
}

pub struct Client {
    pub number: usize,
    pub behaviour: Behaviour,
    variant: Variant,
    node: Vec<u8>,
    /// The listeners that a gRPC client subscribes to first.
    listeners: BTreeSet<Name>,
    shared: Shared,
    streams: Vec<Option<Stream>>,
    /// The newest update that the client has seen, by type.
    newest: [u64; 4],
    history: History,
    violations: Vec<Violation>,
    /// Whether the client has dropped half of its endpoints (subscription churn).
    is_reduced: bool,
}

impl Client {
    pub fn new(
        number: usize,
        behaviour: Behaviour,
        variant: Option<Variant>,
        node: Vec<u8>,
        listeners: &[Name],
        shared: Shared,
    ) -> Self {
        Self {
            number,
            behaviour,
            variant: behaviour.variant(variant),
            node,
            listeners: listeners.iter().cloned().collect(),
            shared,
            streams: Vec::new(),
            newest: [0; 4],
            history: History::default(),
            violations: Vec::new(),
            is_reduced: false,
        }
    }

    /// The connection is open, for the first time or again. Requests state the versions that the client has.
    pub fn connect(&mut self, at: Duration) -> Vec<Action> {
        self.history.push(at, Note::Connected);
        let mut actions = Vec::new();
        if self.behaviour == Behaviour::Zombie {
            if self.number % 2 == 1 {
                actions.push(Action::Open(0, ads_path(self.variant)));
            }
            return actions;
        }
        if self.streams.is_empty() {
            self.create_streams();
        }
        for key in 0..self.streams.len() {
            self.open_stream(key, at, &mut actions);
        }
        actions
    }

    /// Notes that the next connection is to another server, which may have older resources.
    pub fn change_server(&mut self) {
        let topics = self.streams.iter_mut().flatten().flat_map(|stream| &mut stream.topics);
        topics.for_each(|topic| topic.server += 1);
    }

    pub fn note_end(&mut self, reason: &str, at: Duration) {
        self.history.push(at, Note::Ended(reason.to_owned()));
    }

    pub fn on_message(&mut self, key: StreamKey, message: Bytes, at: Duration) -> Outcome {
        let mut outcome = Outcome::default();
        let response = match Response::decode(self.variant, message, &self.shared.names) {
            Ok(response) => response,
            Err(error) => {
                self.violate(Check::Readable, format!("a response cannot be read: {error}"));
                return outcome;
            }
        };
        self.history.push(at, Note::received(&response));
        let Some(Some(stream)) = self.streams.get(key) else { return outcome };
        let place = stream.topics.iter().position(|topic| topic.is_open && Some(topic.kind) == response.kind());
        self.check_response(key, place, &response);
        let Some(place) = place else { return outcome };
        let Some(Some(stream)) = self.streams.get_mut(key) else { return outcome };
        let topic = &mut stream.topics[place];
        let kind = topic.kind;
        topic.receive(&response);
        if self.behaviour == Behaviour::Nacker && topic.responses > 1 {
            self.history.push(at, Note::Nacked(kind));
            outcome.actions.push(Action::Send(key, topic.nack("rejected on purpose")));
            stream.remember_nacked(kind, self.variant, &response);
            return outcome;
        }
        topic.accept(&response);
        self.check_order(kind);
        let newest = &mut self.newest[kind as usize];
        outcome.change = response.newest().filter(|stamp| stamp.update > *newest);
        *newest = outcome.change.map_or(*newest, |stamp| stamp.update);
        let changes_clusters = kind == Kind::Cluster && !response.entries.is_empty();
        self.follow(kind, changes_clusters, at, &mut outcome.actions);
        outcome.is_acked = self.acknowledge(key, place, at, &mut outcome.actions);
        outcome
    }

    /// Whether the server has answered everything that the client subscribes to.
    pub fn is_synced(&self) -> bool {
        let streams = || self.streams.iter().flatten();
        let topics = |kind| streams().flat_map(|stream| &stream.topics).filter(move |topic| topic.kind == kind);
        self.behaviour != Behaviour::Zombie
            && topics(Kind::Listener).any(|topic| topic.is_open)
            && Kind::ALL.into_iter().flat_map(topics).all(|topic| topic.is_complete())
    }

    /// Returns what a connected client still waits for, if it requests anything at all.
    pub fn lack(&self) -> Option<String> {
        let mut topics = self.streams.iter().flatten().flat_map(|stream| &stream.topics).filter(|topic| topic.is_open);
        let lack =
            topics.find_map(Topic::lack).unwrap_or_else(|| "the server is connected, and sends no listeners".into());
        (self.behaviour.subscribes() && !self.is_synced()).then_some(lack)
    }

    /// Returns how the client's resources differ from those of the origin, if there is an origin to compare with.
    pub fn difference(&self) -> Option<String> {
        let truth = self.shared.truth.as_ref()?;
        let topics = self.streams.iter().flatten().flat_map(|stream| &stream.topics);
        let mut differences = topics.filter_map(|topic| checks::difference(truth, topic));
        let unsynced = || (!self.is_synced()).then(|| "some subscriptions have no answer".to_owned());
        differences.next().or_else(unsynced)
    }

    /// Reports that the client does not have what it should have.
    pub fn violate_convergence(&mut self, what: String) {
        self.violate(Check::Convergence, what);
    }

    pub fn take_violations(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }

    /// Unsubscribes from half of the endpoints, or subscribes to all of them again (subscription churn).
    pub fn churn(&mut self, reduce: bool, at: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.behaviour == Behaviour::SubscriptionChurn && (reduce || self.is_reduced) && self.is_synced() {
            self.is_reduced = reduce && !self.is_reduced;
            self.follow(Kind::Cluster, false, at, &mut actions);
        }
        actions
    }

    fn create_streams(&mut self) {
        let variant = self.variant;
        let all = |kind| Topic::new(kind, variant, true, BTreeSet::new());
        let none = |kind| Topic::new(kind, variant, false, BTreeSet::new());
        let streams = match self.behaviour.follow() {
            Follow::Ads => {
                vec![vec![all(Kind::Cluster), none(Kind::Endpoints), all(Kind::Listener), none(Kind::Route)]]
            }
            Follow::PerType => vec![vec![all(Kind::Cluster)], vec![all(Kind::Listener)]],
            Follow::Grpc => {
                let listeners = Topic::new(Kind::Listener, variant, false, self.listeners.clone());
                vec![vec![none(Kind::Cluster), none(Kind::Endpoints), listeners, none(Kind::Route)]]
            }
        };
        self.streams = streams.into_iter().map(|topics| Some(Stream::new(topics))).collect();
    }

    fn open_stream(&mut self, key: StreamKey, at: Duration, actions: &mut Vec<Action>) {
        let Some(Some(stream)) = self.streams.get_mut(key) else { return };
        stream.reopen();
        let path = match (self.behaviour.follow(), stream.topics.first()) {
            (Follow::PerType, Some(topic)) => topic.kind.path(self.variant),
            _ => ads_path(self.variant),
        };
        actions.push(Action::Open(key, path));
        for place in 0..stream.topics.len() {
            let topic = &mut stream.topics[place];
            let starts = match self.behaviour.follow() {
                Follow::Ads => topic.kind == Kind::Cluster,
                Follow::PerType => true,
                Follow::Grpc => topic.kind == Kind::Listener && !topic.names.is_empty(),
            };
            let was_open = topic.is_open;
            topic.reopen();
            if starts || was_open {
                actions.push(Action::Send(key, stream.open(place, &self.node)));
                let count = stream.topics[place].names.len();
                self.history.push(at, Note::Subscribed(stream.topics[place].kind, count));
            }
        }
        self.start_listeners(at, actions);
    }

    fn acknowledge(&mut self, key: StreamKey, place: usize, at: Duration, actions: &mut Vec<Action>) -> bool {
        let Some(Some(stream)) = self.streams.get(key) else { return false };
        let topic = &stream.topics[place];
        let request = match self.behaviour {
            Behaviour::NeverAcker => return false,
            Behaviour::WrongNonce => topic.ack(Some("a nonce that no response had")),
            _ => topic.ack(None),
        };
        self.history.push(at, Note::Acked(topic.kind));
        actions.push(Action::Send(key, request));
        true
    }

    /// Subscribes to the names to which the resources of a type refer.
    fn follow(&mut self, kind: Kind, changes_clusters: bool, at: Duration, actions: &mut Vec<Action>) {
        let next = match kind {
            Kind::Cluster => Some(Kind::Endpoints),
            Kind::Listener => Some(Kind::Route),
            Kind::Route if self.behaviour.follow() == Follow::Grpc => Some(Kind::Cluster),
            _ => None,
        };
        if let Some(next) = next {
            self.subscribe(next, self.wanted(kind), changes_clusters, at, actions);
            if next == Kind::Cluster {
                self.subscribe(Kind::Endpoints, self.wanted(Kind::Cluster), false, at, actions);
            }
        }
        self.start_listeners(at, actions);
    }

    fn wanted(&self, kind: Kind) -> BTreeSet<Name> {
        let topics = self.streams.iter().flatten().flat_map(|stream| &stream.topics).filter(|topic| topic.kind == kind);
        let held = topics.flat_map(|topic| topic.held.values());
        let names = held.flat_map(|held| held.refers_to.iter().cloned());
        match kind == Kind::Cluster && self.is_reduced {
            true => names.step_by(2).collect(),
            false => names.collect(),
        }
    }

    fn subscribe(
        &mut self,
        kind: Kind,
        wanted: BTreeSet<Name>,
        repeats: bool,
        at: Duration,
        actions: &mut Vec<Action>,
    ) {
        if self.behaviour.follow() == Follow::PerType {
            return self.subscribe_apart(kind, wanted, at, actions);
        }
        let answers_nothing = self.behaviour == Behaviour::NeverAcker && self.variant == Variant::Sotw;
        let Some(Some(stream)) = self.streams.get_mut(0) else { return };
        let Some(place) = stream.topics.iter().position(|topic| topic.kind == kind) else { return };
        let topic = &mut stream.topics[place];
        let count = wanted.len();
        let request = if !topic.is_open {
            if wanted.is_empty() {
                return;
            }
            topic.names = wanted;
            stream.open(place, &self.node)
        } else if answers_nothing {
            return; // any further SotW request would be an ACK
        } else if let Some(request) = topic.set_names(wanted) {
            request
        } else if repeats && topic.variant == Variant::Sotw && topic.responses > 0 {
            topic.repeat()
        } else {
            return;
        };
        self.history.push(at, Note::Subscribed(kind, count));
        actions.push(Action::Send(0, request));
    }

    /// Opens a stream for each name.
    fn subscribe_apart(&mut self, kind: Kind, mut wanted: BTreeSet<Name>, at: Duration, actions: &mut Vec<Action>) {
        for key in 0..self.streams.len() {
            let Some(stream) = &self.streams[key] else { continue };
            let Some(topic) = stream.topics.first().filter(|topic| topic.kind == kind && !topic.is_wildcard) else {
                continue;
            };
            if !topic.names.iter().any(|name| wanted.remove(name)) {
                self.streams[key] = None;
                actions.push(Action::Cancel(key));
            }
        }
        for name in wanted {
            let key = self.streams.iter().position(Option::is_none).unwrap_or(self.streams.len());
            if key == self.streams.len() {
                self.streams.push(None);
            }
            let topic = Topic::new(kind, self.variant, false, BTreeSet::from([name]));
            self.streams[key] = Some(Stream::new(vec![topic]));
            self.open_stream(key, at, actions);
        }
    }

    /// Requests listeners once all clusters have their endpoints, as an Envoy does.
    fn start_listeners(&mut self, at: Duration, actions: &mut Vec<Action>) {
        if self.behaviour.follow() != Follow::Ads {
            return;
        }
        let Some(Some(stream)) = self.streams.first_mut() else { return };
        let Some(place) = stream.topics.iter().position(|topic| topic.kind == Kind::Listener) else { return };
        let is_ready = |topic: &Topic| match topic.kind {
            Kind::Cluster | Kind::Endpoints => topic.is_complete(),
            _ => true,
        };
        if !stream.topics[place].is_open && stream.topics.iter().all(is_ready) {
            self.history.push(at, Note::Subscribed(Kind::Listener, 0));
            actions.push(Action::Send(0, stream.open(place, &self.node)));
        }
    }

    fn check_response(&mut self, key: StreamKey, place: Option<usize>, response: &Response) {
        let Some(Some(stream)) = self.streams.get_mut(key) else { return };
        let truth = self.shared.truth.as_ref().filter(|_| self.shared.checks.contains(&Check::Completeness));
        let found = stream.check(place, response, truth);
        found.into_iter().for_each(|(check, what)| self.violate(check, what));
    }

    fn check_order(&mut self, kind: Kind) {
        if !matches!(kind, Kind::Cluster | Kind::Route) {
            return;
        }
        let Some(Some(stream)) = self.streams.first() else { return };
        if !self.behaviour.is_subject_to(Check::MakeBeforeBreak) {
            return;
        }
        let of = |kind| stream.topics.iter().filter(move |topic| topic.kind == kind).map(|topic| &topic.held);
        let Some(clusters) = of(Kind::Cluster).next() else { return };
        if let Some((route, cluster)) = checks::missing_cluster(of(Kind::Route), clusters) {
            let what = format!("{route} refers to {cluster}, which the client does not hold");
            self.violate(Check::MakeBeforeBreak, what);
        }
    }

    fn violate(&mut self, check: Check, what: String) {
        let is_wanted = self.shared.checks.contains(&check) && self.behaviour.is_subject_to(check);
        if is_wanted && self.violations.len() < MAX_VIOLATIONS {
            let behaviour = self.behaviour.to_string();
            self.violations.push(Violation {
                client: self.number,
                behaviour,
                check,
                what,
                history: self.history.lines(),
            });
        }
    }
}

/// How many violations are stored until the caller takes them.
const MAX_VIOLATIONS: usize = 16;
