//! Makes complete sets: SotW of full-state types, where the client deletes what a reply leaves out (SOTW-20, SOTW-21).
//!
//! While additions are sent, the set is the union of what is present and what is removed but not yet sent as removed (ORD-7). The reduced set is
//! sent last.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::additions::add_rejected;
use super::carried::ReplyAge;
use super::client_snapshot::{Books, ClientSnapshot, is_the_same_for_all};
use super::pending::Pending;
use super::removals::would_delete_unknown;
use super::reply::{Attempt, Draft, ReplyContext, SendScope, remaining_ttl};
use super::sent_state::SentState;
use crate::protocol::moment::Moment;
use crate::protocol::view::{Batch, BatchKey, Class, Completeness, Lookup, Presence, Revision, TableEntry};
use crate::xds::{Name, Resource, SetVersion, Type};

/// Makes a complete set that has the additions. If the client has not answered the last reply of the type, `unanswered` is until when the next
/// reply waits for that answer. A client that polls gets a reply whatever it holds.
pub(super) fn set_with_additions(
    books: &mut Books,
    kind: &Type,
    view: &ReplyContext,
    may: SendScope,
    unanswered: Option<Moment>,
    polls: bool,
) -> Attempt {
    let snapshot = ClientSnapshot::new(kind, view, books);
    let requested = is_requested(&snapshot);
    if !requested && !any_addition(&snapshot) {
        return Attempt::Nothing;
    }
    if would_delete_unknown(&snapshot) {
        return Attempt::Unknown;
    }
    // Checked before the set is made: making it is the expensive part, although it may turn out unchanged.
    if let Some(blocked) = blocked(may, unanswered, requested) {
        return blocked;
    }
    let refreshed = any_refresh(&snapshot);
    // A union would contain resources that exclude one another, such as two listeners on one address.
    let union = !kind.can_conflict();
    let mut draft = compose(&snapshot, union);
    add_rejected(books, &mut draft);
    add_errors(books, kind, view, &mut draft);
    let snapshot = ClientSnapshot::new(kind, view, books);
    let known = is_known_to_client(books, &draft, requested, polls) && !draft.has_errors() && !refreshed;
    draft.note(carried_additions(&snapshot, &draft));
    record_additions(books, kind, view, &draft);
    if known { Attempt::Nothing } else { Attempt::Ready(draft.into()) }
}

/// Makes a complete set without removed resources.
pub(super) fn reduced_set(books: &mut Books, kind: &Type, view: &ReplyContext, unanswered: Option<Moment>) -> Attempt {
    let snapshot = ClientSnapshot::new(kind, view, books);
    if !any_removal(&snapshot) {
        return Attempt::Nothing;
    }
    if would_delete_unknown(&snapshot) {
        return Attempt::Unknown;
    }
    if let Some(blocked) = blocked(SendScope::Anything, unanswered, false) {
        return blocked;
    }
    let mut draft = compose(&snapshot, false);
    add_errors(books, kind, view, &mut draft);
    let unchanged = books.due.last() == Some(draft.version()) && !draft.has_errors();
    draft.note(carried_removals(&ClientSnapshot::new(kind, view, books)));
    record_removals(books, kind, view, &draft);
    if unchanged { Attempt::Nothing } else { Attempt::Ready(draft.into()) }
}

/// Whether a client that subscribes to `*` alone has all of it, by the version that it states.
pub(super) fn is_current(snapshot: &ClientSnapshot, version: &str) -> bool {
    let Books { wildcard, names, wording, .. } = snapshot.books();
    let pure = wildcard.is_some() && names.is_empty() && wording.rejected_count() == 0;
    let table = snapshot.table(Class::Wildcard);
    let equal = || table.is_some_and(|table| snapshot.wildcard_version(table).to_string() == version);
    pure && snapshot.uses_full_sets() && snapshot.completeness() >= Completeness::FirstResponse && equal()
}

/// Whether something is known that the client has not been sent.
pub(super) fn has_unsent(snapshot: &ClientSnapshot) -> bool {
    is_requested(snapshot) || any_addition(snapshot) || any_removal(snapshot)
}

