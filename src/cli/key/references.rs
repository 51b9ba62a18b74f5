//! The resources that a node takes: those that its listeners and clusters lead to now. What they no longer lead to stays subscribed, but does not
//! count. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use weir_core::xds::Name;

use super::referred::{CLUSTERS, LISTENERS, Referred};
use crate::cli::query_state::is_open_ended;

#[derive(Default)]
pub(super) struct References {
    resources: Resources,
    /// The taken resources by type, without the types of which all are taken.
    taken: BTreeMap<&'static str, Taken>,
}

/// What has been received, by type and name.
type Resources = BTreeMap<String, BTreeMap<String, Referring>>;

struct Referring {
    /// The resource's name and its aliases.
    names: Vec<Name>,
    referred: Referred,
}

/// The resources of a type that are taken.
#[derive(Default)]
struct Taken {
    whole: bool,
    names: BTreeSet<Name>,
}

impl References {
    /// Records what a resource refers to, for the next [`References::follow`].
    pub(super) fn set(&mut self, kind: &str, name: &str, aliases: &[String], referred: Referred) {
        let names = aliases.iter().map(String::as_str).chain([name]).map(Name::canonical).collect();
        self.resources.entry(kind.to_owned()).or_default().insert(name.to_owned(), Referring { names, referred });
    }

    pub(super) fn remove(&mut self, kind: &str, name: &str) {
        if let Some(resources) = self.resources.get_mut(kind) {
            resources.remove(name);
        }
    }

    /// Computes which resources are taken now.
    pub(super) fn follow(&mut self) {
        self.taken = taken(&self.resources);
    }

    /// Whether a resource with this name is taken.
    pub(super) fn take(&self, kind: &str, name: &Name) -> bool {
        TAKEN_WHOLE.contains(&kind) || self.taken.get(kind).is_some_and(|of| of.whole || of.names.contains(name))
    }

    /// Whether any resource of a type is taken.
    pub(super) fn take_type(&self, kind: &str) -> bool {
        TAKEN_WHOLE.contains(&kind) || self.taken.contains_key(kind)
    }
}

fn taken(resources: &Resources) -> BTreeMap<&'static str, Taken> {
    let mut by_name: BTreeMap<(&str, &Name), &Referred> = BTreeMap::new();
    for (kind, of_type) in resources {
        for resource in of_type.values() {
            by_name.extend(resource.names.iter().map(|name| ((kind.as_str(), name), &resource.referred)));
        }
    }
    let mut taken: BTreeMap<&'static str, Taken> = BTreeMap::new();
    let mut next: Vec<&Referred> = Vec::new();
    TAKEN_WHOLE.iter().for_each(|kind| next.extend(all_of(resources, kind)));
    while let Some(referred) = next.pop() {
        for (kind, names) in referred {
            let of = taken.entry(*kind).or_default();
            let is_whole = names.is_empty() || names.iter().any(|name| is_open_ended(name));
            if is_whole && !mem::replace(&mut of.whole, true) {
                next.extend(all_of(resources, kind));
            }
            for name in names.iter().map(|name| Name::canonical(name)) {
                if !of.names.contains(&name) {
                    next.extend(by_name.get(&(*kind, &name)).copied());
                    of.names.insert(name);
                }
            }
        }
    }
    taken
}

fn all_of<'r>(resources: &'r Resources, kind: &str) -> Vec<&'r Referred> {
    resources.get(kind).into_iter().flat_map(BTreeMap::values).map(|resource| &resource.referred).collect()
}

const TAKEN_WHOLE: [&str; 2] = [CLUSTERS, LISTENERS];

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "envoy.config.route.v3.RouteConfiguration";
    const SCOPED_ROUTES: &str = "envoy.config.route.v3.ScopedRouteConfiguration";

    fn to(kind: &'static str, names: &[&str]) -> Referred {
        Referred::from([(kind, names.iter().map(ToString::to_string).collect())])
    }

    #[test]
    fn what_nothing_leads_to_any_more_is_not_taken_with_all_that_it_leads_to() {
        let mut references = References::default();
        references.set(LISTENERS, "l", &[], to(SCOPED_ROUTES, &[]));
        references.set(SCOPED_ROUTES, "s", &[], to(ROUTES, &["r"]));
        references.set(ROUTES, "own", &["r".to_owned()], to(CLUSTERS, &["own"]));
        let taken = |references: &References| {
            [(SCOPED_ROUTES, "s"), (ROUTES, "r"), (ROUTES, "other"), (LISTENERS, "l")]
                .map(|(kind, name)| references.take(kind, &Name::canonical(name)))
        };
        assert_eq!(taken(&references), [false, false, false, true]);
        references.follow();
        assert_eq!(taken(&references), [true, true, false, true]);
        references.set(SCOPED_ROUTES, "s", &[], to(ROUTES, &["other"]));
        references.follow();
        assert_eq!(taken(&references), [true, false, true, true]);
        references.remove(LISTENERS, "l");
        references.follow();
        assert_eq!(taken(&references), [false, false, false, true]);
        assert!(!references.take_type(ROUTES) && references.take_type(CLUSTERS));
    }

    #[test]
    fn resources_that_refer_to_one_another_end() {
        let mut references = References::default();
        references.set(LISTENERS, "l", &[], to(ROUTES, &["a"]));
        references.set(ROUTES, "a", &[], to(ROUTES, &["b", "a"]));
        references.set(ROUTES, "b", &[], to(ROUTES, &["a"]));
        references.follow();
        assert!(references.take(ROUTES, &Name::canonical("b")));
    }
}
