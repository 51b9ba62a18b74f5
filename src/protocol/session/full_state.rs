//! Complete sets: SotW of full-state types, where the client deletes what is left out (SOTW-20, SOTW-21).
//!
//! While additions go out, the set is the union of what is present and what is removed but not yet sent as removed (ORD-7).
//! The reduced set comes last.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::reply::{Carried, Draft, Warms};
use super::subscription::{Pending, Subscription};
use super::wildcard::Progress;
use super::{Attempt, ReplyContext, SendScope};
use crate::protocol::faults::Fault;
use crate::protocol::moment::{Moment, earliest};
use crate::protocol::view::{Batch, BatchKey, Class, Completeness, Entry, Lookup, Presence, Revision};
use crate::xds::{Name, Resource, SetVersion, Type};

impl Subscription {
    pub(super) fn full_set_with_additions(&mut self, kind: &Type, view: &ReplyContext, may: SendScope) -> Attempt {
        let requested = self.requested(kind, view);
        if !requested && !self.any_addition(kind, view) {
            return Attempt::Nothing;
        }
        if self.would_delete_unknown(kind, view) {
            return Attempt::Unknown;
        }
        // Checked before the set is made: it may turn out unchanged, but making it is the expensive part.
        if let Some(blocked) = self.blocked(view, may, requested) {
            return blocked;
        }
        let refreshed = self.any_refresh(kind, view);
        // A union would have both of two resources that exclude one another.
        let union = !kind.can_conflict() || view.limits.faults.has(Fault::AddBesideRemoved);
        let mut draft = self.compose(kind, view, union);
        self.add_rejected(&mut draft);
        self.add_errors(kind, view, &mut draft);
        let known = self.is_known_to_client(&draft, requested) && draft.errors.is_empty() && !refreshed;
        draft.carried.note(self.carried_additions(kind, view, &draft));
        self.sent_additions(kind, view, &draft);
        if known { Attempt::Nothing } else { Attempt::Ready(draft.into()) }
    }

    pub(super) fn is_current(&self, kind: &Type, version: &str, view: &ReplyContext) -> bool {
        let pure = self.wildcard.is_some() && self.names.is_empty() && self.rejected.is_empty();
        let table = view.state.resources(kind, Class::Wildcard);
        let equal = || table.is_some_and(|table| Self::wildcard_version(kind, table, view).to_string() == version);
        pure && self.uses_full_sets(kind, view)
            && self.wildcard_completeness(kind, view) >= Completeness::FirstResponse
            && equal()
    }

    pub(super) fn full_set_reduced(&mut self, kind: &Type, view: &ReplyContext) -> Attempt {
        if !self.any_removal(kind, view) {
            return Attempt::Nothing;
        }
        if self.would_delete_unknown(kind, view) {
            return Attempt::Unknown;
        }
        if let Some(blocked) = self.blocked(view, SendScope::Anything, false) {
            return blocked;
        }
        let mut draft = self.compose(kind, view, false);
        self.add_errors(kind, view, &mut draft);
        let unchanged = self.sent == Some(draft.version) && draft.errors.is_empty();
        draft.carried.note(self.carried_removals(kind, view));
        self.sent_removals(kind, view, &draft);
        if unchanged { Attempt::Nothing } else { Attempt::Ready(draft.into()) }
    }

    /// Whether something is known that the client is still to be sent.
    pub(super) fn has_unsent(&self, kind: &Type, view: &ReplyContext) -> bool {
        self.requested(kind, view) || self.any_addition(kind, view) || self.any_removal(kind, view)
    }

    /// Returns since when the client could have been sent what it is still to be sent.
    pub(super) fn unsent_since(&self, kind: &Type, view: &ReplyContext) -> Option<Moment> {
        let mut carried = self.carried_additions(kind, view, &Draft::default());
        carried.note(self.carried_removals(kind, view));
        earliest(carried.change, carried.request).filter(|_| self.has_unsent(kind, view))
    }

    /// Whether a set is due because of a request, and not because of a change.
    fn requested(&self, kind: &Type, view: &ReplyContext) -> bool {
        let known = |name| !matches!(self.known(kind, name, view), Lookup::Unknown);
        self.complete_due.is_some()
            || self.pending.iter().any(|(name, pending)| pending.requested.is_some() && known(name))
    }

