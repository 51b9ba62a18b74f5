//! A simulated xDS client: what it holds, what it wants, and its requests and replies in flight.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, Status};
use weir_core::protocol::session::{Client, Reply, Session, Variant};
use weir_core::protocol::view::{InterestChange, NameChanged, SessionId};

use crate::content::{Content, Kind, version};
use crate::oracle::Judge;
use crate::support::bounds::Bounded;

pub type Held = BTreeMap<(Kind, String), Content>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// `*` for clusters and listeners, endpoints by the names in the clusters, and routes as the history decides.
    Envoy,
    /// Names only.
    Grpc,
    /// Whatever the history decides.
    Free,
}

#[derive(Debug, Default, Clone)]
pub struct Wish {
    pub wildcard: bool,
    pub names: BTreeSet<String>,
    pub named_once: bool,
}

pub struct Pretend {
    pub id: SessionId,
    /// The number of the view that serves the client.
    pub key: u8,
    pub profile: Profile,
    pub variant: Variant,
    pub session: Session,
    pub bounded: Bounded,
    /// Changed names that the view has reported and the session has not read.
    pub inbox: Vec<NameChanged>,
    pub judge: Judge,
    pub wishes: BTreeMap<Kind, Wish>,
    pub held: Held,
    /// What the client held at some earlier time, to reconnect with.
    pub older: Held,
    pub requests: VecDeque<Request>,
    pub replies: VecDeque<Reply>,
    nonces: BTreeMap<Kind, u64>,
    versions: BTreeMap<Kind, String>,
    /// Changes of interest on their way to the view.
    pub interest: VecDeque<(SessionId, u8, Vec<InterestChange>)>,
    pub silent: bool,
    pub stalled: bool,
    pub ended: bool,
}

/// How a client reacts to a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    Ack,
    Nack,
    Silence,
}

/// What a client states when it reconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    Fresh,
    TrueVersions,
    OldVersions,
    ForeignVersions,
}

impl Pretend {
    pub fn new(id: SessionId, key: u8, node: u8, profile: Profile, client: Client, session: Session) -> Self {
        let variant = client.variant;
        Self {
            id,
            key,
            profile,
            variant,
            session,
            bounded: Bounded::default(),
            inbox: Vec::new(),
            judge: Judge::new(node, variant, client.grpc, client.wrappers),
            wishes: BTreeMap::new(),
            held: Held::new(),
            older: Held::new(),
            requests: VecDeque::new(),
            replies: VecDeque::new(),
            nonces: BTreeMap::new(),
            versions: BTreeMap::new(),
            interest: VecDeque::new(),
            silent: false,
            stalled: false,
            ended: false,
        }
    }

    /// Lets the session read which names changed.
    pub fn read_inbox(&mut self) {
        self.inbox.drain(..).for_each(|mark| self.session.on_name_changed(&mark));
    }

    pub fn wish(&mut self, kind: Kind) -> &mut Wish {
        self.wishes.entry(kind).or_default()
    }

    /// Requests everything that the client wants of a type, as the first request on a stream.
    pub fn open(&mut self, kind: Kind, how: Return) {
        let wish = self.wish(kind).clone();
        let mut names: Vec<String> = wish.names.iter().cloned().collect();
        // Envoy uses the form without names for a pure wildcard.
        let legacy = wish.wildcard && names.is_empty() && kind.full_state();
        if wish.wildcard && !legacy {
            names.push("*".into());
        }
        self.wish(kind).named_once = !names.is_empty();
        let request = match self.variant {
            Variant::Sotw => Request::Sotw(DiscoveryRequest {
                version_info: self.stated_version(kind, how),
                resource_names: names,
                type_url: kind.url().into(),
                ..Default::default()
            }),
            Variant::Delta => Request::Delta(DeltaDiscoveryRequest {
                initial_resource_versions: self.stated_versions(kind, how),
                resource_names_subscribe: names,
                type_url: kind.url().into(),
                ..Default::default()
            }),
        };
        self.requests.push_back(request);
    }

