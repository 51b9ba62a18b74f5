//! What a client states that it holds of one type when it comes; and what of that, or of what it was sent, is claimed because the view does not
//! know it.
//!
//! A name is claimed once on each opening. The answer is kept until the client is sent it, because no table shows that a claimed name does not exist.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::protocol::view::{Claimed, Class, ResourceTable, Revision, Snapshot};
use crate::protocol::visits::visit;
use crate::xds::{HeldVersions, Name, Resource, SetVersion, Type, VersionText};

/// What the client states of the type as a whole.
#[derive(Debug, Default)]
pub(super) struct Stated {
    /// The client stated that it holds something, or may hold something that it did not state, for example because it is a relay.
    holds_something: bool,
    /// The client itself has stated that it holds something.
    by_client: bool,
    /// The version that the client of a pure wildcard stated. Equal content need not be sent again (SOTW-4). Empty if it is longer than the versions
    /// of relays: another server gave it, so no set has it.
    version: Option<String>,
    /// The client has left `*`, and may hold resources that it had of it: it was sent no complete set since.
    left_wildcard: bool,
}

impl Stated {
    /// Records whether the first request of the type states that the client holds something.
    pub(super) fn on_first_request(&mut self, holds_something: bool) {
        self.holds_something |= holds_something;
        self.by_client |= holds_something;
    }

    /// Records that the client may hold something that it has not stated.
    pub(super) fn doubt(&mut self) {
        self.holds_something = true;
    }

    pub(super) fn set_version(&mut self, version: String) {
        self.version = Some(if version.len() > size_of::<VersionText>() { String::new() } else { version });
    }

    pub(super) fn forget_version(&mut self) {
        self.version = None;
    }

    /// Records that everything the client stated has been compared with the view.
    pub(super) fn on_judged(&mut self) {
        self.holds_something = false;
    }

    /// Records that a complete set was sent: from now on the client holds what it was sent.
    pub(super) fn on_set_sent(&mut self) {
        (self.version, self.holds_something, self.left_wildcard) = (None, false, false);
    }

    /// Records that a client that is sent complete sets has left `*`. `was_sent` is set if it was sent one of `*`.
    pub(super) fn on_wildcard_left(&mut self, was_sent: bool) {
        self.left_wildcard |= was_sent || self.holds_something;
    }

    /// Whether the client may hold a name that it subscribes to now because it had it of `*`.
    pub(super) fn may_hold_of_left_wildcard(&self) -> bool {
        self.left_wildcard
    }

    /// Whether the client may hold something that the view does not know.
    pub(super) fn holds_something(&self) -> bool {
        self.holds_something
    }

    pub(super) fn is_by_client(&self) -> bool {
        self.by_client
    }

    pub(super) fn has_version(&self) -> bool {
        self.version.is_some()
    }

    pub(super) fn is_version(&self, version: SetVersion) -> bool {
        self.version.as_ref().is_some_and(|stated| *stated == version.to_string())
    }

    /// Whether the client stated a version that the set had.
    pub(super) fn is_past_version(&self, table: &ResourceTable) -> bool {
        self.version.as_ref().is_some_and(|version| table.sums().knows_version(version))
    }
}

/// The `initial_resource_versions` of a client, kept until all of them are compared with the set.
#[derive(Debug)]
pub(super) struct InitialVersions {
    versions: HeldVersions,
    /// Which names, by index, the client has been sent since, so that the stated version no longer counts. Empty if there are none.
    outdated: Box<[bool]>,
    /// See [`Self::sum`]. Computed on demand, since few clients need it, and there may be many names.
    sum: OnceLock<Option<SetVersion>>,
    /// The client subscribed again, so it is sent everything, even what it stated. Removals of stated names are still to be sent.
    send_all: bool,
    /// The snapshot that the versions were last compared with, if that showed all removals that it could.
    judged_at: Option<Revision>,
    /// The snapshot whose removals of stated names were all sent beside additions. The names that stay are compared after the last addition.
    removals_judged_at: Option<Revision>,
}

impl InitialVersions {
    pub(super) fn new(versions: HeldVersions) -> Self {
        let (outdated, sum) = (Box::default(), OnceLock::new());
        Self { versions, outdated, sum, send_all: false, judged_at: None, removals_judged_at: None }
    }

