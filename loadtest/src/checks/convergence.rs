//! Checks that a client has the same resources as the origin.

use super::truth::Truth;
use crate::subscription::Topic;

/// Returns how the client's resources differ from the origin's.
pub fn difference(truth: &Truth, topic: &Topic) -> Option<String> {
    let kind = topic.kind.word();
    if !topic.is_open && topic.is_wildcard {
        return Some(format!("{kind}: not subscribed yet"));
    }
    let of = |name: &str, expected: Option<u64>| match (topic.held.get(name).map(|held| held.update), expected) {
        (held, expected) if held == expected => None,
        (None, Some(update)) => Some(format!("{kind}: {name} is missing; the origin has it from update {update}")),
        (Some(_), None) => Some(format!("{kind}: {name} is held; the origin does not have it")),
        (Some(held), Some(update)) => Some(format!("{kind}: {name} is from update {held} instead of {update}")),
        (None, None) => None,
    };
    if !topic.is_wildcard {
        return topic.names.iter().find_map(|name| of(name, truth.update_of(topic.kind, name)));
    }
    let expected = truth.set(topic.kind);
    let differing = expected.iter().find_map(|(name, update)| of(name, Some(*update)));
    differing.or_else(|| {
        let extra = (topic.held.len() > expected.len()).then(|| {
            let names: std::collections::BTreeSet<_> = expected.iter().map(|(name, _)| name).collect();
            topic.held.keys().find(|name| !names.contains(name)).and_then(|name| of(name, None))
        });
        extra.flatten()
    })
}