    fn stated_version(&self, kind: Kind, how: Return) -> String {
        match how {
            Return::Fresh => String::new(),
            Return::ForeignVersions | Return::OldVersions => "7".into(),
            Return::TrueVersions => self.versions.get(&kind).cloned().unwrap_or_default(),
        }
    }

    fn stated_versions(&self, kind: Kind, how: Return) -> BTreeMap<String, String> {
        let held = self.held.iter().filter(|((of, _), _)| *of == kind);
        let stated = |content: &Content| match how {
            Return::ForeignVersions => format!("7.{}", content.serial),
            _ => version(content),
        };
        match how {
            Return::Fresh => BTreeMap::new(),
            _ => held.map(|((_, name), content)| (name.clone(), stated(content))).collect(),
        }
    }

    /// Changes the client's subscriptions: with the whole list in SotW, with the difference in delta.
    pub fn change(&mut self, kind: Kind, on: &[String], off: &[String]) {
        let star_off = off.iter().any(|name| name == "*");
        if self.variant == Variant::Sotw && star_off && !self.wish(kind).named_once {
            // To a server that was never sent a name, an empty list means everything. So `*` is named before it is dropped.
            self.change(kind, &["*".into()], &[]);
        }
        let wish = self.wish(kind);
        for name in on {
            match name.as_str() {
                "*" => wish.wildcard = true,
                _ => wish.names.extend([name.clone()]),
            }
        }
        for name in off {
            wish.wildcard &= name != "*";
            wish.names.remove(name);
        }
        wish.named_once = true;
        let (wildcard, names) = (wish.wildcard, wish.names.clone());
        if on.iter().any(|name| name == "*") {
            // Replies in flight answer names. Names that are dropped meanwhile do not come back as part of `*`.
            for reply in self.replies.iter_mut().filter(|reply| Kind::of(&reply.kind) == kind) {
                let named = reply.resources.iter().filter(|resource| names.contains(resource.name.as_str()));
                reply.resources = named.cloned().collect();
            }
        }
        self.held.retain(|(of, name), _| *of != kind || wildcard || names.contains(name));
        let nonce = self.nonces.get(&kind).map(u64::to_string).unwrap_or_default();
        let request = match self.variant {
            Variant::Sotw => {
                let wildcard = wildcard.then(|| "*".to_owned());
                Request::Sotw(DiscoveryRequest {
                    version_info: self.versions.get(&kind).cloned().unwrap_or_default(),
                    resource_names: names.into_iter().chain(wildcard).collect(),
                    type_url: kind.url().into(),
                    response_nonce: nonce,
                    ..Default::default()
                })
            }
            Variant::Delta => Request::Delta(DeltaDiscoveryRequest {
                resource_names_subscribe: on.to_vec(),
                resource_names_unsubscribe: off.to_vec(),
                type_url: kind.url().into(),
                ..Default::default()
            }),
        };
        self.requests.push_back(request);
    }

    /// Applies the oldest reply in flight.
    pub fn process(&mut self, reaction: Reaction) -> Option<Kind> {
        let reply = self.replies.pop_front()?;
        let kind = Kind::of(&reply.kind);
        let wish = self.wish(kind).clone();
        let wanted = |name: &str| wish.wildcard || wish.names.contains(name);
        if self.variant == Variant::Sotw && kind.full_state() {
            self.held.retain(|(of, _), _| *of != kind);
        }
        for resource in &*reply.resources {
            let name = resource.name.to_string();
            if wanted(&name) {
                self.held.insert((kind, name), decode(kind, resource));
            }
        }
        for name in &reply.removed {
            self.held.remove(&(kind, name.to_string()));
        }
        self.nonces.insert(kind, reply.nonce);
        if self.variant == Variant::Sotw {
            self.versions.insert(kind, reply.version.to_string());
        }
        self.answer(kind, &reply, reaction);
        if self.profile == Profile::Envoy && kind == Kind::Cluster {
            self.follow_clusters();
        }
        Some(kind)
    }