/// Returns since when the client could have been sent what it has not been sent.
pub(super) fn unsent_since(snapshot: &ClientSnapshot) -> Option<Moment> {
    let mut carried = carried_additions(snapshot, &Draft::default());
    carried.note(carried_removals(snapshot));
    carried.oldest().filter(|_| has_unsent(snapshot))
}

/// Whether a set is due because of a request, and not because of a change.
fn is_requested(snapshot: &ClientSnapshot) -> bool {
    let Books { due, names, .. } = snapshot.books();
    due.complete().is_some()
        || names.pending().any(|(name, pending)| pending.is_requested() && !snapshot.is_unknown(name))
}

fn any_addition(snapshot: &ClientSnapshot) -> bool {
    let of_wildcard =
        snapshot.wildcard().is_some_and(|(wildcard, table)| table.additions(wildcard.added()).next().is_some());
    let here = |name: &Name| matches!(snapshot.known(name), Lookup::Present(_));
    let troubled = |name: &Name| snapshot.unsent_error(name).is_some() && !is_held_and_gone(snapshot, name);
    let news = |(name, pending): (&Name, &Pending)| {
        pending.changed_by(snapshot.view().state.revision) && (here(name) || troubled(name))
    };
    of_wildcard
        || snapshot.books().names.pending().any(news)
        || any_refresh(snapshot)
        || snapshot.books().wording.has_unsent_error()
}

/// Whether the TTL of a resource that this client holds was extended. That takes a complete set: a heartbeat alone would leave out the other
/// resources.
fn any_refresh(snapshot: &ClientSnapshot) -> bool {
    if !snapshot.view().client.ttl {
        return false;
    }
    let of_wildcard = snapshot.wildcard().is_some_and(|(wildcard, table)| {
        table.refreshes(wildcard.refreshed()).any(|(entry, _)| entry.changed <= wildcard.added())
    });
    let by_name = |(name, pending): (&Name, &Pending)| {
        let prolonged = |entry: &TableEntry| entry.refreshed > entry.changed && pending.covers(entry.refreshed);
        snapshot.entry(name).is_some_and(prolonged)
    };
    of_wildcard || snapshot.books().names.pending().any(by_name)
}

/// Whether a name that the client holds is absent. The reduced set removes it, and carries its error.
fn is_held_and_gone(snapshot: &ClientSnapshot, name: &Name) -> bool {
    snapshot.books().names.client_may_hold(name) && snapshot.is_absent(name)
}

fn any_removal(snapshot: &ClientSnapshot) -> bool {
    let of_wildcard = snapshot.wildcard().is_some_and(|(wildcard, table)| {
        wildcard.removals_sent().is_some_and(|from| table.removals(from).next().is_some())
    });
    let mut pending = snapshot.books().names.pending();
    let by_name =
        pending.any(|(name, pending)| pending.changed_by(snapshot.view().state.revision) && snapshot.is_absent(name));
    snapshot.books().due.has_missed_removals() || of_wildcard || by_name
}

fn carried_additions(snapshot: &ClientSnapshot, draft: &Draft) -> ReplyAge {
    let mut carried = ReplyAge { request: snapshot.books().due.complete(), change: None };
    if let Some(wildcard) = &snapshot.books().wildcard {
        carried.note(wildcard.carried(|| match draft.oldest_of_batch() {
            Some(oldest) => oldest,
            None => snapshot.table(Class::Wildcard)?.journal().additions_received(wildcard.added()),
        }));
    }
    let named = snapshot.books().names.pending().filter(|(name, _)| !snapshot.is_unknown(name));
    named.for_each(|(_, pending)| carried.note(pending.carried(snapshot.view())));
    carried
}

fn carried_removals(snapshot: &ClientSnapshot) -> ReplyAge {
    let of_wildcard =
        snapshot.wildcard().and_then(|(wildcard, table)| table.journal().removals_received(wildcard.removals_sent()?));
    let mut carried = ReplyAge::of_change(of_wildcard);
    let named = snapshot.books().names.pending().filter(|(name, _)| snapshot.is_absent(name));
    named.for_each(|(_, pending)| carried.note(pending.carried(snapshot.view())));
    carried
}

