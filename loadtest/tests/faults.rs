//! The checks find what an origin does wrong on purpose, and nothing at one that does everything right.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use weir_loadtest::checks::{Check, Truth, Violation};
use weir_loadtest::fleet::{Behaviour, Counters, Fleet, FleetOptions, Group};
use weir_loadtest::kind::Kind;
use weir_loadtest::observe::Unobserved;
use weir_loadtest::origin::{Counts, Fault, Origin, listener_name};

const COUNTS: Counts = Counts { clusters: 12, routes: 3, listeners: 2, size: 200 };
/// How many clients of each behaviour there are.
const CLIENTS: usize = 3;
/// How long to wait for what happens sooner or later.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs clients at an origin that changes in each way. Clients that lack something after `limit` are judged once `is_done`.
async fn violations(
    fault: Option<Fault>,
    behaviours: &[Behaviour],
    limit: Duration,
    is_done: impl Fn(&Counters) -> bool,
) -> Vec<Violation> {
    let origin = Origin::start("127.0.0.1:0".parse().unwrap(), COUNTS, fault).await.unwrap();
    let groups = behaviours.iter().map(|behaviour| Group {
        listeners: (0..COUNTS.listeners).map(|listener| listener_name(listener).to_string()).collect(),
        period: Duration::from_millis(250), // enough to receive everything, or who connects again and again never has
        ..Group::new(*behaviour, CLIENTS)
    });
    let options = FleetOptions {
        targets: vec![origin.address.into()],
        tls: None,
        groups: groups.collect(),
        checks: Check::ALL.into(),
        connect_rate: None,
    };
    let fleet = Fleet::start(options, Some(Truth::new(origin.shared())), Arc::new(Unobserved)).unwrap();
    let synced = fleet.synced(if fault == Some(Fault::WrongType) { limit } else { LIMIT }).await;
    assert!(synced || fault == Some(Fault::WrongType), "not synced: {}", fleet.counters());
    let changes = |so_far: u64| {
        let counters = fleet.counters();
        async move {
            let deadline = std::time::Instant::now() + Duration::from_secs(1);
            while synced && counters.changes.value() < so_far && std::time::Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    };
    origin.update(|layout| layout.flip());
    changes(3).await;
    origin.update(|layout| layout.replace(2));
    changes(6).await;
    for (round, kind) in [Kind::Cluster, Kind::Route, Kind::Listener, Kind::Endpoints].into_iter().enumerate() {
        origin.touch(kind, 2);
        changes(3 * (round as u64 + 3)).await;
    }
    origin.update(|layout| layout.replace(1));
    let deadline = std::time::Instant::now() + LIMIT;
    let mut converged = fleet.settle(limit).await;
    while !converged && !is_done(fleet.counters()) && std::time::Instant::now() < deadline {
        converged = fleet.settle(limit).await;
    }
    println!("{fault:?}: converged: {converged}, {}", fleet.counters());
    let counters = fleet.stop().await;
    assert!(counters.violations.value() > 0 || converged, "not converged");
    counters.kept_violations()
}

fn checks(violations: &[Violation]) -> BTreeSet<Check> {
    violations.iter().map(|violation| violation.check).collect()
}

async fn finds(fault: Fault, behaviour: Behaviour, check: Check) {
    let limit = Duration::from_millis(if check == Check::Convergence { 1000 } else { 200 });
    let concerns_one = matches!(fault, Fault::ForgetChange | Fault::HangMidMessage);
    let is_done = |counters: &Counters| match check {
        // Only the end of the run reports it. The clients that the fault does not concern have everything then.
        Check::Convergence => !concerns_one || counters.converged.value() >= CLIENTS as u64 - 1,
        _ => counters.kept_violations().iter().any(|violation| violation.check == check),
    };
    let violations = violations(Some(fault), &[behaviour], limit, is_done).await;
    assert!(checks(&violations).contains(&check), "{fault}: {check} is not among {:?}", checks(&violations));
    let found: Vec<_> = violations.iter().filter(|violation| violation.check == check).collect();
    assert!(found.iter().all(|violation| !violation.history.is_empty()), "{}", found[0]);
    if concerns_one {
        assert_eq!(found.len(), 1, "it concerns one client");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_origin_without_a_fault_passes_with_every_behaviour() {
    let found = violations(None, &Behaviour::ALL, LIMIT, |_| true).await;
    assert!(found.is_empty(), "{}", found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
}

macro_rules! faults {
    ($($name:ident: $fault:ident, $behaviour:ident, $check:ident;)*) => {
        $(#[tokio::test]
        async fn $name() {
            finds(Fault::$fault, Behaviour::$behaviour, Check::$check).await;
        })*
    };
}

faults! {
    a_resource_that_is_missing_from_a_full_set_is_found: DropFromFullSet, EnvoyAdsSotw, Completeness;
    a_resource_that_is_missing_in_delta_is_found: DropFromFullSet, EnvoyAdsDelta, Convergence;
    an_older_version_is_found_in_sotw: OlderVersion, EnvoyAdsSotw, Regression;
    an_older_version_is_found_in_delta: OlderVersion, EnvoyAdsDelta, Regression;
    a_repeated_nonce_is_found_in_sotw: RepeatNonce, EnvoyAdsSotw, Nonce;
    a_repeated_nonce_is_found_in_delta: RepeatNonce, EnvoyAdsDelta, Nonce;
    an_empty_nonce_is_found: EmptyNonce, EnvoyAdsDelta, Nonce;
    a_name_that_was_not_asked_for_is_found_in_sotw: UnaskedName, EnvoyAdsSotw, Unasked;
    a_name_that_was_not_asked_for_is_found_in_delta: UnaskedName, EnvoyAdsDelta, Unasked;
    a_name_that_was_not_asked_for_is_found_per_type: UnaskedName, EnvoyPerType, Unasked;
    a_type_that_was_not_asked_for_is_found: WrongType, EnvoyAdsDelta, Unasked;
    a_resource_that_comes_twice_is_found: DuplicateResource, EnvoyAdsDelta, Duplicate;
    a_cluster_that_goes_before_its_routes_is_found_in_sotw: BreakBeforeMake, EnvoyAdsSotw, MakeBeforeBreak;
    a_cluster_that_goes_before_its_routes_is_found_in_delta: BreakBeforeMake, EnvoyAdsDelta, MakeBeforeBreak;
    a_route_that_comes_before_its_cluster_is_found_in_sotw: RouteBeforeCluster, EnvoyAdsSotw, MakeBeforeBreak;
    a_route_that_comes_before_its_cluster_is_found_in_delta: RouteBeforeCluster, EnvoyAdsDelta, MakeBeforeBreak;
    a_response_that_comes_again_after_its_nack_is_found: ResendAfterNack, Nacker, ResendAfterNack;
    a_change_that_never_comes_is_found_in_sotw: ForgetChange, EnvoyAdsSotw, Convergence;
    a_change_that_never_comes_is_found_in_delta: ForgetChange, EnvoyAdsDelta, Convergence;
    a_removal_that_never_comes_is_found: ForgetRemoval, EnvoyAdsDelta, Convergence;
    a_response_that_breaks_off_is_found: HangMidMessage, EnvoyAdsDelta, Convergence;
}
