//! Resources whose TTL is extended or removed, while a reply with additions is made.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::client::Variant;
use super::reply::{Draft, PER_ENTRY, ReplyContext, remaining_ttl};
use crate::protocol::view::TableEntry;
use crate::xds::{Name, Resource, SetVersion};

/// What a reply says of TTLs. It is added last, when the version of the reply is known.
pub(super) struct LongerLives {
    /// Each resource, with the TTL that it has now.
    lives: Vec<(Arc<Resource>, Option<Duration>)>,
    /// The type has no heartbeats: its resources are sent again.
    whole: bool,
    bytes: usize,
}

impl LongerLives {
    pub(super) fn new(whole: bool) -> Self {
        Self { lives: Vec::new(), whole, bytes: 0 }
    }

    /// Adds a resource, with the TTL that its entry has now. Returns `false` if it has no room in this reply.
    pub(super) fn push(
        &mut self,
        entry: &TableEntry,
        resource: &Arc<Resource>,
        draft: &Draft,
        view: &ReplyContext,
    ) -> bool {
        if self.fill(draft, view) {
            return false;
        }
        let ttl = remaining_ttl(Some(entry), view);
        let body = if ttl.is_none() || self.whole { resource.body.bytes().len() } else { 0 };
        self.bytes += resource.name.as_str().len() + body + PER_ENTRY;
        self.lives.push((resource.clone(), ttl));
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lives.is_empty()
    }

    /// Whether a delta reply with the draft and with these is so long that the rest is for the next one.
    pub(super) fn fill(&self, draft: &Draft, view: &ReplyContext) -> bool {
        draft.fills(self.bytes, view)
    }

    /// Moves what is collected to the reply. What is in `added` is in it already, with its TTL. `last` is the version that the client was sent last:
    /// in SotW a client recognizes a heartbeat by that one, and any change would make another version.
    pub(super) fn move_to(
        self,
        draft: &mut Draft,
        added: &mut HashSet<Name>,
        variant: Variant,
        last: Option<SetVersion>,
    ) {
        let changed = || !draft.is_unchanged() || last != Some(draft.version());
        let whole = self.whole || (variant == Variant::Sotw && changed());
        for (resource, ttl) in self.lives {
            if !added.insert(resource.name.clone()) {
                continue;
            }
            match ttl.filter(|_| !whole) {
                Some(ttl) => draft.add_heartbeat(&resource, ttl),
                None => draft.add(&resource, ttl),
            }
        }
    }
}
