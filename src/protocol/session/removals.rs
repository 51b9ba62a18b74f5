//! Removals, sent after everything that is new, and whether any are due. In SotW only full-state types can express them.

use std::collections::HashSet;

use super::client::Variant;
use super::reply::Draft;
use super::subscription::{Pending, SentState, Subscription};
use super::wildcard::{Progress, Wildcard};
use super::{Attempt, ReplyContext};
use crate::protocol::faults::Fault;
use crate::protocol::set_mark::SetMark;
use crate::protocol::view::{Class, Completeness, Entry, Lookup, Presence, ResourceTable};
use crate::protocol::visits::visit;
use crate::xds::{Name, SetVersion, Type};

impl Subscription {
    pub(super) fn removals(&mut self, kind: &Type, view: &ReplyContext) -> Attempt {
        if view.client.variant == Variant::Sotw {
            if let Some(progress) = self.wildcard.as_mut().and_then(|wildcard| wildcard.progress.as_mut()) {
                progress.record_all_sent(view.state.revision);
            }
            return Attempt::Nothing;
        }
        let mut draft = Draft::default();
        let mut said = HashSet::new();
        self.remove_pending(kind, view, &mut draft, &mut said);
        self.remove_of_wildcard(kind, view, &mut draft, &mut said);
        let unjudged = self.judge_stated(kind, view, &mut draft, &said);
        let sent_all = draft.is_empty() && !unjudged;
        let (mark, is_news) = self.note_set_mark(kind, view, sent_all);
        draft.set = mark;
        if !draft.is_empty() || sent_all && is_news {
            self.sent = Some(SetVersion::EMPTY); // delta has no version of a set; this records that the client holds something
            draft.version = self.version(kind, view); // for reports
            return Attempt::Ready(draft.into());
        }
        if unjudged { Attempt::Unknown } else { Attempt::Nothing }
    }

    /// Returns the completeness mark of `*` for the next reply to a relay, and whether it differs from the last one.
    pub(super) fn note_set_mark(
        &mut self,
        kind: &Type,
        view: &ReplyContext,
        sent_all: bool,
    ) -> (Option<SetMark>, bool) {
        let readable = view.state.resources(kind, Class::Wildcard).is_some_and(ResourceTable::is_readable);
        let whole = self.is_wildcard_complete(kind, view) && readable;
        let marked = view.client.relay && view.client.variant == Variant::Delta;
        let wildcard =
            self.wildcard.as_mut().filter(|wildcard| marked && wildcard.progress.is_some() && wildcard.under.is_none());
        let Some(wildcard) = wildcard else { return (None, false) };
        let complete = whole && (sent_all || wildcard.sent_complete);
        let before = std::mem::replace(&mut wildcard.sent_complete, complete);
        (Some(if complete { SetMark::Complete } else { SetMark::Partial }), before != complete)
    }

    pub(super) fn remove_pending(
        &mut self,
        kind: &Type,
        view: &ReplyContext,
        draft: &mut Draft,
        said: &mut HashSet<Name>,
    ) {
        let mark = view.state.revision;
        let gone = |name: &Name| matches!(self.known(kind, name, view), Lookup::Absent(_));
        let ready: Vec<_> = self
            .pending
            .iter()
            .inspect(|_| visit())
            .filter(|(name, pending)| pending.is_ripe(view) && gone(name))
            .map(|(name, _)| name.clone())
            .collect();
        for name in ready {
            let Some(pending) = self.pending.get(&name).copied().filter(|_| draft.bytes < view.limits.reply_bytes)
            else {
                break;
            };
            let before = draft.bytes;
            let held = self.names.get(&name).is_none_or(|sent| sent.client_may_hold());
            if let Lookup::Absent(last) = self.known(kind, &name, view)
                && (held || pending.requested.is_some() || pending.forced_resend.is_some())
                && said.insert(last.map_or(&name, |last| &last.name).clone())
            {
                draft.add_removed(name.clone(), last);
            }
            if let Some((revision, error)) = self.unsent_error(kind, &name, view) {
                draft.add_error(name.clone(), error); // not found, or not allowed: the reason for the removal (XLAT-21)
                self.record_error_sent(&name, revision);
            }
            if draft.bytes > before {
                draft.carried.note(pending.carried(view));
            }
            self.record_sent(&name, SetVersion::EMPTY);
            match pending.after(mark) {
                Some(still) => drop(self.pending.insert(name.clone(), still)),
                None => drop(self.pending.remove(&name)),
            }
            self.drop_absent_member(&name);
        }
    }

