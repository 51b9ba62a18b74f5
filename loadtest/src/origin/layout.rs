//! The resources of an origin, and the updates that change them.

use std::time::Duration;

use super::world::{Change, Name};
use crate::kind::Kind;

/// How many resources there are. Each cluster has endpoints of its own name, and a place in one route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Counts {
    /// Clusters, each with endpoints.
    #[arg(long, default_value_t = 100)]
    pub clusters: usize,
    /// Route configurations; the clusters are spread over them.
    #[arg(long, default_value_t = 10)]
    pub routes: usize,
    /// Listeners, each with one of the route configurations.
    #[arg(long, default_value_t = 10)]
    pub listeners: usize,
    /// Bytes of each resource, at least what it needs.
    #[arg(long, default_value_t = 0)]
    pub size: usize,
}

impl Default for Counts {
    fn default() -> Self {
        Self { clusters: 100, routes: 10, listeners: 10, size: 0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One update that changes `count` resources.
    Rate,
    /// As many updates as `count` says, without a pause between them, with one resource each.
    Burst,
    /// One update that replaces `count` clusters with new ones, and changes the routes to them.
    Rolling,
    /// One update that changes every resource.
    Flip,
}

/// How an origin changes continuously.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Churn {
    pub pattern: Pattern,
    #[serde(with = "crate::scenario::duration")]
    pub every: Duration,
    #[serde(default = "one")]
    pub count: usize,
}

fn one() -> usize {
    1
}

#[derive(Debug)]
pub struct Layout {
    counts: Counts,
    /// How often the cluster with each index was replaced.
    generations: Vec<u32>,
    next_place: usize,
    /// The index at which `touch` continues, by type.
    next_touched: [usize; 4],
}

impl Layout {
    pub fn new(counts: Counts) -> Self {
        Self { counts, generations: vec![0; counts.clusters], next_place: 0, next_touched: [0; 4] }
    }

    pub fn initial(&self) -> Vec<Change> {
        let clusters = (0..self.counts.clusters).flat_map(|place| self.put_cluster(place));
        let routes = (0..self.counts.routes).map(|route| self.put_route(route));
        let listeners = (0..self.counts.listeners).map(|listener| {
            let route = self.counts.routes.checked_sub(1).map(|_| route_name(listener % self.counts.routes));
            Change::Put(Kind::Listener, listener_name(listener), route.iter().map(ToString::to_string).collect())
        });
        clusters.chain(routes).chain(listeners).collect()
    }

    /// Returns the updates of one step of a pattern.
    pub fn step(&mut self, pattern: Pattern, count: usize) -> Vec<Vec<Change>> {
        match pattern {
            Pattern::Rate => vec![self.touch_any(count)],
            Pattern::Burst => (0..count).map(|_| self.touch_any(1)).collect(),
            Pattern::Rolling => vec![self.replace(count)],
            Pattern::Flip => vec![self.flip()],
        }
    }

    /// Changes the next resources of a type.
    pub fn touch(&mut self, kind: Kind, count: usize) -> Vec<Change> {
        let all = self.count(kind);
        let start = self.next_touched[kind as usize];
        let places = (0..count.min(all)).map(|step| (start + step) % all);
        let changes = places.map(|place| Change::Touch(kind, self.name(kind, place))).collect();
        self.next_touched[kind as usize] = (start + count) % all.max(1);
        changes
    }

    pub fn flip(&mut self) -> Vec<Change> {
        Kind::ALL.into_iter().flat_map(|kind| self.touch(kind, self.count(kind))).collect()
    }

    /// Replaces the next clusters with new ones.
    pub fn replace(&mut self, count: usize) -> Vec<Change> {
        let (mut added, mut removed, mut routes) = (Vec::new(), Vec::new(), std::collections::BTreeSet::new());
        for _ in 0..count.min(self.counts.clusters) {
            let place = self.next_place % self.counts.clusters;
            self.next_place = place + 1;
            let old = self.name(Kind::Cluster, place);
            self.generations[place] = self.generations[place].wrapping_add(1);
            added.extend(self.put_cluster(place));
            routes.extend(place.checked_rem(self.counts.routes));
            removed.extend([Change::Remove(Kind::Cluster, old.clone()), Change::Remove(Kind::Endpoints, old)]);
        }
        added.extend(routes.into_iter().map(|route| self.put_route(route)));
        added.extend(removed);
        added
    }

    /// Changes resources of all types. Every other change is one of endpoints, which change most often in practice.
    fn touch_any(&mut self, count: usize) -> Vec<Change> {
        let turn = self.next_touched.iter().sum::<usize>();
        let rest = count - count.div_ceil(2);
        let kind = Kind::ALL[turn % 4];
        let mut changes = self.touch(Kind::Endpoints, count.div_ceil(2));
        changes.extend(self.touch(kind, rest));
        changes
    }

    fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Cluster | Kind::Endpoints => self.counts.clusters,
            Kind::Listener => self.counts.listeners,
            Kind::Route => self.counts.routes,
        }
    }

    fn name(&self, kind: Kind, place: usize) -> Name {
        match kind {
            Kind::Cluster | Kind::Endpoints => cluster_name(place, self.generations[place]),
            Kind::Listener => listener_name(place),
            Kind::Route => route_name(place),
        }
    }

    fn put_cluster(&self, place: usize) -> [Change; 2] {
        let name = self.name(Kind::Cluster, place);
        let endpoints = vec![name.to_string()];
        [Change::Put(Kind::Cluster, name.clone(), endpoints), Change::Put(Kind::Endpoints, name, Vec::new())]
    }

    fn put_route(&self, route: usize) -> Change {
        let places = (route..self.counts.clusters).step_by(self.counts.routes.max(1));
        let clusters = places.map(|place| self.name(Kind::Cluster, place).to_string()).collect();
        Change::Put(Kind::Route, route_name(route), clusters)
    }
}

fn cluster_name(place: usize, generation: u32) -> Name {
    format!("cluster-{place:05}.{generation}").into()
}

fn route_name(route: usize) -> Name {
    format!("route-{route:05}").into()
}

pub fn listener_name(listener: usize) -> Name {
    format!("listener-{listener:05}").into()
}
