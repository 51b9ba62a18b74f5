//! What a client may hold and the view does not know: it is claimed, once on each opening, and the answer is kept until the client is told.

use super::ReplyContext;
use super::client::Variant;
use super::subscription::Subscription;
use super::wildcard::Wildcard;
use crate::protocol::faults::Fault;
use crate::protocol::view::{Claimed, Class, Completeness, Presence, Revision};
use crate::xds::{Name, Type};

impl Subscription {
    /// Records that a claimed name does not exist.
    pub(super) fn on_claim_answered(&mut self, class: Class, name: &Name, revision: Revision, reached: Revision) {
        let states_it = |wildcard: &Wildcard| wildcard.initial_versions.as_ref().is_some_and(|stated| stated.has(name));
        let is_claimed = self.claimed.remove(&(class, name.clone())).is_some();
        let is_asked = self.names.contains_key(name) || self.pending.contains_key(name);
        if !is_claimed && !is_asked && !self.wildcard.as_ref().is_some_and(states_it) {
            return; // too many claim it for each to be known, and this is none of them
        }
        self.answers.add(class, name, revision);
        if let Some(stated) = self.wildcard.as_mut().and_then(|wildcard| wildcard.initial_versions.as_mut()) {
            stated.judged_at = None;
        }
        if class == Class::Named {
            self.on_name_changed(name, revision, reached, false);
        }
    }

    /// Forgets answers that are of no use any more.
    fn release_answers(&mut self, kind: &Type, view: &ReplyContext) {
        let states_names = self.wildcard.as_ref().is_some_and(|wildcard| wildcard.initial_versions.is_some());
        let pending = &self.pending;
        let is_of_use = |class, name: &Name| states_names && class == Class::Wildcard || pending.contains_key(name);
        self.answers.retain(kind, view.state, is_of_use);
    }

    /// Claims a name that the client may hold, if what is known does not suffice for a reply.
    pub(crate) fn claim(&mut self, class: Class, name: &Name, opening: Revision) {
        if !self.awaits_claim_room && self.claimed.insert((class, name.clone()), opening) != Some(opening) {
            self.claims.push(Claimed::Name(class, name.clone()));
        }
    }

    /// The view has no room for a claim. It is not kept: it is made again, of what the client states or was sent, when there is room.
    pub(crate) fn on_claim_refused(&mut self, claim: Claimed) {
        let Claimed::Name(class, name) = claim else { return };
        self.awaits_claim_room = true;
        self.claimed.remove(&(class, name));
        if let (Class::Wildcard, Some(wildcard)) = (class, &mut self.wildcard) {
            wildcard.claimed_on = None;
        }
    }

    /// Claims what this client holds of `*` and the view does not know, once on each opening.
    pub(crate) fn claim_wildcard(&mut self, kind: &Type, view: &ReplyContext) {
        self.release_answers(kind, view);
        let Some(table) =
            view.state.resources(kind, Class::Wildcard).filter(|table| table.completeness == Completeness::Settled)
        else {
            return;
        };
        // A relay's clients may hold what it has not stated, and it is sent marks: it needs the end of each set.
        let is_relay = view.client.relay && !view.limits.faults.has(Fault::RelayNeedsNoEnd);
        let passes_on = is_relay && view.client.variant == Variant::Delta && kind.info().full_state;
        let states_names = self.wildcard.as_ref().is_some_and(|wildcard| wildcard.initial_versions.is_some());
        let lacks_end = self.stated && (states_names || !self.can_send_full_set(kind, view));
        // What was loaded from disk and nobody confirms is kept back from it, until the set ends.
        let awaits_all = states_names && kind.info().full_state && self.may_hold_newer(kind, view);
        if !lacks_end && !passes_on {
            return;
        }
        let Some(wildcard) = &mut self.wildcard else { return };
        // Before its first reply, nothing else shows that removals were forgotten which it was to be sent.
        let forgotten = if wildcard.progress.is_none() { table.horizon() } else { Revision::ZERO };
        let claimed_on = Some((table.opening(), forgotten));
        if std::mem::replace(&mut wildcard.claimed_on, claimed_on) == claimed_on {
            return;
        }
        if passes_on || awaits_all {
            self.claims.push(Claimed::Set);
        }
        match (&wildcard.initial_versions, view.client.variant) {
            (Some(stated), _) => {
                let unknown = |name: &&Name| {
                    !self.names.contains_key(*name)
                        && !name.asks_for_end()
                        && table.get(name).is_none_or(|entry| {
                            !matches!(entry.presence, Presence::Present(_)) && !table.is_absent_by_evidence(entry)
                        })
                        && !self.answers.is_absent(Class::Wildcard, name, Some(table))
                };
                let names = stated.current().map(|(_, name)| name).filter(unknown).cloned();
                self.claims.extend(names.map(|name| Claimed::Name(Class::Wildcard, name)));
            }
            (None, Variant::Sotw) if kind.info().full_state => self.claims.push(Claimed::Set),
            (None, _) => {}
        }
    }
}
