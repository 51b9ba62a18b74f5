//! Resources whose TTL is extended or removed. They come last in a reply with additions, in the room that is left: so they keep back no addition, and no
//! removal that has to be in one reply with one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::client::Variant;
use super::client_snapshot::{Books, ClientSnapshot};
use super::names::SubscribedNames;
use super::pending::Pending;
use super::reply::{Draft, PER_ENTRY, ReplyContext, remaining_ttl};
use crate::protocol::view::{Class, Lookup, Presence, Revision, Snapshot, TableEntry};
use crate::xds::{Name, Resource, SetVersion, Type};

/// A resource whose TTL is extended or removed, with the TTL that it has now.
type LongerLife = (Arc<Resource>, Option<Duration>);

/// What one reply says of TTLs, while it is made.
#[derive(Default)]
pub(super) struct LongerLives {
    /// Names of which nothing else is new. They stay pending until they are in a reply.
    names: Vec<DueName>,
    /// All additions of `*` are in the reply, or were sent before. The latter are those up to this revision.
    of_wildcard: Option<Revision>,
    /// What has room in the reply.
    lives: Vec<LongerLife>,
    bytes: usize,
}

struct DueName {
    name: Name,
    pending: Pending,
    share: SetVersion,
    life: LongerLife,
}

impl LongerLives {
    /// Notes a name without news if its TTL was extended and the client runs TTLs itself. Returns whether it is noted.
    pub(super) fn note_name(
        &mut self,
        snapshot: &ClientSnapshot,
        name: &Name,
        pending: Pending,
        share: SetVersion,
    ) -> bool {
        let view = snapshot.view();
        let prolonged = |entry: &&TableEntry| entry.refreshed > entry.changed && pending.covers(entry.refreshed);
        let Some(entry) = snapshot.entry(name).filter(|_| view.client.ttl).filter(prolonged) else { return false };
        let Presence::Present(resource) = &entry.presence else { return false };
        let life = (resource.clone(), remaining_ttl(Some(entry), view));
        self.names.push(DueName { name: name.clone(), pending, share, life });
        true
    }

    /// Notes that all additions of `*` are sent with this reply, and up to which revision they were sent before.
    pub(super) fn note_wildcard(&mut self, sent_before: Revision) {
        self.of_wildcard = Some(sent_before);
    }

    /// Collects what has room beside the draft. The rest is for the next reply. `added`: resources that are in the reply.
    pub(super) fn collect(
        &mut self,
        books: &mut Books,
        kind: &Type,
        view: &ReplyContext,
        draft: &Draft,
        added: &mut HashSet<Name>,
    ) {
        let (whole, mut rest) = (kind.info().by_alias, false);
        if whole {
            added.extend(draft.resources().map(|resource| resource.name.clone())); // several aliases, and `*`, may lead to one
        }
        for DueName { name, pending, share, life } in std::mem::take(&mut self.names) {
            if !self.push(life, whole, draft, added, view) {
                rest = true;
                continue;
            }
            books.names.record_sent(&name, share);
            books.names.settle(&name, pending.after_no_news(view.state.revision));
        }
        let Some(sent_before) = self.of_wildcard.take().filter(|_| !rest) else { return };
        let Books { wildcard: Some(wildcard), names, .. } = books else { return };
        let Some(table) = view.state.resources(kind, Class::Wildcard) else { return };
        let after = if view.client.ttl { wildcard.refreshed() } else { view.state.revision }; // others are told of no TTL
        for (entry, resource) in table.refreshes(after).filter(|(entry, _)| entry.changed <= sent_before) {
            let meant = wildcard.covers(&resource.name) && view.client.can_have(kind, resource);
            let is_due = meant && !is_by_name(names, view.state, kind, &resource.name);
            if is_due && !self.push((resource.clone(), remaining_ttl(Some(entry), view)), whole, draft, added, view) {
                return;
            }
            wildcard.record_refreshed(entry.refreshed);
        }
        wildcard.record_refreshed(view.state.revision);
    }

    /// Returns `false` if a delta reply is so long that this is for the next one. What is in the reply already, with its TTL, needs no room.
    fn push(
        &mut self,
        life: LongerLife,
        whole: bool,
        draft: &Draft,
        added: &mut HashSet<Name>,
        view: &ReplyContext,
    ) -> bool {
        if added.contains(&life.0.name) {
            return true;
        }
        let has_room = view.client.variant == Variant::Sotw || draft.bytes() + self.bytes < view.options.reply_bytes;
        if has_room {
            let (resource, ttl) = &life;
            added.insert(resource.name.clone());
            let body = if ttl.is_none() || whole { resource.body.bytes().len() } else { 0 };
            self.bytes += resource.name.as_str().len() + body + PER_ENTRY;
            self.lives.push(life);
        }
        has_room
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lives.is_empty()
    }

    /// Moves what is collected to the draft: heartbeats, or the resources themselves if `whole` is set.
    pub(super) fn move_to(self, draft: &mut Draft, whole: bool) {
        for (resource, ttl) in self.lives {
            match ttl.filter(|_| !whole) {
                Some(ttl) => draft.add_heartbeat(&resource, ttl),
                None => draft.add(&resource, ttl),
            }
        }
    }
}

/// Whether the client is sent a resource of `*` by its name.
pub(super) fn is_by_name(names: &SubscribedNames, state: &Snapshot, kind: &Type, name: &Name) -> bool {
    names.contains(name) && matches!(state.lookup(kind, Class::Named, name), Lookup::Present(_))
}
