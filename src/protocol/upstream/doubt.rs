//! What a server has yet to say again, or there is no such thing: how long it may take for that.

use std::collections::BTreeSet;

use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::xds::Name;

#[derive(Debug, Default)]
pub(super) struct Doubt {
    names: BTreeSet<Name>,
    /// Since when the server has been talking, and until when it may. Not yet, as long as it has not said a word.
    since: Option<Moment>,
    until: Option<Moment>,
}

impl Doubt {
    pub fn contains(&self, name: &Name) -> bool {
        self.names.contains(name)
    }

    pub fn insert(&mut self, name: Name) {
        self.names.insert(name);
    }

    pub fn remove(&mut self, name: &Name) {
        self.names.remove(name);
    }

    pub fn retain(&mut self, keep: impl FnMut(&Name) -> bool) {
        self.names.retain(keep);
    }

    pub fn extend(&mut self, names: impl IntoIterator<Item = Name>) {
        self.names.extend(names);
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The server cannot speak now. What is in doubt stays so until it does again.
    pub fn pause(&mut self) {
        (self.since, self.until) = (None, None);
    }

    pub fn until(&self) -> Option<Moment> {
        self.until
    }

    /// More is in doubt from now on, of a server that is talking already.
    pub fn restart(&mut self, now: Moment, limits: &Limits) {
        (self.since, self.until) = (Some(now), Some(now + limits.settle_stated));
    }

    /// The server has said these. What it has of the rest it may say for some time from its last word on, and in all.
    pub fn heard(
        &mut self,
        said: impl Iterator<Item = Name>,
        by_name: impl Fn(&Name) -> bool,
        now: Moment,
        limits: &Limits,
    ) {
        if self.names.is_empty() {
            return;
        }
        for name in said {
            self.names.remove(&name);
        }
        let since = *self.since.get_or_insert(now);
        self.until = match (self.names.iter().any(by_name), self.until) {
            // A full answer may be older than the question, and the next need not be long in coming (UP-24).
            (true, until) => until.or(Some(now + limits.resource_timer)),
            (false, _) => Some((now + limits.settle_stated).min(since + limits.settle_cap)),
        };
    }

    /// What is not in doubt any more: it has had its time. `begun` says of the member of a collection since when the server has
    /// been speaking of that.
    pub fn end(&mut self, begun: impl Fn(&Name) -> Option<Begun>, now: Moment, limits: &Limits) -> BTreeSet<Name> {
        if self.until.is_none_or(|until| now < until) {
            return BTreeSet::new();
        }
        let endless = self.since.is_some_and(|since| since + limits.settle_cap <= now);
        let had_its_time = |name: &Name| match begun(name) {
            Some(Begun(None)) => false,
            Some(Begun(Some(at))) if endless => at + limits.settle_cap <= now,
            _ => true,
        };
        let (gone, left) = std::mem::take(&mut self.names).into_iter().partition(had_its_time);
        self.names = left;
        // A collection that was begun late by a server that never falls silent has its own time.
        self.since = self.names.iter().filter_map(|name| begun(name)?.0).min();
        self.until = self.since.map(|since| (now + limits.settle_stated).min(since + limits.settle_cap));
        gone
    }
}

/// Since when a server has been speaking of a collection, if it is at all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun(pub Option<Moment>);