    /// Returns the version of the set that the client states. `None` if no relay can have sent one of its versions.
    pub(super) fn sum(&self) -> Option<SetVersion> {
        let share = |(name, content): (&Name, Option<_>)| content.map(|content| SetVersion::of(name.as_str(), content));
        let add = |sum: SetVersion, stated| Some(sum.plus(share(stated)?));
        let all = || self.versions.iter().inspect(|_| visit());
        let resources = || all().filter(|(name, _)| !name.asks_for_end());
        *self.sum.get_or_init(|| resources().try_fold(SetVersion::EMPTY, add))
    }

    /// Returns how many names are stated.
    pub(super) fn len(&self) -> usize {
        self.versions.len()
    }

    /// Whether the client still holds the stated content of this resource.
    pub(super) fn holds(&self, resource: &Resource) -> bool {
        let stated = || self.versions.place(resource.name.as_str()).filter(|place| !self.is_outdated(*place));
        !self.send_all && stated().is_some_and(|place| self.versions.content(place) == Some(resource.full))
    }

    /// Whether the client has stated this content, or has stated the name and was sent it since.
    pub(super) fn has_or_was_sent(&self, resource: &Resource) -> bool {
        let place = self.versions.place(resource.name.as_str());
        place.is_some_and(|at| self.is_outdated(at) || self.versions.content(at) == Some(resource.full))
    }

    /// Whether the stated version of a name still counts.
    pub(super) fn has(&self, name: &Name) -> bool {
        self.versions.place(name.as_str()).is_some_and(|place| !self.is_outdated(place))
    }

    /// Returns in order the names whose stated versions still count, with their indexes. A name that asks for the end of the set is one of them:
    /// it is removed when the set is complete and was sent.
    pub(super) fn current(&self) -> impl Iterator<Item = (usize, &Name)> {
        let all = self.versions.names().inspect(|_| visit()).enumerate();
        all.filter(|(place, _)| !self.is_outdated(*place))
    }

    /// Records that the client subscribed again, so it is sent everything, even what it stated.
    pub(super) fn send_all(&mut self) {
        self.send_all = true;
    }

    /// Records that the client was sent a name.
    pub(super) fn note_sent(&mut self, name: &Name) {
        if let Some(place) = self.versions.place(name.as_str()) {
            self.note_outdated(place);
        }
    }

    /// Records the indexes of names that are judged; and the snapshot, if all other names were compared with it too. Beside additions, these were
    /// compared for their removal only.
    pub(super) fn note_judged(&mut self, places: Vec<usize>, compared: Option<Revision>, beside_additions: bool) {
        places.into_iter().for_each(|place| self.note_outdated(place));
        let judged_at = if beside_additions { &mut self.removals_judged_at } else { &mut self.judged_at };
        *judged_at = compared.or(*judged_at);
    }

    /// Records that something is known now that the snapshot does not show.
    pub(super) fn judge_again(&mut self) {
        (self.judged_at, self.removals_judged_at) = (None, None);
    }

    pub(super) fn is_judged_at(&self, revision: Revision, beside_additions: bool) -> bool {
        self.judged_at == Some(revision) || beside_additions && self.removals_judged_at == Some(revision)
    }

    /// Returns the limit of the store in bytes, if the store has no room any more for these versions.
    pub(super) fn refused_above(&self) -> Option<usize> {
        self.versions.refused_above()
    }

    fn note_outdated(&mut self, place: usize) {
        if self.outdated.is_empty() {
            self.outdated = vec![false; self.versions.len()].into();
        }
        self.outdated[place] = true;
    }

    fn is_outdated(&self, place: usize) -> bool {
        self.outdated.get(place).is_some_and(|outdated| *outdated)
    }
}

/// What a client may hold although the view does not know it.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Claimed names, each with the opening on which it was claimed.
    claimed: BTreeMap<(Class, Name), Revision>,
    /// Claims that the view was not given yet.
    new: Vec<Claimed>,
    /// Claimed names that do not exist, each with the revision of the answer. An answer is evidence until the next opening.
    absent: BTreeMap<(Class, Name), Revision>,
    /// The view has had no room for claims of the type. Nothing is claimed until it has room again.
    awaits_room: bool,
}

