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

/// Returns a resource that is from an earlier update than the client's copy from the same server, with the numbers of both updates.
pub fn regression<'a>(topic: &Topic, response: &'a Response) -> Option<(&'a Name, u64, u64)> {
    response.entries.iter().find_map(|entry| {
        let held = topic.held.get(&entry.name)?;
        let is_older = entry.stamp.is_some() && entry.update() < held.update && held.server == topic.server;
        is_older.then_some((&entry.name, entry.update(), held.update))
    })
}

/// Returns a name that is missing in a complete set: any name for a wildcard client, otherwise one of which the client has the resource. A
/// server may wait until it has all names of a request (ORD-10), so a first set may lack some names.
pub fn incomplete(truth: &Truth, topic: &Topic, response: &Response) -> Option<Name> {
    if topic.variant != Variant::Sotw || !topic.kind.is_full_state() {
        return None;
    }
    let newest = response.newest()?.update;
    let names = response.entries.iter().map(|entry| &entry.name).collect();
    truth.missing(topic.kind, &names, newest, |name| topic.is_wildcard || topic.held.contains_key(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bodies::Stamp;
    use crate::kind::Kind;
    use crate::origin::{Counts, Origin};
    use crate::subscription::Entry;

    #[tokio::test]
    async fn a_client_of_names_misses_those_that_it_holds_and_one_of_all_names_each() {
        let counts = Counts { clusters: 3, routes: 1, listeners: 1, size: 0 };
        let origin = Origin::start("127.0.0.1:0".parse().unwrap(), counts, None).await.unwrap();
        let truth = Truth::new(origin.shared());
        let names: Vec<Name> = truth.set(Kind::Cluster).into_iter().map(|(name, _)| name).collect();
        let with = |names: &[Name]| {
            let entry = |name: &Name| Entry {
                name: name.clone(),
                version: None,
                stamp: Some(Stamp::now(1)),
                refers_to: Vec::new(),
            };
            Response {
                url: Kind::Cluster.url().into(),
                entries: names.iter().map(entry).collect(),
                ..Response::default()
            }
        };

        let mut topic = Topic::new(Kind::Cluster, Variant::Sotw, false, names.iter().cloned().collect());
        assert_eq!(incomplete(&truth, &topic, &with(&names[..1])), None, "a first set may lack names (ORD-10)");
        topic.accept(&with(&names[..2]));
        assert_eq!(incomplete(&truth, &topic, &with(&names[..2])), None);
        assert_eq!(
            incomplete(&truth, &topic, &with(&names[1..])),
            Some(names[0].clone()),
            "SOTW-20: it would be deleted"
        );

        let all = Topic::new(Kind::Cluster, Variant::Sotw, true, BTreeSet::new());
        assert_eq!(incomplete(&truth, &all, &with(&names[..2])), Some(names[2].clone()));
        assert_eq!(incomplete(&truth, &all, &with(&names)), None);
    }
}
