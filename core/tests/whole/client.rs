//! A simulated client: an Envoy on a stream, or a client that polls. What it holds, what it wants, and what it states when it comes back.

use std::collections::{BTreeMap, BTreeSet};

use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{Reply, Variant};
use weir_core::protocol::view::SessionId;

use crate::content::{Content, Key, Kind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Stream(Variant),
    /// A client that polls in REST.
    Polls,
}

#[derive(Debug, Clone)]
pub struct Held {
    pub content: Content,
    /// When the client was sent the resource, or since when this stream knows that the client has it.
    pub since: Moment,
    /// Delta: the version under which the client was sent the resource.
    pub version: String,
}

#[derive(Debug)]
pub struct Client {
    /// The tier to which the client connects.
    pub tier: usize,
    pub profile: Profile,
    pub session: Option<SessionId>,
    pub held: BTreeMap<Key, Held>,
    /// SotW: the version that the client has of each type.
    versions: BTreeMap<Kind, String>,
    nonces: BTreeMap<Kind, String>,
    /// The names to which the client subscribes on this stream.
    asked: BTreeMap<Kind, BTreeSet<Key>>,
    /// Whether the client also subscribes to `*` of scoped routes.
    pub scopes: bool,
    /// Whether the client also subscribes to `*` of endpoints, and not to those of its clusters.
    pub all_endpoints: bool,
    /// Routes that the client requests although they do not exist.
    pub made_up: BTreeSet<Key>,
    /// When the client's present stream began.
    pub came: Moment,
    /// Whether the client stated something when it came that this relay has not sent it.
    pub foreign: bool,
    /// Whether the client states names that no server has.
    pub stale: bool,
    /// What the client stated when it came, and what it was sent since.
    pub stated: BTreeSet<Key>,
    pub told: BTreeSet<Key>,
    /// The types of which the client has been sent something on this stream.
    pub answered: BTreeSet<Kind>,
    /// The type that the client polled last.
    pub polled: Option<Kind>,
}

/// What follows from a reply.
#[derive(Default)]
pub struct Reaction {
    /// The resources that the reply removed, each with the time since when the client held it.
    pub lost: Vec<(Key, Moment)>,
    pub requests: Vec<Request>,
    /// Something that must never be in a reply, if it was.
    pub wrong: Option<String>,
}

impl Client {
    pub fn new(tier: usize, profile: Profile) -> Self {
        Self {
            tier,
            profile,
            session: None,
            held: BTreeMap::new(),
            versions: BTreeMap::new(),
            nonces: BTreeMap::new(),
            asked: BTreeMap::new(),
            scopes: false,
            all_endpoints: false,
            made_up: BTreeSet::new(),
            came: Moment::START,
            foreign: false,
            stale: false,
            stated: BTreeSet::new(),
            told: BTreeSet::new(),
            answered: BTreeSet::new(),
            polled: None,
        }
    }

    pub fn variant(&self) -> Variant {
        match self.profile {
            Profile::Stream(variant) => variant,
            Profile::Polls => Variant::Sotw,
        }
    }

    /// Returns the sets that the client subscribes to as a whole.
    pub fn sets(&self) -> impl Iterator<Item = Kind> {
        let sets = [(Kind::Clusters, true), (Kind::Listeners, true), (Kind::Scopes, self.scopes)];
        sets.into_iter().chain([(Kind::Endpoints, self.all_endpoints)]).filter(|(_, asks)| *asks).map(|(kind, _)| kind)
    }

    pub fn is_set(&self, kind: Kind) -> bool {
        self.sets().any(|set| set == kind)
    }

    /// Returns the names of a type that the client wants because of what it holds.
    pub fn wants(&self, kind: Kind) -> BTreeSet<Key> {
        let of = |of: Kind| self.held.iter().filter(move |(key, _)| key.0 == of);
        match kind {
            _ if self.profile == Profile::Polls || self.is_set(kind) => BTreeSet::new(),
            Kind::Endpoints => of(Kind::Clusters).map(|(key, _)| Key(kind, key.1)).collect(),
            Kind::Routes => {
                let led = of(Kind::Listeners).map(|(_, held)| Key(kind, held.content.to));
                led.chain(self.made_up.iter().copied()).collect()
            }
            _ => BTreeSet::new(),
        }
    }

    pub fn hold(&mut self, key: Key, content: Content, version: &str, now: Moment) {
        self.held.insert(key, Held { content, since: now, version: version.into() });
    }

    /// Replaces the client's versions, as if another relay or server had sent it what it holds.
    pub fn forget_versions(&mut self) {
        for kind in self.held.keys().map(|key| key.0).collect::<BTreeSet<_>>() {
            self.versions.insert(kind, "of another".into());
        }
        self.held.values_mut().for_each(|held| held.version = "of another".into());
        self.foreign = true;
    }

    pub fn forget_all(&mut self) {
        self.held.clear();
        self.versions.clear();
        (self.foreign, self.stale) = (false, false);
    }

    /// Returns the requests with which the client comes, or comes back.
    pub fn come(&mut self, session: SessionId, now: Moment) -> Vec<Request> {
        (self.session, self.came) = (Some(session), now);
        self.nonces.clear();
        self.asked.clear();
        self.answered.clear();
        (self.stated, self.told) = (self.held.keys().copied().collect(), BTreeSet::new());
        self.held.values_mut().for_each(|held| held.since = now);
        let mut requests = Vec::new();
        for kind in Kind::ALL {
            if self.is_set(kind) {
                let stated = self.held.iter().filter(|(key, _)| key.0 == kind);
                let stated = stated.map(|(key, held)| (key.text(), held.version.clone())).collect();
                let explicit = if kind.full_state() { Vec::new() } else { vec!["*".to_owned()] };
                requests.push(self.request(kind, explicit, stated));
            } else {
                requests.extend(self.follow(kind));
            }
        }
        requests
    }

