//! Writes the changes since the last write, in one transaction for all views. So the file has each view with all its types as it was published at
//! one moment.
//!
//! Nothing is queued for this. A snapshot has the revision of each change, so the revision in the file tells which changes it lacks, however long
//! a write takes.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use prost::Message;
use redb::{Database, ReadableTable, Table};
use weir_core::protocol::moment::Moment;
use weir_core::protocol::sources::LowestOpen;
use weir_core::protocol::view::{Class, ResourceTable, Revision, SavedSet, TableEntry};
use weir_core::xds::{Authority, ContentHash, Name, Resource, SharingKey, Type};

use super::brakes::records_of;
use super::file::{BODIES, FileFault, RESOURCES, VIEWS};
use super::lowest;
use super::records::{
    ContentRecord, ResourceRecord, ServerRecord, SetRecord, ViewRecord, keys_of_set, keys_of_view, place_of,
    resource_key, stamped, verified,
};
use super::sealing::SealingKey;
use crate::relay::ViewToSave;

/// Identifies a view in the file: whether it belongs to the hub, and its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ViewId {
    pub(crate) shared: bool,
    pub(crate) key: SharingKey,
}

/// A view to be saved, in its present state.
pub(super) struct CurrentView {
    pub(crate) id: ViewId,
    /// Revisions of another life of the view are not comparable, so the whole view is then written.
    pub(crate) view: ViewToSave,
    pub(crate) record: ViewRecord,
    /// The names of servers, by their places in the plan. Resources of other servers are not saved.
    pub(crate) servers: Arc<BTreeMap<u16, String>>,
}

/// A view as it is in the file.
#[derive(Debug, Clone, Default)]
pub(super) struct WrittenView {
    pub(crate) number: u32,
    pub(crate) revision: Revision,
    /// How often resources of [`ViewToSave::snapshot`] have become those of another server.
    pub(crate) reattributed: u64,
    pub(crate) life: u64,
    pub(crate) sets: BTreeMap<(Type, Class), WrittenSet>,
    /// Numbers of sets that were restored in part. They are removed when the view is written, because no record then has them.
    pub(crate) leftover: Vec<u32>,
    /// The number of the next set.
    pub(crate) next_set: u32,
    pub(crate) servers: Vec<ServerRecord>,
    /// When the view's record was written, in milliseconds since 1970.
    pub(crate) at: u64,
    /// The changes of [`ViewToSave::brakes`].
    pub(crate) brake_changes: u64,
    /// See [`ViewToSave::lowest`].
    pub(crate) lowest: BTreeMap<Authority, LowestOpen>,
}

impl WrittenView {
    /// Whether the file has all of a view.
    pub(super) fn has_all_of(&self, view: &ViewToSave, now: u64) -> bool {
        let ViewToSave { snapshot, life, responding, brakes, lowest, .. } = view;
        (self.life, self.revision, self.brake_changes) == (*life, snapshot.revision, brakes.changes)
            && self.reattributed == snapshot.reattributed()
            && self.lowest == *lowest
            && self.says_who_is_heard(responding, now)
    }

    /// Whether the record is recent enough as to which servers respond. If none responds, it always is.
    pub(super) fn says_who_is_heard(&self, responding: &[u16], now: u64) -> bool {
        responding.is_empty() || now < self.at + HEARD_EVERY
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WrittenSet {
    pub(crate) number: u32,
    pub(crate) count: u32,
    pub(crate) forgotten_at: Revision,
    /// See `Sums::reattributed` and `Sums::given` (`protocol/view/resource_table/sums.rs`).
    pub(crate) reattributed: u64,
    pub(crate) given: Moment,
}

/// Everything that is in the file.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(crate) views: HashMap<ViewId, WrittenView>,
    /// For each body, how many resources have it.
    pub(crate) bodies: HashMap<ContentHash, u32>,
    pub(crate) next_view: u32,
    /// Numbers of views that are no longer of use.
    pub(crate) orphans: Vec<u32>,
}

/// The result of a transaction.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Saved {
    pub(crate) resources: usize,
    pub(crate) removals: usize,
}

/// What is needed to make records.
pub(super) struct Form<'a> {
    pub(crate) key: Option<&'a SealingKey>,
    /// Converts a moment of the views to milliseconds since 1970.
    pub(crate) wall_time: &'a dyn Fn(Moment) -> u64,
    pub(crate) now: u64,
}

