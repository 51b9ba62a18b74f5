//! Makes replies with removals, which follow everything that is new, and tells whether any are due. In SotW only full-state types have them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::carried::ReplyAge;
use super::client::Variant;
use super::client_snapshot::{Books, ClientSnapshot};
use super::reply::{Attempt, Draft, ReplyContext};
use super::sent_state::SentState;
use crate::protocol::set_mark::SetMark;
use crate::protocol::view::{Class, Completeness, Lookup, Presence, ResourceTable};
use crate::protocol::visits::visit;
use crate::xds::{Name, Resource, SetVersion, Type};

/// Makes a reply with removals, where replies list single resources.
pub(super) fn removals(books: &mut Books, kind: &Type, view: &ReplyContext) -> Attempt {
    if view.client.variant == Variant::Sotw {
        books.wildcard.iter_mut().for_each(|wildcard| wildcard.record_all_sent(view.state.revision));
        return Attempt::Nothing;
    }
    let mut draft = Draft::default();
    let mut round = RemovalRound::new(books, kind, view, &mut draft);
    round.add_pending();
    round.add_of_wildcard();
    let unjudged = round.judge_stated();
    draft.drop_repeated_aliases();
    let sent_all = draft.is_empty() && !unjudged;
    let (mark, is_news) = note_set_mark(books, kind, view, sent_all);
    draft.set_mark(mark);
    if !draft.is_empty() || sent_all && is_news {
        books.due.sent(SetVersion::EMPTY); // delta has no version of a set; this records that the client may hold something
        draft.set_version(ClientSnapshot::new(kind, view, books).version()); // for reports alone
        return Attempt::Ready(draft.into());
    }
    if unjudged { Attempt::Unknown } else { Attempt::Nothing }
}

/// Returns the completeness mark of `*` for the next reply to a relay, and whether it differs from the last mark.
pub(super) fn note_set_mark(
    books: &mut Books,
    kind: &Type,
    view: &ReplyContext,
    sent_all: bool,
) -> (Option<SetMark>, bool) {
    let snapshot = ClientSnapshot::new(kind, view, books);
    let readable = snapshot.table(Class::Wildcard).is_some_and(|table| table.coverage().is_readable());
    let whole = snapshot.is_complete() && readable;
    let marked = view.client.relay && view.client.variant == Variant::Delta;
    let wildcard = books.wildcard.as_mut();
    let wildcard =
        wildcard.filter(|wildcard| marked && wildcard.removals_sent().is_some() && wildcard.under().is_none());
    let Some(wildcard) = wildcard else { return (None, false) };
    let complete = whole && (sent_all || wildcard.is_marked_complete());
    let is_news = wildcard.mark_complete(complete);
    (Some(if complete { SetMark::Complete } else { SetMark::Partial }), is_news)
}

/// The removals of one reply while it is made.
pub(super) struct RemovalRound<'r, 'a> {
    books: &'r mut Books,
    kind: &'r Type,
    view: &'r ReplyContext<'a>,
    draft: &'r mut Draft,
    /// The reply has additions.
    beside_additions: bool,
    /// The size at which the draft is full. Removals beside additions may exceed the size of a reply by half: if the client were sent them later, it
    /// would reject the additions.
    limit: usize,
    /// The names that the reply removes.
    said: HashSet<Name>,
    /// For the own names of pending aliases, whether the client keeps the resource. The removals of the round do not change that.
    reached: HashMap<Name, bool>,
}

impl<'r, 'a> RemovalRound<'r, 'a> {
    pub(super) fn new(books: &'r mut Books, kind: &'r Type, view: &'r ReplyContext<'a>, draft: &'r mut Draft) -> Self {
        let (reply_bytes, said) = (view.options.reply_bytes, draft.all_removed().cloned().collect());
        let (beside_additions, limit) = (!draft.is_empty(), reply_bytes.max(draft.bytes() + reply_bytes / 2));
        Self { books, kind, view, draft, beside_additions, limit, said, reached: HashMap::new() }
    }