    pub(super) fn remove_of_wildcard(
        &mut self,
        kind: &Type,
        view: &ReplyContext,
        draft: &mut Draft,
        said: &mut HashSet<Name>,
    ) {
        let Self { wildcard: Some(wildcard), names, .. } = self else { return };
        let Some(table) = view.state.resources(kind, Class::Wildcard) else { return };
        let has_missed = |progress: &Progress| progress.removals() < table.horizon();
        if wildcard.progress.as_ref().is_some_and(has_missed) {
            return;
        }
        let Some(mut progress) = wildcard.progress.take() else { return };
        let oldest = table.removals_received(progress.removals());
        let mut gone = Vec::new();
        let mut exhausted = true;
        for (name, entry) in table.removals(progress.removals()) {
            if draft.bytes >= view.limits.reply_bytes {
                exhausted = false;
                break;
            }
            if wildcard.loses(kind, name, entry, &progress, names.get(name), view) && said.insert(name.clone()) {
                let Presence::Absent(last) = &entry.presence else { continue };
                draft.add_removed(name.clone(), last.as_ref());
                if let Some(stated) = &mut wildcard.initial_versions {
                    stated.note_sent(name);
                }
                gone.push(name);
            }
            progress.record_removals_sent_to(entry.changed);
        }
        if exhausted {
            progress.record_all_sent(view.state.revision);
        }
        wildcard.progress = Some(progress);
        if !gone.is_empty() {
            draft.carried.note_change(oldest);
        }
        for name in gone {
            self.record_sent(name, SetVersion::EMPTY);
        }
    }

    /// Removes what the client stated and is known to be absent: by evidence from this opening, or because the set is complete
    /// (DELTA-13, DELTA-16). Returns whether some of it is still unknown.
    fn judge_stated(&mut self, kind: &Type, view: &ReplyContext, draft: &mut Draft, said: &HashSet<Name>) -> bool {
        let completeness = self.wildcard_completeness(kind, view);
        let hasty = view.limits.faults.has(Fault::JudgeStatedWhileCold);
        let waits = self.may_hold_newer(kind, view);
        let whole = completeness == Completeness::Complete || hasty;
        let Some(wildcard) = &mut self.wildcard else { return false };
        let Some(mut stated) = wildcard.initial_versions.take() else { return false };
        let table = view.state.resources(kind, Class::Wildcard);
        let nothing_new = stated.judged_at == Some(view.state.revision);
        if waits
            || !hasty && (completeness < Completeness::Settled || table.is_none() || nothing_new)
            || draft.bytes >= view.limits.reply_bytes
        {
            wildcard.initial_versions = Some(stated);
            return true;
        }
        let (mut judged, mut left) = (Vec::new(), false);
        for (place, name) in stated.current() {
            if draft.bytes >= view.limits.reply_bytes {
                left = true; // the rest comes with the next piece (DELTA-48)
                break;
            }
            let entry = table.and_then(|table| table.get(name));
            let here = entry.is_some_and(|entry| matches!(entry.presence, Presence::Present(_)));
            let gone = match entry {
                Some(entry) => table.is_some_and(|table| table.is_absent_by_evidence(entry)),
                None => self.answers.is_absent(Class::Wildcard, name, table),
            };
            let exists = table.is_some_and(|table| table.is_unreadable(name)); // UP-25: what the client has of it stays
            let is_closed = !view.client.clearance.allows(kind, name); // that takes no evidence
            if self.names.contains_key(name) || here && whole && !is_closed {
                judged.push(place);
            } else if is_closed || !here && (whole && !exists || gone) {
                judged.push(place);
                if !said.contains(name) {
                    draft.carried.note_request(Some(wildcard.asked));
                    draft.add_removed(name.clone(), None);
                }
            } else {
                left |= !here;
            }
        }
        if !left {
            wildcard.record_additions_sent(view.state.revision);
            self.stated = false;
            return false;
        }
        judged.into_iter().for_each(|place| stated.note_judged(place));
        if draft.bytes < view.limits.reply_bytes {
            stated.judged_at = Some(view.state.revision);
        }
        wildcard.initial_versions = Some(stated);
        true
    }

