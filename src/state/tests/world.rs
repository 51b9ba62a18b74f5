//! Views that change at random, and the expected contents of the file.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redb::Database;
use weir_core::proto::{Any, discovery};
use weir_core::protocol::moment::Moment;
use weir_core::protocol::sources::LowestOpen;
use weir_core::protocol::view::ViewOptions;
use weir_core::protocol::view::{
    Class, Completeness, Evidence, InterestChange, Origin, Retain, SavedSet, Selector, SessionId, Update, View,
};
use weir_core::xds::{Authority, BodyStore, KeyRule, Name, Resource, Type, TypeTable};

use super::super::file::FileFault;
use super::super::load::Stored;
use super::super::records::ViewRecord;
use super::super::save::{Contents, CurrentView, Form, Saved, ViewId};
use super::super::sealing::SealingKey;
use crate::relay::{NotedBrakes, ViewToSave};

pub(super) const SERVER: &str = "http://server";
pub(super) const CDS: &str = "envoy.config.cluster.v3.Cluster";
pub(super) const EDS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
pub(super) const SECRETS: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

/// The contents of the file: by view, type, class and name, the body of each resource.
pub(super) type Shown = BTreeMap<(Bytes, String, bool, String), Vec<u8>>;

pub(super) struct World {
    pub(super) table: Arc<TypeTable>,
    store: BodyStore,
    pub(super) views: Vec<(ViewId, View)>,
    random: u64,
    pub(super) now: u64,
    pub(super) life: u64,
    /// The names of servers, by their places in the plan.
    pub(super) servers: BTreeMap<u16, String>,
    pub(super) responding: Vec<u16>,
    pub(super) brakes: NotedBrakes,
    pub(super) lowest: BTreeMap<Authority, LowestOpen>,
}

impl World {
    pub(super) fn of(seed: u64, count: usize) -> Self {
        let table = Arc::new(TypeTable::new());
        let mut world = Self {
            table,
            store: BodyStore::default(),
            views: Vec::new(),
            random: seed * 2 + 1,
            now: 1_000_000,
            life: 0,
            servers: BTreeMap::from([(0, SERVER.to_owned())]),
            responding: vec![0],
            brakes: NotedBrakes::default(),
            lowest: BTreeMap::new(),
        };
        (0..count).for_each(|number| world.add_view(number));
        world
    }

    pub(super) fn add_view(&mut self, number: usize) {
        let node = weir_core::proto::node::Node { cluster: format!("cluster {number}"), ..Default::default() };
        let key = KeyRule::default().key(&prost::Message::encode_to_vec(&node)).unwrap();
        let options = ViewOptions { history_bytes: 1300, ..ViewOptions::default() };
        let mut view = View::new(self.table.clone(), Arc::new(options));
        for kind in [CDS, EDS, SECRETS] {
            let kind = self.table.resolve(kind);
            view.change_interest(SessionId(1), on(&kind, Selector::Wildcard, true), Moment::START);
            for name in NAMES {
                view.change_interest(SessionId(1), on(&kind, Selector::Name((*name).into()), true), Moment::START);
            }
        }
        self.views.push((ViewId { shared: false, key }, view));
    }

