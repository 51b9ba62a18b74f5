//! Additions, where replies list single resources: delta, and SotW of types that are not full-state.

use std::collections::HashSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use super::client::Variant;
use super::reply::{Draft, Warms};
use super::subscription::{Pending, Subscription};
use super::wildcard::Wildcard;
use super::{Attempt, ReplyContext, SendScope};
use crate::protocol::faults::Fault;
use crate::protocol::moment::Moment;
use crate::protocol::view::{
    BatchKey, Class, Completeness, Entry, Lookup, NamedError, Presence, ResourceTable, Revision,
};
use crate::protocol::visits::visit;
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
        self.add_rejected(&mut round.draft);
        self.add_pending(kind, view, may, &mut round);
        self.add_of_wildcard(kind, view, may, whole, &mut round);
        self.add_conflicting_removals(kind, view, &mut round);
        let is_first_and_empty = self.answer_empty_wildcard(kind, view, may, &mut round);
        if self.empty_answer_due || !round.draft.is_empty() || !round.longer_lives.is_empty() {
            round.draft.version = self.version(kind, view);
        }
        self.add_longer_lives(kind, view, &mut round);
        let empty_answer_due = std::mem::take(&mut self.empty_answer_due);
        if empty_answer_due && !is_first_and_empty {
            round.draft.carried.note_request(Some(self.asked));
        }
        if !round.draft.is_empty() || empty_answer_due {
            // What does not fit is sent with the next piece, before anything else.
            self.sent = Some(round.draft.version);
            let sent_all = is_first_and_empty && self.has_no_removals_left(kind, view);
            round.draft.set = self.note_set_mark(kind, view, sent_all).0;
            return Attempt::Ready(Box::new(round.draft));
        }
        if round.kept_back {
            return Attempt::Blocked(unanswered);
        }
        if self.doubts_members(kind, view) {
            return Attempt::Unknown;
        }
        // More of a set may come, and types that refer to it should come later. Virtual hosts are an exception: where they are
        // given on demand only, no server ever answers the wildcard.
        if self.more_is_to_come(kind, view) && kind.info().empty_first != EmptyFirst::UnderRoutes {
            return Attempt::Unknown;
        }
        Attempt::Nothing
    }

    /// The first reply to `*` is sent even if it is empty, and waits for no removal of any type: the client's start waits for it (DELTA-21).
    fn answer_empty_wildcard(&mut self, kind: &Type, view: &ReplyContext, may: SendScope, round: &mut Round) -> bool {
        if view.client.variant != Variant::Delta
            || !self.wildcard.as_ref().is_some_and(|wildcard| wildcard.first)
            || !round.draft.is_empty()
            || round.kept_back
            || self.wildcard_completeness(kind, view) < Completeness::FirstResponse
            || self.may_hold_newer(kind, view)
            || view.limits.faults.has(Fault::EmptySetWaits)
        {
            return false;
        }
        if may < SendScope::InitialReplies {
            round.kept_back = true;
            return false;
        }
        if let Some(wildcard) = &mut self.wildcard {
            wildcard.first = false;
            wildcard.record_additions_sent(view.state.revision);
            round.draft.carried.note_request(Some(wildcard.asked));
        }
        self.empty_answer_due = true;
        true
    }

    /// What can exclude an addition goes in the same reply: a client refuses a listener on an address that another one has, and is not sent it
    /// again. No client loses anything by that, since removals of these types come first of all. If an addition is kept back, what it would
    /// replace stays.
    fn add_conflicting_removals(&mut self, kind: &Type, view: &ReplyContext, round: &mut Round) {
        let adds = kind.can_conflict() && view.client.variant == Variant::Delta && !round.draft.is_empty();
        if adds && !round.kept_back && !view.limits.faults.has(Fault::AddBesideRemoved) {
            let mut said = HashSet::new();
            self.remove_pending(kind, view, &mut round.draft, &mut said);
            self.remove_of_wildcard(kind, view, &mut round.draft, &mut said);
        }
    }

    /// Returns the version of what the client has of the type with this snapshot. For a client that may not have everything this costs a look
    /// at every resource.
    pub(super) fn version(&self, kind: &Type, view: &ReplyContext) -> SetVersion {
        let wildcard = view.state.resources(kind, Class::Wildcard).filter(|_| self.wildcard.is_some());
        wildcard.map_or(self.sum, |table| {
            self.sum.plus(Self::wildcard_version(kind, table, view)).minus(self.kept_from(table, view))
        })
    }

    /// Whether a set is still coming in. For a client that stated some of it, more than the first response may matter. Of a set that was cut
    /// short it is sent what came, since in delta nothing follows from what did not.
    fn more_is_to_come(&self, kind: &Type, view: &ReplyContext) -> bool {
        if self.may_hold_newer(kind, view) {
            return true;
        }
        let stated = |wildcard: &Wildcard| wildcard.initial_versions.is_some();
        let enough = |wildcard| if stated(wildcard) { Completeness::Settled } else { Completeness::FirstResponse };
        let is_cut_short = || view.state.resources(kind, Class::Wildcard).is_some_and(ResourceTable::is_cut_short);
        let mut wildcard = self.wildcard.iter();
        let waits = view.limits.faults.has(Fault::CutSetWaits) || !is_cut_short();
        wildcard.any(|wildcard| self.wildcard_completeness(kind, view) < enough(wildcard)) && waits
    }

    fn add_pending(&mut self, kind: &Type, view: &ReplyContext, may: SendScope, round: &mut Round) {
        let mut next = self.pending.first_key_value().map(|(name, pending)| (name.clone(), *pending));
        while let Some((name, pending)) = next.filter(|_| !round.is_full(view)) {
            visit();
            let before = round.draft.bytes;
            let still = self.add_one(kind, &name, pending, view, may, round);
            if round.draft.bytes > before {
                round.draft.carried.note(pending.carried(view));
            }
            match still {
                Some(still) => drop(self.pending.insert(name.clone(), still)),
                None => drop(self.pending.remove(&name)),
            }
            self.drop_absent_member(&name);
            let mut later = self.pending.range::<Name, _>((Excluded(&name), Unbounded));
            next = later.next().map(|(name, pending)| (name.clone(), *pending));
        }
    }

    /// Adds one pending name if that may be done now. Returns what is still pending of it.
    fn add_one(
        &mut self,
        kind: &Type,
        name: &Name,
        pending: Pending,
        view: &ReplyContext,
        may: SendScope,
        round: &mut Round,
    ) -> Option<Pending> {
        let mark = view.state.revision;
        let forced = pending.forced_resend.is_some_and(|due| due <= view.now);
        let changed = pending.changed_by(mark);
        if !(pending.requested.is_some() || forced || changed) {
            return Some(pending);
        }
        // A forced name waits only for its time: the client holds back its own ACK until the name has come.
        let allowed = if pending.requested.is_some() { SendScope::InitialReplies } else { SendScope::Anything };
        let kept_back = may < allowed && !forced;
        let trouble = self.unsent_error(kind, name, view);
        match self.known(kind, name, view) {
            Lookup::Unknown if view.limits.faults.has(Fault::UnknownIsAbsent) => self.answer_absent(kind, name, round),
            Lookup::Unknown => {
                if kept_back && trouble.is_some() {
                    round.kept_back = true;
                    return Some(pending);
                }
                self.add_error(name, trouble, round);
                self.claim_unknown(kind, name, view);
                // An error is no value: the name stays pending, and nothing more is sent of it until one comes.
                let pending = match view.state.error(kind, name) {
                    Some(_) => Pending {
                        requested: pending.requested.or(Some(view.now)),
                        changed: pending.after(mark).and_then(|pending| pending.changed),
                        ..pending
                    },
                    None => pending,
                };
                let asked_alone =
                    pending.changed.is_none() && pending.forced_resend.is_none() && self.wildcard.is_none();
                // A glob has no value, only members: until it is known to be empty, nothing is sent under its own name.
                if asked_alone || self.globs.contains(name) {
                    self.awaiting_data.insert(name.clone(), pending.requested.unwrap_or(view.now));
                    return None;
                }
                return Some(pending);
            }
            Lookup::Absent(_) if view.client.variant == Variant::Sotw => {
                // SotW can express absence only as an error, and an empty resource in its place would be wrong (SOTW-25, SOTW-55).
                if kept_back && trouble.is_some() {
                    round.kept_back = true;
                    return Some(pending);
                }
                self.add_error(name, trouble, round);
                self.record_sent(name, SetVersion::EMPTY);
            }
            Lookup::Absent(_) => {
                let held = self.names.get(name).is_some_and(|sent| sent.client_may_hold());
                if held || !(pending.requested.is_some() || forced || trouble.is_some()) {
                    return Some(pending); // a removal: these are sent after all additions
                }
                if kept_back {
                    round.kept_back = true;
                    return Some(pending);
                }
                if pending.requested.is_some() || forced {
                    self.answer_absent(kind, name, round);
                }
                self.add_error(name, trouble, round);
            }
            Lookup::Present(resource) if !view.client.can_have(kind, resource) => {
                self.record_sent(name, SetVersion::EMPTY)
            }
            Lookup::Present(resource) => {
                let share = Self::share(view, name, resource);
                let sent = self.names.get(name).copied();
                if resource.do_not_cache()
                    && let Some(asked) = pending.requested
                    && !changed
                    && sent.is_some_and(|sent| sent.holds.is_empty())
                {
                    if pending.changed.is_some() || pending.forced_resend.is_some() {
                        return Some(pending);
                    }
                    self.awaiting_data.insert(name.clone(), asked); // the view reports it when the server has responded for this client
                    return None;
                }
                let well_again =
                    sent.is_some_and(|sent| sent.error != Revision::ZERO) && view.state.error(kind, name).is_none();
                let news = sent.is_none_or(|sent| sent.holds != share) || well_again;
                if !news && pending.requested.is_none() && !forced && trouble.is_none() {
                    self.record_sent(name, share);
                    round.longer_lives.extend(self.longer_life(kind, name, pending, view));
                    return merge(pending.after(mark), pending.forced_resend);
                }
                if kept_back {
                    round.kept_back = true;
                    return Some(pending);
                }
                if round.is_full(view) {
                    return Some(pending);
                }
                if !news && pending.requested.is_none() && !forced {
                    self.add_error(name, trouble, round);
                    return merge(pending.after(mark), pending.forced_resend);
                }
                round.add(resource, view.ttl(self.entry(kind, name, view)), pending.requested.is_some());
                // From its first member of `*` on the client is told what becomes of that.
                if let Some(wildcard) = self.wildcard.as_mut().filter(|_| !self.names.contains_key(name)) {
                    wildcard.record_additions_sent(mark);
                }
                self.record_sent(name, share);
                self.answer_collection_of(name);
                if let Some(stated) = self.wildcard.as_mut().and_then(|wildcard| wildcard.initial_versions.as_mut()) {
                    stated.note_sent(name);
                }
                if let Some((revision, _)) = trouble {
                    // A name with an error is not in the same reply as its resource (SOTW-52): the error gets its own.
                    return Some(Pending { requested: None, forced_resend: None, ..pending }.with_change(revision));
                }
                self.record_error_sent(name, Revision::ZERO);
            }
        }
        pending.after(mark)
    }

    /// Claims a name that the client holds, or may hold, if what is known of it does not suffice for a reply.
    fn claim_unknown(&mut self, kind: &Type, name: &Name, view: &ReplyContext) {
        let held = self.names.get(name).map(|sent| sent.client_may_hold() && !sent.member);
        let class = match held {
            Some(true) => Class::Named,
            Some(false) => return,
            None => Class::Wildcard, // the client was sent it by name, and the wildcard set may have it
        };
        let Some(table) = view.state.resources(kind, class) else { return };
        let is_due = match class {
            Class::Wildcard => table.completeness == Completeness::Settled,
            Class::Named => matches!(table.get(name).map(|entry| &entry.presence), Some(Presence::Absent(_))),
        };
        if is_due {
            self.claim(class, name, table.opening());
        }
    }

    fn add_error(&mut self, name: &Name, error: Option<(Revision, Arc<NamedError>)>, round: &mut Round) {
        if let Some((revision, error)) = error {
            round.draft.add_error(name.clone(), error);
            self.record_error_sent(name, revision);
        }
    }

    fn answer_absent(&mut self, kind: &Type, name: &Name, round: &mut Round) {
        match kind.info().by_alias {
            true => round.draft.add_unresolved(name.clone()),
            false => round.draft.add_removed(name.clone(), None),
        }
        self.record_sent(name, SetVersion::EMPTY);
    }

    /// Adds the errors of names that cannot be requested.
    pub(super) fn add_rejected(&mut self, draft: &mut Draft) {
        for (name, error) in &mut self.rejected {
            if let Some(error) = error.take() {
                draft.carried.note_request(Some(self.asked));
                draft.add_error(name.clone(), error);
            }
        }
    }

    /// Returns a resource whose TTL was extended, with the TTL, if the client runs TTLs itself.
    fn longer_life(&self, kind: &Type, name: &Name, pending: Pending, view: &ReplyContext) -> Option<LongerLife> {
        let prolonged = |entry: &&Entry| entry.refreshed > entry.changed && pending.covers(entry.refreshed);
        let entry = self.entry(kind, name, view).filter(|_| view.client.ttl).filter(prolonged)?;
        let Presence::Present(resource) = &entry.presence else { return None };
        Some((resource.clone(), view.ttl(Some(entry))))
    }

    fn add_longer_lives(&mut self, kind: &Type, view: &ReplyContext, round: &mut Round) {
        // In SotW a client recognizes a heartbeat by the version that it was sent last, and a change makes another version.
        let changed = !round.draft.is_unchanged() || self.sent != Some(round.draft.version);
        let whole = kind.info().by_alias || (view.client.variant == Variant::Sotw && changed);
        for (resource, ttl) in std::mem::take(&mut round.longer_lives) {
            if !round.seen.insert(resource.name.clone()) {
                continue; // it is in the reply already, with its TTL
            }
            match ttl.filter(|_| !whole) {
                Some(ttl) => round.draft.add_heartbeat(&resource, ttl),
                None => round.draft.add(&resource, ttl),
            }
        }
    }

    fn add_of_wildcard(&mut self, kind: &Type, view: &ReplyContext, may: SendScope, whole: bool, round: &mut Round) {
        let newer = self.withholds(kind, view);
        let withholds = newer || self.wildcard.as_ref().is_some_and(|wildcard| !wildcard.withheld.is_empty());
        if !withholds && self.add_batch(kind, view, may, round) {
            return;
        }
        let Self { wildcard: Some(wildcard), names, pending, .. } = self else { return };
        let Some(table) = view.state.resources(kind, Class::Wildcard) else { return };
        let allowed = if wildcard.first { SendScope::InitialReplies } else { SendScope::Anything };
        let (mut sent, mut exhausted, first, before) = (Vec::new(), true, wildcard.first, round.draft.bytes);
        let bodies_alone = view.client.variant == Variant::Sotw && !view.client.wrappers;
        let from = wildcard.added;
        let free = wildcard.withheld.take_free(table);
        let entries = free.iter().filter_map(|name| table.get(name)).filter(|entry| entry.changed <= from);
        let again = entries.filter_map(|entry| Some((entry, entry.resource()?)));
        for (entry, resource) in again.chain(table.additions(from)) {
            let was_withheld = free.contains(&resource.name);
            let by_name = names.contains_key(&resource.name)
                && matches!(view.state.lookup(kind, Class::Named, &resource.name), Lookup::Present(_));
            let held = wildcard.initial_versions.as_ref().is_some_and(|stated| stated.holds(resource));
            let unseen = bodies_alone && entry.body_changed <= from && !was_withheld;
            let meant = wildcard.covers(&resource.name) && view.client.can_have(kind, resource);
            let is_due = meant && !by_name && !held && !unseen;
            if newer && wildcard.keeps_back(&resource.name, entry, view.client) {
                if is_due {
                    let may_hold = wildcard.may_state(&resource.name, view.client);
                    wildcard.withheld.add(resource.name.clone(), may_hold);
                }
            } else if is_due && !round.seen.contains(&resource.name) {
                if may < allowed || round.is_full(view) {
                    let unsent = free.iter().filter(|name| !round.seen.contains(*name));
                    unsent.for_each(|name| wildcard.withheld.add(name.clone(), false));
                    if may < allowed {
                        round.kept_back = true;
                        return;
                    }
                    exhausted = false;
                    break;
                }
                round.seen.extend(was_withheld.then(|| resource.name.clone()));
                round.draft.add(resource, view.ttl(Some(entry)));
                round.draft.warms.extend(Warms::of(resource, first));
                if let Some(stated) = &mut wildcard.initial_versions {
                    stated.note_sent(&resource.name);
                }
                // This sends what was pending by `*` alone. A cluster that waits for the name has it now.
                if names.contains_key(&resource.name) {
                    pending.entry(resource.name.clone()).and_modify(|pending| pending.forced_resend = None);
                    sent.push(resource);
                } else {
                    pending.remove(&resource.name);
                }
            }
            wildcard.added = entry.changed.max(wildcard.added);
        }
        if round.draft.bytes > before {
            round.draft.carried.note(wildcard.carried(|| table.additions_received(from)));
        }
        if exhausted {
            let sent_before = |entry: &Entry| view.client.ttl && entry.changed <= from;
            for (entry, resource) in table.refreshes(wildcard.refreshed).filter(|(entry, _)| sent_before(entry)) {
                let by_name = names.contains_key(&resource.name)
                    && matches!(view.state.lookup(kind, Class::Named, &resource.name), Lookup::Present(_));
                if wildcard.covers(&resource.name) && view.client.can_have(kind, resource) && !by_name {
                    round.longer_lives.push((resource.clone(), view.ttl(Some(entry))));
                }
            }
            wildcard.refreshed = view.state.revision;
            wildcard.added = view.state.revision.max(wildcard.added);
        }
        if !round.draft.is_empty() {
            wildcard.record_additions_sent(view.state.revision);
            wildcard.first &= !exhausted;
        } else if exhausted && whole && !newer && view.client.variant == Variant::Sotw {
            // In SotW a type without full state has no empty reply: once everything is known, sending nothing counts as the first
            // reply.
            wildcard.record_additions_sent(view.state.revision);
            wildcard.first = false;
        }
        for resource in sent {
            self.record_sent(&resource.name, Self::share(view, &resource.name, resource));
        }
    }

    /// Adds the batch that is sent to every client that subscribes to `*` alone and has the same cursor. Returns `false` if this
    /// client is not one of them, or has all of it.
    fn add_batch(&mut self, kind: &Type, view: &ReplyContext, may: SendScope, round: &mut Round) -> bool {
        let alone = self.names.is_empty() && self.pending.is_empty() && round.is_empty();
        let Some(wildcard) = self.wildcard.as_mut().filter(|_| alone) else { return false };
        let Some(table) = view.state.resources(kind, Class::Wildcard) else { return false };
        let alike =
            view.client.variant == Variant::Delta && wildcard.initial_versions.is_none() && wildcard.under.is_none();
        let (added, first) = (wildcard.added, wildcard.first);
        let allowed = if first { SendScope::InitialReplies } else { SendScope::Anything };
        if !alike || may < allowed || !view.sends_the_same_to_all(kind) || table.additions(added).next().is_none() {
            return false;
        }
        let key = BatchKey { kind: kind.clone(), complete: false, wrappers: false, added, first };
        let batch = view.state.batch(key, || {
            let (mut draft, mut last, mut cut) = (Draft::default(), added, false);
            for (entry, resource) in table.additions(added) {
                cut = draft.bytes >= view.limits.reply_bytes;
                if cut {
                    break;
                }
                draft.add(resource, None);
                draft.warms.extend(Warms::of(resource, first));
                last = entry.changed;
            }
            draft.into_batch(cut.then_some(last), table.additions_received(added))
        });
        round.draft.carried.note(wildcard.carried(|| batch.oldest_change));
        wildcard.added = batch.cut_after.unwrap_or(view.state.revision.max(added));
        if batch.cut_after.is_none() {
            wildcard.refreshed = view.state.revision;
            wildcard.first = false;
        }
        wildcard.record_additions_sent(view.state.revision);
        round.draft.add_batch(batch, first);
        true
    }
}

/// One reply while it is made.
#[derive(Default)]
struct Round {
    draft: Draft,
    /// Names in it that were pending by name, so that `*` does not repeat them (DELTA-33).
    seen: HashSet<Name>,
    /// Resources whose TTL is extended or removed.
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

fn merge(pending: Option<Pending>, forced: Option<Moment>) -> Option<Pending> {
    match (pending, forced) {
        (pending, None) => pending,
        (pending, forced) => Some(Pending { forced_resend: forced, ..pending.unwrap_or_default() }),
    }
}
