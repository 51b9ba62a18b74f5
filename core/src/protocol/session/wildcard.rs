//! What a session keeps of `*` for a client: what the client stated, what it was sent, and what was loaded from disk and is kept back from it.

use std::collections::{BTreeMap, BTreeSet};

use super::carried::ReplyAge;
use super::client::{Client, Variant};
use super::stated::InitialVersions;
use crate::protocol::moment::Moment;
use crate::protocol::view::{ResourceTable, Revision, TableEntry};
use crate::protocol::visits::visit;
use crate::xds::Name;

/// `*` keeps cursors instead of names, except names that the client stated or that are kept back from it.
#[derive(Debug)]
pub(super) struct Wildcard {
    /// Up to which revision additions were sent.
    added: Revision,
    /// What the client may hold, from the first reply on.
    progress: Option<Progress>,
    /// A reply is due, even an empty one (DELTA-21, SOTW-23).
    first: bool,
    /// When the client requested `*`.
    asked: Moment,
    /// What the client stated that it holds, until all of it is compared (DELTA-13).
    initial_versions: Option<InitialVersions>,
    /// Up to which revision extended TTLs were sent.
    refreshed: Revision,
    /// Virtual hosts: the wildcard covers only those of the route configurations that the client requested.
    under: Option<BTreeSet<Name>>,
    /// The opening on which the wildcard was claimed, and up to which revision removals were forgotten then.
    claimed_on: Option<(Revision, Revision)>,
    /// A relay was sent the mark that its set is complete.
    sent_complete: bool,
    /// Resources that were loaded from disk and are kept back from this client.
    withheld: Withheld,
}

impl Wildcard {
    pub(super) fn new(initial_versions: Option<InitialVersions>, asked: Moment) -> Self {
        Self {
            added: Revision::ZERO,
            progress: None,
            first: true,
            asked,
            initial_versions,
            refreshed: Revision::ZERO,
            under: None,
            claimed_on: None,
            sent_complete: false,
            withheld: Withheld::default(),
        }
    }

    /// Whether this wildcard includes a name. The part before the last `/` names the route configuration (DELTA-37).
    pub(super) fn covers(&self, name: &Name) -> bool {
        let Some(routes) = &self.under else { return true };
        name.as_str().rsplit_once('/').is_some_and(|(route, _)| routes.contains(route))
    }

    /// Returns the route configurations to which the wildcard is limited.
    pub(super) fn under(&self) -> Option<&BTreeSet<Name>> {
        self.under.as_ref()
    }

    /// Limits a wildcard of virtual hosts to these route configurations, unless it is limited already or something was sent for it.
    pub(super) fn limit_to(&mut self, routes: BTreeSet<Name>) {
        if self.under.is_none() && self.progress.is_none() {
            self.under = Some(routes);
        }
    }

    /// Records which route configurations the client requests now, for a wildcard that is limited to them.
    pub(super) fn follow_routes(&mut self, routes: BTreeSet<Name>) {
        if let Some(under) = &mut self.under {
            *under = routes;
        }
    }

    /// Records that the client subscribed to `*` again: everything is sent again, since the client may have forgotten it (DELTA-10).
    pub(super) fn request_again(&mut self, asked: Moment) {
        (self.first, self.asked) = (true, asked);
        self.initial_versions.iter_mut().for_each(InitialVersions::send_all);
        (self.added, self.sent_complete, self.withheld) = (Revision::ZERO, false, Withheld::default());
    }

    /// Returns up to which revision additions were sent.
    pub(super) fn added(&self) -> Revision {
        self.added
    }

    /// Returns up to which revision extended TTLs were sent.
    pub(super) fn refreshed(&self) -> Revision {
        self.refreshed
    }

    /// Whether the first reply has yet to be sent.
    pub(super) fn is_first(&self) -> bool {
        self.first
    }

    pub(super) fn asked(&self) -> Moment {
        self.asked
    }

    /// Returns the age of what a reply carries for `*`.
    pub(super) fn carried(&self, received: impl FnOnce() -> Option<Moment>) -> ReplyAge {
        match self.first {
            true => ReplyAge::of_request(self.asked),
            false => ReplyAge::of_change(received()),
        }
    }

    /// Returns up to which revision removals were sent, from the first reply on.
    pub(super) fn removals_sent(&self) -> Option<Revision> {
        self.progress.as_ref().map(|progress| progress.removals)
    }

