//! Complete answers: SotW of full-state types, where what is left out is deleted (SOTW-20, SOTW-21).
//!
//! While additions go out, the set is the union of what is there and what is gone but was not yet told to be (ORD-7). The
//! reduced set comes last.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::progress::Progress;
use super::reply::{Draft, Warms};
use super::subscription::{Pending, Subscription};
use super::{Attempt, ReplyContext, SendScope};
use crate::protocol::faults::Fault;
use crate::protocol::view::{Batch, BatchKey, Class, Completeness, Entry, Lookup, Presence, Revision};
use crate::xds::{Name, Resource, SetVersion, Type};

impl Subscription {
    pub(super) fn full_set_with_additions(&mut self, kind: &Type, view: &ReplyContext, may: SendScope) -> Attempt {
        let asked = self.asked(kind, view);
        if !asked && !self.any_addition(kind, view) {
            return Attempt::Nothing;
        }
        if self.would_delete_unknown(kind, view) {
            return Attempt::Unknown;
        }
        // Before the set is made: it may turn out to be no news, but making it is what costs.
        if let Some(blocked) = self.blocked(view, may, asked) {
            return blocked;
        }
        let refreshed = self.any_refresh(kind, view);
        let mut draft = self.compose(kind, view, true);
        self.add_refused(&mut draft);
        self.add_errors(kind, view, &mut draft);
        let known = self.is_known_to_client(&draft, asked) && draft.errors.is_empty() && !refreshed;
        self.told_additions(kind, view, &draft);
        if known { Attempt::Nothing } else { Attempt::Ready(draft.into()) }
    }

    pub(super) fn is_current(&self, kind: &Type, version: &str, view: &ReplyContext) -> bool {
        let pure = self.wildcard.is_some() && self.names.is_empty() && self.refused.is_empty();
        let shelf = view.state.resources(kind, Class::Wildcard);
        let equal = || shelf.is_some_and(|shelf| Self::wildcard_version(kind, shelf, view).to_string() == version);
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
        self.told_removals(kind, view, &draft);
        if unchanged { Attempt::Nothing } else { Attempt::Ready(draft.into()) }
    }

    /// Whether an answer is owed to a request, as opposed to a change.
    fn asked(&self, kind: &Type, view: &ReplyContext) -> bool {
        let known = |name| !matches!(self.known(kind, name, view), Lookup::Unknown);
        self.complete_due || self.pending.iter().any(|(name, owed)| owed.asked && known(name))
    }

    fn any_addition(&self, kind: &Type, view: &ReplyContext) -> bool {
        let shelf = view.state.resources(kind, Class::Wildcard);
        let of_star =
            self.wildcard.as_ref().zip(shelf).is_some_and(|(star, shelf)| shelf.additions(star.added).next().is_some());
        let here = |name: &Name| matches!(self.known(kind, name, view), Lookup::Present(_));
        let troubled =
            |name: &Name| self.unsent_error(kind, name, view).is_some() && !self.is_held_and_gone(kind, name, view);
        let news =
            |(name, owed): (&Name, &Pending)| owed.changed_by(view.state.revision) && (here(name) || troubled(name));
        of_star
            || self.pending.iter().any(news)
            || self.any_refresh(kind, view)
            || self.refused.values().any(Option::is_some)
    }

    /// Whether what this client holds was given more time, which the whole set has to go out for: a heartbeat would leave the
    /// rest of it out.
    fn any_refresh(&self, kind: &Type, view: &ReplyContext) -> bool {
        if !view.client.ttl {
            return false;
        }
        let shelf = view.state.resources(kind, Class::Wildcard);
        let of_star =
            self.wildcard.as_ref().zip(shelf).is_some_and(|(star, shelf)| {
                shelf.refreshes(star.refreshed).any(|(entry, _)| entry.changed <= star.added)
            });
        let by_name = |(name, owed): (&Name, &Pending)| {
            let prolonged = |entry: &Entry| entry.refreshed > entry.changed && owed.covers(entry.refreshed);
            self.entry(kind, name, view).is_some_and(prolonged)
        };
        of_star || self.pending.iter().any(by_name)
    }

    /// What the client holds goes with the reduced set, and the reason with it.
    fn is_held_and_gone(&self, kind: &Type, name: &Name, view: &ReplyContext) -> bool {
        let held = self.names.get(name).is_some_and(|told| told.client_may_hold());
        held && matches!(self.known(kind, name, view), Lookup::Absent(_))
    }

    /// What is wrong with names that are not in the set.
    fn add_errors(&mut self, kind: &Type, view: &ReplyContext, draft: &mut Draft) {
        if !view.client.errors || self.pending.is_empty() {
            return;
        }
        let sent: HashSet<_> = draft.resources().map(|resource| resource.name.clone()).collect();
        let untold = |name: &Name| Some((name.clone(), self.unsent_error(kind, name, view)?));
        let errors: Vec<_> = self.pending.keys().filter(|name| !sent.contains(*name)).filter_map(untold).collect();
        for (name, (seq, error)) in errors {
            self.record_error_sent(&name, seq);
            draft.add_error(name, error);
        }
    }

