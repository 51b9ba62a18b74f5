//! What is kept of `*` for a client: what it stated, what it has been sent, and what was loaded from disk and is kept back from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use super::reply::Carried;
use crate::protocol::moment::Moment;
use crate::protocol::view::{Entry, ResourceTable, Revision};
use crate::protocol::visits::visit;
use crate::xds::{HeldVersions, Name, Resource, SetVersion};

#[derive(Debug)]
pub(super) struct Wildcard {
    /// Additions were sent up to here.
    pub(crate) added: Revision,
    /// What the client may hold, from the first reply on.
    pub(crate) progress: Option<Progress>,
    /// A reply has to be sent, even an empty one (DELTA-21, SOTW-23).
    pub(crate) first: bool,
    /// When it was requested.
    pub(crate) asked: Moment,
    /// What the client stated that it holds, until it can be compared (DELTA-13).
    pub(crate) initial_versions: Option<InitialVersions>,
    /// Extended TTLs were sent up to here.
    pub(crate) refreshed: Revision,
    /// Virtual hosts: the wildcard covers only those of the route configurations that the client requested.
    pub(crate) under: Option<BTreeSet<Name>>,
    /// The opening on which the wildcard was claimed, and what removals were forgotten then.
    pub(crate) claimed_on: Option<(Revision, Revision)>,
    /// A relay was sent the mark that its set is complete.
    pub(crate) sent_complete: bool,
    /// What was loaded from disk and this client is not sent yet.
    pub(crate) withheld: Withheld,
}

impl Wildcard {
    pub(crate) fn new(stated: Option<InitialVersions>, asked: Moment) -> Self {
        Self {
            added: Revision::ZERO,
            progress: None,
            first: true,
            asked,
            initial_versions: stated,
            refreshed: Revision::ZERO,
            under: None,
            claimed_on: None,
            sent_complete: false,
            withheld: Withheld::default(),
        }
    }

    /// Whether this wildcard includes a name. The part before the last `/` names the route configuration (DELTA-37).
    pub(crate) fn covers(&self, name: &Name) -> bool {
        let Some(routes) = &self.under else { return true };
        name.as_str().rsplit_once('/').is_some_and(|(route, _)| routes.contains(route))
    }

    /// Returns how old its resources in a reply are.
    pub(crate) fn carried(&self, received: impl FnOnce() -> Option<Moment>) -> Carried {
        match self.first {
            true => Carried { request: Some(self.asked), change: None },
            false => Carried { request: None, change: received() },
        }
    }

    /// Records that the additions of a snapshot were sent. From the first reply on the client holds resources, and is sent their
    /// removals.
    pub(crate) fn record_additions_sent(&mut self, mark: Revision) {
        self.progress.get_or_insert_with(|| Progress::starting(mark)).record_additions_sent(mark);
    }
}

/// `initial_resource_versions`, kept only while the set is incomplete.
#[derive(Debug)]
pub(super) struct InitialVersions {
    versions: HeldVersions,
    /// Places of names that the client has been sent since, so that the stated version no longer counts; empty if there are none.
    outdated: Box<[bool]>,
    /// See [`Self::sum`]. Few clients need it, and there may be many names.
    sum: OnceLock<Option<SetVersion>>,
    /// The client subscribed again, and is sent everything, also what it stated. Removals are still to be sent.
    pub(super) send_all: bool,
    /// The snapshot that it was last compared with, and that led to no more removals.
    pub(super) judged_at: Option<Revision>,
}

impl InitialVersions {
    pub(super) fn new(versions: HeldVersions) -> Self {
        Self { versions, outdated: Box::default(), sum: OnceLock::new(), send_all: false, judged_at: None }
    }

    /// Returns the version of the set that is stated, if a relay may have given it.
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

    /// Whether the client still holds this content.
    pub(super) fn holds(&self, resource: &Resource) -> bool {
        let stated = || self.versions.place(resource.name.as_str()).filter(|place| !self.is_outdated(*place));
        !self.send_all && stated().is_some_and(|place| self.versions.content(place) == Some(resource.full))
    }

