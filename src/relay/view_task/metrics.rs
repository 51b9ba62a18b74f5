//! The metrics of a view. They are dropped with the view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use super::ViewTask;
use crate::protocol::sources::{LadderSummary, Sources};
use crate::relay::report::{LadderMetrics, RemovalMetrics, Totals, TypeSize, ViewMetrics};
use crate::xds::Type;

impl ViewTask {
    pub(super) fn metrics(&mut self) -> ViewMetrics {
        let now = self.clock.now();
        let connectors = &self.connectors;
        let named = |server: usize| connectors[server].describe();
        let ladder = |ladder: LadderSummary<'_>| LadderMetrics {
            authority: ladder.authority.name().to_owned(),
            state: ladder.state.name(),
            state_seconds: (now - ladder.since).as_secs(),
            servers: ladder.servers.iter().map(|server| named(*server)).collect(),
            active: ladder.server.and_then(|active| ladder.servers.iter().position(|server| *server == active)),
            switches: ladder.switches,
        };
        let ladders = self.sources.ladders().map(ladder).collect();
        let mut servers: Vec<_> = (0..connectors.len()).map(|at| self.links.metrics(at, named(at))).collect();
        servers.retain(|server| server.streams > 0 || server.totals != Totals::default());
        let types = asked_types(&mut self.sources);
        let held = types.iter().map(|(kind, wildcard)| self.view.held(kind, *wildcard)).sum();
        let waiting = self.published.waiting.load(Ordering::Relaxed);
        let (key, sessions, guessing) = (self.metric_label.name(), self.sessions.len(), self.view.over_absent_limit());
        let (dangling, disorder) = (self.view.dangling().count(), self.order_metrics);
        ViewMetrics {
            label: key,
            sessions,
            blocked: waiting,
            over_absent_limit: guessing,
            cached: held,
            by_type: self.sizes(),
            from_disk: self.view.loaded_from_disk(),
            ladders,
            servers,
            dangling,
            order: disorder,
            removals: RemovalMetrics { bytes: self.view.removal_bytes(), forgotten: self.view.forgotten_removals() },
        }
    }

    fn sizes(&self) -> BTreeMap<String, TypeSize> {
        let mut sizes = BTreeMap::<String, TypeSize>::new();
        for (kind, resources, bytes) in self.view.sizes().filter(|(_, resources, _)| *resources > 0) {
            let name = if self.table.knows(kind.name()) { kind.name() } else { "other" };
            *sizes.entry(name.to_owned()).or_default() += TypeSize { resources, bytes };
        }
        sizes
    }
}

/// Returns the types that are requested upstream, and whether by wildcard.
fn asked_types(sources: &mut Sources) -> BTreeSet<(Type, bool)> {
    let subscriptions = sources.streams().flat_map(|(_, stream)| {
        stream.types().map(|subscription| (subscription.kind.clone(), subscription.wildcard)).collect::<Vec<_>>()
    });
    subscriptions.collect()
}
