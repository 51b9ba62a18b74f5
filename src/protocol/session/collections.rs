//! What a client is told of a collection that it asked for as a whole (globs, COLL-12 to COLL-24).
//!
//! A member is a name like any other from the moment on that there is something to tell of it, and until it is told to be gone.
//! Only the glob itself is wanted from the view, which marks each change of a member for those who asked for it.

use std::collections::HashMap;

use super::ReplyContext;
use super::subscription::{Pending, SentState, Subscription};
use crate::protocol::faults::Fault;
use crate::protocol::view::{Class, Completeness, Revision, Snapshot};
use crate::xds::{ContentHash, Name, SetVersion, Type};

impl Subscription {
    /// The collection that a name is in, if the client asked for it.
    pub(super) fn collection(&self, name: &Name) -> Option<&Name> {
        if self.globs.is_empty() {
            return None; // as nearly always; and to look for one is work
        }
        self.globs.get(&name.collection()?)
    }

    /// There is something to tell of a name: if it is in a collection, it becomes one of those that are told.
    pub(super) fn take_in(&mut self, name: &Name) {
        if !self.names.contains_key(name) && self.collection(name).is_some() {
            self.names.insert(name.clone(), SentState { member: true, ..SentState::default() });
        }
    }

    /// What the client says, as it comes, that it holds of a collection: it is sent what differs, and told what is gone.
    pub(super) fn hold_members(&mut self, stated: &HashMap<Name, String>) {
        for (name, version) in stated {
            if self.names.contains_key(name) || self.collection(name).is_none() {
                continue;
            }
            let share =
                version.parse().map_or(SetVersion::EMPTY, |hash: ContentHash| SetVersion::of(name.as_str(), hash));
            self.sum = self.sum.plus(share);
            self.names.insert(
                name.clone(),
                SentState { member: true, held_before: true, holds: share, ..SentState::default() },
            );
            self.pending.entry(name.clone()).or_default().changed_at(Revision::ZERO);
        }
    }

    /// A glob is asked for once more: everything in it is sent again (DELTA-10).
    pub(super) fn again_of(&mut self, glob: &Name) {
        for (name, _) in glob.members_in(&self.names) {
            self.pending.entry(name.clone()).or_default().asked = true;
        }
    }

    /// Nothing of a collection is told any more but what was asked for by itself (COLL-17).
    pub(super) fn leave_collection(&mut self, glob: &Name) {
        if !self.globs.remove(glob) {
            return;
        }
        let leaves = glob.members_in(&self.names).filter(|(_, told)| told.member);
        let members: Vec<_> = leaves.map(|(name, _)| name.clone()).collect();
        for name in members {
            self.drop_name(&name);
            if self.wildcard.is_some() {
                self.pending.insert(name, Pending::asked()); // it stays visible through `*`, or goes (DELTA-24)
            }
        }
    }

    /// A name that is not asked for by itself any more is told on as a member of its collection, if it is in one.
    pub(super) fn keep_as_member(&mut self, name: &Name) -> bool {
        let held = match self.names.get_mut(name) {
            Some(told) if !self.globs.is_empty() => told.client_may_hold(),
            _ => return false,
        };
        if self.collection(name).is_none() {
            return false;
        }
        self.awaiting_data.remove(name);
        let owed = self.pending.entry(name.clone()).or_default();
        owed.changed_at(Revision::ZERO); // it may be there no more, or never have been
        owed.asked = held;
        self.names.entry(name.clone()).and_modify(|told| told.member = true);
        true
    }

    /// Nothing is left to be said of a member that is gone.
    pub(super) fn drop_gone_member(&mut self, name: &Name) {
        let gone = |told: &SentState| told.member && !told.client_may_hold();
        if self.names.get(name).is_some_and(gone) && !self.pending.contains_key(name) {
            self.names.remove(name);
        }
    }

    /// A member was told of: that the collection is empty needs no saying any more.
    pub(super) fn answer_collection_of(&mut self, name: &Name) {
        if let Some(glob) = self.collection(name).cloned() {
            self.awaiting_data.remove(&glob);
            self.pending.remove(&glob);
        }
    }

    /// Of what a collection had, there is nothing where nothing is known. What the client came with is only judged once all of
    /// it is known (DELTA-16).
    pub(super) fn is_no_member(&self, kind: &Type, name: &Name, told: SentState, view: &ReplyContext) -> bool {
        // What it was marked for may have come after this state.
        let of_this_state =
            self.pending.get(name).is_none_or(|owed| owed.changed.is_none() || owed.changed_by(view.state.revision));
        let hasty = view.limits.faults.has(Fault::JudgeStatedWhileCold);
        let judged =
            || hasty || !told.held_before || self.collection_fill(kind, name, view) == Some(Completeness::Complete);
        told.member && of_this_state && judged()
    }

    /// How much is known of collections of which the client has been told all that is.
    pub(super) fn told_fills<'a>(
        &'a self,
        kind: &'a Type,
        state: &'a Snapshot,
    ) -> impl Iterator<Item = (&'a Name, Completeness)> {
        let shelf = state.resources(kind, Class::Named);
        let fill = move |glob: &Name| {
            shelf.and_then(|shelf| shelf.completeness_of(glob)).filter(|fill| *fill >= Completeness::Settled)
        };
        let filled = self.globs.iter().filter_map(move |glob| Some((glob, fill(glob)?)));
        filled.filter(|(glob, _)| glob.members_in(&self.pending).all(|(name, _)| self.is_claimed(name)))
    }

    /// What nobody knows of is no part of what there is to tell.
    fn is_claimed(&self, name: &Name) -> bool {
        self.claimed.contains_key(&(Class::Named, name.clone()))
    }

    /// Whether the client came holding members of collections of which nobody knows whether they are there.
    pub(super) fn doubts_members(&self, kind: &Type, view: &ReplyContext) -> bool {
        if self.globs.is_empty() {
            return false; // as nearly always
        }
        let in_doubt = |(name, owed): (&Name, &Pending)| {
            let told = self.names.get(name).filter(|told| told.member && told.held_before);
            owed.changed_by(view.state.revision) && told.is_some() && self.known(kind, name, view).is_unknown()
        };
        self.pending.iter().any(in_doubt)
    }

    /// What this client holds of collections and nobody knows of: it is asked for.
    pub(super) fn claim_members(&mut self, kind: &Type, view: &ReplyContext) {
        if self.globs.is_empty() {
            return;
        }
        let Some(shelf) = view.state.resources(kind, Class::Named) else { return };
        let held = self
            .pending
            .keys()
            .filter(|name| self.names.get(*name).is_some_and(|told| told.member && told.held_before));
        let settled = |name: &&Name| self.collection_fill(kind, name, view) == Some(Completeness::Settled);
        let unknown = |name: &&Name| self.known(kind, name, view).is_unknown();
        let names: Vec<_> = held.filter(settled).filter(unknown).cloned().collect();
        names.iter().for_each(|name| self.claim(Class::Named, name, shelf.opening()));
    }

    fn collection_fill(&self, kind: &Type, member: &Name, view: &ReplyContext) -> Option<Completeness> {
        view.state.resources(kind, Class::Named)?.completeness_of(self.collection(member)?)
    }

    /// Forgets a name and what was owed of it.
    pub(super) fn drop_name(&mut self, name: &Name) -> Option<SentState> {
        let told = self.names.remove(name)?;
        self.sum = self.sum.minus(told.holds);
        self.pending.remove(name);
        self.awaiting_data.remove(name);
        Some(told)
    }
}