    fn any_removal(&self, kind: &Type, view: &ReplyContext) -> bool {
        let shelf = view.state.resources(kind, Class::Wildcard);
        let of_star = self.wildcard.as_ref().zip(shelf).is_some_and(|(star, shelf)| {
            star.progress.as_ref().is_some_and(|progress| shelf.removals(progress.removals()).next().is_some())
        });
        let gone = |name| matches!(self.known(kind, name, view), Lookup::Absent(_));
        let by_name = self.pending.iter().any(|(name, owed)| owed.changed_by(view.state.revision) && gone(name));
        self.missed_removals || of_star || by_name
    }

    /// A set that is not known to be whole is not sent: what it lacks would be deleted (I3, SOTW-7). A client without state
    /// is given the names that are there (ORD-10), and one with state waits, for however long.
    fn would_delete_unknown(&self, kind: &Type, view: &ReplyContext) -> bool {
        if self.wildcard.is_some() && !self.can_send_full_set(kind, view) {
            return true;
        }
        if view.limits.faults.has(Fault::ShrinkByIgnorance) {
            return false;
        }
        let unknown = |name| matches!(self.known(kind, name, view), Lookup::Unknown);
        let had_of_star = |name| {
            let entry = view.state.resources(kind, Class::Wildcard).and_then(|shelf| shelf.get(name));
            let progress = self.wildcard.as_ref().and_then(|star| star.progress.as_ref());
            entry.zip(progress).is_some_and(|(entry, progress)| progress.client_may_hold(entry))
        };
        self.names.iter().any(|(name, told)| unknown(name) && (told.client_may_hold() || had_of_star(name)))
    }

    /// What this client asked for by name, may hold, and is known to be gone in no way that does for it.
    pub(super) fn claim_owed(&mut self, kind: &Type, view: &ReplyContext) {
        let Some(shelf) = view.state.resources(kind, Class::Named) else { return };
        let gone = |name: &Name| matches!(shelf.get(name).map(|entry| &entry.presence), Some(Presence::Absent(_)));
        let held = |name: &Name| self.names.get(name).is_some_and(|told| told.client_may_hold());
        let unknown = |name: &&Name| held(name) && gone(name) && self.known(kind, name, view).is_unknown();
        let names: Vec<_> = self.pending.keys().filter(unknown).cloned().collect();
        names.iter().for_each(|name| self.claim(Class::Named, name, shelf.opening()));
    }

    fn blocked(&self, view: &ReplyContext, may: SendScope, asked: bool) -> Option<Attempt> {
        let allowed = if asked { SendScope::InitialReplies } else { SendScope::Anything };
        if may < allowed {
            return Some(Attempt::Blocked(None));
        }
        let unanswered = self.acks.waiting(view.now).filter(|_| !asked);
        unanswered.map(|until| Attempt::Blocked(Some(until)))
    }

    /// A change that leaves what this client sees as it was is none, and neither is a return to what it came with.
    fn is_known_to_client(&self, draft: &Draft, asked: bool) -> bool {
        if !asked {
            return self.sent == Some(draft.version);
        }
        !self.asks_once
            && self.sent.is_none()
            && self.initial_version.as_ref().is_some_and(|version| *version == draft.version.to_string())
    }

    fn compose(&self, kind: &Type, view: &ReplyContext, union: bool) -> Draft {
        if let Some(star) = &self.wildcard
            && let Some(batch) = self.common_set(kind, view, union)
        {
            return Draft::of_batch(batch, star.first);
        }
        let mut set = FullSet { draft: Draft::default(), seen: HashSet::new(), kind, view };
        if let (Some(star), Some(shelf)) = (&self.wildcard, view.state.resources(kind, Class::Wildcard)) {
            let by_name = |resource: &Resource| {
                self.names.contains_key(&resource.name)
                    && matches!(view.state.lookup(kind, Class::Named, &resource.name), Lookup::Present(_))
            };
            for (entry, resource) in shelf.additions(Revision::ZERO).filter(|(_, resource)| !by_name(resource)) {
                set.add(resource, view.ttl(Some(entry)), (entry.body_changed > star.added).then_some(star.first));
            }
            let progress = star.progress.iter().filter(|_| union && !view.limits.faults.has(Fault::NoUnion));
            for (progress, (name, entry)) in
                progress.flat_map(|progress| shelf.removals(progress.removals()).map(move |gone| (progress, gone)))
            {
                let gone_by_name = self.names.get(name).is_none_or(|told| {
                    told.holds.is_empty() && !matches!(view.state.lookup(kind, Class::Named, name), Lookup::Present(_))
                });
                if let Presence::Absent(Some(last)) = &entry.presence
                    && progress.client_may_hold(entry)
                    && gone_by_name
                {
                    set.add(last, None, None);
                }
            }
        }
        for (name, told) in &self.names {
            match view.state.lookup(kind, Class::Named, name) {
                _ if !view.client.clearance.allows(kind, name) => {}
                Lookup::Present(resource) => {
                    let news = told.holds != Self::share(view, name, resource);
                    let first = self.pending.get(name).is_some_and(|owed| owed.asked);
                    set.add(resource, view.ttl(self.entry(kind, name, view)), news.then_some(first));
                }
                Lookup::Absent(Some(last)) if union && !told.holds.is_empty() && self.is_gone(kind, name, view) => {
                    set.add(last, None, None);
                }
                Lookup::Absent(_) | Lookup::Unknown => {}
            }
        }
        set.draft
    }

