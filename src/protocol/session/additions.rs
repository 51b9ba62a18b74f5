//! What is new for a client, in the variants that tell of single resources: delta, and SotW of types that are not full state.

use std::collections::HashSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use super::client::Variant;
use super::reply::{Draft, Warms};
use super::subscription::{Pending, Subscription, Wildcard};
use super::{Attempt, ReplyContext, SendScope};
use crate::protocol::faults::Fault;
use crate::protocol::moment::Moment;
use crate::protocol::view::{BatchKey, Class, Completeness, Entry, Lookup, NamedError, Presence, Revision};
use crate::xds::{EmptyFirst, Name, Resource, SetVersion, Type};

impl Subscription {
    pub(super) fn additions(&mut self, kind: &Type, view: &ReplyContext, may: SendScope) -> Attempt {
        let unanswered = match view.client.variant {
            Variant::Sotw => self.acks.waiting(view.now),
            Variant::Delta => None,
        };
        let may = if unanswered.is_some() { may.min(SendScope::InitialReplies) } else { may };
        let mut round = Round::default();
        let whole = self.can_send_full_set(kind, view);
        self.add_refused(&mut round.draft);
        self.add_owed(kind, view, may, &mut round);
        self.add_of_star(kind, view, may, whole, &mut round);
        let star = view.state.resources(kind, Class::Wildcard).filter(|_| self.wildcard.is_some());
        // For a client that may not have everything it costs a look at all there is.
        if self.empty_answer_due || !round.draft.is_empty() || !round.longer_lives.is_empty() {
            round.draft.version =
                star.map_or(self.sum, |shelf| self.sum.plus(Self::wildcard_version(kind, shelf, view)));
        }
        self.add_longer_lives(kind, view, &mut round);
        let empty_answer_due = std::mem::take(&mut self.empty_answer_due);
        if !round.draft.is_empty() || empty_answer_due {
            // What does not fit goes with the next piece, before anything else.
            self.sent = Some(round.draft.version);
            round.draft.set = self.note_set_mark(kind, view, false).0;
            return Attempt::Ready(Box::new(round.draft));
        }
        if round.kept_back {
            return Attempt::Blocked(unanswered);
        }
        if self.doubts_members(kind, view) {
            return Attempt::Unknown;
        }
        // More of a set may come, and what points at it had better come later. Not so with virtual hosts: where these are given
        // on demand alone, nobody ever answers the wildcard.
        if self.more_is_to_come(kind, view) && kind.info().empty_first != EmptyFirst::UnderRoutes {
            return Attempt::Unknown;
        }
        Attempt::Nothing
    }

    /// Whether a set is still coming in: to a client that holds some of it, more than the first response may matter.
    fn more_is_to_come(&self, kind: &Type, view: &ReplyContext) -> bool {
        let stated = |star: &Wildcard| star.initial_versions.is_some();
        let enough = |star| if stated(star) { Completeness::Settled } else { Completeness::FirstResponse };
        self.wildcard.as_ref().is_some_and(|star| self.wildcard_completeness(kind, view) < enough(star))
    }

    fn add_owed(&mut self, kind: &Type, view: &ReplyContext, may: SendScope, round: &mut Round) {
        let mut next = self.pending.first_key_value().map(|(name, owed)| (name.clone(), *owed));
        while let Some((name, owed)) = next.filter(|_| !round.is_full(view)) {
            match self.add_one(kind, &name, owed, view, may, round) {
                Some(still) => drop(self.pending.insert(name.clone(), still)),
                None => drop(self.pending.remove(&name)),
            }
            self.drop_gone_member(&name);
            let mut later = self.pending.range::<Name, _>((Excluded(&name), Unbounded));
            next = later.next().map(|(name, owed)| (name.clone(), *owed));
        }
    }

