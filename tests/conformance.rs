//! The conformance checks of `loadtest/` against the built program, with each variant on each side.

#[path = "support/sixteen_threads.rs"]
mod sixteen_threads;

use std::time::Duration;

use weir_loadtest::conformance::{self, Options, Report, Verdict};
use weir_loadtest::wire::{Plane, Variant};
use weir_testkit::program::Program;

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

fn config(plane: &Plane, upstream: Variant) -> String {
    format!(
        "listen: [{{address: '127.0.0.1:0'}}]\n\
         upstream: {{servers: [{{uri: 'http://{}', variant: {upstream}, initial_set: pieces}}]}}\n\
         views: {{key: [cluster]}}\n\
         limits: {{resource_timer: 2s}}\nbrakes: {{enabled: false}}\n",
        plane.address
    )
}

fn options(target: &str, downstream: Option<Variant>) -> Options {
    Options {
        target: target.into(),
        plane: None,
        downstream,
        only: None,
        list: false,
        quiet: Duration::from_millis(500),
        jobs: 8,
        patience: PATIENCE,
        resource_timer: Duration::from_secs(2),
    }
}

async fn every_check_holds(upstream: Variant, downstream: Variant) {
    let plane = Plane::start("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let name = format!("conformance-{upstream}-{downstream}.yaml");
    let relay = Program::start(WEIR, &name, &config(&plane, upstream), PATIENCE);
    let options = options(&format!("http://{}", relay.address), Some(downstream));
    let report = conformance::run(&options, Some(&plane), |outcome| println!("{outcome}")).await.unwrap();
    println!("{upstream} upstream, {downstream} downstream: {report}");
    assert!(report.passed(), "{upstream} upstream, {downstream} downstream: {}", failures(&report).join("\n"));
    let skipped = report.outcomes.iter().filter(|outcome| matches!(outcome.verdict, Verdict::Skipped(_))).count();
    assert!(report.outcomes.len() > 60 && skipped <= 1, "checks are missing"); // one is only for the other upstream variant
}

fn failures(report: &Report) -> Vec<String> {
    let failed = report.outcomes.iter().filter(|outcome| matches!(outcome.verdict, Verdict::Failed(_)));
    failed.map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn conformance_with_sotw_on_both_sides() {
    every_check_holds(Variant::Sotw, Variant::Sotw).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conformance_with_sotw_upstream_and_delta_downstream() {
    every_check_holds(Variant::Sotw, Variant::Delta).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conformance_with_delta_upstream_and_sotw_downstream() {
    every_check_holds(Variant::Delta, Variant::Sotw).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conformance_with_delta_on_both_sides() {
    every_check_holds(Variant::Delta, Variant::Delta).await;
}

/// Longer than any step takes. A test that hangs fails after this time.
const PATIENCE: Duration = Duration::from_secs(20);
