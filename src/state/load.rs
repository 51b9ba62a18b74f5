//! Reads the file. Everything is compared with its hash, and what does not fit this relay is left out.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use redb::{Database, ReadableDatabase, ReadableTable};
use weir_core::proto::{Any, discovery};
use weir_core::protocol::sources::LowestOpen;
use weir_core::protocol::view::{BrakeState, Class, SavedResource, SavedSet, Snapshot};
use weir_core::xds::{Authority, ContentHash, HeaderHashes, HeaderName, Name, Resource};

use super::file::{BODIES, FileFault, RESOURCES, VIEWS};
use super::records::{
    ContentRecord, DamagedRecord, ResourceRecord, SetRecord, ViewPlace, ViewRecord, parts_of_key, place_of, verified,
};
use super::save::{Contents, ViewId, WrittenSet, WrittenView};
use super::sealing::SealingKey;
use super::{brakes, lowest};
use crate::relay::{ServerPlaces, Views};

/// A view as it is in the file.
pub(super) struct StoredView {
    pub(crate) number: u32,
    pub(crate) record: ViewRecord,
    place: OnceCell<ViewPlace>,
    /// The resources, by the numbers of their sets.
    resources: BTreeMap<u32, Vec<StoredResource>>,
}

pub(super) struct StoredResource {
    pub(crate) name: Name,
    pub(crate) record: ResourceRecord,
    pub(crate) content: ContentRecord,
}

impl StoredView {
    /// Returns the resources of a set, by its number.
    pub(super) fn of_set(&self, set: u32) -> impl Iterator<Item = &StoredResource> {
        self.resources.get(&set).into_iter().flatten()
    }
}

/// The contents of the file.
pub(super) struct Stored {
    pub(crate) views: Vec<StoredView>,
    bodies: HashMap<[u8; 16], Bytes>,
}

/// Why a view of the file is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(super) enum NotUsed {
    #[error("the fields of views.key, or types, are others now")]
    OtherKey,
    #[error("the headers in its key were hashed under another state.key")]
    OtherHashes,
    #[error("its secrets are not in the file (state.key, state.serve_without_secrets)")]
    LacksSecrets,
    #[error("its servers were not heard for longer than state.max_age")]
    TooOld,
    #[error("nothing of it came from a server that is still configured")]
    Nothing,
}

impl Stored {
    /// Reads everything. One damaged record makes the whole file unusable: the rest could have a set without one of its resources.
    pub(crate) fn read(database: &Database, key: Option<&SealingKey>) -> Result<Self, FileFault> {
        let reading = database.begin_read()?;
        let mut views = BTreeMap::new();
        for entry in reading.open_table(VIEWS)?.iter()? {
            let (number, record) = entry?;
            let record = verified(&number.value().to_be_bytes(), record.value())?;
            let record = ViewRecord::decode(record).map_err(|_| DamagedRecord)?;
            views.insert(
                number.value(),
                StoredView { number: number.value(), record, place: OnceCell::new(), resources: BTreeMap::new() },
            );
        }
        for entry in reading.open_table(RESOURCES)?.iter()? {
            let (at, record) = entry?;
            let record = ResourceRecord::decode(verified(at.value(), record.value())?).map_err(|_| DamagedRecord)?;
            let (view, set, name) = parts_of_key(at.value())?;
            let view = views.get_mut(&view).ok_or(DamagedRecord)?;
            let of = view.record.sets.iter().find(|known| known.number == set).ok_or(DamagedRecord)?;
            let server = view.record.servers.get(record.server as usize).ok_or(DamagedRecord)?;
            let place = || place_of(view.place.get_or_init(|| view.record.place()), &server.name, of, name);
            let content = opened(key, place, &record.content)?;
            let content = ContentRecord::decode(&*content).map_err(|_| DamagedRecord)?;
            if content.body != record.body {
                return Err(DamagedRecord.into());
            }
            view.resources.entry(set).or_default().push(StoredResource { name: name.into(), record, content });
        }
        let mut bodies = HashMap::new();
        for entry in reading.open_table(BODIES)?.iter()? {
            let (hash, body) = entry?;
            let hash = <[u8; 16]>::try_from(hash.value()).map_err(|_| DamagedRecord)?;
            bodies.insert(hash, Bytes::from(opened(key, || hash.to_vec(), body.value())?));
        }
        let views: Vec<_> = views.into_values().collect();
        for view in &views {
            let count = |set: &SetRecord| view.of_set(set.number).count();
            if view.record.sets.iter().any(|set| count(set) != set.count as usize) {
                return Err(DamagedRecord.into());
            }
        }
        Ok(Self { views, bodies })
    }

