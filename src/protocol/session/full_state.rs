//! Complete answers: SotW of full-state types, where what is left out is deleted (SOTW-20, SOTW-21).
//!
//! While additions go out, the set is the union of what is there and what is gone but was not yet told to be (ORD-7). The
//! reduced set comes last.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::reply::{Draft, Warms};
use super::subscription::{Owed, Subscription};
use super::{Attempt, May, ReplyContext};
use crate::protocol::faults::Fault;
use crate::protocol::unit::{Class, Entry, Fill, Known, Presence, Seq};
use crate::xds::{Name, Resource, SetVersion, Type};

impl Subscription {
    pub(super) fn full_set_with_additions(&mut self, kind: &Type, view: &ReplyContext, may: May) -> Attempt {
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
        let pure = self.star.is_some() && self.names.is_empty() && self.refused.is_empty();
        let shelf = view.state.shelf(kind, Class::Star);
        let equal = || shelf.is_some_and(|shelf| Self::star_version(kind, shelf, view).to_string() == version);
        pure && self.speaks_full_sets(kind, view) && self.star_fill(kind, view) >= Fill::Begun && equal()
    }

    pub(super) fn full_set_reduced(&mut self, kind: &Type, view: &ReplyContext) -> Attempt {
        if !self.any_removal(kind, view) {
            return Attempt::Nothing;
        }
        if self.would_delete_unknown(kind, view) {
            return Attempt::Unknown;
        }
        if let Some(blocked) = self.blocked(view, May::Anything, false) {
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
        let known = |name| !matches!(self.known(kind, name, view), Known::Unknown);
        self.complete_due || self.owed.iter().any(|(name, owed)| owed.asked && known(name))
    }

    fn any_addition(&self, kind: &Type, view: &ReplyContext) -> bool {
        let shelf = view.state.shelf(kind, Class::Star);
        let of_star =
            self.star.as_ref().zip(shelf).is_some_and(|(star, shelf)| shelf.additions(star.added).next().is_some());
        let here = |name: &Name| matches!(self.known(kind, name, view), Known::Here(_));
        let troubled =
            |name: &Name| self.untold_error(kind, name, view).is_some() && !self.is_held_and_gone(kind, name, view);
        let news = |(name, owed): (&Name, &Owed)| owed.changed_by(view.state.mark) && (here(name) || troubled(name));
        of_star
            || self.owed.iter().any(news)
            || self.any_refresh(kind, view)
            || self.refused.values().any(Option::is_some)
    }

    /// Whether what this client holds was given more time, which the whole set has to go out for: a heartbeat would leave the
    /// rest of it out.
    fn any_refresh(&self, kind: &Type, view: &ReplyContext) -> bool {
        if !view.client.ttl {
            return false;
        }
        let shelf = view.state.shelf(kind, Class::Star);
        let of_star =
            self.star.as_ref().zip(shelf).is_some_and(|(star, shelf)| {
                shelf.refreshes(star.refreshed).any(|(entry, _)| entry.changed <= star.added)
            });
        let by_name = |(name, owed): (&Name, &Owed)| {
            let prolonged = |entry: &Entry| entry.refreshed > entry.changed && owed.covers(entry.refreshed);
            self.entry(kind, name, view).is_some_and(prolonged)
        };
        of_star || self.owed.iter().any(by_name)
    }

    /// What the client holds goes with the reduced set, and the reason with it.
    fn is_held_and_gone(&self, kind: &Type, name: &Name, view: &ReplyContext) -> bool {
        let held = self.names.get(name).is_some_and(|told| told.may_hold());
        held && matches!(self.known(kind, name, view), Known::Gone(_))
    }

    /// What is wrong with names that are not in the set.
    fn add_errors(&mut self, kind: &Type, view: &ReplyContext, draft: &mut Draft) {
        if !view.client.errors {
            return;
        }
        let sent: HashSet<_> = draft.resources.iter().map(|resource| resource.name.clone()).collect();
        let untold = |name: &Name| Some((name.clone(), self.untold_error(kind, name, view)?));
        let errors: Vec<_> = self.owed.keys().filter(|name| !sent.contains(*name)).filter_map(untold).collect();
        for (name, (seq, error)) in errors {
            self.told_error(&name, seq);
            draft.add_error(name, error);
        }
    }

    fn any_removal(&self, kind: &Type, view: &ReplyContext) -> bool {
        let shelf = view.state.shelf(kind, Class::Star);
        let of_star = self.star.as_ref().zip(shelf).is_some_and(|(star, shelf)| {
            star.progress.as_ref().is_some_and(|progress| shelf.removals(progress.removals()).next().is_some())
        });
        let gone = |name| matches!(self.known(kind, name, view), Known::Gone(_));
        let by_name = self.owed.iter().any(|(name, owed)| owed.changed_by(view.state.mark) && gone(name));
        self.missed_removals || of_star || by_name
    }

    /// A set that is not known to be whole is not sent: what it lacks would be deleted (I3, SOTW-7). A client without state
    /// is given the names that are there (ORD-10), and one with state waits, for however long.
    fn would_delete_unknown(&self, kind: &Type, view: &ReplyContext) -> bool {
        if self.star.is_some() && !self.may_take_all(kind, view) {
            return true;
        }
        if view.limits.faults.has(Fault::ShrinkByIgnorance) {
            return false;
        }
        let unknown = |name| matches!(self.known(kind, name, view), Known::Unknown);
        let had_of_star = |name| {
            let entry = view.state.shelf(kind, Class::Star).and_then(|shelf| shelf.get(name));
            let progress = self.star.as_ref().and_then(|star| star.progress.as_ref());
            entry.zip(progress).is_some_and(|(entry, progress)| progress.may_hold(entry))
        };
        self.names.iter().any(|(name, told)| unknown(name) && (told.may_hold() || had_of_star(name)))
    }

    /// What this client asked for by name, may hold, and is known to be gone in no way that does for it.
    pub(super) fn claim_owed(&mut self, kind: &Type, view: &ReplyContext) {
        let Some(shelf) = view.state.shelf(kind, Class::Named) else { return };
        let gone = |name: &Name| matches!(shelf.get(name).map(|entry| &entry.presence), Some(Presence::Gone(_)));
        let held = |name: &Name| self.names.get(name).is_some_and(|told| told.may_hold());
        let unknown = |name: &&Name| held(name) && gone(name) && self.known(kind, name, view).is_unknown();
        let names: Vec<_> = self.owed.keys().filter(unknown).cloned().collect();
        names.iter().for_each(|name| self.claim(Class::Named, name, shelf.opening()));
    }

    fn blocked(&self, view: &ReplyContext, may: May, asked: bool) -> Option<Attempt> {
        let allowed = if asked { May::FirstAnswers } else { May::Anything };
        if may < allowed {
            return Some(Attempt::Blocked(None));
        }
        let unanswered = self.answers.waiting(view.now).filter(|_| !asked);
        unanswered.map(|until| Attempt::Blocked(Some(until)))
    }

    /// A change that leaves what this client sees as it was is none, and neither is a return to what it came with.
    fn is_known_to_client(&self, draft: &Draft, asked: bool) -> bool {
        if !asked {
            return self.sent == Some(draft.version);
        }
        !self.asks_once
            && self.sent.is_none()
            && self.came_with.as_ref().is_some_and(|version| *version == draft.version.to_string())
    }

    fn compose(&self, kind: &Type, view: &ReplyContext, union: bool) -> Draft {
        let mut set = FullSet { draft: Draft::default(), seen: HashSet::new(), kind, view };
        if let (Some(star), Some(shelf)) = (&self.star, view.state.shelf(kind, Class::Star)) {
            let by_name = |resource: &Resource| {
                self.names.contains_key(&resource.name)
                    && matches!(view.state.known(kind, Class::Named, &resource.name), Known::Here(_))
            };
            for (entry, resource) in shelf.additions(Seq::ZERO).filter(|(_, resource)| !by_name(resource)) {
                set.add(resource, view.ttl(Some(entry)), (entry.body_changed > star.added).then_some(star.first));
            }
            let progress = star.progress.iter().filter(|_| union && !view.limits.faults.has(Fault::NoUnion));
            for (progress, (name, entry)) in
                progress.flat_map(|progress| shelf.removals(progress.removals()).map(move |gone| (progress, gone)))
            {
                let gone_by_name = self.names.get(name).is_none_or(|told| {
                    told.holds.is_empty() && !matches!(view.state.known(kind, Class::Named, name), Known::Here(_))
                });
                if let Presence::Gone(Some(last)) = &entry.presence
                    && progress.may_hold(entry)
                    && gone_by_name
                {
                    set.add(last, None, None);
                }
            }
        }
        for (name, told) in &self.names {
            match view.state.known(kind, Class::Named, name) {
                _ if !view.client.clearance.allows(kind, name) => {}
                Known::Here(resource) => {
                    let news = told.holds != Self::share(view, name, resource);
                    let first = self.owed.get(name).is_some_and(|owed| owed.asked);
                    set.add(resource, view.ttl(self.entry(kind, name, view)), news.then_some(first));
                }
                Known::Gone(Some(last)) if union && !told.holds.is_empty() && self.is_gone(kind, name, view) => {
                    set.add(last, None, None);
                }
                Known::Gone(_) | Known::Unknown => {}
            }
        }
        set.draft
    }

    fn is_gone(&self, kind: &Type, name: &Name, view: &ReplyContext) -> bool {
        !view.limits.faults.has(Fault::NoUnion) && matches!(self.known(kind, name, view), Known::Gone(_))
    }

    fn told_additions(&mut self, kind: &Type, view: &ReplyContext, draft: &Draft) {
        let mark = view.state.mark;
        self.sent = Some(draft.version);
        self.complete_due = false;
        (self.came_with, self.stated) = (None, false); // from here on it holds what it was given
        if let Some(star) = &mut self.star {
            (star.added, star.refreshed) = (mark, mark);
            star.told_additions(mark);
            star.first = false;
        }
        self.note_all(kind, view, |known, owed| match known {
            Known::Here(_) => true,
            Known::Gone(_) => owed.is_some_and(|owed| owed.asked),
            Known::Unknown => false,
        });
    }

    fn told_removals(&mut self, kind: &Type, view: &ReplyContext, draft: &Draft) {
        self.missed_removals = false;
        self.sent = Some(draft.version);
        if let Some(progress) = self.star.as_mut().and_then(|star| star.progress.as_mut()) {
            progress.told_everything(view.state.mark);
        }
        self.note_all(kind, view, |known, _| matches!(known, Known::Gone(_)));
    }

    /// Notes every name of which the set just told says what the state says.
    fn note_all(&mut self, kind: &Type, view: &ReplyContext, said: impl Fn(Known, Option<&Owed>) -> bool) {
        let mark = view.state.mark;
        let names: Vec<_> = self.names.keys().cloned().collect();
        for name in names {
            let known = self.known(kind, &name, view);
            if !said(known, self.owed.get(&name)) {
                continue;
            }
            let held = self.names.get(&name).is_some_and(|told| told.may_hold());
            match known {
                Known::Here(resource) if !view.client.can_have(kind, resource) => self.note(&name, SetVersion::EMPTY),
                Known::Here(resource) => {
                    self.note(&name, Self::share(view, &name, resource));
                    if view.state.error(kind, &name).is_none() {
                        self.told_error(&name, Seq::ZERO);
                    }
                }
                // What the client holds is in the union still, and goes with the reduced set.
                Known::Gone(_) if held && self.owed.get(&name).is_some_and(|owed| owed.asked) => {
                    if let Some(owed) = self.owed.get_mut(&name) {
                        owed.asked = false;
                        owed.changed_at(mark);
                    }
                    continue;
                }
                Known::Gone(_) => self.note(&name, SetVersion::EMPTY),
                Known::Unknown => continue,
            }
            if let Some(owed) = self.owed.remove(&name)
                && let Some(still) = owed.after(mark)
            {
                self.owed.insert(name, still);
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
