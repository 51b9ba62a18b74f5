//! The clusters and routes of a control plane that changes them in bursts.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::protocol::view::{Class, Evidence, Update};
use weir_core::xds::Resource;

use super::random::Random;
use super::{Bench, CDS, EDS};

/// The names of the routes, which an [`Envoy`](super::envoy::Envoy) requests.
pub const ROUTES: [&str; 3] = ["r0", "r1", "r2"];

/// Clusters with a number of their content, and routes with the cluster that each refers to.
#[derive(Debug, Default, Clone)]
pub struct Routing {
    pub clusters: BTreeMap<&'static str, u64>,
    pub routes: BTreeMap<&'static str, &'static str>,
}

impl Routing {
    /// Leaves at least the cluster `last`, and lets each route refer to a cluster that exists.
    pub fn reroute(&mut self, last: &'static str, random: &mut Random) {
        if self.clusters.is_empty() {
            self.clusters.insert(last, 0);
        }
        let live = self.live();
        for route in ROUTES {
            let stays = self.routes.get(route).is_some_and(|to| live.contains(to) && random.below(2) == 0);
            if !stays {
                self.routes.insert(route, live[random.place(live.len())]);
            }
        }
    }

    pub fn live(&self) -> Vec<&'static str> {
        self.clusters.keys().copied().collect()
    }

    /// Returns the clusters of an earlier time that are not there any more.
    pub fn lost_since(&self, before: &Self) -> Vec<&'static str> {
        before.clusters.keys().filter(|name| !self.clusters.contains_key(*name)).copied().collect()
    }

    /// Returns the routes that are new, or refer to another cluster than before.
    pub fn rerouted_since(&self, before: &Self) -> Vec<(&'static str, &'static str)> {
        let all = self.routes.iter().map(|(name, to)| (*name, *to));
        all.filter(|(name, to)| before.routes.get(name) != Some(to)).collect()
    }

    /// Returns what a delta server sends of the clusters.
    pub fn cluster_updates(&self, before: &Self, bench: &mut Bench) -> Vec<Update> {
        let (kind, class) = (bench.kind(CDS), Class::Wildcard);
        let mut updates = Vec::new();
        for (name, content) in
            self.clusters.iter().filter(|(name, content)| before.clusters.get(*name) != Some(*content))
        {
            let resource = bench.resource(CDS, name, &content.to_string());
            updates.push(Update::Upsert { kind: kind.clone(), class, key: (*name).into(), resource });
        }
        for name in self.lost_since(before) {
            updates.push(Update::Absent { kind: kind.clone(), class, key: name.into(), evidence: Evidence::Reported });
        }
        updates
    }

    pub fn all_clusters(&self, bench: &mut Bench) -> Vec<Arc<Resource>> {
        self.clusters.iter().map(|(name, content)| bench.resource(CDS, name, &content.to_string())).collect()
    }

    /// Returns what every client has to hold in the end.
    pub fn targets(&self) -> BTreeMap<String, String> {
        self.routes.iter().map(|(name, to)| ((*name).to_owned(), (*to).to_owned())).collect()
    }
}

pub fn endpoints(bench: &mut Bench, name: &str, content: &str) -> Update {
    let resource = bench.resource(EDS, name, content);
    Update::Upsert { kind: bench.kind(EDS), class: Class::Named, key: name.into(), resource }
}