    /// Whether the client has stated this content, or has stated the name and was sent this since.
    pub(super) fn has_or_was_sent(&self, resource: &Resource) -> bool {
        let place = self.versions.place(resource.name.as_str());
        place.is_some_and(|at| self.is_outdated(at) || self.versions.content(at) == Some(resource.full))
    }

    /// Whether the client still holds something under this name.
    pub(super) fn has(&self, name: &Name) -> bool {
        self.versions.place(name.as_str()).is_some_and(|place| !self.is_outdated(place))
    }

    /// Returns the names, with their places, whose stated versions still count, in order. A name that asks for the end of the set is one
    /// of them: it is removed once the set is complete.
    pub(super) fn current(&self) -> impl Iterator<Item = (usize, &Name)> {
        let all = self.versions.names().inspect(|_| visit()).enumerate();
        all.filter(|(place, _)| !self.is_outdated(*place))
    }

    /// Records that the client was sent a name.
    pub(super) fn note_sent(&mut self, name: &Name) {
        if let Some(place) = self.versions.place(name.as_str()) {
            self.note_judged(place);
        }
    }

    /// Records that the stated version at a place no longer counts.
    pub(super) fn note_judged(&mut self, place: usize) {
        if self.outdated.is_empty() {
            self.outdated = vec![false; self.versions.len()].into();
        }
        self.outdated[place] = true;
    }

    /// Returns the limit of the store in bytes, if there is no room for them any more.
    pub(super) fn refused_above(&self) -> Option<usize> {
        self.versions.refused_above()
    }

    fn is_outdated(&self, place: usize) -> bool {
        self.outdated.get(place).is_some_and(|outdated| *outdated)
    }
}

/// Removals up to one revision, and the snapshots whose additions were sent since.
#[derive(Debug)]
pub(super) struct Progress {
    removals: Revision,
    /// First and last revision of each. If bursts were interrupted many times, neighbours are merged.
    additions: Vec<(Revision, Revision)>,
}

impl Progress {
    /// Starts with the snapshot of the first reply.
    pub(crate) fn starting(mark: Revision) -> Self {
        Self { removals: mark, additions: vec![(mark, mark)] }
    }

    pub(crate) fn removals(&self) -> Revision {
        self.removals
    }

    pub(crate) fn record_additions_sent(&mut self, mark: Revision) {
        if self.additions.last().is_some_and(|(_, last)| *last == mark) {
            return;
        }
        self.additions.push((mark, mark));
        if self.additions.len() > REMEMBERED {
            let (_, last) = self.additions.remove(REMEMBERED);
            self.additions[REMEMBERED - 1].1 = last;
        }
    }

    /// Records that removals up to a revision were sent; more of this snapshot will follow.
    pub(crate) fn record_removals_sent_to(&mut self, revision: Revision) {
        self.removals = self.removals.max(revision);
    }

    /// Records that everything was sent: the client holds what this snapshot has.
    pub(crate) fn record_all_sent(&mut self, mark: Revision) {
        *self = Self::starting(mark);
    }

    /// Whether the client may hold a resource that is removed now.
    pub(crate) fn client_may_hold(&self, gone: &Entry) -> bool {
        self.additions.iter().any(|(from, to)| gone.history.overlaps(*from, *to, gone.changed))
    }
}

const REMEMBERED: usize = 6;

/// Members of `*` that a client is not sent before a server has confirmed them. It is sent all others.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    /// With each whether the client may hold something under the name.
    names: BTreeMap<Name, bool>,
    /// How many resources of the set were from disk when these were last looked at, and how many of them a server had removed. None after
    /// some of them could not be sent.
    looked: Option<(usize, usize)>,
}

impl Withheld {
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn has(&self, name: &Name) -> bool {
        !self.names.is_empty() && self.names.contains_key(name)
    }

    /// Whether the client may hold something under a name, if that is withheld.
    pub(super) fn may_hold(&self, name: &Name) -> Option<bool> {
        self.names.get(name).copied()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.names.keys().inspect(|_| visit())
    }