    /// Whether the client may hold a resource that is removed now, or an earlier version of one.
    pub(super) fn client_may_hold(&self, entry: &TableEntry) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.client_may_hold(entry))
    }

    /// Records that additions of a snapshot were sent. From the first reply on the client may hold resources, and is sent their removals.
    pub(super) fn record_additions_sent(&mut self, mark: Revision) {
        self.progress.get_or_insert_with(|| Progress::starting(mark)).record_additions_sent(mark);
    }

    /// Records that additions up to a revision were sent or need not be sent.
    pub(super) fn record_passed(&mut self, revision: Revision) {
        self.added = revision.max(self.added);
    }

    /// Records that TTLs that were extended up to a revision were sent or need not be sent.
    pub(super) fn record_refreshed(&mut self, revision: Revision) {
        self.refreshed = revision;
    }

    /// Records that all additions and extended TTLs of a snapshot were sent or need not be sent.
    pub(super) fn record_all_passed(&mut self, mark: Revision) {
        (self.refreshed, self.added) = (mark, mark.max(self.added));
    }

    /// Records a reply with the additions of a snapshot, or with a part of them if `is_all` is not set.
    pub(super) fn record_reply(&mut self, mark: Revision, is_all: bool) {
        self.record_additions_sent(mark);
        self.first &= !is_all;
    }

    /// Records a batch of a snapshot, which has all additions unless it is cut after a revision. A client that lacks
    /// a change of a TTL is sent no batch.
    pub(super) fn record_batch(&mut self, cut_after: Option<Revision>, mark: Revision) {
        match cut_after {
            Some(last) => (self.added, self.refreshed) = (last, mark),
            None => self.record_all_passed(mark),
        }
        self.record_reply(mark, cut_after.is_none());
    }

    /// Records a complete set.
    pub(super) fn record_set(&mut self, mark: Revision) {
        (self.added, self.refreshed) = (mark, mark);
        self.record_reply(mark, true);
    }

    /// Records that removals up to a revision were sent; more of this snapshot will follow.
    pub(super) fn record_removals_sent_to(&mut self, revision: Revision) {
        if let Some(progress) = &mut self.progress {
            progress.record_removals_sent_to(revision);
        }
    }

    /// Records that everything was sent: the client holds what this snapshot has.
    pub(super) fn record_all_sent(&mut self, mark: Revision) {
        if let Some(progress) = &mut self.progress {
            progress.record_all_sent(mark);
        }
    }

    pub(super) fn is_marked_complete(&self) -> bool {
        self.sent_complete
    }

    /// Records the completeness mark of a reply. Returns whether it differs from the last mark.
    pub(super) fn mark_complete(&mut self, complete: bool) -> bool {
        std::mem::replace(&mut self.sent_complete, complete) != complete
    }

    pub(super) fn initial_versions(&self) -> Option<&InitialVersions> {
        self.initial_versions.as_ref()
    }

    /// Records that the client was sent a name, or its removal.
    pub(super) fn note_sent(&mut self, name: &Name) {
        self.initial_versions.iter_mut().for_each(|stated| stated.note_sent(name));
    }

    /// Records the indexes of stated names that are judged. See [`InitialVersions::note_judged`].
    pub(super) fn note_judged(&mut self, places: Vec<usize>, compared: Option<Revision>, beside_additions: bool) {
        if let Some(stated) = &mut self.initial_versions {
            stated.note_judged(places, compared, beside_additions);
        }
    }

    pub(super) fn judge_again(&mut self) {
        self.initial_versions.iter_mut().for_each(InitialVersions::judge_again);
    }

    /// Forgets what the client stated.
    pub(super) fn forget_initial_versions(&mut self) {
        self.initial_versions = None;
    }

    /// Records that the wildcard was claimed on an opening, with this horizon of forgotten removals. Returns whether that is new.
    pub(super) fn claim_on(&mut self, opening: Revision, forgotten: Revision) -> bool {
        let claimed_on = Some((opening, forgotten));
        std::mem::replace(&mut self.claimed_on, claimed_on) != claimed_on
    }

    pub(super) fn forget_claim(&mut self) {
        self.claimed_on = None;
    }

    pub(super) fn withheld(&self) -> &Withheld {
        &self.withheld
    }

    /// Returns what need not be kept back any more. See [`Withheld::take_free`].
    pub(super) fn take_free(&mut self, table: &ResourceTable) -> BTreeSet<Name> {
        self.withheld.take_free(table)
    }

    /// Keeps back names that were free and cannot be sent now.
    pub(super) fn return_free<'a>(&mut self, names: impl Iterator<Item = &'a Name>) {
        names.for_each(|name| self.withheld.add(name.clone(), false));
    }

    /// Keeps a resource back from this client.
    pub(super) fn withhold(&mut self, name: &Name, client: &Client) {
        let may_hold = self.may_state(name, client);
        self.withheld.add(name.clone(), may_hold);
    }

    /// Whether an entry is kept back from a client that may hold something newer.
    pub(super) fn keeps_back(&self, name: &Name, entry: &TableEntry, client: &Client) -> bool {
        let may_hold = || self.withheld.may_hold(name).unwrap_or_else(|| self.may_state(name, client));
        entry.origin.is_kept_back(may_hold)
    }

    /// Whether the client may have stated that it holds something under a name. SotW states no names. For a relay it is always `false`: a set that
    /// ends without the resource would remove it for the relay's clients.
    fn may_state(&self, name: &Name, client: &Client) -> bool {
        let states_it =
            || self.initial_versions.as_ref().map_or(client.variant == Variant::Sotw, |stated| stated.has(name));
        !client.relay && states_it()
    }
}

