//! Which unit a client belongs to: one for each sharing key, made when the first client of the key comes.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::clock::Clock;
use super::found::Found;
use super::health::{Findings, Health};
use super::link::SharedConnector;
use super::links::Links;
use super::measures::UnitMeasures;
use super::owner::{Command, Owner};
use super::published::Published;
use super::report::UnitReport;
use super::seat::{Place, Seat, SeatReport};
use super::tally::Tally;
use crate::proto::Request;
use crate::protocol::limits::Limits;
use crate::protocol::session::{Authorities, Client, Identity, Session, Variant};
use crate::protocol::sources::{Plan, Sources};
use crate::protocol::unit::{Class, SessionId, Shelf, Unit};
use crate::xds::{Access, BodyStore, KeyRule, Name, SharingKey, TypeTable};

pub struct Views {
    rule: Arc<KeyRule>,
    serve_without_node: bool,
    access: Access,
    table: Arc<TypeTable>,
    limits: Arc<Limits>,
    plan: Arc<Plan>,
    authorities: Authorities,
    connectors: Arc<[SharedConnector]>,
    /// Asked for what all views share.
    hub: Option<Arc<Views>>,
    is_hub: bool,
    health: Arc<Health>,
    /// Changes whenever another server has come to serve some view.
    moves: Arc<watch::Sender<()>>,
    store: Arc<Mutex<BodyStore>>,
    clock: Clock,
    tally: Arc<Tally>,
    most: usize,
    next_session: AtomicU64,
    /// Guards the map alone.
    units: Mutex<HashMap<SharingKey, UnitHandle>>,
}

#[derive(Clone)]
struct UnitHandle {
    published: Arc<Published>,
    commands: mpsc::Sender<Command>,
    idle_since: Arc<Mutex<Option<Instant>>>,
    /// The server for `*` and old-style names, by its place in the plan.
    active: Arc<AtomicUsize>,
}

/// Why a stream is not taken on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the first request of a stream must carry a node")]
    NoNode,
    #[error("the node cannot be read")]
    BadNode,
    #[error("there are {0} views already, which is the limit")]
    TooManyViews(usize),
    #[error("the relay is stopping")]
    Stopping,
}

impl Refused {
    /// Short words for each, in the order of their places.
    pub const REASONS: [&str; 4] = ["no_node", "bad_node", "too_many_views", "stopping"];

    pub(super) fn place(&self) -> usize {
        match self {
            Self::NoNode => 0,
            Self::BadNode => 1,
            Self::TooManyViews(_) => 2,
            Self::Stopping => 3,
        }
    }
}

/// How clients are told apart and served.
#[derive(Debug, Clone)]
pub struct ViewsOptions {
    pub rule: KeyRule,
    /// A client without a node counts as one whose node is empty; otherwise it is refused (TRN-12).
    pub serve_without_node: bool,
    /// Views at one time.
    pub most: usize,
    pub table: TypeTable,
    pub access: Access,
    pub limits: Limits,
    pub plan: Plan,
}

/// Who comes, and for what.
#[derive(Debug, Clone)]
pub struct Visit {
    pub variant: Variant,
    /// The type of a stream that has only one.
    pub only: Option<&'static str>,
    pub peer: SocketAddr,
}

impl Views {
    /// With a connector for each server of the plan.
    pub fn new(options: ViewsOptions, connectors: Vec<SharedConnector>) -> Self {
        let ViewsOptions { rule, serve_without_node, most, table, access, limits, plan } = options;
        let table = Arc::new(table);
        Self {
            rule: Arc::new(rule),
            serve_without_node,
            access,
            tally: Arc::new(Tally::new(table.clone())),
            table,
            limits: Arc::new(limits),
            authorities: Arc::new(plan.authorities.keys().cloned().collect()),
            health: Arc::new(Health::of(plan.servers.len())),
            moves: Arc::new(watch::Sender::new(())),
            plan: Arc::new(plan),
            connectors: connectors.into(),
            hub: None,
            is_hub: false,
            store: Arc::default(),
            clock: Clock::starting_now(),
            most,
            next_session: AtomicU64::new(1),
            units: Mutex::default(),
        }
    }