    /// Returns the poll of one type.
    pub fn poll(&self, kind: Kind) -> Request {
        Request::Sotw(DiscoveryRequest {
            type_url: kind.url().into(),
            version_info: self.versions.get(&kind).cloned().unwrap_or_default(),
            ..Default::default()
        })
    }

    fn request(&self, kind: Kind, names: Vec<String>, stated: BTreeMap<String, String>) -> Request {
        match self.variant() {
            Variant::Delta => Request::Delta(DeltaDiscoveryRequest {
                type_url: kind.url().into(),
                resource_names_subscribe: names,
                initial_resource_versions: stated,
                ..Default::default()
            }),
            Variant::Sotw => Request::Sotw(DiscoveryRequest {
                type_url: kind.url().into(),
                resource_names: names,
                version_info: self.versions.get(&kind).cloned().unwrap_or_default(),
                response_nonce: self.nonces.get(&kind).cloned().unwrap_or_default(),
                ..Default::default()
            }),
        }
    }

    /// Returns the request that subscribes to what the client now wants of a type, if that has changed.
    pub fn follow(&mut self, kind: Kind) -> Option<Request> {
        if self.is_set(kind) || self.profile == Profile::Polls {
            return None;
        }
        let wants = self.wants(kind);
        let first = !self.asked.contains_key(&kind);
        let before = self.asked.get(&kind).cloned().unwrap_or_default();
        if wants == before {
            return None;
        }
        self.asked.insert(kind, wants.clone());
        let texts = |keys: &mut dyn Iterator<Item = &Key>| keys.map(|key| key.text()).collect::<Vec<_>>();
        let request = match self.variant() {
            Variant::Sotw => self.request(kind, texts(&mut wants.iter()), Default::default()),
            Variant::Delta => {
                let stated = wants.iter().filter(|_| first).filter_map(|key| Some((key.text(), self.held.get(key)?)));
                let stated = stated.map(|(name, held)| (name, held.version.clone())).collect();
                let on = texts(&mut wants.difference(&before));
                let Request::Delta(mut request) = self.request(kind, on, stated) else { unreachable!() };
                request.resource_names_unsubscribe = texts(&mut before.difference(&wants));
                Request::Delta(request)
            }
        };
        // A resource that is not wanted any more is dropped with the cluster or listener that referred to it.
        self.held.retain(|key, _| key.0 != kind || wants.contains(key));
        Some(request)
    }

    /// Applies a reply as an Envoy does.
    pub fn take(&mut self, reply: &Reply, now: Moment) -> Reaction {
        let kind = Kind::of(&reply.spelling);
        self.answered.insert(kind);
        let mut reaction = Reaction::default();
        let mut sent = BTreeSet::new();
        for resource in reply.resources.iter() {
            let Some(key) = Key::read(kind, resource.name.as_str()) else {
                reaction.wrong = Some(format!("{kind:?} {} is no name of the world", resource.name));
                return reaction;
            };
            sent.insert(key);
            self.told.insert(key);
            let held =
                Held { content: Content::read(resource.body.bytes()), since: now, version: resource.full.to_string() };
            // A resource that is sent again counts as held since it first came.
            let since = self.held.get(&key).map_or(now, |before| before.since);
            self.held.insert(key, Held { since, ..held });
        }
        let gone: Vec<Key> = match self.variant() {
            Variant::Sotw if kind.full_state() => {
                self.held.keys().filter(|key| key.0 == kind && !sent.contains(key)).copied().collect()
            }
            Variant::Sotw => Vec::new(),
            Variant::Delta => {
                let named = reply.removed.iter().map(|name| (name, Key::read(kind, name.as_str())));
                let mut gone = Vec::new();
                for (name, key) in named {
                    match key {
                        Some(key) => gone.push(key),
                        None => reaction.wrong = Some(format!("{kind:?} {name} is removed, and no name of the world")),
                    }
                }
                gone
            }
        };
        for key in gone {
            reaction.lost.extend(self.held.remove(&key).map(|held| (key, held.since)));
        }
        self.versions.insert(kind, reply.version.to_string());
        self.nonces.insert(kind, reply.nonce.to_string());
        if self.profile == Profile::Polls {
            return reaction;
        }
        reaction.requests.push(self.answer(kind, reply));
        // An Envoy subscribes to what a resource refers to when it has the resource.
        let led = match kind {
            Kind::Clusters => Some(Kind::Endpoints),
            Kind::Listeners => Some(Kind::Routes),
            _ => None,
        };
        reaction.requests.extend(led.and_then(|led| self.follow(led)));
        reaction
    }

    fn answer(&self, kind: Kind, reply: &Reply) -> Request {
        match self.variant() {
            Variant::Delta => Request::Delta(DeltaDiscoveryRequest {
                type_url: kind.url().into(),
                response_nonce: reply.nonce.to_string(),
                ..Default::default()
            }),
            Variant::Sotw => {
                let names = self.asked.get(&kind).into_iter().flatten().map(|key| key.text()).collect();
                let explicit = if kind.full_state() { Vec::new() } else { vec!["*".to_owned()] };
                let names = if self.is_set(kind) { explicit } else { names };
                self.request(kind, names, Default::default())
            }
        }
    }
}