    /// Returns a body by its hash.
    pub(super) fn body(&self, hash: &[u8]) -> Option<&Bytes> {
        self.bodies.get(hash)
    }

    /// Returns the resources of a view: set, requested name and body.
    #[cfg(test)]
    pub(super) fn resources<'a>(
        &'a self,
        view: &'a StoredView,
    ) -> impl Iterator<Item = (&'a SetRecord, String, Vec<u8>)> {
        view.record.sets.iter().flat_map(move |set| {
            let body = |hash: &[u8]| self.body(hash).map(|body| body.to_vec()).unwrap_or_default();
            view.of_set(set.number).map(move |stored| (set, stored.name.to_string(), body(&stored.record.body)))
        })
    }

    /// Returns the contents of the file, so that later only changes are written.
    pub(crate) fn contents(&self) -> Contents {
        let next_view = self.views.iter().map(|view| view.number.saturating_add(1)).max().unwrap_or_default();
        let mut bodies = HashMap::new();
        for hash in self.bodies.keys() {
            bodies.insert(ContentHash::from_bytes(*hash), 0);
        }
        for resource in self.views.iter().flat_map(|view| view.resources.values()).flatten() {
            if let Ok(hash) = <[u8; 16]>::try_from(&*resource.record.body) {
                *bodies.entry(ContentHash::from_bytes(hash)).or_default() += 1;
            }
        }
        Contents { bodies, next_view, ..Contents::default() }
    }

    /// Returns what brakes held in a view.
    pub(crate) fn brakes_of(view: &StoredView, views: &Views) -> BrakeState {
        brakes::state_of(&view.record.brakes, &places(&view.record, views))
    }

    /// Returns the lowest open servers of a view.
    pub(crate) fn lowest_of(view: &StoredView, views: &Views) -> BTreeMap<Authority, LowestOpen> {
        lowest::lowest_of(&view.record.lowest, &places(&view.record, views))
    }

    /// Makes the sets of a view. A set of `*` is left out if any part of it cannot be used; a set of names is left out if no part can.
    pub(crate) fn sets_of(
        &self,
        view: &StoredView,
        views: &Views,
        clock: &WallClock,
    ) -> Result<Vec<SavedSet>, DamagedRecord> {
        let places = places(&view.record, views);
        let mut sets = Vec::new();
        for set in &view.record.sets {
            let (kind, class) = (views.types().resolve(&set.type_name), set.class());
            let mut saved = SavedSet {
                kind: kind.clone(),
                class,
                settled: set.collections.iter().map(|name| Name::from(&**name)).collect(),
                past: versions(&set.past)?,
                has_expired: set.has_expired,
                resources: Vec::with_capacity(set.count as usize),
            };
            let mut left_out = 0;
            for StoredResource { name, record, content } in view.of_set(set.number) {
                let Some((server, rank)) = places.of_resource(record.server as usize, class, name) else {
                    left_out += 1;
                    continue;
                };
                let Some(ttl) = clock.time_left(record.expires) else {
                    saved.has_expired = true; // as if it had expired in this process: it may still exist
                    continue;
                };
                let hash = <[u8; 16]>::try_from(&*record.body).map_err(|_| DamagedRecord)?;
                let body = self.bodies.get(&hash).ok_or(DamagedRecord)?.clone();
                let mut wrapper = discovery::Resource::decode(&*content.wrapper).map_err(|_| DamagedRecord)?;
                let type_url = wrapper.resource.map_or_else(|| kind.url().into_owned(), |any| any.type_url);
                wrapper.resource = Some(Any { type_url, value: body });
                let resource =
                    Resource::from_wrapper(0, wrapper, &kind, &views.shared().store).map_err(|_| DamagedRecord)?;
                if resource.content().to_bytes() != hash {
                    return Err(DamagedRecord);
                }
                let resource = if ttl.is_some() { resource.with_ttl(ttl) } else { resource };
                saved.resources.push(SavedResource { key: name.clone(), resource: resource.into(), server, rank });
            }
            let usable = left_out == 0 || class == Class::Named && !saved.resources.is_empty();
            sets.extend(usable.then_some(saved));
        }
        Ok(sets)
    }
}

