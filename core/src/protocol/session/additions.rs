//! Makes replies with additions where replies list single resources: delta, and SotW of types that are not full-state.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::carried::ReplyAge;
use super::client::Variant;
use super::client_snapshot::{Books, ClientSnapshot};
use super::longer_lives::LongerLives;
use super::pending::Pending;
use super::removals::{RemovalRound, has_no_removals_left, note_set_mark};
use super::reply::{Attempt, Draft, ReplyContext, SendScope, remaining_ttl};
use super::wildcard_additions::WildcardRound;
use crate::protocol::moment::Moment;
use crate::protocol::view::{Class, Completeness, Lookup, NamedError, Presence, Revision};
use crate::protocol::visits::visit;
use crate::xds::{EmptyFirst, Name, SetVersion, Type};

/// Makes a reply with additions. If the client has not answered the last reply of the type, `unanswered` is until when the next reply waits for
/// that answer.
pub(super) fn additions(
    books: &mut Books,
    kind: &Type,
    view: &ReplyContext,
    may: SendScope,
    unanswered: Option<Moment>,
) -> Attempt {
    let unanswered = unanswered.filter(|_| view.client.variant == Variant::Sotw);
    let may = if unanswered.is_some() { may.min(SendScope::InitialReplies) } else { may };
    let mut round = AdditionRound {
        books,
        kind,
        view,
        may,
        draft: Draft::default(),
        added: HashSet::new(),
        longer_lives: LongerLives::default(),
        left: BTreeSet::new(),
        kept_back: false,
    };
    let whole = round.snapshot().can_send_full_set();
    add_rejected(round.books, &mut round.draft);
    round.add_pending();
    round.add_of_wildcard(whole);
    round.add_removals_of_left();
    round.add_conflicting_removals();
    let is_first_and_empty = round.answer_empty_wildcard();
    round.longer_lives.collect(round.books, kind, view, &round.draft, &mut round.added);
    if round.books.due.is_empty_due() || !round.draft.is_empty() || !round.longer_lives.is_empty() {
        let version = round.snapshot().version();
        round.draft.set_version(version);
    }
    let AdditionRound { books, mut draft, longer_lives, kept_back, .. } = round;
    // In SotW a client recognizes a heartbeat because the version is the one that it was sent last. Any change would make another version.
    let changed = !draft.is_unchanged() || books.due.last() != Some(draft.version());
    longer_lives.move_to(&mut draft, kind.info().by_alias || (view.client.variant == Variant::Sotw && changed));
    draft.drop_repeated_aliases();
    let is_empty_due = books.due.take_empty();
    if is_empty_due && !is_first_and_empty {
        draft.note(ReplyAge::of_request(books.due.asked()));
    }
    if !draft.is_empty() || is_empty_due {
        // What does not fit is sent with the next reply, before anything else.
        books.due.sent(draft.version());
        let sent_all = is_first_and_empty && has_no_removals_left(&ClientSnapshot::new(kind, view, books));
        draft.set_mark(note_set_mark(books, kind, view, sent_all).0);
        return Attempt::Ready(Box::new(draft));
    }
    if kept_back {
        return Attempt::Blocked(unanswered);
    }
    let snapshot = ClientSnapshot::new(kind, view, books);
    if doubts_members(&snapshot) {
        return Attempt::Unknown;
    }
    // More of the set may come, and types that refer to it should be sent later. Virtual hosts are an exception: a server that gives them on
    // demand only never answers the wildcard.
    if more_is_to_come(&snapshot) && kind.info().empty_first != EmptyFirst::UnderRoutes {
        return Attempt::Unknown;
    }
    Attempt::Nothing
}

/// Adds the errors of names that cannot be requested.
pub(super) fn add_rejected(books: &mut Books, draft: &mut Draft) {
    let Books { wording, due, .. } = books;
    for (name, error) in wording.take_errors() {
        draft.note(ReplyAge::of_request(due.asked()));
        draft.add_error(name.clone(), error);
    }
}

