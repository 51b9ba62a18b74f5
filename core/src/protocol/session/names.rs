//! The names of one type that a client subscribes to: what it was sent of each, and what is still to be sent of each.
//!
//! Names keep no cursor, and the number of pending names is bounded by that of the requested ones. A member of a collection (globs, COLL-12 to
//! COLL-24) is a name like any other, from its first change until its removal was sent. One that comes and goes before the session reads it is forgotten
//! at once (I1). The view counts interest in the glob alone, and reports each change of a member to the sessions that subscribe to the glob.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use super::alias_targets::AliasTargets;
use super::pending::Pending;
use super::sent_state::{KeptNames, SentState};
use crate::protocol::moment::Moment;
use crate::protocol::view::{NameChanged, Revision};
use crate::protocol::visits::visit;
use crate::xds::{Name, SetVersion, StatedVersions};

#[derive(Debug, Default)]
pub(super) struct SubscribedNames {
    /// Also has members of collections, from their first change.
    sent: BTreeMap<Name, SentState>,
    globs: BTreeSet<Name>,
    pending: BTreeMap<Name, Pending>,
    /// Requested names of which nothing is known, each with the time of its request. They are not in `pending` until the view reports a change of
    /// them.
    awaiting_data: BTreeMap<Name, Moment>,
    /// The sum over everything that was sent by name.
    sum: SetVersion,
    kept: KeptNames,
    targets: AliasTargets,
}

impl SubscribedNames {
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    pub(super) fn kept(&self) -> KeptNames {
        KeptNames { bytes: self.kept.bytes + self.targets.bytes(), ..self.kept }
    }

    pub(super) fn targets(&self) -> &AliasTargets {
        &self.targets
    }

    pub(super) fn get(&self, name: &Name) -> Option<&SentState> {
        self.sent.get(name)
    }