    fn snapshot(&self) -> ClientSnapshot<'_, 'a> {
        ClientSnapshot::new(self.kind, self.view, self.books)
    }

    fn is_full(&self) -> bool {
        self.draft.bytes() >= self.limit
    }

    /// Adds the removals of pending names.
    pub(super) fn add_pending(&mut self) {
        let mark = self.view.state.revision;
        let snapshot = self.snapshot();
        let due = self.books.names.pending().inspect(|_| visit());
        let gone = due.filter(|(name, pending)| pending.is_ripe(self.view) && snapshot.is_absent(name));
        let ready: Vec<_> = gone.map(|(name, _)| name.clone()).collect();
        for name in ready {
            let Some(pending) = self.books.names.pending_of(&name).copied().filter(|_| !self.is_full()) else {
                break;
            };
            let before = self.draft.bytes();
            let snapshot = self.snapshot();
            let held = self.books.names.get(&name).is_none_or(SentState::client_may_hold);
            let (known, error) = (snapshot.known(&name), snapshot.unsent_error(&name));
            if let Lookup::Absent(last) = known
                && (held || !pending.is_change_alone())
            {
                let own = self.own_name(&name, last).clone();
                if self.is_reached(&own) {
                    self.draft.add_unresolved(name.clone()); // the client keeps the resource, which it has by another name too
                } else if self.said.insert(own.clone()) {
                    let last = last.filter(|last| last.name == own);
                    self.draft.add_removed(own, last);
                }
            }
            if let Some((revision, error)) = error {
                self.draft.add_error(name.clone(), error); // not found, or not allowed: the reason for the removal (XLAT-21)
                self.books.names.record_error_sent(&name, revision);
            }
            if self.draft.bytes() > before {
                self.draft.note(pending.carried(self.view));
            }
            self.books.names.record_sent(&name, SetVersion::EMPTY);
            self.books.names.settle(&name, pending.after(mark));
        }
    }

    /// Whether the client keeps the resource of this name. One walk over its aliases serves all of them.
    fn is_reached(&mut self, own: &Name) -> bool {
        if !self.kind.info().by_alias {
            return false;
        }
        let snapshot = ClientSnapshot::new(self.kind, self.view, self.books);
        *self.reached.entry(own.clone()).or_insert_with(|| snapshot.is_reached(own))
    }

