//! When the resources of a table expire, unless their TTL is extended.

use std::time::Duration;

use rpds::RedBlackTreeMapSync;

use crate::protocol::moment::Moment;
use crate::xds::Name;

#[derive(Debug, Clone, Default)]
pub(crate) struct Expirations(RedBlackTreeMapSync<(Moment, Name), ()>);

impl Expirations {
    /// Whether no resource has a TTL.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names that have expired.
    pub(crate) fn expired(&self, now: Moment) -> impl Iterator<Item = &Name> {
        self.0.keys().take_while(move |(at, _)| *at <= now).map(|(_, name)| name)
    }

    pub(super) fn next_deadline(&self) -> Option<Moment> {
        self.0.first().map(|((at, _), ())| *at)
    }

    /// Returns when the resource expires.
    pub(super) fn add(&mut self, name: &Name, ttl: Option<Duration>, now: Moment) -> Option<Moment> {
        let at = now + ttl?;
        self.0.insert_mut((at, name.clone()), ());
        Some(at)
    }

    pub(super) fn remove(&mut self, name: &Name, expires: Option<Moment>) {
        if let Some(at) = expires {
            self.0.remove_mut(&(at, name.clone()));
        }
    }
}