    /// The set of a client that asks for `*` alone, may have all of it, and holds nothing else.
    fn common_set(&self, kind: &Type, view: &ReplyContext, union: bool) -> Option<Arc<Batch>> {
        let star = self.wildcard.as_ref().filter(|_| self.names.is_empty() && view.sends_alike(kind))?;
        let shelf = view.state.resources(kind, Class::Wildcard)?;
        let gone = |progress: &Progress| shelf.removals(progress.removals()).next().is_some();
        if union && star.progress.as_ref().is_some_and(gone) {
            return None;
        }
        let (added, first, wrappers) = (star.added, star.first, view.client.wrappers);
        let key = BatchKey { kind: kind.clone(), complete: true, wrappers, added, first };
        let collect = || {
            let mut set = FullSet { draft: Draft::default(), seen: HashSet::new(), kind, view };
            for (entry, resource) in shelf.additions(Revision::ZERO) {
                set.add(resource, None, (entry.body_changed > added).then_some(first));
            }
            set.draft.into_batch(None)
        };
        Some(view.state.batch(key, collect))
    }

    fn is_gone(&self, kind: &Type, name: &Name, view: &ReplyContext) -> bool {
        !view.limits.faults.has(Fault::NoUnion) && matches!(self.known(kind, name, view), Lookup::Absent(_))
    }

    fn told_additions(&mut self, kind: &Type, view: &ReplyContext, draft: &Draft) {
        let mark = view.state.revision;
        self.sent = Some(draft.version);
        self.complete_due = false;
        (self.initial_version, self.stated) = (None, false); // from here on it holds what it was given
        if let Some(star) = &mut self.wildcard {
            (star.added, star.refreshed) = (mark, mark);
            star.record_additions_sent(mark);
            star.first = false;
        }
        self.note_all(kind, view, |known, owed| match known {
            Lookup::Present(_) => true,
            Lookup::Absent(_) => owed.is_some_and(|owed| owed.asked),
            Lookup::Unknown => false,
        });
    }

    fn told_removals(&mut self, kind: &Type, view: &ReplyContext, draft: &Draft) {
        self.missed_removals = false;
        self.sent = Some(draft.version);
        if let Some(progress) = self.wildcard.as_mut().and_then(|star| star.progress.as_mut()) {
            progress.record_all_sent(view.state.revision);
        }
        self.note_all(kind, view, |known, _| matches!(known, Lookup::Absent(_)));
    }

    /// Notes every name of which the set just told says what the state says.
    fn note_all(&mut self, kind: &Type, view: &ReplyContext, said: impl Fn(Lookup, Option<&Pending>) -> bool) {
        let mark = view.state.revision;
        let names: Vec<_> = self.names.keys().cloned().collect();
        for name in names {
            let known = self.known(kind, &name, view);
            if !said(known, self.pending.get(&name)) {
                continue;
            }
            let held = self.names.get(&name).is_some_and(|told| told.client_may_hold());
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
                // What the client holds is in the union still, and goes with the reduced set.
                Lookup::Absent(_) if held && self.pending.get(&name).is_some_and(|owed| owed.asked) => {
                    if let Some(owed) = self.pending.get_mut(&name) {
                        owed.asked = false;
                        owed.changed_at(mark);
                    }
                    continue;
                }
                Lookup::Absent(_) => self.record_sent(&name, SetVersion::EMPTY),
                Lookup::Unknown => continue,
            }
            if let Some(owed) = self.pending.remove(&name)
                && let Some(still) = owed.after(mark)
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
    /// `news` says that the client is told something new by it, and whether for the first time.
    fn add(&mut self, resource: &Arc<Resource>, ttl: Option<Duration>, news: Option<bool>) {
        // Asked for by an alias too, and a set names nothing twice (SOTW-30); or nothing that this client could tell by name.
        if !self.view.client.can_have(self.kind, resource) || !self.seen.insert(resource.name.clone()) {
            return;
        }
        self.draft.version = self.draft.version.plus(Subscription::share(self.view, &resource.name, resource));
        self.draft.warms.extend(news.and_then(|first| Warms::of(resource, first)));
        self.draft.add(resource, ttl);
    }
}