    /// Returns the own name of what the client was sent for a name. `last` is what the view had for it last.
    fn own_name<'n>(&'n self, name: &'n Name, last: Option<&'n Arc<Resource>>) -> &'n Name {
        let names = &self.books.names;
        let is_sent = names.get(name).is_some_and(|sent| !sent.holds().is_empty());
        let sent = is_sent.then(|| names.targets().get(name).unwrap_or(name));
        let sent = sent.filter(|_| self.kind.info().by_alias);
        sent.or(last.map(|last| &last.name)).unwrap_or(name)
    }

    /// Adds the removals from `*`.
    pub(super) fn add_of_wildcard(&mut self) {
        let snapshot = ClientSnapshot::new(self.kind, self.view, self.books);
        let Some((wildcard, table)) = snapshot.wildcard() else { return };
        let Some(from) = wildcard.removals_sent().filter(|from| *from >= table.journal().horizon()) else { return };
        let (mut gone, mut sent_to, mut exhausted) = (Vec::new(), from, true);
        for (name, entry) in table.removals(from) {
            if self.is_full() {
                exhausted = false;
                break;
            }
            if snapshot.is_lost(name, entry, wildcard) && self.said.insert(name.clone()) {
                let Presence::Absent(last) = &entry.presence else { continue };
                self.draft.add_removed(name.clone(), last.as_ref());
                gone.push(name);
            }
            sent_to = entry.changed.max(sent_to);
        }
        if !gone.is_empty() {
            self.draft.note(ReplyAge::of_change(table.journal().removals_received(from)));
        }
        let Books { wildcard: Some(wildcard), names, .. } = &mut *self.books else { return };
        match exhausted {
            true => wildcard.record_all_sent(self.view.state.revision),
            false => wildcard.record_removals_sent_to(sent_to),
        }
        for name in gone {
            wildcard.note_sent(name);
            names.record_sent(name, SetVersion::EMPTY);
        }
    }

    /// Removes what the client stated and is known to be absent: by evidence from this opening, or because the set is complete (DELTA-13,
    /// DELTA-16). Returns whether something stated is still unknown, or has to be compared again after the last addition.
    pub(super) fn judge_stated(&mut self) -> bool {
        let snapshot = ClientSnapshot::new(self.kind, self.view, self.books);
        let completeness = snapshot.completeness();
        let waits = snapshot.may_hold_newer();
        let whole = completeness == Completeness::Complete;
        let Some(wildcard) = &self.books.wildcard else { return false };
        let Some(stated) = wildcard.initial_versions() else { return false };
        let mark = self.view.state.revision;
        let table = snapshot.table(Class::Wildcard);
        let is_cold = completeness < Completeness::Settled || table.is_none();
        if waits || is_cold || stated.is_judged_at(mark, self.beside_additions) || self.is_full() {
            return true;
        }
        let (mut judged, mut left) = (Vec::new(), self.beside_additions);
        for (place, name) in stated.current() {
            if self.is_full() {
                left = true; // the others follow in the next reply (DELTA-48)
                break;
            }
            match judge(&snapshot, table, name, whole) {
                Judgement::Kept if self.beside_additions => {} // the additions leave out what the client states
                Judgement::Kept => judged.push(place),
                Judgement::Removed if self.beside_additions && name.asks_for_end() => {} // more of the set may follow
                Judgement::Removed => {
                    judged.push(place);
                    if !self.said.contains(name) {
                        self.draft.note(ReplyAge::of_request(wildcard.asked()));
                        self.draft.add_removed(name.clone(), None);
                    }
                }
                Judgement::Open { is_present } => left |= !is_present,
            }
        }
        let compared = (!self.is_full()).then_some(mark);
        let Books { wildcard: Some(wildcard), stated, .. } = &mut *self.books else { return false };
        if left {
            wildcard.note_judged(judged, compared, self.beside_additions);
        } else {
            wildcard.forget_initial_versions();
            wildcard.record_additions_sent(mark);
            stated.on_judged();
        }
        left
    }
}

/// The judgement of a name that the client stated.
enum Judgement {
    /// There is a known reason why the client has the name.
    Kept,
    Removed,
    Open {
        is_present: bool,
    },
}

/// Judges a stated name. `whole` is set if the set is complete, so that what the view does not have does not exist.
fn judge(snapshot: &ClientSnapshot, table: Option<&ResourceTable>, name: &Name, whole: bool) -> Judgement {
    let entry = table.and_then(|table| table.get(name));
    let is_present = entry.is_some_and(|entry| matches!(entry.presence, Presence::Present(_)));
    let gone = match entry {
        Some(entry) => table.is_some_and(|table| table.coverage().is_absent_by_evidence(entry)),
        None => snapshot.books().claims.is_absent(Class::Wildcard, name, table),
    };
    let exists = table.is_some_and(|table| table.coverage().is_unreadable(name)); // UP-25: it came and cannot be read, so the client keeps it
    let is_closed = !snapshot.allows(name); // this needs no evidence
    let is_of_alias = !is_present && snapshot.is_reached(name);
    if snapshot.books().names.contains(name) || is_of_alias || is_present && whole && !is_closed {
        Judgement::Kept
    } else if is_closed || !is_present && (whole && !exists || gone) {
        Judgement::Removed
    } else {
        Judgement::Open { is_present }
    }
}