    /// Whether the next reply with removals would remove something that the client may hold.
    pub(super) fn is_removal_due(&self, kind: &Type, view: &ReplyContext) -> bool {
        match view.client.variant {
            Variant::Sotw if !kind.info().full_state || self.would_delete_unknown(kind, view) => false,
            Variant::Sotw => {
                let gone = |name| matches!(self.known(kind, name, view), Lookup::Absent(_));
                let held = |name| self.names.get(name).is_some_and(SentState::client_may_hold);
                let changed = |pending: &Pending| pending.changed_by(view.state.revision);
                let mut named = self.pending.iter();
                self.missed_removals
                    || self.any_gone_of_wildcard(kind, view)
                    || named.any(|(name, pending)| changed(pending) && gone(name) && held(name))
            }
            Variant::Delta => {
                let gone = |name: &Name| matches!(self.known(kind, name, view), Lookup::Absent(_));
                let held = |name: &Name| self.names.get(name).is_none_or(SentState::client_may_hold);
                let mut named = self.pending.iter();
                named.any(|(name, pending)| pending.is_ripe(view) && gone(name) && held(name))
                    || self.any_gone_of_wildcard(kind, view)
                    || self.any_stated_gone(kind, view)
            }
        }
    }

    /// Whether a relay is still to be told that a set is complete, and has all of it, and nothing that is not in it.
    pub(super) fn is_end_due(&self, kind: &Type, view: &ReplyContext) -> bool {
        let marks = view.client.relay && view.client.variant == Variant::Delta;
        let wildcard = self.wildcard.as_ref().filter(|of| marks && of.progress.is_some() && !of.sent_complete);
        let table = view.state.resources(kind, Class::Wildcard).filter(|table| table.is_readable());
        let Some((wildcard, table)) = wildcard.zip(table) else { return false };
        let none_waits = self.pending.is_empty() && wildcard.withheld.is_empty();
        let was_sent_all = none_waits && table.additions(wildcard.added).next().is_none();
        was_sent_all && self.is_wildcard_complete(kind, view) && !self.is_removal_due(kind, view)
    }

    /// Whether everything that the client was sent or has stated is present.
    pub(super) fn has_no_removals_left(&self, kind: &Type, view: &ReplyContext) -> bool {
        let stated = self.wildcard.as_ref().is_some_and(|wildcard| wildcard.initial_versions.is_some());
        !stated && !self.is_removal_due(kind, view)
    }

    fn any_gone_of_wildcard(&self, kind: &Type, view: &ReplyContext) -> bool {
        let Some(wildcard) = &self.wildcard else { return false };
        let table = view.state.resources(kind, Class::Wildcard);
        wildcard.progress.as_ref().zip(table).is_some_and(|(progress, table)| {
            let mut removals = table.removals(progress.removals());
            removals.any(|(name, gone)| wildcard.loses(kind, name, gone, progress, self.names.get(name), view))
        })
    }

    /// Whether something that the client stated is known to be absent.
    fn any_stated_gone(&self, kind: &Type, view: &ReplyContext) -> bool {
        let Some(stated) = self.wildcard.as_ref().and_then(|wildcard| wildcard.initial_versions.as_ref()) else {
            return false;
        };
        let completeness = self.wildcard_completeness(kind, view);
        if completeness < Completeness::Settled
            || stated.judged_at == Some(view.state.revision)
            || self.may_hold_newer(kind, view)
        {
            return false;
        }
        let table = view.state.resources(kind, Class::Wildcard);
        let mut held = stated.current().filter(|(_, name)| !name.asks_for_end());
        held.any(|(_, name)| {
            let entry = table.and_then(|table| table.get(name));
            let here = entry.is_some_and(|entry| matches!(entry.presence, Presence::Present(_)));
            let gone = match entry {
                Some(entry) => table.is_some_and(|table| table.is_absent_by_evidence(entry)),
                None => self.answers.is_absent(Class::Wildcard, name, table),
            };
            let is_closed = !view.client.clearance.allows(kind, name);
            let exists = table.is_some_and(|table| table.is_unreadable(name));
            let is_absent = !here && (completeness == Completeness::Complete && !exists || gone);
            !self.names.contains_key(name) && (is_closed || is_absent)
        })
    }
}

impl Wildcard {
    /// Whether the client is to be sent the removal of a name from `*`. `sent` is what it was sent of the name by itself.
    pub(super) fn loses(
        &self,
        kind: &Type,
        name: &Name,
        gone: &Entry,
        progress: &Progress,
        sent: Option<&SentState>,
        view: &ReplyContext,
    ) -> bool {
        // A name that is subscribed by itself follows what the server sent for that name.
        let by_name = sent.is_some_and(|sent| match view.state.lookup(kind, Class::Named, name) {
            Lookup::Present(_) => true,
            Lookup::Unknown => !sent.member,
            Lookup::Absent(_) => false,
        });
        let may_have = view.client.clearance.allows(kind, name);
        progress.client_may_hold(gone) && !by_name && may_have && self.covers(name)
    }
}
