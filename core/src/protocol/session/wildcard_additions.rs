//! Adds resources of `*`, where replies list single resources: one after another from the cursor on, or a batch that many clients are sent.

use std::collections::HashSet;

use super::client::Variant;
use super::client_snapshot::{Books, ClientSnapshot, is_the_same_for_all};
use super::longer_lives::{LongerLives, is_by_name};
use super::reply::{Draft, ReplyContext, SendScope, remaining_ttl};
use crate::protocol::view::{BatchKey, Class, Revision};
use crate::xds::{Name, Type};

/// The additions of `*` in one reply while it is made.
pub(super) struct WildcardRound<'r, 'a> {
    books: &'r mut Books,
    kind: &'r Type,
    view: &'r ReplyContext<'a>,
    may: SendScope,
    draft: &'r mut Draft,
    /// Resources in the draft that were pending by name, or were kept back before.
    added: &'r mut HashSet<Name>,
    longer_lives: &'r mut LongerLives,
}

impl<'r, 'a> WildcardRound<'r, 'a> {
    pub(super) fn new(
        books: &'r mut Books,
        kind: &'r Type,
        view: &'r ReplyContext<'a>,
        may: SendScope,
        draft: &'r mut Draft,
        added: &'r mut HashSet<Name>,
        longer_lives: &'r mut LongerLives,
    ) -> Self {
        Self { books, kind, view, may, draft, added, longer_lives }
    }

    /// Adds what may be sent now. `whole` is set if the set may be sent as a complete one. Returns whether something has to wait.
    pub(super) fn add(mut self, whole: bool) -> bool {
        let newer = ClientSnapshot::new(self.kind, self.view, self.books).withholds();
        let withholds = newer || self.books.wildcard.as_ref().is_some_and(|wildcard| !wildcard.withheld().is_empty());
        (withholds || !self.add_batch()) && self.add_each(whole, newer)
    }

    /// Adds resources one after another. `newer` is set if the client may hold something newer than what was loaded from disk.
    fn add_each(&mut self, whole: bool, newer: bool) -> bool {
        let ReplyContext { state, client, options, .. } = *self.view;
        let Books { wildcard: Some(wildcard), names, due, .. } = &mut *self.books else { return false };
        let Some(table) = state.resources(self.kind, Class::Wildcard) else { return false };
        let first = wildcard.is_first();
        let allowed = if first { SendScope::InitialReplies } else { SendScope::Anything };
        let (mut sent, mut exhausted, mut waits, before) = (Vec::new(), true, false, self.draft.bytes());
        let bodies_alone = client.variant == Variant::Sotw && !client.wrappers;
        let from = wildcard.added();
        let free = wildcard.take_free(table);
        let entries = free.iter().filter_map(|name| table.get(name)).filter(|entry| entry.changed <= from);
        let again = entries.filter_map(|entry| Some((entry, entry.resource()?)));
        for (entry, resource) in again.chain(table.additions(from)) {
            let name = &resource.name;
            let was_withheld = free.contains(name);
            let held = wildcard.initial_versions().is_some_and(|stated| stated.holds(resource));
            let unseen = bodies_alone && entry.body_changed <= from && !was_withheld;
            let meant = wildcard.covers(name) && client.can_have(self.kind, resource);
            let is_due = meant && !is_by_name(names, state, self.kind, name) && !held && !unseen;
            if newer && wildcard.keeps_back(name, entry, client) {
                if is_due {
                    wildcard.withhold(name, client);
                }
            } else if is_due && !self.added.contains(name) {
                let is_full = client.variant == Variant::Delta && self.draft.bytes() >= options.reply_bytes;
                let has_to_wait = self.may < allowed && !due.owes(entry.changed);
                if has_to_wait || is_full {
                    wildcard.return_free(free.iter().filter(|name| !self.added.contains(*name)));
                    if has_to_wait && self.draft.bytes() == before {
                        return true;
                    }
                    (exhausted, waits) = (false, has_to_wait);
                    break;
                }
                self.added.extend(was_withheld.then(|| name.clone()));
                self.draft.add(resource, remaining_ttl(Some(entry), self.view));
                self.draft.warm(resource, first);
                wildcard.note_sent(name);
                if names.record_sent_by_wildcard(name) {
                    sent.push(resource);
                }
            }
            wildcard.record_passed(entry.changed);
        }
        if self.draft.bytes() > before {
            self.draft.note(wildcard.carried(|| table.journal().additions_received(from)));
        }
        if exhausted {
            wildcard.record_passed(state.revision);
            self.longer_lives.note_wildcard(from);
        }
        if !self.draft.is_empty() {
            wildcard.record_reply(state.revision, exhausted);
        } else if exhausted && whole && !newer && client.variant == Variant::Sotw {
            // In SotW a type that is not full-state has no empty reply. When everything is known, sending nothing counts as the first reply.
            wildcard.record_reply(state.revision, true);
        }
        for resource in sent {
            let share = ClientSnapshot::new(self.kind, self.view, self.books).share(&resource.name, resource);
            self.books.names.record_sent(&resource.name, share);
        }
        waits
    }

    /// Adds the batch that is sent to every client that subscribes to `*` alone and has the same cursor. Returns `false` if this client
    /// is not one of them, has all of the batch, may not be sent it now, or is to be sent TTLs too.
    fn add_batch(&mut self) -> bool {
        let ReplyContext { state, client, options, .. } = *self.view;
        let Books { wildcard: Some(wildcard), names, .. } = &mut *self.books else { return false };
        let is_empty = self.draft.is_empty() && self.added.is_empty();
        if !names.is_empty() || names.pending_count() > 0 || !is_empty {
            return false;
        }
        let Some(table) = state.resources(self.kind, Class::Wildcard) else { return false };
        let is_unlimited = wildcard.initial_versions().is_none() && wildcard.under().is_none();
        let alike = client.variant == Variant::Delta && is_unlimited;
        let (added, first) = (wildcard.added(), wildcard.is_first());
        let allowed = if first { SendScope::InitialReplies } else { SendScope::Anything };
        // The batch does not repeat a resource whose TTL has ended since the client was sent it.
        let runs_ttls = client.ttl && added > Revision::ZERO;
        let lost_ttls = || runs_ttls && table.refreshes(wildcard.refreshed()).any(|(entry, _)| entry.changed <= added);
        if !alike
            || self.may < allowed
            || !is_the_same_for_all(self.kind, self.view)
            || table.additions(added).next().is_none()
            || lost_ttls()
        {
            return false;
        }
        let key = BatchKey { kind: self.kind.clone(), complete: false, wrappers: false, added, first };
        let batch = state.batch(key, || {
            let (mut draft, mut last, mut cut) = (Draft::default(), added, false);
            for (entry, resource) in table.additions(added) {
                cut = draft.bytes() >= options.reply_bytes;
                if cut {
                    break;
                }
                draft.add(resource, None);
                draft.warm(resource, first);
                last = entry.changed;
            }
            draft.into_batch(cut.then_some(last), table.journal().additions_received(added))
        });
        self.draft.note(wildcard.carried(|| batch.oldest_change));
        wildcard.record_batch(batch.cut_after, state.revision);
        self.draft.add_batch(batch, first);
        true
    }
}