impl Contents {
    /// Writes the changes of these views, and removes the views for which `keeps` is false.
    pub(crate) fn save(
        &mut self,
        database: &Database,
        changed: &[CurrentView],
        keeps: impl Fn(&ViewId) -> bool,
        form: &Form,
    ) -> Result<Saved, FileFault> {
        let gone: Vec<_> = self.views.keys().filter(|id| !keeps(id)).cloned().collect();
        if gone.is_empty() && changed.is_empty() && self.orphans.is_empty() {
            return Ok(Saved::default());
        }
        let transaction = database.begin_write()?;
        let mut next_view = self.next_view;
        let mut written = Vec::new();
        let (saved, counts) = {
            let mut writer = Writer {
                views: transaction.open_table(VIEWS)?,
                resources: transaction.open_table(RESOURCES)?,
                bodies: transaction.open_table(BODIES)?,
                known: &self.bodies,
                counts: HashMap::new(),
                saved: Saved::default(),
                form,
            };
            for number in gone.iter().map(|id| self.views[id].number).chain(self.orphans.iter().copied()) {
                writer.remove_view(number)?;
            }
            for current in changed {
                let mut before = self.views.get(&current.id).cloned().unwrap_or_else(|| {
                    next_view += 1;
                    WrittenView { number: next_view - 1, life: current.view.life, ..WrittenView::default() }
                });
                if before.life != current.view.life {
                    (before.life, before.revision) = (current.view.life, Revision::ZERO);
                }
                written.push((current.id.clone(), writer.write_view(current, before)?));
            }
            writer.remove_unused_bodies()?;
            (writer.saved, writer.counts)
        };
        transaction.commit()?;
        (self.next_view, self.orphans) = (next_view, Vec::new());
        gone.iter().for_each(|id| drop(self.views.remove(id)));
        self.views.extend(written);
        for (body, count) in counts {
            match count {
                0 => drop(self.bodies.remove(&body)),
                count => drop(self.bodies.insert(body, count)),
            }
        }
        Ok(saved)
    }
}

/// One transaction.
struct Writer<'a, 'txn> {
    views: Table<'txn, u32, &'static [u8]>,
    resources: Table<'txn, &'static [u8], &'static [u8]>,
    bodies: Table<'txn, &'static [u8], &'static [u8]>,
    known: &'a HashMap<ContentHash, u32>,
    /// The same for the bodies of which the transaction changes the number.
    counts: HashMap<ContentHash, u32>,
    saved: Saved,
    form: &'a Form<'a>,
}