fn blocked(may: SendScope, unanswered: Option<Moment>, requested: bool) -> Option<Attempt> {
    let allowed = if requested { SendScope::InitialReplies } else { SendScope::Anything };
    if may < allowed {
        return Some(Attempt::Blocked(None));
    }
    unanswered.filter(|_| !requested).map(|until| Attempt::Blocked(Some(until)))
}

/// Whether the client has the content of a draft already: a change that it cannot see, or a set that equals what it stated. Such a draft is not sent.
fn is_known_to_client(books: &Books, draft: &Draft, requested: bool, polls: bool) -> bool {
    if !requested {
        return books.due.last() == Some(draft.version());
    }
    !polls && books.due.last().is_none() && books.stated.is_version(draft.version())
}

/// Adds the errors of names that have no resource in the set.
fn add_errors(books: &mut Books, kind: &Type, view: &ReplyContext, draft: &mut Draft) {
    if !view.client.errors || books.names.pending_count() == 0 {
        return;
    }
    let snapshot = ClientSnapshot::new(kind, view, books);
    let sent: HashSet<_> = draft.resources().map(|resource| resource.name.clone()).collect();
    let unsent = |name: &Name| Some((name.clone(), snapshot.unsent_error(name)?));
    let names = books.names.pending().map(|(name, _)| name);
    let errors: Vec<_> = names.filter(|name| !sent.contains(*name)).filter_map(unsent).collect();
    for (name, (revision, error)) in errors {
        books.names.record_error_sent(&name, revision);
        draft.add_error(name, error);
    }
}

fn record_additions(books: &mut Books, kind: &Type, view: &ReplyContext, draft: &Draft) {
    books.due.sent_complete(draft.version());
    books.stated.on_set_sent();
    if let Some(wildcard) = &mut books.wildcard {
        wildcard.record_set(view.state.revision);
    }
    record_names(books, kind, view, |known, pending| match known {
        Lookup::Present(_) => true,
        Lookup::Absent(_) => pending.is_some_and(Pending::is_requested),
        Lookup::Unknown => false,
    });
}

fn record_removals(books: &mut Books, kind: &Type, view: &ReplyContext, draft: &Draft) {
    books.due.sent_reduced(draft.version());
    if let Some(wildcard) = &mut books.wildcard {
        wildcard.record_all_sent(view.state.revision);
    }
    record_names(books, kind, view, |known, _| matches!(known, Lookup::Absent(_)));
}

/// Records each name on which the set just sent agrees with the snapshot: those for which `said` returns true.
fn record_names(books: &mut Books, kind: &Type, view: &ReplyContext, said: impl Fn(Lookup, Option<&Pending>) -> bool) {
    let mark = view.state.revision;
    let names: Vec<_> = books.names.keys().cloned().collect();
    for name in names {
        let snapshot = ClientSnapshot::new(kind, view, books);
        let (known, pending) = (snapshot.known(&name), books.names.pending_of(&name));
        if !said(known, pending) {
            continue;
        }
        match known {
            Lookup::Present(resource) if !snapshot.can_have(resource) => {
                books.names.record_sent(&name, SetVersion::EMPTY)
            }
            Lookup::Present(resource) => {
                let share = snapshot.share(&name, resource);
                books.names.record_sent(&name, share);
                if view.state.error(kind, &name).is_none() {
                    books.names.record_error_sent(&name, Revision::ZERO);
                }
            }
            // The client may hold it, so it is still in the union; the reduced set removes it.
            Lookup::Absent(_) if books.names.client_may_hold(&name) && pending.is_some_and(Pending::is_requested) => {
                let still = pending.map(|pending| pending.before_removal(mark));
                books.names.settle(&name, still);
                continue;
            }
            Lookup::Absent(_) => books.names.record_sent(&name, SetVersion::EMPTY),
            Lookup::Unknown => continue,
        }
        books.names.settle_in_set(name, mark);
    }
}

