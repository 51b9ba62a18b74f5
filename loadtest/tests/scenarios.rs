//! The scenarios of the repository can be read, and pass in a short form at the origin itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use weir_loadtest::observe::Unobserved;
use weir_loadtest::scenario::{Scenario, Step, run};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Without the relay, which another crate builds, and without the steps that need it.
fn at_the_origin(mut scenario: Scenario) -> Scenario {
    scenario.relay = None;
    scenario.steps.retain(|step| !matches!(step, Step::RollingRestart(_)));
    scenario.shortened(5, Duration::from_millis(200))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_scenario_passes_in_a_short_form() {
    let files = files();
    assert!(files.len() >= 7, "{files:?}");
    let runs = files.into_iter().map(|file| {
        tokio::spawn(async move {
            let scenario = at_the_origin(Scenario::read(&file).unwrap());
            (file, run(&scenario, None, Arc::new(Unobserved)).await.unwrap())
        })
    });
    for run in runs.collect::<Vec<_>>() {
        let (file, report) = run.await.unwrap();
        assert!(report.passed(), "{}: {report}", file.display());
    }
}

#[test]
fn unknown_keys_and_missing_parts_are_errors() {
    let error = |text: &str| format!("{:#}", Scenario::parse(text).unwrap_err());
    let valid = "{description: d, origin: {}, clients: [{behaviour: grpc}]}";
    Scenario::parse(valid).unwrap();
    assert!(error("{description: d, orgin: {}, clients: []}").contains("orgin"));
    assert!(error("{description: d, clients: []}").contains("one of target, relay and origin"));
    assert!(error("{description: d, target: a, clients: [], steps: [{outage: 1s}]}").contains("require origin"));
    assert!(error("{description: d, origin: {}, clients: [], steps: [{wait: soon}]}").contains("soon"));
    assert!(error("{description: d, origin: {}, clients: [], steps: [{rolling_restart: 1s}]}").contains("relay"));
}
