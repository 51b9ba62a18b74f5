//! Checks of single responses against the client's subscriptions and resources.

use std::collections::BTreeSet;

use super::truth::Truth;
use crate::subscription::{Name, Response, Topic};
use crate::wire::Variant;

/// Returns a name in the response that the client has not subscribed to on this stream.
pub fn unasked<'a>(topic: &Topic, response: &'a Response) -> Option<&'a Name> {
    let names = response.entries.iter().map(|entry| &entry.name);
    let mut names = names.chain(response.removed.iter());
    names.find(|name| !topic.has_asked_for(name))
}

/// Returns a name that the response contains twice.
pub fn duplicate(response: &Response) -> Option<&Name> {
    let mut seen = BTreeSet::new();
    let names = response.entries.iter().map(|entry| &entry.name).chain(response.removed.iter());
    names.into_iter().find(|name| !seen.insert(*name))
}

/// Returns a resource from an earlier update than the client has of it from the same server, with both updates.
pub fn regression<'a>(topic: &Topic, response: &'a Response) -> Option<(&'a Name, u64, u64)> {
    response.entries.iter().find_map(|entry| {
        let held = topic.held.get(&entry.name)?;
        let is_older = entry.stamp.is_some() && entry.update() < held.update && held.server == topic.server;
        is_older.then_some((&entry.name, entry.update(), held.update))
    })
}

/// Returns a name that is missing in a complete set: one that was subscribed before the last response, or in the first request.
pub fn incomplete(truth: &Truth, topic: &Topic, response: &Response) -> Option<Name> {
    if topic.variant != Variant::Sotw || !topic.kind.is_full_state() {
        return None;
    }
    let newest = response.newest()?.update;
    let names = response.entries.iter().map(|entry| &entry.name).collect();
    let is_due = |name: &str| topic.names.contains(name) && !topic.added.contains(name);
    truth.missing(topic.kind, &names, newest, |name| topic.is_wildcard || is_due(name))
}