/// Whether the client stated members of collections that the view does not know yet.
fn doubts_members(snapshot: &ClientSnapshot) -> bool {
    let names = &snapshot.books().names;
    if !names.has_collections() {
        return false; // the usual case
    }
    let unconfirmed = |(name, pending): (&Name, &Pending)| {
        let sent = names.get(name).filter(|sent| sent.is_member() && sent.held_before());
        pending.changed_by(snapshot.view().state.revision) && sent.is_some() && snapshot.is_unknown(name)
    };
    names.pending().inspect(|_| visit()).any(unconfirmed)
}

/// Whether more of a set is to come. For a client that stated resources, more than the first response may matter. If the set was cut short, the
/// client is sent what came: in delta, a resource that is not sent does not count as removed.
fn more_is_to_come(snapshot: &ClientSnapshot) -> bool {
    if snapshot.may_hold_newer() {
        return true;
    }
    let is_cut_short = || snapshot.table(Class::Wildcard).is_some_and(|table| table.coverage().is_cut_short());
    snapshot.books().wildcard.as_ref().is_some_and(|wildcard| {
        let states_names = wildcard.initial_versions().is_some();
        let enough = if states_names { Completeness::Settled } else { Completeness::FirstResponse };
        snapshot.completeness() < enough && !is_cut_short()
    })
}

/// The additions of one reply while it is made.
struct AdditionRound<'r, 'a> {
    books: &'r mut Books,
    kind: &'r Type,
    view: &'r ReplyContext<'a>,
    may: SendScope,
    draft: Draft,
    /// Resources in the reply that were pending by name, so that `*` does not repeat them (DELTA-33).
    added: HashSet<Name>,
    longer_lives: LongerLives,
    /// Resources that the client has left, or was sent for an alias which leads to another one now.
    left: BTreeSet<Name>,
    kept_back: bool,
}

