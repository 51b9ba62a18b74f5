//! The benchmarks as they are started: the baselines as processes of their own, clients, results in files.

use std::process::Command;

use weir_loadtest::report::{Report, compare};
use weir_testkit::folder::Folder;

#[test]
fn baselines_take_turns_and_the_results_can_be_read_and_compared() {
    let folder = Folder::new("benchmarks");
    let file = |name: &str| folder.0.join(name);
    let mut bench = Command::new(env!("CARGO_BIN_EXE_weir-loadtest"));
    bench.args(["bench", "fanout", "--connections", "5", "--rounds", "3", "--size", "40kB", "--resources", "4"]);
    bench.args(["--only", "floor,plain-tonic", "--repetitions", "2", "--json"]).arg(file("a.json"));
    bench.arg("--html").arg(file("a.html")).arg("--markdown").arg(file("a.md"));
    let output = bench.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Report = serde_json::from_slice(&std::fs::read(file("a.json")).unwrap()).unwrap();
    let page = std::fs::read_to_string(file("a.html")).unwrap();
    let document = std::fs::read_to_string(file("a.md")).unwrap();
    assert_eq!(report.cells.len(), 2, "one for each variant");
    for cell in &report.cells {
        assert!(cell.errors.is_empty(), "{:?}", cell.errors);
        let turns: Vec<_> = cell.samples.iter().map(|sample| (sample.subject.to_string(), sample.repetition)).collect();
        let expected = [("floor", 0), ("plain-tonic", 0), ("floor", 1), ("plain-tonic", 1)];
        assert_eq!(turns, expected.map(|(subject, turn)| (subject.to_owned(), turn)));
        for sample in &cell.samples {
            assert!(
                sample.figures["cpu_us_per_delivery"] > 0.0 && sample.figures["received_p50_ms"] > 0.0,
                "{sample:?}"
            );
            assert_eq!((sample.timeline.len(), sample.fan_out.len()), (3, 101));
        }
    }
    assert!(page.contains("<svg") && document.starts_with("### fanout"));
    assert!(compare(&report, &report).contains("1.000"));
}

#[test]
fn a_subject_that_does_not_start_is_an_error_of_its_own() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_weir-loadtest"));
    bench.args(["bench", "fanout", "--connections", "2", "--rounds", "1", "--variant", "delta", "--repetitions", "1"]);
    bench.args(["--weir", "/there/is/no/relay", "--only", "relay,floor"]);
    let output = bench.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("error: relay: cannot start relay") && text.contains("1: floor: "), "{text}");
}
