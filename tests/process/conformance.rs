//! The conformance checks of `loadtest/` against the built program, with each variant on each side.

use std::path::PathBuf;
use std::time::Duration;

use weir_loadtest::conformance::{self, Options, Report, Verdict};
use weir_loadtest::wire::{Plane, Variant};
use weir_testkit::program::Program;

use crate::WEIR;

fn config(plane: &Plane, upstream: Variant) -> String {
    format!(
        "listen: [{{address: '127.0.0.1:0'}}]\n\
         upstream: {{servers: [{{uri: 'http://{}', variant: {upstream}, initial_set: pieces}}]}}\n\
         views: {{key: [cluster]}}\n\
         limits: {{resource_timer: 2s, clusters_timeout: 2m}}\nbrakes: {{enabled: false}}\n",
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
        json: false,
        quiet: Duration::from_millis(500),
        jobs: 8,
        patience: PATIENCE,
        resource_timer: Duration::from_secs(2),
    }
}

/// What `tests/mutants` asks for: the checks of one rule, and a folder for their results, with a file for each pair of variants.
struct OneRule {
    rule: String,
    results: PathBuf,
}

impl OneRule {
    fn wanted() -> Option<Self> {
        let rule = std::env::var("WEIR_CONFORMANCE_RULE").ok()?;
        let results = std::env::var_os("WEIR_CONFORMANCE_RESULTS").expect("a rule comes with a folder for its results");
        Some(Self { rule, results: results.into() })
    }

    /// A configuration for this run and these variants alone: several of them go on at the same time.
    fn config_name(&self, of_variants: &str) -> String {
        let run = self.results.file_name().expect("a folder has a name");
        format!("{}-{of_variants}.yaml", run.display())
    }

    /// Writes the outcomes, each as a line of JSON.
    fn write(&self, of_variants: &str, report: &Report) {
        let lines = report.outcomes.iter().map(|outcome| format!("{}\n", outcome.to_json()));
        std::fs::write(self.results.join(format!("{of_variants}.jsonl")), lines.collect::<String>()).unwrap();
    }
}

async fn every_check_holds(upstream: Variant, downstream: Variant) {
    let plane = Plane::start("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let one = OneRule::wanted();
    let of_variants = format!("{upstream}-{downstream}");
    let all = || format!("conformance-{of_variants}.yaml");
    let name = one.as_ref().map_or_else(all, |one| one.config_name(&of_variants));
    let mut relay = Program::start(WEIR, &name, &config(&plane, upstream), PATIENCE);
    let mut options = options(&format!("http://{}", relay.address), Some(downstream));
    if let Some(one) = &one {
        options.only = Some(one.rule.clone());
        options.patience = PATIENCE_OF_ONE_RULE;
    }
    let report = conformance::run(&options, Some(&plane), |outcome| println!("{outcome}")).await.unwrap();
    println!("{upstream} upstream, {downstream} downstream: {report}");
    // What fails because the relay is gone does not show that a rule is broken.
    let (end, panics) = (relay.child.try_wait().unwrap(), relay.logged("panicked"));
    assert!(end.is_none() && panics.is_empty(), "the relay has broken off: {end:?}, {panics:?}");
    if let Some(one) = &one {
        one.write(&of_variants, &report);
    }
    assert!(report.passed(), "{upstream} upstream, {downstream} downstream: {}", failures(&report).join("\n"));
    let skipped = report.outcomes.iter().filter(|outcome| matches!(outcome.verdict, Verdict::Skipped(_))).count();
    let are_all_there = report.outcomes.len() > 60 && skipped <= 1; // one is only for the other upstream variant
    let are_some_made = report.outcomes.len() > skipped;
    assert!(if one.is_some() { are_some_made } else { are_all_there }, "checks are missing");
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

/// Longer than any step takes. A test that hangs fails after this time, or after a few times as long.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than any correct reply takes where the machine has little else to do. A planted fault shows only after this time.
const PATIENCE_OF_ONE_RULE: Duration = Duration::from_secs(8);