/// Whether the next reply with removals would remove something that the client may hold.
pub(super) fn is_removal_due(snapshot: &ClientSnapshot) -> bool {
    let (names, view) = (&snapshot.books().names, snapshot.view());
    match view.client.variant {
        Variant::Sotw if !snapshot.uses_full_sets() || would_delete_unknown(snapshot) => false,
        Variant::Sotw => {
            let mut pending = names.pending().filter(|(_, pending)| pending.changed_by(view.state.revision));
            snapshot.books().due.has_missed_removals()
                || any_gone_of_wildcard(snapshot)
                || pending.any(|(name, _)| snapshot.is_absent(name) && names.client_may_hold(name))
        }
        Variant::Delta => {
            let held = |name: &Name| names.get(name).is_none_or(SentState::client_may_hold);
            let mut pending = names.pending().filter(|(_, pending)| pending.is_ripe(view));
            pending.any(|(name, _)| snapshot.is_absent(name) && held(name))
                || any_gone_of_wildcard(snapshot)
                || any_stated_gone(snapshot)
        }
    }
}

/// Whether a set would make the client delete resources that the view does not know (I3, SOTW-7). Then it is not sent. A client without state
/// can be sent the present names (ORD-10); one with state waits without a time limit.
pub(super) fn would_delete_unknown(snapshot: &ClientSnapshot) -> bool {
    let Books { names, wildcard, .. } = snapshot.books();
    if wildcard.is_some() && !snapshot.can_send_full_set() {
        return true;
    }
    let had_of_wildcard = |name| {
        let wildcard = snapshot.wildcard();
        wildcard.is_some_and(|(wildcard, table)| table.get(name).is_some_and(|entry| wildcard.client_may_hold(entry)))
    };
    names.iter().any(|(name, sent)| snapshot.is_unknown(name) && (sent.client_may_hold() || had_of_wildcard(name)))
}

/// Whether a relay has been sent all of a complete set and nothing else, but not yet that the set is complete.
pub(super) fn is_end_due(snapshot: &ClientSnapshot) -> bool {
    let client = snapshot.view().client;
    let marks = client.relay && client.variant == Variant::Delta;
    let Some((wildcard, table)) = snapshot.wildcard().filter(|(wildcard, table)| {
        marks && wildcard.removals_sent().is_some() && !wildcard.is_marked_complete() && table.coverage().is_readable()
    }) else {
        return false;
    };
    let none_waits = snapshot.books().names.pending_count() == 0 && wildcard.withheld().is_empty();
    let was_sent_all = none_waits && table.additions(wildcard.added()).next().is_none();
    was_sent_all && snapshot.is_complete() && !is_removal_due(snapshot)
}

/// Whether nothing that the client was sent or has stated is still to be removed.
pub(super) fn has_no_removals_left(snapshot: &ClientSnapshot) -> bool {
    let wildcard = snapshot.books().wildcard.as_ref();
    let states_names = wildcard.is_some_and(|wildcard| wildcard.initial_versions().is_some());
    !states_names && !is_removal_due(snapshot)
}

fn any_gone_of_wildcard(snapshot: &ClientSnapshot) -> bool {
    snapshot.wildcard().is_some_and(|(wildcard, table)| {
        let mut removals = wildcard.removals_sent().into_iter().flat_map(|from| table.removals(from));
        removals.any(|(name, gone)| snapshot.is_lost(name, gone, wildcard))
    })
}

/// Whether something that the client stated is known to be absent.
fn any_stated_gone(snapshot: &ClientSnapshot) -> bool {
    let wildcard = snapshot.books().wildcard.as_ref();
    let Some(stated) = wildcard.and_then(|wildcard| wildcard.initial_versions()) else { return false };
    if snapshot.completeness() < Completeness::Settled
        || stated.is_judged_at(snapshot.view().state.revision, false)
        || snapshot.may_hold_newer()
    {
        return false;
    }
    let (table, whole) = (snapshot.table(Class::Wildcard), snapshot.is_complete());
    let mut names = stated.current().map(|(_, name)| name).filter(|name| !name.asks_for_end());
    names.any(|name| matches!(judge(snapshot, table, name, whole), Judgement::Removed))
}