    /// Tells one owed name if that may be done now. Gives back what is still owed of it.
    fn add_one(
        &mut self,
        kind: &Type,
        name: &Name,
        owed: Pending,
        view: &ReplyContext,
        may: SendScope,
        round: &mut Round,
    ) -> Option<Pending> {
        let mark = view.state.revision;
        let forced = owed.forced_resend.is_some_and(|due| due <= view.now);
        let changed = owed.changed_by(mark);
        if !(owed.asked || forced || changed) {
            return Some(owed);
        }
        // A forced name waits for nothing but its time: the client holds its own answer back until it has come.
        let allowed = if owed.asked { SendScope::InitialReplies } else { SendScope::Anything };
        let kept_back = may < allowed && !forced;
        let trouble = self.unsent_error(kind, name, view);
        match self.known(kind, name, view) {
            Lookup::Unknown if view.limits.faults.has(Fault::UnknownIsAbsent) => self.answer_absent(kind, name, round),
            Lookup::Unknown => {
                if kept_back && trouble.is_some() {
                    round.kept_back = true;
                    return Some(owed);
                }
                self.tell_error(name, trouble, round);
                self.claim_unknown(kind, name, view);
                // An error is no answer: the name is still owed one, and until then nothing more is to be said of it.
                let owed = match view.state.error(kind, name) {
                    Some(_) => Pending { asked: true, changed: owed.after(mark).and_then(|owed| owed.changed), ..owed },
                    None => owed,
                };
                let asked_alone = owed.changed.is_none() && owed.forced_resend.is_none() && self.wildcard.is_none();
                // A glob has no value, only members: until it is known to be empty there is nothing to say under its own name.
                if asked_alone || self.globs.contains(name) {
                    self.awaiting_data.insert(name.clone());
                    return None;
                }
                return Some(owed);
            }
            Lookup::Absent(_) if view.client.variant == Variant::Sotw => {
                // No way to say so in SotW but an error, and an empty stand-in would be a lie (SOTW-25, SOTW-55).
                if kept_back && trouble.is_some() {
                    round.kept_back = true;
                    return Some(owed);
                }
                self.tell_error(name, trouble, round);
                self.record_sent(name, SetVersion::EMPTY);
            }
            Lookup::Absent(_) => {
                let held = self.names.get(name).is_some_and(|told| told.client_may_hold());
                if held || !(owed.asked || forced || trouble.is_some()) {
                    return Some(owed); // a removal, and those come after every addition
                }
                if kept_back {
                    round.kept_back = true;
                    return Some(owed);
                }
                if owed.asked || forced {
                    self.answer_absent(kind, name, round);
                }
                self.tell_error(name, trouble, round);
            }
            Lookup::Present(resource) if !view.client.can_have(kind, resource) => {
                self.record_sent(name, SetVersion::EMPTY)
            }
            Lookup::Present(resource) => {
                let share = Self::share(view, name, resource);
                let told = self.names.get(name).copied();
                if resource.do_not_cache() && owed.asked && !changed && told.is_some_and(|told| told.holds.is_empty()) {
                    if owed.changed.is_some() || owed.forced_resend.is_some() {
                        return Some(owed);
                    }
                    self.awaiting_data.insert(name.clone()); // the view marks it when an answer is there that is not from memory
                    return None;
                }
                let well_again =
                    told.is_some_and(|told| told.error != Revision::ZERO) && view.state.error(kind, name).is_none();
                let news = told.is_none_or(|told| told.holds != share) || well_again;
                if !news && !owed.asked && !forced && trouble.is_none() {
                    self.record_sent(name, share);
                    round.longer_lives.extend(self.longer_life(kind, name, owed, view));
                    return merge(owed.after(mark), owed.forced_resend);
                }
                if kept_back {
                    round.kept_back = true;
                    return Some(owed);
                }
                if round.is_full(view) {
                    return Some(owed);
                }
                if !news && !owed.asked && !forced {
                    self.tell_error(name, trouble, round);
                    return merge(owed.after(mark), owed.forced_resend);
                }
                round.add(resource, view.ttl(self.entry(kind, name, view)), owed.asked);
                self.record_sent(name, share);
                self.answer_collection_of(name);
                if let Some(stated) = self.wildcard.as_mut().and_then(|star| star.initial_versions.as_mut()) {
                    stated.outdated.insert(name.clone());
                }
                if let Some((seq, _)) = trouble {
                    // A name in error is not in the same reply (SOTW-52): it gets one of its own.
                    return Some(Pending { asked: false, forced_resend: None, ..owed }.with_change(seq));
                }
                self.record_error_sent(name, Revision::ZERO);
            }
        }
        owed.after(mark)
    }