    /// Withholds a resource, or one that need not be kept back any more and cannot be sent now.
    pub(super) fn add(&mut self, name: Name, may_hold: bool) {
        self.names.insert(name, may_hold);
        self.looked = None;
    }

    /// Returns those that need not be kept back any more, by what has become of them since the last call: a server has confirmed them, or it
    /// has removed what the client does not hold. What is not present is forgotten.
    pub(super) fn take_free(&mut self, table: &ResourceTable) -> BTreeSet<Name> {
        let looked = Some((table.loaded_from_disk(), table.removed_since()));
        if self.names.is_empty() || self.looked == looked {
            return BTreeSet::new();
        }
        self.looked = looked;
        let present = |name: &Name| table.get(name).filter(|entry| entry.resource().is_some());
        let is_kept = |of: &Entry, may_hold: bool| of.origin.is_kept_back(|| may_hold);
        let is_free = |name: &Name, may_hold| present(name).is_none_or(|entry| !is_kept(entry, may_hold));
        let free = self.names.extract_if(.., |name, may_hold| is_free(name, *may_hold)).map(|(name, _)| name);
        free.filter(|name| present(name).is_some()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::proto::{Any, discovery};
    use crate::protocol::moment::Moment;
    use crate::protocol::view::{Class, Evidence, InterestChange, Selector, SessionId, Update, View};
    use crate::xds::{BodyStore, Resource, TypeTable};

    /// Adds one name at each of so many revisions, and then removes them all. Returns the removed ones by revision.
    fn added_and_removed(count: usize) -> Vec<Entry> {
        let kind = TypeTable::new().resolve("type.googleapis.com/own.Type");
        let mut view = View::new(Arc::new(TypeTable::new()), Arc::default());
        let change = InterestChange { kind: kind.clone(), selector: Selector::Wildcard, on: true };
        view.change_interest(SessionId(1), change, Moment::START);
        let names: Vec<_> = (1..=count).map(|number| number.to_string()).collect();
        let class = Class::Wildcard;
        for name in &names {
            let resource = Some(Any { type_url: "type.googleapis.com/own.Type".into(), value: "1".into() });
            let wrapper = discovery::Resource { name: name.clone(), resource, ..Default::default() };
            let resource = Arc::new(Resource::from_wrapper(0, wrapper, &kind, &BodyStore::default()).unwrap());
            let (kind, key) = (kind.clone(), name.as_str().into());
            view.apply(vec![Update::Upsert { kind, class, key, resource }], Moment::START);
        }
        let gone = |name: &String| {
            let (kind, key, evidence) = (kind.clone(), name.as_str().into(), Evidence::Reported);
            Update::Absent { kind, class, key, evidence }
        };
        view.apply(names.iter().map(gone).collect(), Moment::START);
        view.publish();
        let table = view.snapshot().resources(&kind, class).unwrap();
        names.iter().map(|name| table.get(&name.as_str().into()).unwrap().clone()).collect()
    }

    fn revision(number: usize) -> Revision {
        (0..number).fold(Revision::ZERO, |revision, _| revision.next())
    }

    #[test]
    fn what_any_of_many_bursts_has_sent_that_were_cut_short_the_client_may_hold() {
        let entries = added_and_removed(20);
        for bursts in 1..=20 {
            let mut progress = Progress::starting(revision(1));
            (1..=bursts).for_each(|burst| progress.record_additions_sent(revision(burst)));
            let held: Vec<_> = entries.iter().map(|gone| progress.client_may_hold(gone)).collect();
            let sent: Vec<_> = (1..=20).map(|added| added <= bursts).collect();
            assert_eq!(held, sent, "after {bursts} bursts");
            assert!(progress.additions.len() <= REMEMBERED);
        }
    }

    #[test]
    fn once_everything_was_sent_earlier_bursts_count_no_more() {
        let entries = added_and_removed(3);
        let mut progress = Progress::starting(revision(1));
        progress.record_additions_sent(revision(3));
        progress.record_all_sent(revision(6)); // all three are removed by then
        assert!(!entries.iter().any(|gone| progress.client_may_hold(gone)));
    }
}