/// Makes the set. With `union` it still has removed resources.
fn compose(snapshot: &ClientSnapshot, union: bool) -> Draft {
    let Books { wildcard, names, .. } = snapshot.books();
    let view = snapshot.view();
    if let Some(wildcard) = wildcard
        && let Some(batch) = common_set(snapshot, union)
    {
        return Draft::of_batch(batch, wildcard.is_first());
    }
    let mut set = FullSet::new(*snapshot);
    if let Some((wildcard, table)) = snapshot.wildcard() {
        let by_name = |resource: &Resource| snapshot.is_present_by_name(&resource.name);
        for (entry, resource) in table.additions(Revision::ZERO).filter(|(_, resource)| !by_name(resource)) {
            let is_news = entry.body_changed > wildcard.added();
            set.add(resource, remaining_ttl(Some(entry), view), is_news.then_some(wildcard.is_first()));
        }
        let from = wildcard.removals_sent().into_iter().filter(|_| union);
        for (name, entry) in from.flat_map(|from| table.removals(from)) {
            let is_absent_by_name = |sent: &SentState| sent.holds().is_empty() && !snapshot.is_present_by_name(name);
            if let Presence::Absent(Some(last)) = &entry.presence
                && wildcard.client_may_hold(entry)
                && names.get(name).is_none_or(is_absent_by_name)
            {
                set.add(last, None, None);
            }
        }
    }
    for (name, sent) in names.iter() {
        match view.state.lookup(snapshot.kind(), Class::Named, name) {
            _ if !snapshot.allows(name) => {}
            Lookup::Present(resource) => {
                let news = sent.holds() != snapshot.share(name, resource);
                let first = names.pending_of(name).is_some_and(Pending::is_requested);
                set.add(resource, remaining_ttl(snapshot.entry(name), view), news.then_some(first));
            }
            Lookup::Absent(Some(last)) if union && !sent.holds().is_empty() => set.add(last, None, None),
            Lookup::Absent(_) | Lookup::Unknown => {}
        }
    }
    set.draft
}

/// Returns the shared set, if the client subscribes to `*` alone, may have all of it, and holds nothing else.
fn common_set(snapshot: &ClientSnapshot, union: bool) -> Option<Arc<Batch>> {
    let (kind, view) = (snapshot.kind(), snapshot.view());
    let is_alone = snapshot.books().names.is_empty() && is_the_same_for_all(kind, view);
    let (wildcard, table) = snapshot.wildcard().filter(|_| is_alone)?;
    if union && wildcard.removals_sent().is_some_and(|from| table.removals(from).next().is_some()) {
        return None;
    }
    let (added, first, wrappers) = (wildcard.added(), wildcard.is_first(), view.client.wrappers);
    let key = BatchKey { kind: kind.clone(), complete: true, wrappers, added, first };
    let collect = || {
        let mut set = FullSet::new(*snapshot);
        for (entry, resource) in table.additions(Revision::ZERO) {
            set.add(resource, None, (entry.body_changed > added).then_some(first));
        }
        set.draft.into_batch(None, table.journal().additions_received(added))
    };
    Some(view.state.batch(key, collect))
}

struct FullSet<'b, 'a> {
    draft: Draft,
    added: HashSet<Name>,
    snapshot: ClientSnapshot<'b, 'a>,
}

impl<'b, 'a> FullSet<'b, 'a> {
    fn new(snapshot: ClientSnapshot<'b, 'a>) -> Self {
        Self { draft: Draft::default(), added: HashSet::new(), snapshot }
    }

    /// Adds a resource. `news` is set if the resource is new to the client, and is true if it answers a request.
    fn add(&mut self, resource: &Arc<Resource>, ttl: Option<Duration>, news: Option<bool>) {
        // The client may have requested the resource by an alias too, and a set has no name twice (SOTW-30). Or the client cannot read it under
        // this name.
        if !self.snapshot.can_have(resource) || !self.added.insert(resource.name.clone()) {
            return;
        }
        self.draft.count_in(self.snapshot.share(&resource.name, resource));
        news.into_iter().for_each(|first| self.draft.warm(resource, first));
        self.draft.add(resource, ttl);
    }
}