    fn any_addition(&self, kind: &Type, view: &ReplyContext) -> bool {
        let table = view.state.resources(kind, Class::Wildcard);
        let of_wildcard = self
            .wildcard
            .as_ref()
            .zip(table)
            .is_some_and(|(wildcard, table)| table.additions(wildcard.added).next().is_some());
        let here = |name: &Name| matches!(self.known(kind, name, view), Lookup::Present(_));
        let troubled =
            |name: &Name| self.unsent_error(kind, name, view).is_some() && !self.is_held_and_gone(kind, name, view);
        let news = |(name, pending): (&Name, &Pending)| {
            pending.changed_by(view.state.revision) && (here(name) || troubled(name))
        };
        of_wildcard
            || self.pending.iter().any(news)
            || self.any_refresh(kind, view)
            || self.rejected.values().any(Option::is_some)
    }

    /// Whether a TTL of a resource that this client holds was extended. That takes a complete set: a heartbeat alone would leave
    /// out the rest.
    fn any_refresh(&self, kind: &Type, view: &ReplyContext) -> bool {
        if !view.client.ttl {
            return false;
        }
        let table = view.state.resources(kind, Class::Wildcard);
        let of_wildcard = self.wildcard.as_ref().zip(table).is_some_and(|(wildcard, table)| {
            table.refreshes(wildcard.refreshed).any(|(entry, _)| entry.changed <= wildcard.added)
        });
        let by_name = |(name, pending): (&Name, &Pending)| {
            let prolonged = |entry: &Entry| entry.refreshed > entry.changed && pending.covers(entry.refreshed);
            self.entry(kind, name, view).is_some_and(prolonged)
        };
        of_wildcard || self.pending.iter().any(by_name)
    }

    /// Whether a name that the client holds is absent. The reduced set removes it, and the error is sent with that set.
    fn is_held_and_gone(&self, kind: &Type, name: &Name, view: &ReplyContext) -> bool {
        let held = self.names.get(name).is_some_and(|sent| sent.client_may_hold());
        held && matches!(self.known(kind, name, view), Lookup::Absent(_))
    }

    /// Adds the errors of names that are not in the set.
    fn add_errors(&mut self, kind: &Type, view: &ReplyContext, draft: &mut Draft) {
        if !view.client.errors || self.pending.is_empty() {
            return;
        }
        let sent: HashSet<_> = draft.resources().map(|resource| resource.name.clone()).collect();
        let unsent = |name: &Name| Some((name.clone(), self.unsent_error(kind, name, view)?));
        let errors: Vec<_> = self.pending.keys().filter(|name| !sent.contains(*name)).filter_map(unsent).collect();
        for (name, (revision, error)) in errors {
            self.record_error_sent(&name, revision);
            draft.add_error(name, error);
        }
    }

    fn any_removal(&self, kind: &Type, view: &ReplyContext) -> bool {
        let table = view.state.resources(kind, Class::Wildcard);
        let of_wildcard = self.wildcard.as_ref().zip(table).is_some_and(|(wildcard, table)| {
            wildcard.progress.as_ref().is_some_and(|progress| table.removals(progress.removals()).next().is_some())
        });
        let gone = |name| matches!(self.known(kind, name, view), Lookup::Absent(_));
        let by_name = self.pending.iter().any(|(name, pending)| pending.changed_by(view.state.revision) && gone(name));
        self.missed_removals || of_wildcard || by_name
    }

    fn carried_additions(&self, kind: &Type, view: &ReplyContext, draft: &Draft) -> Carried {
        let mut carried = Carried { request: self.complete_due, change: None };
        if let Some(wildcard) = &self.wildcard {
            let table = view.state.resources(kind, Class::Wildcard);
            carried.note(wildcard.carried(|| match &draft.batch {
                Some(batch) => batch.oldest_change,
                None => table?.additions_received(wildcard.added),
            }));
        }
        let known = |name| !matches!(self.known(kind, name, view), Lookup::Unknown);
        let named = self.pending.iter().filter(|(name, _)| known(name));
        named.for_each(|(_, pending)| carried.note(pending.carried(view)));
        carried
    }

    fn carried_removals(&self, kind: &Type, view: &ReplyContext) -> Carried {
        let mut carried = Carried::default();
        let progress = self.wildcard.as_ref().and_then(|wildcard| wildcard.progress.as_ref());
        let table = view.state.resources(kind, Class::Wildcard);
        carried.note_change(progress.zip(table).and_then(|(of, table)| table.removals_received(of.removals())));
        let gone = |name| matches!(self.known(kind, name, view), Lookup::Absent(_));
        let named = self.pending.iter().filter(|(name, _)| gone(name));
        named.for_each(|(_, pending)| carried.note(pending.carried(view)));
        carried
    }