    /// Returns a random number below `end`, from a xorshift generator.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % end as u64) as usize
    }

    /// Makes one change to one view, of any kind that the server or the clients can cause.
    pub(super) fn step(&mut self) {
        let at = self.below(self.views.len());
        let kind = [CDS, EDS, SECRETS][self.below(3)];
        let kind = self.table.resolve(kind);
        let name: Name = NAMES[self.below(NAMES.len())].into();
        let class = [Class::Wildcard, Class::Named][self.below(2)];
        let now = Moment::START + Duration::from_millis(self.now);
        let content = self.below(3);
        let resource = self.resource(&kind, &name, content);
        let choice = self.below(10);
        let whole: Vec<_> = NAMES.iter().filter(|name| (name.len() + content).is_multiple_of(2)).copied().collect();
        let resources = whole.iter().map(|name| self.resource(&kind, &(*name).into(), content)).collect();
        let view = &mut self.views[at].1;
        let updates = match choice {
            0..=4 => vec![Update::Upsert { kind, class, key: name, resource }],
            5 | 6 => vec![Update::Absent { kind, class, key: name, evidence: Evidence::Reported }],
            7 => vec![Update::FullSet { kind, resources, retain: Retain::nothing() }],
            8 => vec![Update::Progress { kind, of: Selector::Wildcard, completeness: Completeness::Settled }],
            _ => {
                // A name to which nobody subscribes for a while leaves no trace.
                view.change_interest(SessionId(1), on(&kind, Selector::Name(name.clone()), false), Moment::START);
                view.on_time(now);
                view.change_interest(SessionId(1), on(&kind, Selector::Name(name), true), now);
                Vec::new()
            }
        };
        view.apply(updates, now);
        view.publish();
        self.now += 60_000;
    }

    /// Adds a resource with a TTL to the set of `*` of the first view.
    pub(super) fn set_with_ttl(&mut self, name: &str, ttl: Duration) {
        self.give(0, Class::Wildcard, name, Some(ttl));
    }

    /// Makes the client of the first view subscribe to one more cluster.
    pub(super) fn want(&mut self, name: &str) {
        let change = on(&self.table.resolve(CDS), Selector::Name(name.into()), true);
        self.views[0].1.change_interest(SessionId(1), change, Moment::START);
    }

    /// Makes a server send a resource to the first view.
    pub(super) fn give(&mut self, server: u16, class: Class, name: &str, ttl: Option<Duration>) {
        let (kind, key) = (self.table.resolve(CDS), Name::from(name));
        let resource = Arc::new(self.resource(&kind, &key, 1).with_ttl(ttl));
        let all = Update::Progress { kind: kind.clone(), of: Selector::Wildcard, completeness: Completeness::Settled };
        let now = Moment::START + Duration::from_millis(self.now);
        let origin = Origin { server, rank: u8::try_from(server).unwrap(), ..Origin::default() };
        let view = &mut self.views[0].1;
        view.apply_from(origin, vec![Update::Upsert { kind, class, key, resource }, all], now);
        view.publish();
    }

    pub(super) fn resource(&self, kind: &Type, name: &Name, content: usize) -> Arc<Resource> {
        let mut body = vec![0x0a, name.as_str().len() as u8];
        body.extend(name.as_str().bytes());
        body.extend([0xc2, 0x3e, 4, b'v', b'0' + content as u8, b'x', b'y']);
        let any = Any { type_url: kind.name().into(), value: body.into() };
        let wrapper = discovery::Resource { name: name.to_string(), resource: Some(any), ..Default::default() };
        Arc::new(Resource::from_wrapper(0, wrapper, kind, &self.store).unwrap())
    }

    /// Returns a resource of about this many bytes.
    pub(super) fn large(&self, kind: &Type, name: &str, bytes: usize, content: u64) -> Arc<Resource> {
        let mut body = vec![0x0a, name.len() as u8];
        body.extend(name.bytes());
        body.extend([0xc2, 0x3e, (bytes & 0x7f) as u8 | 0x80, (bytes >> 7) as u8]);
        let mut filler = content.to_le_bytes().repeat(bytes / 8 + 1);
        filler.truncate(bytes);
        body.extend(filler);
        let any = Any { type_url: kind.name().into(), value: body.into() };
        let wrapper = discovery::Resource { name: name.into(), resource: Some(any), ..Default::default() };
        Arc::new(Resource::from_wrapper(0, wrapper, kind, &self.store).unwrap())
    }

    pub(super) fn current(&self) -> Vec<CurrentView> {
        let servers = Arc::new(self.servers.clone());
        let current = |(id, view): &(ViewId, View)| CurrentView {
            id: id.clone(),
            view: self.to_save(id, view),
            record: ViewRecord { node: id.key.upstream_node(), ..ViewRecord::default() },
            servers: servers.clone(),
        };
        self.views.iter().map(current).collect()
    }

    fn to_save(&self, id: &ViewId, view: &View) -> ViewToSave {
        ViewToSave {
            key: id.key.clone(),
            snapshot: view.snapshot().clone(),
            life: self.life,
            responding: self.responding.clone(),
            brakes: self.brakes.clone(),
            lowest: self.lowest.clone(),
            is_refused: false,
        }
    }

    /// Whether the file has all of the first view.
    pub(super) fn is_saved(&self, contents: &Contents) -> bool {
        let (id, view) = &self.views[0];
        contents.views[id].has_all_of(&self.to_save(id, view), self.now)
    }

    /// Saves every view, and removes those that no longer exist.
    pub(super) fn save(
        &self,
        contents: &mut Contents,
        database: &Database,
        key: Option<&SealingKey>,
    ) -> Result<Saved, FileFault> {
        let wall_time = |moment: Moment| (moment - Moment::START).as_millis() as u64;
        let form = Form { key, wall_time: &wall_time, now: self.now };
        let keeps = |id: &ViewId| self.views.iter().any(|(known, _)| known == id);
        contents.save(database, &self.current(), keeps, &form)
    }

    /// Returns the expected contents of the file.
    pub(super) fn expected(&self, has_key: bool) -> Shown {
        let mut shown = Shown::new();
        for (id, view) in &self.views {
            let sets = SavedSet::all_of(view.snapshot(), Moment::START);
            for set in sets.iter().filter(|set| has_key || set.kind.name() != SECRETS) {
                for saved in &set.resources {
                    let class = set.class == Class::Wildcard;
                    let at = (id.key.upstream_node(), set.kind.name().to_owned(), class, saved.key.to_string());
                    shown.insert(at, saved.resource.body.bytes().to_vec());
                }
            }
        }
        shown
    }
}

/// Returns the contents of the file.
pub(super) fn shown(stored: &Stored) -> Shown {
    let mut shown = Shown::new();
    for view in &stored.views {
        for (set, name, body) in stored.resources(view) {
            shown.insert((view.record.node.clone(), set.type_name.clone(), set.wildcard, name), body);
        }
    }
    shown
}

fn on(kind: &Type, selector: Selector, on: bool) -> InterestChange {
    InterestChange { kind: kind.clone(), selector, on }
}

const NAMES: &[&str] = &["a", "bb", "ccc", "dddd", "eeeee", "ffffff", "ggggggg", "hhhhhhhh"];