    /// The client holds something under a name, or may, and what is known of it does not do for an answer.
    fn claim_unknown(&mut self, kind: &Type, name: &Name, view: &ReplyContext) {
        let held = self.names.get(name).map(|told| told.client_may_hold() && !told.member);
        let class = match held {
            Some(true) => Class::Named,
            Some(false) => return,
            None => Class::Wildcard, // it was told by name, and `*` may have it
        };
        let Some(shelf) = view.state.resources(kind, class) else { return };
        let is_due = match class {
            Class::Wildcard => shelf.completeness == Completeness::Settled,
            Class::Named => matches!(shelf.get(name).map(|entry| &entry.presence), Some(Presence::Absent(_))),
        };
        if is_due {
            self.claim(class, name, shelf.opening());
        }
    }

    fn tell_error(&mut self, name: &Name, error: Option<(Revision, Arc<NamedError>)>, round: &mut Round) {
        if let Some((seq, error)) = error {
            round.draft.add_error(name.clone(), error);
            self.record_error_sent(name, seq);
        }
    }

    fn answer_absent(&mut self, kind: &Type, name: &Name, round: &mut Round) {
        match kind.info().by_alias {
            true => round.draft.add_unresolved(name.clone()),
            false => round.draft.add_removed(name.clone(), None),
        }
        self.record_sent(name, SetVersion::EMPTY);
    }

    /// What is wrong with the client's own questions.
    pub(super) fn add_refused(&mut self, draft: &mut Draft) {
        for (name, error) in &mut self.refused {
            if let Some(error) = error.take() {
                draft.add_error(name.clone(), error);
            }
        }
    }

    /// A resource that was given more time, and the time, if the client runs TTLs by itself.
    fn longer_life(&self, kind: &Type, name: &Name, owed: Pending, view: &ReplyContext) -> Option<LongerLife> {
        let prolonged = |entry: &&Entry| entry.refreshed > entry.changed && owed.covers(entry.refreshed);
        let entry = self.entry(kind, name, view).filter(|_| view.client.ttl).filter(prolonged)?;
        let Presence::Present(resource) = &entry.presence else { return None };
        Some((resource.clone(), view.ttl(Some(entry))))
    }

    fn add_longer_lives(&mut self, kind: &Type, view: &ReplyContext, round: &mut Round) {
        // In SotW a client knows a heartbeat by the version that it was sent last, and a change makes another one.
        let changed = !round.draft.is_unchanged() || self.sent != Some(round.draft.version);
        let whole = kind.info().by_alias || (view.client.variant == Variant::Sotw && changed);
        for (resource, ttl) in std::mem::take(&mut round.longer_lives) {
            if !round.seen.insert(resource.name.clone()) {
                continue; // it is in the reply already, with all its life
            }
            match ttl.filter(|_| !whole) {
                Some(ttl) => round.draft.add_heartbeat(&resource, ttl),
                None => round.draft.add(&resource, ttl),
            }
        }
    }

    fn add_of_star(&mut self, kind: &Type, view: &ReplyContext, may: SendScope, whole: bool, round: &mut Round) {
        if self.add_batch(kind, view, may, round) {
            return;
        }
        let Self { wildcard: Some(star), names, pending: owed, .. } = self else { return };
        let Some(shelf) = view.state.resources(kind, Class::Wildcard) else { return };
        let allowed = if star.first { SendScope::InitialReplies } else { SendScope::Anything };
        let (mut told, mut exhausted, first) = (Vec::new(), true, star.first);
        let bodies_alone = view.client.variant == Variant::Sotw && !view.client.wrappers;
        let from = star.added;
        for (entry, resource) in shelf.additions(from) {
            let by_name = names.contains_key(&resource.name)
                && matches!(view.state.lookup(kind, Class::Named, &resource.name), Lookup::Present(_));
            let held = star.initial_versions.as_ref().is_some_and(|stated| stated.holds(resource));
            let unseen = bodies_alone && entry.body_changed <= from;
            let meant = star.covers(&resource.name) && view.client.can_have(kind, resource);
            if meant && !by_name && !held && !unseen && !round.seen.contains(&resource.name) {
                if may < allowed {
                    round.kept_back = true;
                    return;
                }
                if round.is_full(view) {
                    exhausted = false;
                    break;
                }
                round.draft.add(resource, view.ttl(Some(entry)));
                round.draft.warms.extend(Warms::of(resource, first));
                if let Some(stated) =
                    star.initial_versions.as_mut().filter(|stated| stated.versions.contains_key(&resource.name))
                {
                    stated.outdated.insert(resource.name.clone());
                }
                // What was owed of it by `*` alone is paid with this; a cluster that waits for it has it now.
                if names.contains_key(&resource.name) {
                    owed.entry(resource.name.clone()).and_modify(|owed| owed.forced_resend = None);
                    told.push(resource);
                } else {
                    owed.remove(&resource.name);
                }
            }
            star.added = entry.changed;
        }
        if exhausted {
            let told_before = |entry: &Entry| view.client.ttl && entry.changed <= from;
            for (entry, resource) in shelf.refreshes(star.refreshed).filter(|(entry, _)| told_before(entry)) {
                let by_name = names.contains_key(&resource.name)
                    && matches!(view.state.lookup(kind, Class::Named, &resource.name), Lookup::Present(_));
                if star.covers(&resource.name) && view.client.can_have(kind, resource) && !by_name {
                    round.longer_lives.push((resource.clone(), view.ttl(Some(entry))));
                }
            }
            star.refreshed = view.state.revision;
            star.added = view.state.revision.max(star.added);
        }
        if !round.draft.is_empty() {
            star.record_additions_sent(view.state.revision);
            star.first &= !exhausted;
        } else if exhausted && whole && view.client.variant == Variant::Sotw {
            // In SotW a partial type has no empty answer: nothing, once all is known, is the first one.
            star.record_additions_sent(view.state.revision);
            star.first = false;
        }
        for resource in told {
            self.record_sent(&resource.name, Self::share(view, &resource.name, resource));
        }
    }