    /// An incomplete set is not sent: clients would delete what it lacks (I3, SOTW-7). A client without state is sent the names
    /// that are present (ORD-10); one with state waits, without a time limit.
    pub(super) fn would_delete_unknown(&self, kind: &Type, view: &ReplyContext) -> bool {
        if self.wildcard.is_some() && !self.can_send_full_set(kind, view) {
            return true;
        }
        if view.limits.faults.has(Fault::ShrinkByIgnorance) {
            return false;
        }
        let unknown = |name| matches!(self.known(kind, name, view), Lookup::Unknown);
        let had_of_wildcard = |name| {
            let entry = view.state.resources(kind, Class::Wildcard).and_then(|table| table.get(name));
            let progress = self.wildcard.as_ref().and_then(|wildcard| wildcard.progress.as_ref());
            entry.zip(progress).is_some_and(|(entry, progress)| progress.client_may_hold(entry))
        };
        self.names.iter().any(|(name, sent)| unknown(name) && (sent.client_may_hold() || had_of_wildcard(name)))
    }

    /// Claims names that this client subscribes to and may hold, if the evidence of their absence does not suffice for it.
    pub(super) fn claim_pending(&mut self, kind: &Type, view: &ReplyContext) {
        let Some(table) = view.state.resources(kind, Class::Named) else { return };
        let gone = |name: &Name| matches!(table.get(name).map(|entry| &entry.presence), Some(Presence::Absent(_)));
        let held = |name: &Name| self.names.get(name).is_some_and(|sent| sent.client_may_hold());
        let unknown = |name: &&Name| held(name) && gone(name) && self.known(kind, name, view).is_unknown();
        let names: Vec<_> = self.pending.keys().filter(unknown).cloned().collect();
        names.iter().for_each(|name| self.claim(Class::Named, name, table.opening()));
    }

    fn blocked(&self, view: &ReplyContext, may: SendScope, requested: bool) -> Option<Attempt> {
        let allowed = if requested { SendScope::InitialReplies } else { SendScope::Anything };
        if may < allowed {
            return Some(Attempt::Blocked(None));
        }
        let unanswered = self.acks.waiting(view.now).filter(|_| !requested);
        unanswered.map(|until| Attempt::Blocked(Some(until)))
    }

    /// A change that this client cannot see is not sent, and neither is a set that equals what the client stated.
    fn is_known_to_client(&self, draft: &Draft, requested: bool) -> bool {
        if !requested {
            return self.sent == Some(draft.version);
        }
        !self.asks_once
            && self.sent.is_none()
            && self.initial_version.as_ref().is_some_and(|version| *version == draft.version.to_string())
    }

    fn compose(&self, kind: &Type, view: &ReplyContext, union: bool) -> Draft {
        if let Some(wildcard) = &self.wildcard
            && let Some(batch) = self.common_set(kind, view, union)
        {
            return Draft::of_batch(batch, wildcard.first);
        }
        let mut set = FullSet { draft: Draft::default(), seen: HashSet::new(), kind, view };
        if let (Some(wildcard), Some(table)) = (&self.wildcard, view.state.resources(kind, Class::Wildcard)) {
            let by_name = |resource: &Resource| {
                self.names.contains_key(&resource.name)
                    && matches!(view.state.lookup(kind, Class::Named, &resource.name), Lookup::Present(_))
            };
            for (entry, resource) in table.additions(Revision::ZERO).filter(|(_, resource)| !by_name(resource)) {
                set.add(
                    resource,
                    view.ttl(Some(entry)),
                    (entry.body_changed > wildcard.added).then_some(wildcard.first),
                );
            }
            let progress = wildcard.progress.iter().filter(|_| union && !view.limits.faults.has(Fault::NoUnion));
            for (progress, (name, entry)) in
                progress.flat_map(|progress| table.removals(progress.removals()).map(move |gone| (progress, gone)))
            {
                let absent_by_name = self.names.get(name).is_none_or(|sent| {
                    sent.holds.is_empty() && !matches!(view.state.lookup(kind, Class::Named, name), Lookup::Present(_))
                });
                if let Presence::Absent(Some(last)) = &entry.presence
                    && progress.client_may_hold(entry)
                    && absent_by_name
                {
                    set.add(last, None, None);
                }
            }
        }
        for (name, sent) in &self.names {
            match view.state.lookup(kind, Class::Named, name) {
                _ if !view.client.clearance.allows(kind, name) => {}
                Lookup::Present(resource) => {
                    let news = sent.holds != Self::share(view, name, resource);
                    let first = self.pending.get(name).is_some_and(|pending| pending.requested.is_some());
                    set.add(resource, view.ttl(self.entry(kind, name, view)), news.then_some(first));
                }
                Lookup::Absent(Some(last))
                    if union && !sent.holds.is_empty() && !view.limits.faults.has(Fault::NoUnion) =>
                {
                    set.add(last, None, None);
                }
                Lookup::Absent(_) | Lookup::Unknown => {}
            }
        }
        set.draft
    }

