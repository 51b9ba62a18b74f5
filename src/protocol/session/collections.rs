//! What a client is sent of a collection that it subscribes to (globs, COLL-12 to COLL-24).
//!
//! A member is a name like any other from its first change until its removal was sent. The view counts interest in the glob
//! alone, and reports each change of a member to the sessions that subscribe to it.

use super::ReplyContext;
use super::subscription::{Pending, SentState, Subscription};
use crate::protocol::faults::Fault;
use crate::protocol::view::{Class, Completeness, Revision, Snapshot};
use crate::protocol::visits::visit;
use crate::xds::{Name, SetVersion, StatedVersions, Type};

impl Subscription {
    /// Returns the collection that a name is in, if the client subscribes to it.
    pub(super) fn collection(&self, name: &Name) -> Option<&Name> {
        if self.globs.is_empty() {
            return None; // the usual case; a look-up costs time
        }
        self.globs.get(&name.collection()?)
    }

    /// Adds a changed name to the session's names if it is in a subscribed collection.
    pub(super) fn take_in(&mut self, name: &Name) {
        if !self.names.contains_key(name) && self.collection(name).is_some() {
            self.names.insert(name.clone(), SentState { member: true, ..SentState::default() });
        }
    }

    /// Records what the client states that it holds of a collection: it is sent what differs, and removals.
    pub(super) fn hold_members(&mut self, stated: &StatedVersions) {
        if self.globs.is_empty() {
            return; // the usual case
        }
        for (name, content) in stated.iter().inspect(|_| visit()) {
            if self.names.contains_key(name) || self.collection(name).is_none() {
                continue;
            }
            let share = content.map_or(SetVersion::EMPTY, |content| SetVersion::of(name.as_str(), content));
            self.sum = self.sum.plus(share);
            self.names.insert(
                name.clone(),
                SentState { member: true, held_before: true, holds: share, ..SentState::default() },
            );
            self.pending.entry(name.clone()).or_default().changed_at(Revision::ZERO);
        }
    }

    /// A glob was subscribed again: everything in it is sent again (DELTA-10).
    pub(super) fn again_of(&mut self, glob: &Name) {
        for (name, _) in glob.members_in(&self.names) {
            self.pending.entry(name.clone()).or_default().requested.get_or_insert(self.asked);
        }
    }

    /// Ends the subscription of a collection: nothing of it is sent any more, except names that are subscribed by themselves
    /// (COLL-17).
    pub(super) fn leave_collection(&mut self, glob: &Name) {
        if !self.globs.remove(glob) {
            return;
        }
        let leaves = glob.members_in(&self.names).filter(|(_, sent)| sent.member);
        let members: Vec<_> = leaves.map(|(name, _)| name.clone()).collect();
        for name in members {
            self.drop_name(&name);
            if self.wildcard.is_some() {
                self.pending.insert(name, Pending::requested(self.asked)); // it stays visible through `*`, or is removed (DELTA-24)
            }
        }
    }

    /// A name that is no longer subscribed by itself stays as a member of its collection, if it is in one.
    pub(super) fn keep_as_member(&mut self, name: &Name) -> bool {
        let held = match self.names.get_mut(name) {
            Some(sent) if !self.globs.is_empty() => sent.client_may_hold(),
            _ => return false,
        };
        if self.collection(name).is_none() {
            return false;
        }
        self.awaiting_data.remove(name);
        let pending = self.pending.entry(name.clone()).or_default();
        pending.changed_at(Revision::ZERO); // it may be absent by now, or always have been
        pending.requested = held.then_some(self.asked);
        self.names.entry(name.clone()).and_modify(|sent| sent.member = true);
        true
    }

    /// The removal of a member was sent: the name is forgotten.
    pub(super) fn drop_absent_member(&mut self, name: &Name) {
        let gone = |sent: &SentState| sent.member && !sent.client_may_hold();
        if self.names.get(name).is_some_and(gone) && !self.pending.contains_key(name) {
            self.names.remove(name);
        }
    }

