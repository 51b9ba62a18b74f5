//! The parts of a configuration, and the keys from which they are made.

use weir_core::protocol::session::OnRefusedType;
use weir_core::protocol::sources::ServerPlan;
use weir_core::protocol::upstream::OnResourceTimeout;

use super::*;
use crate::state::WhenOlder;

const START: &str = "listen: [{address: '127.0.0.1:1'}]\nupstream: {servers: [{uri: 'http://cp:1'}]}\n";

fn seconds(times: impl IntoIterator<Item = Duration>) -> Vec<u64> {
    times.into_iter().map(|time| time.as_secs()).collect()
}

#[test]
fn each_key_counts_for_the_part_that_it_is_named_after() {
    let text = "drain: {delay: 1s, grace: 2s, spread: 3s, bytes_per_second: 4KiB}
reload: {watch: true, spread: 5s}
shards: 27
watchdog: 26s
clients: {max_connection_age: 6s, control_plane_identifier: me, v2: true, grpc_fail_fast: false, on_refused_type: end}
load_reports: {mode: aggregate, max_outage: 7s, bytes_per_view: 8KiB, bytes_total: 9KiB}
rest: {timeout: 10s, long_poll: 11s, cache_bytes: 12KiB, response_bytes: 25KiB}
views: {idle_timeout: 14s}
";
    let config = parse(&format!("{START}{text}")).unwrap();
    let drain = config.drain;
    assert_eq!(seconds([drain.delay, drain.grace, drain.spread, drain.reload_spread]), [1, 2, 3, 5]);
    assert_eq!((drain.bytes_per_second, config.reload.watch), (4 << 10, true));
    assert_eq!((seconds(config.watchdog), config.downstream.shards), (vec![26], Some(27)));
    assert_eq!(parse(START).unwrap().downstream.shards, None, "as many as there are processors where it runs");
    let clients = &config.downstream;
    assert_eq!(seconds([clients.age.age, clients.age.grace]), [6, 2], "the grace is that of draining");
    assert_eq!((clients.control_plane.as_str(), clients.v2), ("me", true));
    assert!(!config.views.protocol.session.grpc_fail_fast);
    assert_eq!(config.views.protocol.session.on_refused_type, OnRefusedType::End);
    let LoadsMode::Aggregate(loads) = config.loads else { panic!("{:?}", config.loads) };
    assert_eq!((loads.outage.as_secs(), loads.bytes, loads.bytes_total), (7, 8 << 10, 9 << 10));
    let rest = config.rest.unwrap();
    assert_eq!(seconds([rest.timeout, rest.long_poll]), [10, 11]);
    assert_eq!((rest.cache_bytes, rest.response_bytes), (12 << 10, 25 << 10));
    assert_eq!(config.views_idle.as_secs(), 14);
}

#[test]
fn the_state_is_kept_as_long_as_an_unused_view_and_served_as_its_keys_say() {
    let state = |keys: &str| {
        let text = format!("{START}state: {{path: s{keys}}}\nviews: {{idle_timeout: 14s}}\n");
        parse(&text).map(|config| config.state.unwrap())
    };
    let bare = state("").unwrap();
    assert_eq!((bare.path.to_str(), &bare.key, bare.max_age), (Some("s"), &None, None));
    assert_eq!((bare.keep.as_secs(), bare.when_older, bare.serve_without_secrets), (14, WhenOlder::Serve, false));
    let full = state(", key: k, max_age: 13s, when_older: refuse, serve_without_secrets: true").unwrap();
    assert_eq!((full.key, full.max_age), (Some("k".into()), Some(Duration::from_secs(13))));
    assert_eq!((full.when_older, full.serve_without_secrets), (WhenOlder::Refuse, true));
    assert_eq!(state(", when_older: not_ready").unwrap().when_older, WhenOlder::NotReady);
    let message = state(", max_age: 0s").unwrap_err();
    let expected = "state.max_age: invalid duration 0s: expected more; without max_age there is no limit";
    assert!(message.ends_with(expected), "{message}");
}

