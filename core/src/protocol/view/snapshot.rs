//! A published state of a view: its resources at one revision, never changed again.
//!
//! Additions are collected once for all clients with the same cursor. Such a batch is valid as long as its snapshot exists.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::receipts::Receipts;
use super::resource_table::{Presence, ResourceTable};
use super::tables::Tables;
use super::update::NamedError;
use crate::protocol::keys::{Class, Revision};
use crate::protocol::moment::Moment;
use crate::protocol::reply_names::ReplyNames;
use crate::xds::{Authority, Name, Resource, Role, SetVersion, Type};

/// What a snapshot has of a name.
#[derive(Debug, Clone, Copy)]
pub enum Lookup<'a> {
    /// Nothing: not requested, not answered, or not complete. Never reported as absent (I3).
    Unknown,
    /// The resource.
    Present(&'a Arc<Resource>),
    /// Known to be absent. The last content may still be available.
    Absent(Option<&'a Arc<Resource>>),
}

impl Lookup<'_> {
    /// Whether nothing is known.
    pub fn is_unknown(self) -> bool {
        matches!(self, Self::Unknown)
    }
}

/// The state of a view at one revision. It never changes, and sessions share it.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The number of the last change in it.
    pub revision: Revision,
    /// Authorities of which no server is reachable.
    pub down: Arc<BTreeSet<Authority>>,
    /// In the order of their keys, so that a look-up needs no owned key.
    tables: Vec<((Type, Class), ResourceTable)>,
    /// When the last `*` set was forgotten.
    forgotten: Revision,
    /// Whether so much was removed that the oldest removals may be forgotten soon.
    forgets_soon: bool,
    receipts: Receipts,
    batches: Batches,
}

impl Snapshot {
    pub(super) fn new(
        revision: Revision,
        down: Arc<BTreeSet<Authority>>,
        tables: &Tables,
        receipts: Receipts,
        history_bytes: usize,
    ) -> Self {
        let (forgotten, forgets_soon) = (tables.forgotten(), tables.removal_bytes() > history_bytes / 2);
        let tables = tables.all().map(|(of, table)| (of.clone(), table.clone())).collect();
        Self { revision, down, tables, forgotten, forgets_soon, receipts, batches: Batches::default() }
    }

    /// Returns when the change of a name was received, by its revision.
    pub(crate) fn received(&self, change: Revision) -> Option<Moment> {
        self.receipts.of(change)
    }

    /// Returns the removal horizon of a wildcard session: one that was sent removals only up to an earlier revision has missed
    /// some. Without a set, this is when a set was last forgotten.
    pub(crate) fn horizon(&self, kind: &Type) -> Revision {
        self.resources(kind, Class::Wildcard).map_or(self.forgotten, |table| table.journal().horizon())
    }

    /// Whether so much was removed that the oldest removals may be forgotten soon. Clients that can be sent them should be sent them now.
    pub(crate) fn forgets_soon(&self) -> bool {
        self.forgets_soon
    }

    /// Returns how often a server gave the same resource as another one before. Snapshots that differ in that alone have one revision.
    pub fn reattributed(&self) -> u64 {
        self.tables().map(|(_, _, table)| table.sums().reattributed()).sum()
    }

    pub(crate) fn forgotten(&self) -> Revision {
        self.forgotten
    }

    /// Returns additions that other clients are sent too; the first caller collects them.
    pub(crate) fn batch(&self, key: BatchKey, collect: impl FnOnce() -> Batch) -> Arc<Batch> {
        self.batches.get(key, collect)
    }

    /// Returns the last reported error of a name, with its revision.
    pub(crate) fn error(&self, kind: &Type, name: &Name) -> Option<(Revision, &Arc<NamedError>)> {
        let entry = self.resources(kind, Class::Named)?.get(name)?;
        entry.error.as_ref().map(|(revision, error)| (*revision, error))
    }

    /// Returns the resources of a type and class, if there is a table of them.
    pub fn resources(&self, kind: &Type, class: Class) -> Option<&ResourceTable> {
        let at = self.tables.binary_search_by(|((of, known), _)| (of, *known).cmp(&(kind, class))).ok()?;
        Some(&self.tables[at].1)
    }

