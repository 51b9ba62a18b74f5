//! What is counted of the present resources of a table: versions, bytes, and where they came from.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::protocol::moment::Moment;
use crate::protocol::view::options::ViewOptions;
use crate::protocol::view::update::Origin;
use crate::xds::{Name, Resource, SetVersion};

#[derive(Debug, Clone, Default)]
pub struct Sums {
    content: SetVersion,
    full: SetVersion,
    /// Earlier versions of the table, the last one last, each of bodies and of everything. A client that states one of them holds nothing
    /// else.
    past: Arc<Vec<(SetVersion, SetVersion)>>,
    bytes: usize,
    uncacheable: usize,
    by_server: Arc<BTreeMap<u16, usize>>,
    reattributed: u64,
    given: Moment,
    from_disk: usize,
    removed_since: usize,
}

impl Sums {
    /// Returns the version of everything present: of bodies alone, or of all that a delta client sees (I5).
    pub fn version(&self, full: bool) -> SetVersion {
        if full { self.full } else { self.content }
    }

    /// Whether the table has had this version: then a client that states it holds only resources that are present, or were
    /// removed by evidence.
    pub(crate) fn knows_version(&self, version: &str) -> bool {
        let known = |(bodies, all): &(SetVersion, SetVersion)| {
            [bodies, all].into_iter().any(|known| known.to_string() == version)
        };
        known(&(self.content, self.full)) || self.past.iter().rev().any(known)
    }

    /// Whether the set of everything that a delta client sees has had this sum.
    pub(crate) fn knows_sum(&self, sum: SetVersion) -> bool {
        self.full == sum || self.past.iter().any(|(_, all)| *all == sum)
    }

    /// Returns the remembered versions, the last one last.
    pub fn past_versions(&self) -> &[(SetVersion, SetVersion)] {
        &self.past
    }

    /// Remembers versions that an earlier process gave out.
    pub(in crate::protocol::view) fn restore_past_versions(&mut self, past: Vec<(SetVersion, SetVersion)>) {
        self.past = past.into();
    }

    /// Remembers the version that is published.
    pub(in crate::protocol::view) fn remember_version(&mut self, options: &ViewOptions) {
        let version = (self.content, self.full);
        if self.past.last() != Some(&version) {
            let past = Arc::make_mut(&mut self.past);
            past.retain(|known| *known != version);
            past.push(version);
            past.drain(..past.len().saturating_sub(options.past_versions));
        }
    }

    /// Returns the length of all present bodies.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns how many of the present resources must not be sent to later clients from a cache.
    pub(in crate::protocol::view) fn uncacheable(&self) -> usize {
        self.uncacheable
    }

    /// Returns how many of the present resources came from each server, by its place in the plan.
    pub fn by_server(&self) -> &BTreeMap<u16, usize> {
        &self.by_server
    }

    /// Returns how often a server gave the same resource as another one before. That is no change of a resource.
    pub fn reattributed(&self) -> u64 {
        self.reattributed
    }

    /// Returns when something was last given. What is given or attributed after this call has this `since` or a later one.
    pub fn given(&self) -> Moment {
        self.given
    }

    /// Returns how many of the present resources were loaded from disk, and not confirmed by a server since.
    pub fn loaded_from_disk(&self) -> usize {
        self.from_disk
    }

    /// Returns how many of the resources that were loaded from disk a server has removed since. They stay for now.
    pub(crate) fn removed_since(&self) -> usize {
        self.removed_since
    }

    /// Whether a server may still confirm something that was loaded from disk.
    pub(crate) fn awaits_confirmation(&self) -> bool {
        self.from_disk > self.removed_since
    }

    pub(super) fn note_given(&mut self, now: Moment) {
        self.given = now;
    }

    pub(super) fn add(&mut self, name: &Name, resource: &Resource, origin: Origin) {
        self.count(name, resource, SetVersion::plus, usize::saturating_add);
        self.count_origin(origin, usize::saturating_add);
    }

    pub(super) fn remove(&mut self, name: &Name, resource: &Resource, origin: Origin) {
        self.count(name, resource, SetVersion::minus, usize::saturating_sub);
        self.count_origin(origin, usize::saturating_sub);
    }

    /// The origin of a present resource has changed, and nothing else of it.
    pub(super) fn change_origin(&mut self, before: Origin, after: Origin) {
        self.count_origin(before, usize::saturating_sub);
        self.count_origin(after, usize::saturating_add);
        self.reattributed += u64::from(before.server != after.server);
    }

    fn count(&mut self, name: &Name, resource: &Resource, change: Change<SetVersion>, step: Change<usize>) {
        self.content = change(self.content, SetVersion::of(name.as_str(), resource.content()));
        self.full = change(self.full, SetVersion::of(name.as_str(), resource.full));
        self.bytes = step(self.bytes, resource.body.bytes().len());
        self.uncacheable = step(self.uncacheable, usize::from(resource.do_not_cache()));
    }

    fn count_origin(&mut self, origin: Origin, step: Change<usize>) {
        self.from_disk = step(self.from_disk, usize::from(origin.from_disk));
        self.removed_since = step(self.removed_since, usize::from(origin.from_disk && origin.is_removed));
        let counts = Arc::make_mut(&mut self.by_server);
        let count = counts.entry(origin.server).or_default();
        *count = step(*count, 1);
        if *count == 0 {
            counts.remove(&origin.server);
        }
    }
}

type Change<T> = fn(T, T) -> T;
