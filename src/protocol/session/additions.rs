//! What is new for a client, in the variants that tell of single resources: delta, and SotW of types that are not full state.

use std::collections::HashSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use super::client::Variant;
use super::reply::{Draft, Warms};
use super::subscription::{Owed, Subscription};
use super::{Attempt, May, View};
use crate::protocol::faults::Fault;
use crate::protocol::moment::Moment;
use crate::protocol::unit::{Class, Known};
use crate::xds::{Name, Resource, SetVersion, Type};

impl Subscription {
    pub(super) fn additions(&mut self, kind: &Type, view: &View, may: May) -> Attempt {
        let unanswered = match view.client.variant {
            Variant::Sotw => self.answers.waiting(view.now),
            Variant::Delta => None,
        };
        let may = if unanswered.is_some() { may.min(May::FirstAnswers) } else { may };
        let mut round = Round::default();
        let whole = self.star_is_whole(kind, view);
        self.add_owed(kind, view, may, &mut round);
        self.add_of_star(kind, view, may, whole, &mut round);
        if !round.draft.is_empty() {
            // What does not fit goes with the next piece, before anything else.
            let star = view.state.shelf(kind, Class::Star).filter(|_| self.star.is_some());
            round.draft.version = star.map_or(self.sum, |shelf| self.sum.plus(shelf.version(view.client.wrappers)));
            self.sent = Some(round.draft.version);
            return Attempt::Ready(round.draft);
        }
        if round.kept_back {
            return Attempt::Blocked(unanswered);
        }
        // More of a set may come, and what points at it had better come later.
        if self.star.is_some() && !whole {
            return Attempt::Unknown(self.star_whole_at(kind, view));
        }
        Attempt::Nothing
    }

    fn add_owed(&mut self, kind: &Type, view: &View, may: May, round: &mut Round) {
        let mut next = self.owed.first_key_value().map(|(name, owed)| (name.clone(), *owed));
        while let Some((name, owed)) = next.filter(|_| !round.is_full(view)) {
            match self.add_one(kind, &name, owed, view, may, round) {
                Some(still) => drop(self.owed.insert(name.clone(), still)),
                None => drop(self.owed.remove(&name)),
            }
            let mut later = self.owed.range::<Name, _>((Excluded(&name), Unbounded));
            next = later.next().map(|(name, owed)| (name.clone(), *owed));
        }
    }

    /// Tells one owed name if that may be done now. Gives back what is still owed of it.
    fn add_one(
        &mut self,
        kind: &Type,
        name: &Name,
        owed: Owed,
        view: &View,
        may: May,
        round: &mut Round,
    ) -> Option<Owed> {
        let mark = view.state.mark;
        let forced = owed.forced.is_some_and(|due| due <= view.now);
        let changed = owed.changed_by(mark);
        if !(owed.asked || forced || changed) {
            return Some(owed);
        }
        // A forced name waits for nothing but its time: the client holds its own answer back until it has come.
        let allowed = if owed.asked { May::FirstAnswers } else { May::Anything };
        let kept_back = may < allowed && !forced;
        match self.known(kind, name, view) {
            Known::Unknown if view.limits.faults.has(Fault::UnknownIsAbsent) => self.answer_absent(name, round),
            Known::Unknown => {
                let asked_alone = owed.changed.is_none() && owed.forced.is_none();
                if asked_alone && self.star.is_none() {
                    self.parked.insert(name.clone());
                    return None;
                }
                return Some(owed);
            }
            Known::Gone(_) if view.client.variant == Variant::Sotw => {
                // No way to say so in SotW, and an empty stand-in would be a lie (SOTW-25, SOTW-55).
                self.note(name, SetVersion::EMPTY);
            }
            Known::Gone(_) => {
                let held = self.names.get(name).is_some_and(|told| told.may_hold());
                if held || !(owed.asked || forced) {
                    return Some(owed); // a removal, and those come after every addition
                }
                if kept_back {
                    round.kept_back = true;
                    return Some(owed);
                }
                self.answer_absent(name, round);
            }
            Known::Here(resource) => {
                let share = Self::share(view, name, resource);
                let news = self.names.get(name).is_none_or(|told| told.holds != share);
                if !news && !owed.asked && !forced {
                    self.note(name, share);
                    return merge(owed.after(mark), owed.forced);
                }
                if kept_back {
                    round.kept_back = true;
                    return Some(owed);
                }
                if round.is_full(view) {
                    return Some(owed);
                }
                round.add(resource, owed.asked);
                self.note(name, share);
                if let Some(stated) = self.star.as_mut().and_then(|star| star.stated.as_mut()) {
                    stated.outdated.insert(name.clone());
                }
            }
        }
        owed.after(mark)
    }