    /// A member was sent: the collection is no longer reported as empty.
    pub(super) fn answer_collection_of(&mut self, name: &Name) {
        if let Some(glob) = self.collection(name).cloned() {
            self.awaiting_data.remove(&glob);
            self.pending.remove(&glob);
        }
    }

    /// Whether a name without a value counts as absent from its collection. Names that the client stated are only judged once the
    /// collection is complete (DELTA-16).
    pub(super) fn is_no_member(&self, kind: &Type, name: &Name, sent: SentState, view: &ReplyContext) -> bool {
        // The change that marked it may be later than this snapshot.
        let of_this_state = self
            .pending
            .get(name)
            .is_none_or(|pending| pending.changed.is_none() || pending.changed_by(view.state.revision));
        let hasty = view.limits.faults.has(Fault::JudgeStatedWhileCold);
        let judged = || {
            hasty || !sent.held_before || self.collection_completeness(kind, name, view) == Some(Completeness::Complete)
        };
        sent.member && of_this_state && judged()
    }

    /// Returns how complete each collection is of which the client has been sent everything.
    pub(super) fn sent_collections<'a>(
        &'a self,
        kind: &'a Type,
        state: &'a Snapshot,
    ) -> impl Iterator<Item = (&'a Name, Completeness)> {
        let table = state.resources(kind, Class::Named);
        let completeness = move |glob: &Name| {
            table
                .and_then(|table| table.completeness_of(glob))
                .filter(|completeness| *completeness >= Completeness::Settled)
        };
        let completeness_by_name = self.globs.iter().filter_map(move |glob| Some((glob, completeness(glob)?)));
        completeness_by_name.filter(|(glob, _)| glob.members_in(&self.pending).all(|(name, _)| self.is_claimed(name)))
    }

    /// Claimed names, which the view does not know, do not count as unsent.
    fn is_claimed(&self, name: &Name) -> bool {
        self.claimed.contains_key(&(Class::Named, name.clone()))
    }

    /// Whether the client stated members of collections whose presence is unknown.
    pub(super) fn doubts_members(&self, kind: &Type, view: &ReplyContext) -> bool {
        if self.globs.is_empty() {
            return false; // the usual case
        }
        let unconfirmed = |(name, pending): (&Name, &Pending)| {
            let sent = self.names.get(name).filter(|sent| sent.member && sent.held_before);
            pending.changed_by(view.state.revision) && sent.is_some() && self.known(kind, name, view).is_unknown()
        };
        self.pending.iter().inspect(|_| visit()).any(unconfirmed)
    }

    /// Claims what this client holds of collections and the view does not know.
    pub(super) fn claim_members(&mut self, kind: &Type, view: &ReplyContext) {
        if self.globs.is_empty() {
            return;
        }
        let Some(table) = view.state.resources(kind, Class::Named) else { return };
        let held = self
            .pending
            .keys()
            .filter(|name| self.names.get(*name).is_some_and(|sent| sent.member && sent.held_before));
        let settled = |name: &&Name| self.collection_completeness(kind, name, view) == Some(Completeness::Settled);
        let unknown = |name: &&Name| self.known(kind, name, view).is_unknown();
        let names: Vec<_> = held.filter(settled).filter(unknown).cloned().collect();
        names.iter().for_each(|name| self.claim(Class::Named, name, table.opening()));
    }

    fn collection_completeness(&self, kind: &Type, member: &Name, view: &ReplyContext) -> Option<Completeness> {
        view.state.resources(kind, Class::Named)?.completeness_of(self.collection(member)?)
    }

    /// Forgets a name and what was pending of it.
    pub(super) fn drop_name(&mut self, name: &Name) -> Option<SentState> {
        let sent = self.names.remove(name)?;
        self.sum = self.sum.minus(sent.holds);
        self.pending.remove(name);
        self.awaiting_data.remove(name);
        Some(sent)
    }
}