impl<'a> AdditionRound<'_, 'a> {
    fn snapshot(&self) -> ClientSnapshot<'_, 'a> {
        ClientSnapshot::new(self.kind, self.view, self.books)
    }

    fn is_full(&self) -> bool {
        self.view.client.variant == Variant::Delta && self.draft.bytes() >= self.view.options.reply_bytes
    }

    /// Sends the first reply to `*` even if it is empty, before removals of any type, because a client that starts waits for it (DELTA-21).
    fn answer_empty_wildcard(&mut self) -> bool {
        if self.view.client.variant != Variant::Delta
            || !self.books.wildcard.as_ref().is_some_and(|wildcard| wildcard.is_first())
            || !self.draft.is_empty()
            || self.kept_back
            || self.snapshot().completeness() < Completeness::FirstResponse
            || self.snapshot().may_hold_newer()
        {
            return false;
        }
        if self.may < SendScope::InitialReplies {
            self.kept_back = true;
            return false;
        }
        if let Some(wildcard) = &mut self.books.wildcard {
            wildcard.record_reply(self.view.state.revision, true);
            self.draft.note(ReplyAge::of_request(wildcard.asked()));
        }
        self.books.due.add_empty();
        true
    }

    /// Removes resources to which no name of the client leads any more. While the client has one for another alias too, that alias decides: it is
    /// sent or removed later.
    fn add_removals_of_left(&mut self) {
        for own in std::mem::take(&mut self.left) {
            let is_of_alias = self.books.names.targets().aliases_of(&own).next().is_some();
            if !is_of_alias && !self.snapshot().is_reached(&own) {
                self.books.wildcard.iter_mut().for_each(|wildcard| wildcard.note_sent(&own));
                self.draft.add_removed(own, None);
            }
        }
    }

    /// Puts removals that free an address or a domain into the same reply as the listener or the virtual host that takes it. Otherwise the client
    /// would reject the new one, and would not be sent it again. No client loses anything by that: removals of listeners and scopes come before all
    /// others, and other routing needs no virtual host that is removed. If a replacement is kept back, what it replaces is not removed yet. If it is
    /// left out because the reply is full, the next reply has it, whatever other additions wait for.
    fn add_conflicting_removals(&mut self) {
        let is_delta = self.view.client.variant == Variant::Delta;
        let adds = is_delta && self.kind.needs_removals_beside() && !self.draft.is_empty();
        let (is_full, before, mut owed) = (self.is_full(), self.draft.bytes(), self.books.due.owed());
        if adds && !self.kept_back {
            let mut removals = RemovalRound::new(self.books, self.kind, self.view, &mut self.draft);
            removals.add_pending();
            removals.add_of_wildcard();
            removals.judge_stated();
            owed = if self.draft.bytes() > before { Some(self.view.state.revision) } else { owed };
        }
        self.books.due.set_owed(owed.filter(|_| is_full));
    }

    fn add_of_wildcard(&mut self, whole: bool) {
        let Self { books, kind, view, may, draft, added, longer_lives, .. } = self;
        self.kept_back |= WildcardRound::new(books, kind, view, *may, draft, added, longer_lives).add(whole);
    }

    fn add_pending(&mut self) {
        let mut next = self.books.names.next_pending(None);
        while let Some((name, pending)) = next {
            if self.is_full() {
                // A name that is left out may have to wait, or lead to a resource that would be removed.
                self.kept_back |= self.may < SendScope::Anything || self.kind.info().by_alias;
                break;
            }
            visit();
            let before = (self.draft.bytes(), self.left.len());
            let still = self.add_one(&name, pending);
            if (self.draft.bytes(), self.left.len()) != before {
                self.draft.note(pending.carried(self.view));
            }
            self.books.names.settle(&name, still);
            next = self.books.names.next_pending(Some(&name));
        }
    }

    /// Adds one pending name if that is allowed now. Returns why the name is still pending, if it is.
    fn add_one(&mut self, name: &Name, pending: Pending) -> Option<Pending> {
        let ReplyContext { state, client, now, .. } = *self.view;
        let mark = state.revision;
        if !pending.is_ripe(self.view) {
            return Some(pending);
        }
        // A forced name waits for its time only: the client holds back its own ACK until the name has come.
        let (requested, forced) = (pending.is_requested(), pending.is_forced(now));
        let allowed = if requested { SendScope::InitialReplies } else { SendScope::Anything };
        let owes = || self.snapshot().entry(name).is_some_and(|entry| self.books.due.owes(entry.changed));
        let kept_back = self.may < allowed && !forced && !owes();
        let trouble = self.snapshot().unsent_error(name);
        match self.snapshot().known(name) {
            Lookup::Unknown => {
                if kept_back && trouble.is_some() {
                    self.kept_back = true;
                    return Some(pending);
                }
                self.add_error(name, trouble);
                self.claim_unknown(name);
                // An error is no value: the name stays pending, and nothing more is sent for it until a value comes.
                let has_error = state.error(self.kind, name).is_some();
                let pending = if has_error { pending.after_error(mark, now) } else { pending };
                let asked_alone = pending.is_request_alone() && self.books.wildcard.is_none();
                // A glob has no value, only members: until it is known to be empty, nothing is sent under its own name.
                if asked_alone || self.books.names.has_glob(name) {
                    self.books.names.await_data(name.clone(), pending.asked().unwrap_or(now));
                    return None;
                }
                return Some(pending);
            }
            Lookup::Absent(_) if client.variant == Variant::Sotw => {
                // SotW can express absence only as an error, and an empty resource in its place would be wrong (SOTW-25, SOTW-55).
                if kept_back && trouble.is_some() {
                    self.kept_back = true;
                    return Some(pending);
                }
                self.add_error(name, trouble);
                self.books.names.record_sent(name, SetVersion::EMPTY);
            }
            Lookup::Absent(_) => {
                let held = self.books.names.client_may_hold(name);
                if held || !(requested || forced || trouble.is_some()) {
                    return Some(pending); // a removal: these are sent after all additions
                }
                if kept_back {
                    self.kept_back = true;
                    return Some(pending);
                }
                if requested || forced {
                    self.answer_absent(name);
                }
                self.add_error(name, trouble);
            }
            Lookup::Present(resource) if !self.snapshot().can_have(resource) => {
                let before = self.books.names.targets().get(name).cloned();
                if kept_back && before.is_some() {
                    self.kept_back = true;
                    return Some(pending);
                }
                self.left.extend(before);
                self.books.names.record_sent(name, SetVersion::EMPTY);
            }
            Lookup::Present(resource) => {
                let share = self.snapshot().share(name, resource);
                let sent = self.books.names.get(name).copied();
                if resource.do_not_cache()
                    && let Some(asked) = pending.asked()
                    && !pending.changed_by(mark)
                    && sent.is_some_and(|sent| sent.holds().is_empty())
                {
                    if !pending.is_request_alone() {
                        return Some(pending);
                    }
                    self.books.names.await_data(name.clone(), asked); // the view reports the name when the server has responded for this client
                    return None;
                }
                let well_again =
                    sent.is_some_and(|sent| sent.error() != Revision::ZERO) && state.error(self.kind, name).is_none();
                let news = sent.is_none_or(|sent| sent.holds() != share) || well_again;
                if !news && !requested && !forced && trouble.is_none() {
                    let snapshot = ClientSnapshot::new(self.kind, self.view, self.books);
                    if self.longer_lives.note_name(&snapshot, name, pending, share) {
                        return Some(pending);
                    }
                    self.books.names.record_sent(name, share);
                    return pending.after_no_news(mark);
                }
                if kept_back {
                    self.kept_back = true;
                    return Some(pending);
                }
                if !news && !requested && !forced {
                    self.add_error(name, trouble);
                    return pending.after_no_news(mark);
                }
                let ttl = remaining_ttl(self.snapshot().entry(name), self.view);
                if self.added.insert(resource.name.clone()) {
                    self.draft.warm(resource, requested);
                    self.draft.add(resource, ttl);
                }
                let Books { wildcard, names, .. } = &mut *self.books;
                // From its first member of `*` on, the client is sent removals from `*`.
                if let Some(wildcard) = wildcard.as_mut().filter(|_| !names.contains(name)) {
                    wildcard.record_additions_sent(mark);
                }
                if self.kind.info().by_alias {
                    self.left.extend(names.record_target(name, &resource.name));
                }
                names.record_sent(name, share);
                names.answer_collection_of(name);
                wildcard.iter_mut().for_each(|wildcard| wildcard.note_sent(name));
                if let Some((revision, _)) = trouble {
                    // A name with an error is not in the same reply as its resource (SOTW-52): the error is sent in the next reply.
                    return Some(pending.before_error(revision));
                }
                names.record_error_sent(name, Revision::ZERO);
            }
        }
        pending.after(mark)
    }

    /// Claims a name that the client holds, or may hold, if the view does not know enough of it for a reply.
    fn claim_unknown(&mut self, name: &Name) {
        let held = self.books.names.get(name).map(|sent| sent.client_may_hold() && !sent.is_member());
        let class = match held {
            Some(true) => Class::Named,
            Some(false) => return,
            None => Class::Wildcard, // the client was sent it by name, and the wildcard set may have it
        };
        let Some(table) = self.snapshot().table(class) else { return };
        let is_due = match class {
            Class::Wildcard => table.coverage().completeness() == Completeness::Settled,
            Class::Named => matches!(table.get(name).map(|entry| &entry.presence), Some(Presence::Absent(_))),
        };
        if is_due {
            self.books.claims.claim(class, name, table.coverage().opening());
        }
    }

    fn add_error(&mut self, name: &Name, error: Option<(Revision, Arc<NamedError>)>) {
        if let Some((revision, error)) = error {
            self.draft.add_error(name.clone(), error);
            self.books.names.record_error_sent(name, revision);
        }
    }

    fn answer_absent(&mut self, name: &Name) {
        match self.kind.info().by_alias {
            true if self.books.names.contains(name) => self.draft.add_unresolved(name.clone()),
            true => {
                self.left.insert(name.clone());
            }
            false => {
                self.draft.add_removed(name.clone(), None);
                self.books.wildcard.iter_mut().for_each(|wildcard| wildcard.note_sent(name));
            }
        }
        self.books.names.record_sent(name, SetVersion::EMPTY);
    }
}