    /// These are what other views share: in logs, reports and metrics they are called so, and not by a key.
    pub fn shared(self) -> Self {
        Self { is_hub: true, ..self }
    }

    /// What these views share: bodies that both hold are kept once, and it is shown with them.
    pub fn around(self, hub: Arc<Self>) -> Self {
        Self { store: hub.store.clone(), hub: Some(hub), ..self }
    }

    /// Takes a client on by its first request.
    pub async fn seat(&self, first: &Request, visit: Visit) -> Result<Arc<Seat>, Refused> {
        let variant = visit.variant;
        let seat = self.try_seat(first, visit).await;
        match &seat {
            Ok(_) => self.tally.taken(variant),
            Err(refused) => self.tally.refused(refused),
        }
        seat
    }

    async fn try_seat(&self, first: &Request, visit: Visit) -> Result<Arc<Seat>, Refused> {
        let Visit { variant, only, peer } = visit;
        let identity = self.identify(first.node())?;
        let node = first.node().map_or(&[][..], |node| node);
        let unit = self.unit(identity.key())?;
        let place = Place {
            id: SessionId(self.next_session.fetch_add(1, Ordering::Relaxed)),
            variant,
            node_id: Client::node_id(node),
            key: identity.key().to_string(),
            peer: peer.to_string(),
            published: unit.published,
            owner: unit.commands.clone(),
            clock: self.clock,
            tally: self.tally.clone(),
        };
        let clearance = self.access.clearance(peer.ip());
        let only = only.map(|name| self.table.resolve(name));
        let client = Client { clearance, ..Client::of_node(node, variant, only) };
        let session = Session::new(client, self.table.clone(), self.limits.clone());
        let session = session.identified(identity).among(self.authorities.clone());
        let seat = Seat::new(place, session);
        unit.commands.send(Command::Join(seat.clone())).await.map_err(|_| Refused::Stopping)?;
        Ok(seat)
    }

    /// Who a client is by the node that it sent, if it sent one.
    pub(super) fn identify(&self, node: Option<&Bytes>) -> Result<Identity, Refused> {
        let nobody = Bytes::new();
        let node = node.or(self.serve_without_node.then_some(&nobody)).ok_or(Refused::NoNode)?;
        Identity::of(self.rule.clone(), node).map_err(|_| Refused::BadNode)
    }

    /// Names of the clusters that the clients of a key were given and that this peer may have.
    pub(super) fn clusters(&self, key: &SharingKey, peer: IpAddr) -> Vec<String> {
        let unit = self.units.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        let Some(unit) = unit else { return Vec::new() };
        let (kind, clearance) = (self.table.resolve(CLUSTER), self.access.clearance(peer));
        let names: BTreeSet<_> = unit.published.read(|state, _| {
            let shelves = [Class::Star, Class::Named].into_iter().filter_map(|class| state.shelf(&kind, class));
            shelves.flat_map(Shelf::here).filter(|name| clearance.allows(&kind, name)).cloned().collect()
        });
        names.iter().map(Name::to_string).collect()
    }

    /// Keys that may be served at one time.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// What every unit and every session holds, those of the hub last.
    pub async fn report(&self) -> Vec<(UnitReport, Vec<SeatReport>)> {
        let mut reports = Vec::new();
        for unit in self.all_units() {
            let (to, from) = oneshot::channel();
            if unit.commands.send(Command::Report(to)).await.is_ok() {
                reports.extend(from.await);
            }
        }
        reports
    }

    /// What each view knows of a resource, of those that know anything of it.
    pub async fn look(&self, type_url: &str, name: &str) -> Vec<Found> {
        let (kind, name) = (self.table.resolve(type_url), Name::of_peer(name));
        let mut found = Vec::new();
        for unit in self.all_units() {
            let (to, from) = oneshot::channel();
            if unit.commands.send(Command::Look(kind.clone(), name.clone(), to)).await.is_ok() {
                found.extend(from.await.into_iter().flatten());
            }
        }
        found
    }

