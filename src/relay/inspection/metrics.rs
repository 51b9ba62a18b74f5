//! The metrics of a view. They are dropped with the view.

use std::collections::{BTreeMap, BTreeSet};

use weir_core::protocol::sources::{LadderSummary, Sources};
use weir_core::protocol::upstream::TypeSummary;
use weir_core::protocol::view::View;
use weir_core::xds::{Type, TypeTable};

use super::Inspection;
use crate::relay::report::{LadderMetrics, RemovalMetrics, TypeSize, ViewMetrics};

/// Returns the metrics of a view.
pub(in crate::relay) fn metrics(of: &Inspection<'_>) -> ViewMetrics {
    let ladder = |ladder: LadderSummary<'_>| LadderMetrics {
        authority: ladder.authority.name().to_owned(),
        state: ladder.state.name(),
        state_seconds: (of.now - ladder.since).as_secs(),
        servers: ladder.servers.iter().map(|server| of.links.server(*server)).collect(),
        active: ladder.server.and_then(|active| ladder.servers.iter().position(|server| *server == active)),
        switches: ladder.switches,
    };
    let types = asked_types(of.sources);
    ViewMetrics {
        label: of.facts.metric_label.name(),
        sessions: of.sessions.len(),
        blocked: of.blocked,
        ladders: of.sources.ladders().map(ladder).collect(),
        servers: of.links.metrics(),
        order: of.order_metrics,
        ..of_view(of.view, &of.shared.table, &types)
    }
}

/// Returns the metrics that are read of the view itself. The cost grows with types, sessions and dangling clusters.
fn of_view(view: &View, table: &TypeTable, types: &BTreeSet<(Type, bool)>) -> ViewMetrics {
    ViewMetrics {
        over_absent_limit: view.wants().over_absent_limit(),
        cached: types.iter().map(|(kind, wildcard)| view.tables().held(kind, *wildcard)).sum(),
        by_type: sizes(view, table),
        from_disk: view.tables().loaded_from_disk(),
        dangling: view.holds().dangling().count(),
        removals: RemovalMetrics { bytes: view.tables().removal_bytes(), forgotten: view.forgotten_removals() },
        ..ViewMetrics::default()
    }
}

fn sizes(view: &View, table: &TypeTable) -> BTreeMap<String, TypeSize> {
    let mut sizes = BTreeMap::<String, TypeSize>::new();
    for (kind, resources, bytes) in view.tables().sizes().filter(|(_, resources, _)| *resources > 0) {
        let name = if table.knows(kind.name()) { kind.name() } else { "other" };
        *sizes.entry(name.to_owned()).or_default() += TypeSize { resources, bytes };
    }
    sizes
}

/// Returns the types that are requested upstream, and whether by wildcard.
fn asked_types(sources: &Sources) -> BTreeSet<(Type, bool)> {
    let of_type = |of: TypeSummary| (of.kind.clone(), of.wildcard);
    let streams = sources.streams().flat_map(|(_, stream)| stream.types().map(of_type).collect::<Vec<_>>());
    let sets = sources.local_sets().flat_map(|(_, set)| set.types().map(of_type).collect::<Vec<_>>());
    streams.chain(sets).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use weir_core::proto::{Any, discovery};
    use weir_core::protocol::moment::Moment;
    use weir_core::protocol::view::ViewOptions;
    use weir_core::protocol::view::{BrakeRules, Class, Evidence, InterestChange, Retain, Selector, SessionId, Update};
    use weir_core::protocol::visits::take_visits;
    use weir_core::xds::{BodyStore, Resource};

    use super::*;

    const CLUSTERS: &str = "envoy.config.cluster.v3.Cluster";
    const LISTENERS: &str = "envoy.config.listener.v3.Listener";
    const SECRETS: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

    /// A view of `2 * count` clusters, half of which a brake holds, of `count` listeners after as many removals, and of `count` secrets that do not
    /// exist.
    fn view_of(count: usize) -> (View, Arc<TypeTable>) {
        let table = Arc::new(TypeTable::new());
        let brakes = BrakeRules { types: [CLUSTERS.into()].into(), share: 10, count: 1, ..BrakeRules::default() };
        let options = ViewOptions { brakes, reference_hold: Duration::ZERO, ..ViewOptions::default() };
        let mut view = View::new(table.clone(), options.into());
        let [clusters, listeners, secrets] = [CLUSTERS, LISTENERS, SECRETS].map(|kind| table.resolve(kind));
        let names: Vec<_> = (0..2 * count).map(|number| format!("r{number:06}")).collect();
        let store = BodyStore::default();
        let resources = |kind: &Type, names: &[String]| -> Vec<Arc<Resource>> {
            let resource = |name: &String| {
                let any = Any { type_url: kind.url().into_owned(), value: bytes::Bytes::new() };
                let wrapper = discovery::Resource { name: name.clone(), resource: Some(any), ..Default::default() };
                Arc::new(Resource::from_wrapper(0, wrapper, kind, &store).unwrap())
            };
            names.iter().map(resource).collect()
        };
        let absent = |kind: &Type, class, name: &String| {
            let (kind, key) = (kind.clone(), name.as_str().into());
            Update::Absent { kind, class, key, evidence: Evidence::Reported }
        };
        let named = names[..count].iter().map(|name| (&secrets, Selector::Name(name.as_str().into())));
        let wildcards = [(&clusters, Selector::Wildcard), (&listeners, Selector::Wildcard)];
        for (kind, selector) in wildcards.into_iter().chain(named) {
            let change = InterestChange { kind: kind.clone(), selector, on: true };
            view.change_interest(SessionId(1), change, Moment::START);
        }
        for (kind, names) in [(&clusters, &names[..]), (&clusters, &names[..count]), (&listeners, &names[..])] {
            let (kind, resources, retain) = (kind.clone(), resources(kind, names), Retain::nothing());
            view.apply(vec![Update::FullSet { kind, resources, retain }], Moment::START + Duration::from_secs(60));
        }
        let removed = names[..count].iter().map(|name| absent(&listeners, Class::Wildcard, name));
        let removed = removed.chain(names[..count].iter().map(|name| absent(&secrets, Class::Named, name)));
        view.apply(removed.collect(), Moment::START + Duration::from_secs(60));
        view.publish();
        assert_eq!(view.holds().brakes(0)[0].held, count);
        (view, table)
    }

    #[test]
    fn a_look_at_a_view_costs_nothing_of_what_is_in_it() {
        let visits = |count| {
            let (view, table) = view_of(count);
            let types: BTreeSet<_> = [CLUSTERS, LISTENERS].map(|kind| (table.resolve(kind), true)).into();
            take_visits();
            let metrics = of_view(&view, &table, &types);
            let visits = take_visits();
            assert_eq!((metrics.cached, metrics.over_absent_limit), (3 * count, 1));
            visits
        };
        let [few, many] = [1_000, 50_000].map(visits);
        assert!(many <= 8 && many == few, "{few} with 1,000 of each, {many} with 50,000");
    }
}