    /// Adds what every client is sent that asks for `*` alone and was sent as much as this one. `false` if this client is not one of
    /// them, or has all of it.
    fn add_batch(&mut self, kind: &Type, view: &ReplyContext, may: SendScope, round: &mut Round) -> bool {
        let alone = self.names.is_empty() && self.pending.is_empty() && round.is_empty();
        let Some(star) = self.wildcard.as_mut().filter(|_| alone) else { return false };
        let Some(shelf) = view.state.resources(kind, Class::Wildcard) else { return false };
        let alike = view.client.variant == Variant::Delta && star.initial_versions.is_none() && star.under.is_none();
        let (added, first) = (star.added, star.first);
        let allowed = if first { SendScope::InitialReplies } else { SendScope::Anything };
        if !alike || may < allowed || !view.sends_alike(kind) || shelf.additions(added).next().is_none() {
            return false;
        }
        let key = BatchKey { kind: kind.clone(), complete: false, wrappers: false, added, first };
        let batch = view.state.batch(key, || {
            let (mut draft, mut last, mut cut) = (Draft::default(), added, false);
            for (entry, resource) in shelf.additions(added) {
                cut = draft.bytes >= view.limits.reply_bytes;
                if cut {
                    break;
                }
                draft.add(resource, None);
                draft.warms.extend(Warms::of(resource, first));
                last = entry.changed;
            }
            draft.into_batch(cut.then_some(last))
        });
        star.added = batch.cut_after.unwrap_or(view.state.revision.max(added));
        if batch.cut_after.is_none() {
            star.refreshed = view.state.revision;
            star.first = false;
        }
        star.record_additions_sent(view.state.revision);
        round.draft.add_batch(batch, first);
        true
    }
}

/// One reply in the making.
#[derive(Default)]
struct Round {
    draft: Draft,
    /// Names in it that were owed by name, so that `*` does not say them again (DELTA-33).
    seen: HashSet<Name>,
    /// What is told to live on, or to live for ever.
    longer_lives: Vec<LongerLife>,
    kept_back: bool,
}

type LongerLife = (Arc<Resource>, Option<Duration>);

impl Round {
    fn is_empty(&self) -> bool {
        self.draft.is_empty() && self.seen.is_empty() && self.longer_lives.is_empty()
    }

    fn add(&mut self, resource: &Arc<Resource>, ttl: Option<Duration>, first: bool) {
        if self.seen.insert(resource.name.clone()) {
            self.draft.warms.extend(Warms::of(resource, first));
            self.draft.add(resource, ttl);
        }
    }

    fn is_full(&self, view: &ReplyContext) -> bool {
        view.client.variant == Variant::Delta && self.draft.bytes >= view.limits.reply_bytes
    }
}

fn merge(owed: Option<Pending>, forced: Option<Moment>) -> Option<Pending> {
    match (owed, forced) {
        (owed, None) => owed,
        (owed, forced) => Some(Pending { forced_resend: forced, ..owed.unwrap_or_default() }),
    }
}