    /// What there is to measure of each view.
    pub async fn measures(&self) -> Vec<UnitMeasures> {
        let mut measures = Vec::new();
        for unit in self.all_units() {
            let (to, from) = oneshot::channel();
            if unit.commands.send(Command::Measure(to)).await.is_ok() {
                measures.extend(from.await);
            }
        }
        measures
    }

    fn all_units(&self) -> Vec<UnitHandle> {
        let mut units: Vec<_> = self.units.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        units.extend(self.hub.iter().flat_map(|hub| hub.all_units()));
        units
    }

    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    fn unit(&self, key: &SharingKey) -> Result<UnitHandle, Refused> {
        let mut units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(unit) = units.get(key) {
            return Ok(unit.clone());
        }
        if units.len() >= self.most {
            retire(&mut units, Duration::ZERO);
        }
        if units.len() >= self.most {
            return Err(Refused::TooManyViews(self.most));
        }
        let unit = self.start_unit(key);
        tracing::info!(%key, views = units.len() + 1, "first client of a view");
        units.insert(key.clone(), unit.clone());
        Ok(unit)
    }

    /// The server that serves a key's `*` and old-style names, or the first choice where none does (FB-19).
    pub(super) fn active_server(&self, key: &SharingKey) -> usize {
        let units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        let first = self.plan.top.servers.first().copied().unwrap_or_default();
        units.get(key).map_or(first, |unit| unit.active.load(Ordering::Relaxed))
    }

    /// Until a key is served by another server than this.
    pub(super) async fn moved_from(&self, key: &SharingKey, server: usize) {
        let mut moves = self.moves.subscribe();
        while self.active_server(key) == server {
            if moves.changed().await.is_err() {
                return std::future::pending().await; // cannot be: the sender is here
            }
        }
    }

    /// Lets go of views that nobody has used for so long, with their upstream streams, again and again.
    pub async fn retire_idle(&self, after: Duration) {
        let mut ticks = tokio::time::interval(after.clamp(Duration::from_millis(100), LOOKS_EVERY));
        loop {
            ticks.tick().await;
            for views in [Some(self), self.hub.as_deref()].into_iter().flatten() {
                retire(&mut views.units.lock().unwrap_or_else(PoisonError::into_inner), after);
            }
        }
    }

    fn start_unit(&self, key: &SharingKey) -> UnitHandle {
        let (table, limits) = (self.table.clone(), self.limits.clone());
        let published = Arc::new(Published::new(limits.clone()));
        let (sender, commands) = mpsc::channel(1024);
        let active = Arc::new(AtomicUsize::new(self.plan.top.servers.first().copied().unwrap_or_default()));
        let idle_since: Arc<Mutex<Option<Instant>>> = Arc::default();
        let owner = Owner {
            key: if self.is_hub { "shared".into() } else { key.to_string() },
            made_from: key.parts(&self.rule).into_iter().map(|(field, value)| (field.to_string(), value)).collect(),
            unit: Unit::new(table.clone(), limits.clone()),
            sources: Sources::new(self.plan.clone(), key.upstream_node(), table, limits),
            connectors: self.connectors.clone(),
            findings: Findings::none(self.health.clone()),
            standings: Default::default(),
            published: published.clone(),
            store: self.store.clone(),
            clock: self.clock,
            commands,
            idle_since: idle_since.clone(),
            active: active.clone(),
            moves: self.moves.clone(),
            seats: HashMap::new(),
            links: Links::none(),
            counted: Vec::new(),
        };
        tokio::spawn(owner.run());
        UnitHandle { published, commands: sender, idle_since, active }
    }
}

/// An owner ends when nobody can say anything to it any more: a client that is just coming keeps its view alive.
fn retire(units: &mut HashMap<SharingKey, UnitHandle>, after: Duration) {
    units.retain(|key, unit| {
        let since = *unit.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        let retired = since.is_some_and(|since| since.elapsed() >= after);
        if retired {
            tracing::info!(%key, "view retired");
        }
        !retired
    });
}

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const LOOKS_EVERY: Duration = Duration::from_secs(30);