/// Returns the places in the plan of the servers of a view.
fn places(record: &ViewRecord, views: &Views) -> ServerPlaces {
    views.shared().places_of(record.servers.iter().map(|server| &*server.name))
}

/// Returns what the file has of a restored view, so that later only changes are written. Of a set that was restored in part, only the number is kept.
pub(super) fn written(view: &StoredView, (restored, life): &(Arc<Snapshot>, u64), views: &Views) -> WrittenView {
    let (mut sets, mut leftover) = (BTreeMap::new(), Vec::new());
    for set in &view.record.sets {
        let (kind, class) = (views.types().resolve(&set.type_name), set.class());
        let table = restored.resources(&kind, class);
        match table.filter(|table| table.present_names().count() == set.count as usize) {
            Some(table) => {
                let (forgotten_at, reattributed, given) =
                    (table.journal().forgotten_at(), table.sums().reattributed(), table.sums().given());
                let known = WrittenSet { number: set.number, count: set.count, forgotten_at, reattributed, given };
                sets.insert((kind, class), known);
            }
            None => leftover.push(set.number),
        }
    }
    let next_set = view.record.sets.iter().map(|set| set.number.saturating_add(1)).max().unwrap_or_default();
    let servers = view.record.servers.clone();
    WrittenView {
        number: view.number,
        revision: restored.revision,
        reattributed: restored.reattributed(),
        life: *life,
        sets,
        leftover,
        next_set,
        servers,
        at: view.record.written,
        brake_changes: 0,
        lowest: Stored::lowest_of(view, views),
    }
}

pub(super) fn id_of(record: &ViewRecord, views: &Views) -> Option<ViewId> {
    let headers = record.headers.iter().filter_map(|of| Some((HeaderName::parse(&of.name).ok()?, of.hash.clone())));
    let key = views.shared().key_of_own_node(&record.node, &HeaderHashes::of(headers))?;
    Some(ViewId { shared: record.shared, key })
}

fn opened(key: Option<&SealingKey>, place: impl FnOnce() -> Vec<u8>, bytes: &[u8]) -> Result<Vec<u8>, FileFault> {
    match key {
        Some(key) => key.open(&place(), bytes).map_err(|_| FileFault::Unusable("state.key does not open it".into())),
        None => Ok(bytes.to_vec()),
    }
}

fn versions(bytes: &[u8]) -> Result<Vec<(weir_core::xds::SetVersion, weir_core::xds::SetVersion)>, DamagedRecord> {
    let (pairs, rest) = bytes.as_chunks::<32>();
    if !rest.is_empty() {
        return Err(DamagedRecord);
    }
    let half = |half: &[u8]| half.try_into().map(weir_core::xds::SetVersion::from_bytes).map_err(|_| DamagedRecord);
    pairs.iter().map(|pair| Ok((half(&pair[..16])?, half(&pair[16..])?))).collect()
}

/// The time of day, which may have been set wrong since the file was written.
pub(super) struct WallClock {
    /// In milliseconds since 1970.
    pub(crate) now: u64,
    /// Whether it is at most a minute before the latest write of a view to the file.
    pub(crate) is_plausible: bool,
}

impl WallClock {
    pub(crate) fn of(stored: &Stored, now: u64) -> Self {
        let latest = stored.views.iter().map(|view| view.record.written).max().unwrap_or_default();
        Self { now, is_plausible: now + CLOCK_ERROR >= latest }
    }

    /// Returns the time since a moment; `None` if it cannot be known.
    pub(crate) fn since(&self, moment: u64) -> Option<Duration> {
        (self.is_plausible && moment > 0).then(|| Duration::from_millis(self.now.saturating_sub(moment)))
    }

    /// Returns the remaining TTL of a resource: `None` if it has expired or this cannot be known, `Some(None)` if it never expires.
    fn time_left(&self, expires: u64) -> Option<Option<Duration>> {
        match expires {
            0 => Some(None),
            _ if !self.is_plausible || expires <= self.now => None,
            expires => Some(Some(Duration::from_millis(expires - self.now))),
        }
    }
}

/// The tolerance for corrections of the clock, in milliseconds.
const CLOCK_ERROR: u64 = 60_000;