    pub(super) fn contains(&self, name: &Name) -> bool {
        self.sent.contains_key(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Name, &SentState)> {
        self.sent.iter()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Name> {
        self.sent.keys()
    }

    pub(super) fn globs(&self) -> impl Iterator<Item = &Name> {
        self.globs.iter()
    }

    pub(super) fn has_glob(&self, name: &Name) -> bool {
        self.globs.contains(name)
    }

    pub(super) fn has_collections(&self) -> bool {
        !self.globs.is_empty()
    }

    /// Returns the collection that a name is in, if the client subscribes to it.
    pub(super) fn collection(&self, name: &Name) -> Option<&Name> {
        if self.globs.is_empty() {
            return None; // the usual case; a look-up costs time
        }
        self.globs.get(&name.collection()?)
    }

    pub(super) fn pending(&self) -> impl Iterator<Item = (&Name, &Pending)> {
        self.pending.iter()
    }

    pub(super) fn pending_in<'a>(&'a self, glob: &'a Name) -> impl Iterator<Item = &'a Name> {
        glob.members_in(&self.pending).map(|(name, _)| name)
    }

    pub(super) fn pending_of(&self, name: &Name) -> Option<&Pending> {
        self.pending.get(name)
    }

    /// Returns the pending name that follows another one, or the first.
    pub(super) fn next_pending(&self, after: Option<&Name>) -> Option<(Name, Pending)> {
        let mut later = self.pending.range::<Name, _>((after.map_or(Unbounded, Excluded), Unbounded));
        later.next().map(|(name, pending)| (name.clone(), *pending))
    }

    pub(super) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Returns the names of which nothing is known.
    pub(super) fn awaiting_data(&self) -> impl Iterator<Item = &Name> {
        self.awaiting_data.keys()
    }

    pub(super) fn is_awaiting_data(&self, name: &Name) -> bool {
        self.awaiting_data.contains_key(name)
    }

    pub(super) fn awaiting_data_count(&self) -> usize {
        self.awaiting_data.len()
    }

    /// Returns the sum over everything that was sent by name.
    pub(super) fn version(&self) -> SetVersion {
        self.sum
    }

    /// Whether the client may hold something under a name that it subscribes to.
    pub(super) fn client_may_hold(&self, name: &Name) -> bool {
        self.sent.get(name).is_some_and(SentState::client_may_hold)
    }

    /// Whether the client may hold something under one of the names.
    pub(super) fn client_may_hold_any(&self) -> bool {
        self.sent.values().any(SentState::client_may_hold)
    }

    /// Returns when the next forced name is due, of those that are not due yet.
    pub(super) fn next_forced(&self, now: Moment) -> Option<Moment> {
        let all = self.pending.values().inspect(|_| visit());
        all.filter_map(|pending| pending.forced_later(now)).min()
    }

    /// Frees the memory of empty maps: a tree keeps its last node, and an idle session needs none.
    pub(super) fn release_room(&mut self) {
        if self.pending.is_empty() {
            self.pending = BTreeMap::new();
        }
        if self.awaiting_data.is_empty() {
            self.awaiting_data = BTreeMap::new();
        }
    }

    /// Subscribes to a name, or requests it again. Returns whether the view has to count it.
    pub(super) fn subscribe(&mut self, name: &Name, held_before: bool, asked: Moment) -> bool {
        self.awaiting_data.remove(name);
        self.request(name.clone(), asked);
        if name.is_glob() && !self.globs.insert(name.clone()) {
            // The client subscribed to a glob again: everything in it is sent again (DELTA-10).
            for (name, _) in name.members_in(&self.sent) {
                self.pending.entry(name.clone()).or_default().request(asked);
            }
        }
        self.enter(name, SentState { held_before, member: true, ..SentState::default() });
        let Some(sent) = self.sent.get_mut(name) else { return false };
        std::mem::take(&mut sent.member) | std::mem::take(&mut sent.refused)
    }

    /// Ends the subscription of a name. Returns whether there was one (DELTA-25). With a wildcard, members of an ended collection are pending.
    pub(super) fn unsubscribe(&mut self, name: &Name, has_wildcard: bool, asked: Moment) -> bool {
        if self.sent.get(name).is_none_or(|sent| sent.member) {
            return false;
        }
        if !self.keep_as_member(name, asked) {
            self.drop_name(name);
            self.leave_collection(name, has_wildcard, asked);
        }
        true
    }

    /// Keeps a name that is no longer subscribed by itself as a member of its collection, if it is in one. Returns whether it is kept.
    fn keep_as_member(&mut self, name: &Name, asked: Moment) -> bool {
        let held = match self.sent.get_mut(name) {
            Some(sent) if !self.globs.is_empty() => sent.client_may_hold(),
            _ => return false,
        };
        if self.collection(name).is_none() {
            return false;
        }
        self.awaiting_data.remove(name);
        self.pending.entry(name.clone()).or_default().replace_request(held.then_some(asked));
        self.sent.entry(name.clone()).and_modify(|sent| sent.member = true);
        true
    }

    /// Ends the subscription of a collection: its members are not sent any more, except those that are subscribed by name (COLL-17).
    fn leave_collection(&mut self, glob: &Name, has_wildcard: bool, asked: Moment) {
        if !self.globs.remove(glob) {
            return;
        }
        let leaves = glob.members_in(&self.sent).filter(|(_, sent)| sent.member);
        let members: Vec<_> = leaves.map(|(name, _)| name.clone()).collect();
        for name in members {
            self.drop_name(&name);
            if has_wildcard {
                self.request_anew(name, asked); // it is still part of `*`, or is removed (DELTA-24)
            }
        }
    }

    /// Adds a name, unless it is there already.
    fn enter(&mut self, name: &Name, sent: SentState) {
        if let Entry::Vacant(vacant) = self.sent.entry(name.clone()) {
            self.kept.enter(name, &sent);
            vacant.insert(sent);
        }
    }

    fn leave(&mut self, name: &Name) -> Option<SentState> {
        let sent = self.sent.remove(name)?;
        self.kept.leave(name, &sent);
        self.targets.forget(name);
        Some(sent)
    }

    /// Forgets a name and what was pending of it.
    fn drop_name(&mut self, name: &Name) {
        let Some(sent) = self.leave(name) else { return };
        self.sum = self.sum.minus(sent.holds);
        self.pending.remove(name);
        self.awaiting_data.remove(name);
    }

    /// Records that a name was requested at a time, unless an earlier request of it is still waiting.
    pub(super) fn request(&mut self, name: Name, asked: Moment) {
        self.pending.entry(name).or_default().request(asked);
    }

    /// Records that a name was requested, and forgets what else was pending of it.
    pub(super) fn request_anew(&mut self, name: Name, asked: Moment) {
        self.pending.insert(name, Pending::requested(asked));
    }

    /// Records that the view had no room for a name. Returns whether the client subscribes to it.
    pub(super) fn refuse(&mut self, name: &Name) -> bool {
        let sent = self.sent.get_mut(name).filter(|sent| !sent.member);
        sent.map(|sent| sent.refused = true).is_some()
    }

    /// Takes back the refusal of a name that is requested again. Returns whether it had been refused.
    pub(super) fn retry(&mut self, name: &Name) -> bool {
        self.sent.get_mut(name).is_some_and(|sent| std::mem::take(&mut sent.refused))
    }

    /// Records that the client has left `*`: its names are compared with what the server sent for them. If `may_hold`, it may have them of `*`.
    pub(super) fn on_wildcard_left(&mut self, may_hold: bool) {
        let Self { sent, pending, .. } = self;
        pending.retain(|name, _| sent.contains_key(name));
        for (name, sent) in sent {
            let pending = pending.entry(name.clone()).or_default();
            sent.held_before |= may_hold && pending.is_requested();
            pending.changed_at(Revision::ZERO);
        }
    }

    /// Records which members of collections the client states that it holds: it is sent differences and removals.
    pub(super) fn hold_members(&mut self, versions: &StatedVersions) {
        if self.globs.is_empty() {
            return; // the usual case
        }
        for (name, content) in versions.iter().inspect(|_| visit()) {
            if self.sent.contains_key(name) || self.collection(name).is_none() {
                continue;
            }
            let share = content.map_or(SetVersion::EMPTY, |content| SetVersion::of(name.as_str(), content));
            self.sum = self.sum.plus(share);
            self.enter(name, SentState { member: true, held_before: true, holds: share, ..SentState::default() });
            self.pending.entry(name.clone()).or_default().changed_at(Revision::ZERO);
        }
    }

    /// Makes a name pending that the view reports as changed, or forgets it. Returns the revision of the change if it has removed a member that is
    /// forgotten.
    pub(super) fn on_reported(&mut self, change: &NameChanged, reached: Revision) -> Option<Revision> {
        let NameChanged { name, revision, .. } = change;
        match change.is_absent {
            true if self.is_unsent_since(name, reached) => {
                self.drop_name(name);
                return Some(*revision);
            }
            true => {}
            false => self.take_in(name),
        }
        self.on_changed(name, *revision, reached);
        None
    }

    /// Whether a name is a member that has only changed since a snapshot, and of which the client holds nothing. A member in the snapshot that the
    /// session works through is none: the client is sent what refers to it from there.
    fn is_unsent_since(&self, name: &Name, snapshot: Revision) -> bool {
        let is_unsent = |sent: &SentState| sent.member && !sent.client_may_hold();
        self.sent.get(name).is_some_and(is_unsent)
            && self.pending.get(name).is_some_and(|pending| pending.is_new_since(snapshot))
    }

    /// Adds a name that is present now if it is in a subscribed collection.
    fn take_in(&mut self, name: &Name) {
        if !self.sent.contains_key(name) && self.collection(name).is_some() {
            self.enter(name, SentState { member: true, ..SentState::default() });
        }
    }

    /// Makes a name pending. The client already has every change up to `reached`, unless the view counted its interest later.
    pub(super) fn on_changed(&mut self, name: &Name, revision: Revision, reached: Revision) {
        if self.sent.contains_key(name) {
            if let Some(asked) = self.awaiting_data.remove(name) {
                self.request(name.clone(), asked);
            }
            self.pending.entry(name.clone()).or_default().changed_by_server(revision, reached);
        }
    }

    /// Records that nothing is known of a name, which the client requested at `asked`.
    pub(super) fn await_data(&mut self, name: Name, asked: Moment) {
        self.awaiting_data.insert(name, asked);
    }

    pub(super) fn recheck_awaiting_data(&mut self) {
        for (name, asked) in std::mem::take(&mut self.awaiting_data) {
            self.request(name, asked);
        }
    }

    /// Makes a name due at a time, changed or not, unless nothing is known of it.
    pub(super) fn force(&mut self, name: &Name, due: Moment) {
        if !self.awaiting_data.contains_key(name) {
            self.pending.entry(name.clone()).or_default().force(due);
        }
    }

    /// Records the own name of the resource that the client is sent for a name. Returns that of the one before, if it is another.
    pub(super) fn record_target(&mut self, name: &Name, own: &Name) -> Option<Name> {
        let is_alias = self.sent.contains_key(name) && own != name;
        let before = if is_alias { self.targets.set(name, own) } else { self.targets.forget(name) };
        before.filter(|before| before != own)
    }

    /// Records what the client has been sent of a name.
    pub(super) fn record_sent(&mut self, name: &Name, share: SetVersion) {
        if let Some(sent) = self.sent.get_mut(name) {
            self.sum = self.sum.minus(sent.holds).plus(share);
            self.kept.change(sent.holds, share);
            self.targets.record_share(name, share);
            *sent = SentState { holds: share, held_before: false, ..*sent };
        }
    }

    pub(super) fn record_error_sent(&mut self, name: &Name, revision: Revision) {
        self.sent.get_mut(name).into_iter().for_each(|sent| sent.error = revision);
    }

    /// Records that the client was sent a name by `*`. That ends what was pending for `*` alone, and the wait of a cluster for the name.
    /// Returns whether the client subscribes to the name itself.
    pub(super) fn record_sent_by_wildcard(&mut self, name: &Name) -> bool {
        let by_name = self.sent.contains_key(name);
        match by_name {
            true => self.pending.get_mut(name).into_iter().for_each(Pending::end_force),
            false => drop(self.pending.remove(name)),
        }
        by_name
    }

    /// Records that a member was sent: the collection is not reported as empty any more.
    pub(super) fn answer_collection_of(&mut self, name: &Name) {
        if let Some(glob) = self.collection(name).cloned() {
            self.awaiting_data.remove(&glob);
            self.pending.remove(&glob);
        }
    }

    /// Records what is still pending of a name. A member whose removal was sent is forgotten.
    pub(super) fn settle(&mut self, name: &Name, still: Option<Pending>) {
        let gone = |sent: &SentState| sent.member && !sent.client_may_hold();
        match still {
            Some(still) => drop(self.pending.insert(name.clone(), still)),
            None => {
                self.pending.remove(name);
                if self.sent.get(name).is_some_and(gone) {
                    self.leave(name);
                }
            }
        }
    }

    /// Records that the client was sent a set which agrees with the snapshot on this name.
    pub(super) fn settle_in_set(&mut self, name: Name, mark: Revision) {
        if let Some(still) = self.pending.remove(&name).and_then(|pending| pending.after(mark)) {
            self.pending.insert(name, still);
        }
    }
}