impl Writer<'_, '_> {
    fn write_view(&mut self, current: &CurrentView, mut written: WrittenView) -> Result<WrittenView, FileFault> {
        let CurrentView { id: _, view, record, servers } = current;
        let ViewToSave { snapshot, responding, brakes, lowest, .. } = view;
        for server in servers.values() {
            if !written.servers.iter().any(|known| known.name == *server) {
                written.servers.push(ServerRecord { name: server.clone(), heard: 0 });
            }
        }
        for server in responding.iter().filter_map(|at| servers.get(at)) {
            let known = written.servers.iter_mut().filter(|known| known.name == *server);
            known.for_each(|known| known.heard = self.form.now);
        }
        let mut record = ViewRecord { servers: written.servers.clone(), written: self.form.now, ..record.clone() };
        let is_saved = |(kind, class, table): &(&Type, Class, &ResourceTable)| {
            let is_ours =
                *class == Class::Named || table.sums().by_server().keys().all(|server| servers.contains_key(server));
            SavedSet::can_be_of(*class, table) && is_ours && (self.form.key.is_some() || !kind.is_secret())
        };
        record.brakes = records_of(brakes, !responding.is_empty(), servers, &record.servers);
        record.lowest = lowest::records_of(lowest, servers, &record.servers);
        record.lacks_secrets = self.form.key.is_none() && snapshot.tables().any(|(kind, ..)| kind.is_secret());
        let tables: Vec<_> = snapshot.tables().filter(is_saved).collect();
        let is_there =
            |(kind, class): &(Type, Class)| tables.iter().any(|(of, other, _)| *of == kind && other == class);
        let gone: Vec<_> = written.sets.keys().filter(|set| !is_there(set)).cloned().collect();
        for set in gone {
            if let Some(set) = written.sets.remove(&set) {
                self.retain(written.number, set.number, |_| false)?;
            }
        }
        for set in std::mem::take(&mut written.leftover) {
            self.retain(written.number, set, |_| false)?;
        }
        for (kind, class, table) in tables {
            let known = written.sets.get(&(kind.clone(), class)).copied();
            let mut set = known.unwrap_or_else(|| {
                written.next_set += 1;
                let (number, forgotten_at) = (written.next_set - 1, table.journal().forgotten_at());
                WrittenSet { number, forgotten_at, ..WrittenSet::default() }
            });
            let mut of = SetRecord {
                type_name: kind.name().into(),
                wildcard: class == Class::Wildcard,
                number: set.number,
                count: 0,
                collections: table.collections().settled().map(Name::to_string).collect(),
                past: table
                    .sums()
                    .past_versions()
                    .iter()
                    .flat_map(|(body, all)| [body.to_bytes(), all.to_bytes()].concat())
                    .collect(),
                has_expired: table.coverage().has_expired(),
            };
            let since = if known.is_some() { written.revision } else { Revision::ZERO };
            self.write_set(current, &record, &of, table, since, written.number, &mut set)?;
            of.count = set.count;
            record.sets.push(of);
            written.sets.insert((kind.clone(), class), set);
        }
        (written.revision, written.reattributed) = (snapshot.revision, snapshot.reattributed());
        (written.at, written.brake_changes) = (self.form.now, brakes.changes);
        written.lowest.clone_from(lowest);
        let record = stamped(&written.number.to_be_bytes(), record.encode_to_vec());
        self.views.insert(written.number, &*record)?;
        Ok(written)
    }

    /// Writes what has changed in a set since a revision.
    #[allow(clippy::too_many_arguments)] // the parts of a record
    fn write_set(
        &mut self,
        current: &CurrentView,
        view: &ViewRecord,
        of: &SetRecord,
        table: &ResourceTable,
        since: Revision,
        number: u32,
        set: &mut WrittenSet,
    ) -> Result<(), FileFault> {
        let is_known = |entry: &TableEntry| current.servers.contains_key(&entry.origin.server);
        let here = |name: &Name| table.get(name).is_some_and(|entry| entry.to_save().is_some() && is_known(entry));
        if since == Revision::ZERO {
            set.count -= self.retain(number, set.number, |_| false)?; // resources that were not restored
            set.forgotten_at = table.journal().forgotten_at();
        } else if !table.journal().remembers_since(since, set.forgotten_at) {
            set.count -= self.retain(number, set.number, here)?;
            set.forgotten_at = table.journal().forgotten_at();
        } else {
            for (name, _) in table.removals(since) {
                set.count -= u32::from(self.remove(&resource_key(number, set.number, name.as_str()))?);
            }
        }
        let view_place = OnceCell::new();
        let added = table.changed_since(since);
        let prolonged = table.refreshed_since(since);
        // If another server has sent the same resource, only its origin has changed.
        let is_attributed_anew = since != Revision::ZERO && table.sums().reattributed() != set.reattributed;
        let attributed = is_attributed_anew.then(|| table.given_since(set.given)).into_iter().flatten();
        let attributed = attributed.filter(|(_, entry)| entry.changed <= since && entry.refreshed <= since);
        (set.reattributed, set.given) = (table.sums().reattributed(), table.sums().given());
        for (name, entry) in added.chain(prolonged).chain(attributed) {
            let key = resource_key(number, set.number, name.as_str());
            match entry.to_save().filter(|_| is_known(entry)) {
                Some(resource) => {
                    let server = current.servers.get(&entry.origin.server).map_or("", String::as_str);
                    let at = view.servers.iter().position(|known| known.name == server).unwrap_or_default();
                    let place = || place_of(view_place.get_or_init(|| view.place()), server, of, name.as_str());
                    let expires = entry.expires.map_or(0, |moment| (self.form.wall_time)(moment));
                    let record = ResourceRecord { server: at as u32, expires, ..ResourceRecord::default() };
                    set.count += u32::from(self.put(&key, record, resource, place)?);
                }
                None => set.count -= u32::from(self.remove(&key)?),
            }
        }
        Ok(())
    }