    fn answer(&mut self, kind: Kind, reply: &Reply, reaction: Reaction) {
        let error_detail = match reaction {
            Reaction::Silence => return,
            Reaction::Ack => None,
            Reaction::Nack => Some(Status { code: 13, message: "no".into() }),
        };
        let (response_nonce, type_url) = (reply.nonce.to_string(), kind.url().to_owned());
        let wish = self.wish(kind).clone();
        let request = match self.variant {
            Variant::Sotw => {
                let legacy = wish.wildcard && !wish.named_once;
                let wildcard = (wish.wildcard && !legacy).then(|| "*".to_owned());
                Request::Sotw(DiscoveryRequest {
                    version_info: reply.version.to_string(),
                    resource_names: wish.names.into_iter().chain(wildcard).collect(),
                    type_url,
                    response_nonce,
                    error_detail,
                    ..Default::default()
                })
            }
            Variant::Delta => {
                Request::Delta(DeltaDiscoveryRequest { type_url, response_nonce, error_detail, ..Default::default() })
            }
        };
        self.requests.push_back(request);
    }

    /// Subscribes as Envoy does to the endpoints that its clusters name, and to no others.
    fn follow_clusters(&mut self) {
        let clusters = self.held.iter().filter(|((kind, _), cluster)| *kind == Kind::Cluster && cluster.eds);
        let endpoints: BTreeSet<String> = clusters.map(|(_, cluster)| cluster.endpoints()).collect();
        let before = self.wish(Kind::Endpoints).names.clone();
        if endpoints == before {
            return;
        }
        let on: Vec<_> = endpoints.difference(&before).cloned().collect();
        let off: Vec<_> = before.difference(&endpoints).cloned().collect();
        self.change(Kind::Endpoints, &on, &off);
    }

    /// Restarts the client without state.
    pub fn lose_everything(&mut self) {
        self.held.clear();
        self.versions.clear();
    }

    /// Restarts the client with what it held at an earlier time.
    pub fn go_back(&mut self) {
        self.held = std::mem::take(&mut self.older);
        self.versions.clear();
    }

    /// Begins a new stream: only what the client holds and wants remains.
    pub fn restart(&mut self, id: SessionId, key: u8, node: u8, client: Client, session: Session) {
        (self.id, self.key, self.session) = (id, key, session);
        let judge = Judge::new(node, self.variant, client.grpc, client.wrappers);
        self.judge = judge.coming_with(self.held.clone(), self.judge.short_memory);
        self.inbox.clear();
        self.requests.clear();
        self.replies.clear();
        self.nonces.clear();
        self.ended = false;
    }
}

fn decode(kind: Kind, resource: &weir_core::xds::Resource) -> Content {
    let text = String::from_utf8_lossy(resource.body.bytes()).into_owned();
    let name = resource.name.to_string();
    let tag = text.rsplit('\u{3e}').next().unwrap_or_default();
    let tag: String = tag.chars().skip_while(|letter| !letter.is_ascii_digit()).collect();
    let mut parts = tag.split('/');
    let mut content = Content {
        kind,
        name,
        serial: 0,
        key: 0,
        wildcard: false,
        target: None,
        eds: kind == Kind::Cluster && resource.refers_to.is_some(),
        alias: resource.aliases().first().map(ToString::to_string),
        metadata: resource.metadata().map_or(0, |metadata| metadata[4] - b'a'),
    };
    if kind == Kind::Runtime {
        content.serial = parts.next().and_then(|text| text.parse().ok()).unwrap_or_default();
    } else {
        content.key = parts.next().and_then(|text| text.parse().ok()).unwrap_or_default();
        content.wildcard = parts.next() == Some("true");
        content.serial = parts.next().and_then(|text| text.parse().ok()).unwrap_or_default();
        content.target = parts.next().filter(|text| !text.is_empty()).map(str::to_owned);
    }
    assert_eq!(content.body(), *resource.body.bytes(), "a body that this client cannot read: {text:?}");
    content
}