#[test]
fn brakes_that_would_hold_an_empty_set_for_less_or_what_has_no_sets_are_faults() {
    let brakes =
        |keys: &str| parse(&format!("{START}brakes: {{{keys}}}\n")).map(|config| config.views.protocol.view.brakes);
    for keys in ["empty_grace: 4m", "grace: 16m", "grace: 16m, empty_grace: 15m"] {
        let message = brakes(keys).unwrap_err();
        assert!(message.contains(": expected at least brakes.grace, "), "{keys}: {message}");
        let place = if keys.contains("empty_grace") { "brakes.empty_grace: " } else { "brakes.grace: " };
        assert!(message.contains(place), "{keys}: {message}");
    }
    assert!(brakes("grace: 15m").is_ok() && brakes("grace: 16m, empty_grace: 16m").is_ok());
    let message = brakes("types: [envoy.config.cluster.v3.Cluster, envoy.config.endpoint.v3.ClusterLoadAssignment]");
    let message = message.unwrap_err();
    assert!(message.contains("brakes.types[1]: invalid type ") && message.lines().count() == 1, "{message}");
    let off = brakes("enabled: false, types: [envoy.config.cluster.v3.Cluster]").unwrap();
    assert!(off.types.is_empty(), "no type has brakes that are not enabled");
}

#[test]
fn the_hub_is_one_view_for_all_without_the_bounds_of_single_clients() {
    let with = |shared: &str| {
        let text = format!(
            "listen: [{{address: '127.0.0.1:1'}}]
upstream:
  servers: [{{uri: 'http://one:1'}}]
  authorities: {{x: {{}}, y: {{servers: [{{uri: 'http://two:1'}}], fallback_on_reachability_only: true}}}}
  {shared}
  fallback: {{delay: 2s, hold_down: 3s, on_missing: delete}}
views: {{key: [cluster], max: 5, max_in_metrics: 4}}
access: [{{types: [envoy.config.cluster.v3.Cluster], allow_from: [10.0.0.1]}}]
permissions: [{{name: a, identities: [{{network: 10.0.0.0/8}}], free: [cluster]}}]
limits:
  {{types_per_stream: 1, names_per_type: 2, names_per_stream: 3, names_per_view: 4, cached_bytes: 5, linger: 7s,
   absent_names_per_stream: 6, views_per_connection: 1, views_per_identity: 1}}
"
        );
        parse(&text).unwrap()
    };
    let config = with("shared_authorities: [x]");
    let hub = config.hub.unwrap();
    assert!(hub.rule.fields().is_empty() && hub.accept_missing_node);
    assert_eq!((hub.max_views, hub.max_views_per_connection, hub.max_views_per_identity), (1, 0, 0));
    assert!(hub.access.rules().is_empty() && hub.permissions.rules().is_empty(), "the clients' views have them");
    let (limits, all) = (&hub.protocol, usize::MAX);
    assert_eq!(
        (limits.session.types, limits.session.names, limits.session.names_per_stream, limits.view.names_per_view),
        (all, all, all, all)
    );
    assert_eq!((limits.view.cached_bytes, limits.view.absent_names_per_stream), (all, all));
    assert_eq!((limits.view.linger.as_secs(), limits.view.brakes.types.len()), (7, 3), "the rest is as in other views");

    let (own, shared) = (&config.views.plan, &hub.plan);
    assert_eq!((own.servers.len(), shared.servers.len()), (3, 2), "views have the hub behind all servers");
    let ServerPlan::Streams { quirks: of_hub, .. } = &own.servers[2] else { panic!("no wire") };
    assert!(of_hub.skips_brakes && of_hub.max_request_bytes == all);
    assert_eq!(of_hub.on_resource_timeout, OnResourceTimeout::Unknown);
    let lists = |plan: &weir_core::protocol::sources::Plan| {
        let of = |(name, list): (&String, &weir_core::protocol::sources::AuthorityPlan)| {
            (name.clone(), list.servers.clone(), list.rule)
        };
        plan.authorities.iter().map(of).collect::<Vec<_>>()
    };
    let (x, y) = ("x".to_owned(), ("y".to_owned(), vec![1], Rule::Reachability));
    assert_eq!(lists(own), [(x.clone(), vec![2], Rule::Uncached), y.clone()]);
    assert_eq!(lists(shared), [(x.clone(), vec![0], Rule::Uncached)]);
    for plan in [own, shared] {
        assert_eq!((&plan.top.servers, plan.holds_missing), (&vec![0], false));
        assert_eq!(seconds([plan.timers.delay, plan.timers.hold_down]), [2, 3]);
    }

    let config = with("");
    assert!(config.hub.is_none());
    assert_eq!(
        (config.views.plan.servers.len(), lists(&config.views.plan)),
        (2, vec![(x, vec![0], Rule::Uncached), y])
    );
}