    /// Writes a resource. Returns whether it is new under its key.
    fn put(
        &mut self,
        key: &[u8],
        record: ResourceRecord,
        resource: &Resource,
        place: impl FnOnce() -> Vec<u8>,
    ) -> Result<bool, FileFault> {
        let hash = resource.content();
        let body = hash.to_bytes().to_vec();
        let content = ContentRecord { wrapper: resource.wrapper_without_body().encode_to_vec(), body: body.clone() };
        let content = self.sealed(place, content.encode_to_vec())?;
        let record = stamped(key, ResourceRecord { body, content, ..record }.encode_to_vec());
        if self.count_of(hash) == 0 {
            let bytes = self.sealed(|| hash.to_bytes().into(), resource.body.bytes().to_vec())?;
            self.bodies.insert(&hash.to_bytes()[..], &*bytes)?;
        }
        self.counts.insert(hash, self.count_of(hash) + 1);
        let before = self.resources.insert(key, &*record)?.map(|before| before.value().to_vec());
        self.saved.resources += 1;
        let is_new = before.is_none();
        self.release(key, before)?;
        Ok(is_new)
    }

    fn remove(&mut self, key: &[u8]) -> Result<bool, FileFault> {
        let before = self.resources.remove(key)?.map(|before| before.value().to_vec());
        let was_there = before.is_some();
        self.saved.removals += usize::from(was_there);
        self.release(key, before)?;
        Ok(was_there)
    }

    /// Removes the resources of a set for which `stays` is false. Returns how many.
    fn retain(&mut self, view: u32, set: u32, stays: impl Fn(&Name) -> bool) -> Result<u32, FileFault> {
        let range = keys_of_set(view, set);
        let mut gone = Vec::new();
        for entry in self.resources.range::<&[u8]>(&range.start[..]..&range.end[..])? {
            let key = entry?.0.value().to_vec();
            let name = std::str::from_utf8(key.get(8..).unwrap_or_default()).map(Name::from);
            if !name.is_ok_and(|name| stays(&name)) {
                gone.push(key);
            }
        }
        for key in &gone {
            self.remove(key)?;
        }
        Ok(gone.len() as u32)
    }

    fn remove_view(&mut self, number: u32) -> Result<(), FileFault> {
        self.views.remove(number)?;
        let range = keys_of_view(number);
        let keys = self.resources.range::<&[u8]>(&range.start[..]..&range.end[..])?;
        let keys = keys.map(|entry| Ok(entry?.0.value().to_vec())).collect::<Result<Vec<_>, FileFault>>()?;
        for key in keys {
            self.remove(&key)?;
        }
        Ok(())
    }

    /// Counts that a record is no longer in the file: its body may not be needed any more.
    fn release(&mut self, key: &[u8], record: Option<Vec<u8>>) -> Result<(), FileFault> {
        let Some(record) = record else { return Ok(()) };
        let damaged = |error: &dyn std::fmt::Display| FileFault::Unusable(error.to_string());
        let record = verified(key, &record).map_err(|error| damaged(&error))?;
        let record = ResourceRecord::decode(record).map_err(|error| damaged(&error))?;
        if let Ok(hash) = <[u8; 16]>::try_from(&*record.body) {
            let hash = ContentHash::from_bytes(hash);
            self.counts.insert(hash, self.count_of(hash).saturating_sub(1));
        }
        Ok(())
    }

    fn count_of(&self, body: ContentHash) -> u32 {
        self.counts.get(&body).or_else(|| self.known.get(&body)).copied().unwrap_or_default()
    }

    fn remove_unused_bodies(&mut self) -> Result<(), FileFault> {
        for (body, _) in self.counts.iter().filter(|(_, count)| **count == 0) {
            self.bodies.remove(&body.to_bytes()[..])?;
        }
        Ok(())
    }

    fn sealed(&self, place: impl FnOnce() -> Vec<u8>, plain: Vec<u8>) -> Result<Vec<u8>, FileFault> {
        match self.form.key {
            Some(key) => key.seal(&place(), &plain).map_err(|error| FileFault::Disk(error.to_string())),
            None => Ok(plain),
        }
    }
}

/// How often the file records that servers respond, if nothing else changes, in milliseconds.
const HEARD_EVERY: u64 = 30_000;