    fn answer_absent(&mut self, name: &Name, round: &mut Round) {
        round.draft.add_removed(name.clone());
        self.note(name, SetVersion::EMPTY);
    }

    fn add_of_star(&mut self, kind: &Type, view: &View, may: May, whole: bool, round: &mut Round) {
        let Self { star: Some(star), names, owed, .. } = self else { return };
        let Some(shelf) = view.state.shelf(kind, Class::Star) else { return };
        let allowed = if star.first { May::FirstAnswers } else { May::Anything };
        let (mut told, mut exhausted, first) = (Vec::new(), true, star.first);
        let bodies_alone = view.client.variant == Variant::Sotw && !view.client.wrappers;
        let from = star.added;
        for (entry, resource) in shelf.additions(from) {
            let by_name = names.contains_key(&resource.name)
                && matches!(view.state.known(kind, Class::Named, &resource.name), Known::Here(_));
            let held = star.stated.as_ref().is_some_and(|stated| stated.holds(resource));
            let unseen = bodies_alone && entry.body_changed <= from;
            if !by_name && !held && !unseen && !round.seen.contains(&resource.name) {
                if may < allowed {
                    round.kept_back = true;
                    return;
                }
                if round.is_full(view) {
                    exhausted = false;
                    break;
                }
                round.draft.add(resource);
                round.draft.warms.extend(Warms::of(resource, first));
                if let Some(stated) = star.stated.as_mut().filter(|stated| stated.versions.contains_key(&resource.name))
                {
                    stated.outdated.insert(resource.name.clone());
                }
                // What was owed of it by `*` alone is paid with this; a cluster that waits for it has it now.
                if names.contains_key(&resource.name) {
                    owed.entry(resource.name.clone()).and_modify(|owed| owed.forced = None);
                    told.push(resource);
                } else {
                    owed.remove(&resource.name);
                }
            }
            star.added = entry.changed;
        }
        if exhausted {
            star.added = view.state.mark.max(star.added);
        }
        if !round.draft.is_empty() {
            star.told_additions(view.state.mark);
            star.first &= !exhausted;
        } else if exhausted && whole && view.client.variant == Variant::Sotw {
            // In SotW a partial type has no empty answer: nothing, once all is known, is the first one.
            star.told_additions(view.state.mark);
            star.first = false;
        }
        for resource in told {
            self.note(&resource.name, Self::share(view, &resource.name, resource));
        }
    }
}

/// One reply in the making.
#[derive(Default)]
struct Round {
    draft: Draft,
    /// Names in it that were owed by name, so that `*` does not say them again (DELTA-33).
    seen: HashSet<Name>,
    kept_back: bool,
}

impl Round {
    fn add(&mut self, resource: &Arc<Resource>, first: bool) {
        if self.seen.insert(resource.name.clone()) {
            self.draft.warms.extend(Warms::of(resource, first));
            self.draft.add(resource);
        }
    }

    fn is_full(&self, view: &View) -> bool {
        view.client.variant == Variant::Delta && self.draft.bytes >= view.limits.reply_bytes
    }
}

fn merge(owed: Option<Owed>, forced: Option<Moment>) -> Option<Owed> {
    match (owed, forced) {
        (owed, None) => owed,
        (owed, forced) => Some(Owed { forced, ..owed.unwrap_or_default() }),
    }
}