    /// Returns how many resources of a type are present: of its set, or by name if these are more.
    pub fn present(&self, kind: &Type) -> usize {
        let of = |class| self.resources(kind, class).map_or(0, ResourceTable::present);
        of(Class::Named).max(of(Class::Wildcard))
    }

    /// Returns the tables by type and class.
    pub fn tables(&self) -> impl Iterator<Item = (&Type, Class, &ResourceTable)> {
        self.tables.iter().map(|((kind, class), table)| (kind, *class, table))
    }

    /// Returns the present resources of types that may refer to clusters.
    pub fn referring(&self) -> impl Iterator<Item = (&Type, &Arc<Resource>)> {
        let referring =
            self.tables.iter().filter(|((kind, _), _)| matches!(kind.info().role, Role::Routing | Role::Clusters));
        referring.flat_map(|((kind, _), table)| {
            table.present_names().filter_map(move |name| Some((kind, table.get(name)?.resource()?)))
        })
    }

    /// Like [`Self::error`], with absence as an error, for clients of SotW, which cannot express absence otherwise.
    pub(crate) fn error_or_absence(&self, kind: &Type, name: &Name) -> Option<(Revision, Arc<NamedError>)> {
        let entry = self.resources(kind, Class::Named)?.get(name)?;
        match (&entry.error, &entry.presence) {
            (Some((revision, error)), _) => Some((*revision, error.clone())),
            (None, Presence::Absent(_)) => Some((entry.changed, Arc::new(NamedError::not_found()))),
            (None, _) => None,
        }
    }

    /// Whether it has the body of this resource, so that keeping the resource costs nothing.
    pub fn has_body_of(&self, kind: &Type, resource: &Resource) -> bool {
        let is_there = |class, name: &Name| match self.lookup(kind, class, name) {
            Lookup::Present(found) | Lookup::Absent(Some(found)) => Arc::ptr_eq(&found.body, &resource.body),
            Lookup::Unknown | Lookup::Absent(None) => false,
        };
        let names = std::iter::once(&resource.name).chain(resource.aliases());
        names
            .flat_map(|name| [(Class::Wildcard, name), (Class::Named, name)])
            .any(|(class, name)| is_there(class, name))
    }

    /// Returns what is known of a name.
    pub fn lookup(&self, kind: &Type, class: Class, name: &Name) -> Lookup<'_> {
        match self.resources(kind, class).and_then(|table| table.get(name)).map(|entry| &entry.presence) {
            None | Some(Presence::Unknown) => Lookup::Unknown,
            Some(Presence::Present(resource)) => Lookup::Present(resource),
            Some(Presence::Absent(last)) => Lookup::Absent(last.as_ref()),
        }
    }
}

/// What a batch depends on, besides its snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchKey {
    pub(crate) kind: Type,
    /// A complete set, as opposed to what changed after `added`.
    pub(crate) complete: bool,
    /// The client reads wrapped resources in SotW.
    pub(crate) wrappers: bool,
    /// Additions up to here were sent.
    pub(crate) added: Revision,
    /// It is the first response to `*`.
    pub(crate) first: bool,
}

/// Resources of one reply.
#[derive(Debug)]
pub struct Batch {
    pub(crate) resources: Arc<[Arc<Resource>]>,
    /// What a session that has sent the batch remembers of it until its client answers.
    pub(crate) names: ReplyNames,
    /// Names that the new resources make a client subscribe to next.
    pub(crate) refers_to: Vec<Name>,
    pub(crate) bytes: usize,
    pub(crate) version: SetVersion,
    /// The last change in it, if the batch was cut.
    pub(crate) cut_after: Option<Revision>,
    /// When the oldest change in it was received.
    pub(crate) oldest_change: Option<Moment>,
}

/// The batches of one snapshot. Collecting one again only costs time, so only a few are kept.
#[derive(Debug, Default)]
pub(super) struct Batches(Mutex<VecDeque<(BatchKey, Cell)>>);

type Cell = Arc<OnceLock<Arc<Batch>>>;

impl Batches {
    /// Clients that need the same batch wait for the first of them; those that need another one do not.
    pub(crate) fn get(&self, key: BatchKey, collect: impl FnOnce() -> Batch) -> Arc<Batch> {
        self.cell(key).get_or_init(|| Arc::new(collect())).clone()
    }

