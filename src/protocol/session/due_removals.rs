//! Whether removals are due for a client, without making the reply.

use super::ReplyContext;
use super::client::Variant;
use super::progress::Progress;
use super::subscription::{Pending, SentState, Subscription, Wildcard};
use crate::protocol::view::{Class, Completeness, Entry, Lookup, Presence};
use crate::xds::{Name, Type};

impl Subscription {
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