/// Up to which revision removals were sent, and the snapshots whose additions were sent since then.
#[derive(Debug)]
struct Progress {
    removals: Revision,
    /// The first and the last revision of each range of snapshots. If bursts were interrupted many times, neighbours are merged.
    additions: Vec<(Revision, Revision)>,
}

impl Progress {
    /// Starts with the snapshot of the first reply.
    fn starting(mark: Revision) -> Self {
        Self { removals: mark, additions: vec![(mark, mark)] }
    }

    fn record_additions_sent(&mut self, mark: Revision) {
        if self.additions.last().is_some_and(|(_, last)| *last == mark) {
            return;
        }
        self.additions.push((mark, mark));
        if self.additions.len() > REMEMBERED {
            let (_, last) = self.additions.remove(REMEMBERED);
            self.additions[REMEMBERED - 1].1 = last;
        }
    }

    /// Records that removals up to a revision were sent, and that more of this snapshot will follow.
    fn record_removals_sent_to(&mut self, revision: Revision) {
        self.removals = self.removals.max(revision);
    }

    /// Records that everything was sent: the client holds what this snapshot has.
    fn record_all_sent(&mut self, mark: Revision) {
        *self = Self::starting(mark);
    }

    /// Whether the client may hold a resource that is removed now.
    fn client_may_hold(&self, gone: &TableEntry) -> bool {
        self.additions.iter().any(|(from, to)| gone.history.overlaps(*from, *to, gone.changed))
    }
}

const REMEMBERED: usize = 6;

/// Members of `*` that were loaded from disk and are kept back from a client until a server has confirmed them. The client is sent all others.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    /// Each with whether the client may hold something under the name.
    names: BTreeMap<Name, bool>,
    /// How many resources of the set were from disk when the names were last checked, and how many of those a server had removed. `None` if
    /// names were added since.
    looked: Option<(usize, usize)>,
}

impl Withheld {
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn has(&self, name: &Name) -> bool {
        !self.names.is_empty() && self.names.contains_key(name)
    }

    /// Whether the client may hold something under a name, if the name is withheld.
    fn may_hold(&self, name: &Name) -> Option<bool> {
        self.names.get(name).copied()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.names.keys().inspect(|_| visit())
    }

    /// Withholds a resource that has to be kept back, or that is free and cannot be sent now.
    fn add(&mut self, name: Name, may_hold: bool) {
        self.names.insert(name, may_hold);
        self.looked = None;
    }

    /// Returns names that need not be kept back any more: since the last call a server has confirmed the resource, or has removed it and the
    /// client does not hold it. Names without a resource are forgotten.
    fn take_free(&mut self, table: &ResourceTable) -> BTreeSet<Name> {
        let looked = Some((table.sums().loaded_from_disk(), table.sums().removed_since()));
        if self.names.is_empty() || self.looked == looked {
            return BTreeSet::new();
        }
        self.looked = looked;
        let present = |name: &Name| table.get(name).filter(|entry| entry.resource().is_some());
        let is_kept = |of: &TableEntry, may_hold: bool| of.origin.is_kept_back(|| may_hold);
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

    /// Adds one name at each of `count` revisions, and then removes them all. Returns the removed entries by revision.
    fn added_and_removed(count: usize) -> Vec<TableEntry> {
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
        progress.record_all_sent(revision(6)); // all three names are removed by then
        assert!(!entries.iter().any(|gone| progress.client_may_hold(gone)));
    }
}