    /// Returns the shared set of a client that subscribes to `*` alone, may have all of it, and holds nothing else.
    fn common_set(&self, kind: &Type, view: &ReplyContext, union: bool) -> Option<Arc<Batch>> {
        let wildcard = self.wildcard.as_ref().filter(|_| self.names.is_empty() && view.sends_the_same_to_all(kind))?;
        let table = view.state.resources(kind, Class::Wildcard)?;
        let gone = |progress: &Progress| table.removals(progress.removals()).next().is_some();
        if union && wildcard.progress.as_ref().is_some_and(gone) {
            return None;
        }
        let (added, first, wrappers) = (wildcard.added, wildcard.first, view.client.wrappers);
        let key = BatchKey { kind: kind.clone(), complete: true, wrappers, added, first };
        let collect = || {
            let mut set = FullSet { draft: Draft::default(), seen: HashSet::new(), kind, view };
            for (entry, resource) in table.additions(Revision::ZERO) {
                set.add(resource, None, (entry.body_changed > added).then_some(first));
            }
            set.draft.into_batch(None, table.additions_received(added))
        };
        Some(view.state.batch(key, collect))
    }

    fn sent_additions(&mut self, kind: &Type, view: &ReplyContext, draft: &Draft) {
        let mark = view.state.revision;
        self.sent = Some(draft.version);
        self.complete_due = None;
        (self.initial_version, self.stated) = (None, false); // from here on the client holds what it was sent
        if let Some(wildcard) = &mut self.wildcard {
            (wildcard.added, wildcard.refreshed) = (mark, mark);
            wildcard.record_additions_sent(mark);
            wildcard.first = false;
        }
        self.note_all(kind, view, |known, pending| match known {
            Lookup::Present(_) => true,
            Lookup::Absent(_) => pending.is_some_and(|pending| pending.requested.is_some()),
            Lookup::Unknown => false,
        });
    }

    fn sent_removals(&mut self, kind: &Type, view: &ReplyContext, draft: &Draft) {
        self.missed_removals = false;
        self.sent = Some(draft.version);
        if let Some(progress) = self.wildcard.as_mut().and_then(|wildcard| wildcard.progress.as_mut()) {
            progress.record_all_sent(view.state.revision);
        }
        self.note_all(kind, view, |known, _| matches!(known, Lookup::Absent(_)));
    }

    /// Records every name for which the set just sent agrees with the snapshot.
    fn note_all(&mut self, kind: &Type, view: &ReplyContext, said: impl Fn(Lookup, Option<&Pending>) -> bool) {
        let mark = view.state.revision;
        let names: Vec<_> = self.names.keys().cloned().collect();
        for name in names {
            let known = self.known(kind, &name, view);
            if !said(known, self.pending.get(&name)) {
                continue;
            }
            let held = self.names.get(&name).is_some_and(|sent| sent.client_may_hold());
            match known {
                Lookup::Present(resource) if !view.client.can_have(kind, resource) => {
                    self.record_sent(&name, SetVersion::EMPTY)
                }
                Lookup::Present(resource) => {
                    self.record_sent(&name, Self::share(view, &name, resource));
                    if view.state.error(kind, &name).is_none() {
                        self.record_error_sent(&name, Revision::ZERO);
                    }
                }
                // What the client holds is still in the union; the reduced set removes it.
                Lookup::Absent(_)
                    if held && self.pending.get(&name).is_some_and(|pending| pending.requested.is_some()) =>
                {
                    if let Some(pending) = self.pending.get_mut(&name) {
                        pending.requested = None;
                        pending.changed_at(mark);
                    }
                    continue;
                }
                Lookup::Absent(_) => self.record_sent(&name, SetVersion::EMPTY),
                Lookup::Unknown => continue,
            }
            if let Some(pending) = self.pending.remove(&name)
                && let Some(still) = pending.after(mark)
            {
                self.pending.insert(name, still);
            }
        }
    }
}

struct FullSet<'a> {
    draft: Draft,
    seen: HashSet<Name>,
    kind: &'a Type,
    view: &'a ReplyContext<'a>,
}

impl FullSet<'_> {
    /// Adds a resource. `news` is set if it is new to the client, and true if it answers a request.
    fn add(&mut self, resource: &Arc<Resource>, ttl: Option<Duration>, news: Option<bool>) {
        // The resource may also be requested by an alias, and a set has no name twice (SOTW-30); or its name is one that this
        // client cannot read.
        if !self.view.client.can_have(self.kind, resource) || !self.seen.insert(resource.name.clone()) {
            return;
        }
        self.draft.version = self.draft.version.plus(Subscription::share(self.view, &resource.name, resource));
        self.draft.warms.extend(news.and_then(|first| Warms::of(resource, first)));
        self.draft.add(resource, ttl);
    }
}
