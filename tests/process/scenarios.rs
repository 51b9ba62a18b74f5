//! The scenarios of `loadtest/`, shortened, with the built program.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weir_loadtest::observe::Unobserved;
use weir_loadtest::scenario::{Report, Scenario, run};

use crate::WEIR;

async fn passes(name: &str) -> Report {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("loadtest/scenarios").join(name);
    let scenario = Scenario::read(&path).unwrap().shortened(5, Duration::from_millis(500));
    let relay = Path::new(WEIR);
    let report = run(&scenario, Some(relay), Arc::new(Unobserved)).await.unwrap();
    assert!(report.passed(), "{name}: {report}");
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_do_not_keep_up_or_misbehave_harm_no_others() {
    passes("stall.yaml").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_reconnect_all_the_time_have_everything_in_the_end() {
    passes("flap.yaml").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_clusters_and_changed_subscriptions_break_no_rule() {
    passes("churn.yaml").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_changes_at_once_for_every_kind_of_client() {
    passes("steady.yaml").await;
    passes("storm.yaml").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_move_on_while_relays_restart_one_after_the_other() {
    let report = passes("rolling-restart.yaml").await;
    assert!(report.counters.lost.value() > 0, "no relay restarted: {report}");
}

/// No connect fails, no client that connected leaves without a response, and the newcomers are served meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn clients_behind_a_balancer_notice_a_rolling_restart_only_by_connecting_again() {
    let report = passes("balanced-restart.yaml").await;
    let counters = &report.counters;
    assert!(counters.lost.value() > 0, "no relay restarted: {report}");
    assert_eq!((counters.failed_connects.value(), counters.unanswered.value()), (0, 0), "{report}");
    assert_eq!(counters.newcomers_waits().len(), 5, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_control_plane_ends_no_stream_and_loses_no_change() {
    let report = passes("upstream-outage.yaml").await;
    assert_eq!(report.counters.lost.value(), 0, "{report}");
}