    fn cell(&self, key: BatchKey) -> Cell {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, cell)) = kept.iter().find(|(known, _)| *known == key) {
            return cell.clone();
        }
        if kept.len() == KEPT {
            kept.pop_front();
        }
        let cell = Cell::default();
        kept.push_back((key, cell.clone()));
        cell
    }
}

const KEPT: usize = 16;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::proto::{Any, discovery};
    use crate::protocol::moment::Moment;
    use crate::protocol::view::{Completeness, InterestChange, SavedSet, Selector, SessionId, Update, View};
    use crate::xds::{BodyStore, TypeTable};

    const URL: &str = "type.googleapis.com/own.Type";

    /// A view whose only client wants the type's `*`.
    fn view() -> (View, Type) {
        let table = Arc::new(TypeTable::new());
        let kind = table.resolve(URL);
        let mut view = View::new(table, Arc::default());
        let wanted = InterestChange { kind: kind.clone(), selector: Selector::Wildcard, on: true };
        view.change_interest(SessionId(1), wanted, Moment::START);
        (view, kind)
    }

    fn resource(kind: &Type, store: &BodyStore, content: &'static str, ttl: Option<Duration>) -> Arc<Resource> {
        let any = Any { type_url: URL.into(), value: Bytes::from_static(content.as_bytes()) };
        let ttl = ttl.map(|ttl| ttl.try_into().unwrap());
        let wrapper = discovery::Resource { name: "a".into(), resource: Some(any), ttl, ..Default::default() };
        Arc::new(Resource::from_wrapper(0, wrapper, kind, store).unwrap())
    }

    fn upsert(kind: &Type, resource: &Arc<Resource>) -> Vec<Update> {
        let (kind, key, resource) = (kind.clone(), resource.name.clone(), resource.clone());
        vec![Update::Upsert { kind, class: Class::Wildcard, key, resource }]
    }

    #[test]
    fn a_body_is_in_a_snapshot_until_another_is_in_its_place() {
        let (mut view, kind) = view();
        let store = BodyStore::default();
        let [one, other] = ["1", "2"].map(|content| resource(&kind, &store, content, None));
        let mut has = |held: Option<&Arc<Resource>>| {
            view.apply(held.map(|held| upsert(&kind, held)).unwrap_or_default(), Moment::START);
            view.publish();
            [&one, &other].map(|resource| view.snapshot().has_body_of(&kind, resource))
        };
        assert_eq!(has(None), [false, false]);
        assert_eq!(has(Some(&one)), [true, false]);
        assert_eq!(has(Some(&other)), [false, true]);
    }

    #[test]
    fn a_set_knows_that_a_resource_of_it_has_expired() {
        let (mut view, kind) = view();
        let short = resource(&kind, &BodyStore::default(), "1", Some(Duration::from_secs(1)));
        view.apply(upsert(&kind, &short), Moment::START);
        view.publish();
        let has_expired =
            |view: &View| view.snapshot().resources(&kind, Class::Wildcard).unwrap().coverage().has_expired();
        assert!(!has_expired(&view));
        view.on_time(Moment::START + Duration::from_secs(2));
        view.publish();
        assert!(has_expired(&view));
    }

    #[test]
    fn fb_4_a_set_of_which_a_resource_has_expired_is_not_cached_after_a_restart_either() {
        let store = BodyStore::default();
        let short = Some(Duration::from_secs(1));
        let is_cached_after_restart = |ttl| {
            let (mut view, kind) = view();
            view.apply(upsert(&kind, &resource(&kind, &store, "1", ttl)), Moment::START);
            let completeness = Completeness::Settled;
            let of = Selector::Wildcard;
            view.apply(vec![Update::Progress { kind: kind.clone(), of: of.clone(), completeness }], Moment::START);
            let later = Moment::START + Duration::from_secs(2);
            view.on_time(later);
            view.publish();
            let saved = SavedSet::all_of(view.snapshot(), later);
            let (mut restored, kind) = self::view();
            restored.restore(saved, later + Duration::from_secs(60), later);
            restored.wants().is_cached(&kind, &of)
        };
        assert_eq!((is_cached_after_restart(None), is_cached_after_restart(short)), (true, false));
    }
}
