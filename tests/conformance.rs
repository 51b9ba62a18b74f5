//! The conformance checks of `loadtest/` against the built program, with each variant on each side.

#[path = "support/program.rs"]
mod program;
#[path = "support/sixteen_threads.rs"]
mod sixteen_threads;

use std::path::Path;
use std::time::Duration;

use weir::app::App;
use weir::config::Config;
use weir_core::protocol::faults::{Fault, Faults};
use weir_loadtest::conformance::{self, Options, Report, Verdict};
use weir_loadtest::wire::{Plane, Variant};

use self::program::Program;

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
    let relay = Program::start(&name, &config(&plane, upstream), PATIENCE);
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

/// A fault that breaks a rule, the upstream variant, and a rule whose check has to fail.
const NOTICED: [(Fault, Variant, &str); 14] = [
    (Fault::UnknownIsAbsent, Variant::Delta, "DELTA-32"),
    (Fault::TakePartForWhole, Variant::Delta, "XLAT-12"),
    (Fault::JudgeStatedWhileCold, Variant::Sotw, "DELTA-16"),
    (Fault::AbsenceDeletesTheUnanswered, Variant::Sotw, "UP-24"),
    (Fault::DropOnDisconnect, Variant::Delta, "UP-32"),
    (Fault::VersionsFromUpstream, Variant::Sotw, "XLAT-3"),
    (Fault::RemoveBeforeAdding, Variant::Delta, "ORD-7"),
    (Fault::NoUnion, Variant::Sotw, "ORD-7"),
    (Fault::NoForcedEndpoints, Variant::Delta, "DELTA-45"),
    (Fault::OneStreamForAll, Variant::Delta, "XLAT-13"),
    (Fault::AnswerEveryAck, Variant::Sotw, "SOTW-19"),
    (Fault::DropStaleNames, Variant::Delta, "SOTW-45"),
    (Fault::ForgetNamesOnReconnect, Variant::Sotw, "UP-14"),
    (Fault::NackForgets, Variant::Delta, "DELTA-4"),
];

#[tokio::test(flavor = "multi_thread")]
async fn conformance_checks_notice_a_rule_that_is_broken_on_purpose() {
    let mut runs = tokio::task::JoinSet::new();
    for (fault, upstream, rule) in NOTICED {
        runs.spawn(async move {
            let failed = failures_of(fault, upstream, rule).await;
            println!("{fault:?} with {upstream} upstream:\n{}", failed.join("\n"));
            (fault, failed.is_empty())
        });
    }
    let missed: Vec<_> = runs.join_all().await.into_iter().filter(|(_, passed)| *passed).collect();
    assert!(missed.is_empty(), "nobody noticed {missed:?}");
}

/// Returns the failures of one rule's checks with a relay that has this fault.
async fn failures_of(fault: Fault, upstream: Variant, rule: &str) -> Vec<String> {
    let plane = Plane::start("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let mut config = Config::parse(Path::new("test.yaml"), &config(&plane, upstream)).unwrap();
    config.views.protocol.plant(Faults::planted(fault));
    let app = App::bind(config).await.unwrap();
    let target = format!("http://{}", app.addresses()[0]);
    let relay = tokio::spawn(app.run());
    let patience = Duration::from_secs(8); // more than any correct reply takes
    let options = Options { only: Some(rule.into()), patience, ..options(&target, None) };
    let report = conformance::run(&options, Some(&plane), |_| {}).await.unwrap();
    relay.abort();
    failures(&report)
}

/// Longer than any step takes. A test that hangs fails after this time.
const PATIENCE: Duration = Duration::from_secs(20);