impl Claims {
    /// Claims a name that the client may hold, unless it was claimed on this opening. The caller knows too little of it for a reply.
    pub(super) fn claim(&mut self, class: Class, name: &Name, opening: Revision) {
        if !self.awaits_room && self.claimed.insert((class, name.clone()), opening) != Some(opening) {
            self.new.push(Claimed::Name(class, name.clone()));
        }
    }

    /// Claims the whole set.
    pub(super) fn claim_set(&mut self) {
        self.new.push(Claimed::Set);
    }

    /// Claims stated names of `*` for which no answer is kept. The caller claims them once on each opening.
    pub(super) fn claim_stated<'a>(&mut self, names: impl Iterator<Item = &'a Name>, table: &ResourceTable) {
        let Self { new, absent, .. } = self;
        let unknown = names.filter(|name| !is_absent(absent, Class::Wildcard, name, Some(table)));
        new.extend(unknown.map(|name| Claimed::Name(Class::Wildcard, name.clone())));
    }

    /// Returns what was claimed since the last call.
    pub(super) fn take_new(&mut self) -> impl Iterator<Item = Claimed> {
        self.new.drain(..)
    }

    pub(super) fn is_claimed(&self, class: Class, name: &Name) -> bool {
        self.claimed.contains_key(&(class, name.clone()))
    }

    /// Records that something is known of a claimed name now. Returns whether it was claimed.
    pub(super) fn end(&mut self, class: Class, name: &Name) -> bool {
        !self.claimed.is_empty() && self.claimed.remove(&(class, name.clone())).is_some()
    }

    /// Records that a claimed name does not exist.
    pub(super) fn add_absent(&mut self, class: Class, name: &Name, answered: Revision) {
        self.absent.insert((class, name.clone()), answered);
    }

    /// Whether a name is known not to exist by the answer to a claim. `table` is the table of this class, which does not show that.
    pub(super) fn is_absent(&self, class: Class, name: &Name, table: Option<&ResourceTable>) -> bool {
        is_absent(&self.absent, class, name, table)
    }

    /// Forgets answers of earlier openings, and those that are of no use any more.
    pub(super) fn release_answers(&mut self, kind: &Type, state: &Snapshot, is_of_use: impl Fn(Class, &Name) -> bool) {
        if self.absent.is_empty() {
            return;
        }
        self.absent.retain(|(class, name), answered| {
            let opening = state.resources(kind, *class).map_or(Revision::ZERO, |table| table.opening_of(*class, name));
            is_of_use(*class, name) && *answered > opening
        });
    }

    /// Drops a claim for which the view has no room. When there is room, it is made again from what the client states or was sent.
    pub(super) fn on_refused(&mut self, class: Class, name: Name) {
        self.awaits_room = true;
        self.claimed.remove(&(class, name));
    }

    pub(super) fn on_room(&mut self) {
        self.awaits_room = false;
    }

    pub(super) fn awaits_room(&self) -> bool {
        self.awaits_room
    }
}

fn is_absent(
    absent: &BTreeMap<(Class, Name), Revision>,
    class: Class,
    name: &Name,
    table: Option<&ResourceTable>,
) -> bool {
    if absent.is_empty() {
        return false; // the usual case
    }
    let is_back = class == Class::Wildcard && table.is_some_and(|table| table.coverage().is_unreadable(name));
    let opening = table.map_or(Revision::ZERO, |table| table.opening_of(class, name));
    !is_back && absent.get(&(class, name.clone())).is_some_and(|answered| *answered > opening)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i10_a_version_that_no_relay_gives_counts_as_another_and_its_text_is_not_kept() {
        let (own, mut stated) = (SetVersion::EMPTY, Stated::default());
        for version in [own.to_string(), "7".to_owned(), "7".repeat(1 << 20)] {
            let is_own = version == own.to_string();
            stated.set_version(version);
            assert_eq!((stated.has_version(), stated.is_version(own)), (true, is_own));
            assert!(stated.version.as_ref().is_some_and(|kept| kept.capacity() < 100));
        }
    }
}
