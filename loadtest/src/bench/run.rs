//! Runs benchmarks. A repetition measures each subject in turn, with a new process; then the next repetition begins.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use super::gate::Verdict;
use super::options::Options;
use super::subject::Programs;
use super::{Bench, Scene, peers};
use crate::output;
use crate::report::{self, Cell, Machine, Report, Sample};

/// Runs the benchmarks, prints and writes the results, and returns the exit code.
pub async fn command(options: &Options) -> anyhow::Result<ExitCode> {
    let mut report = run(options, |line| output::line(line)).await?;
    if options.is_quick() {
        for cell in &mut report.cells {
            (cell.gates, cell.off) = (Vec::new(), None);
        }
    }
    output::line(format!("\n{report}"));
    report::write(&report, options.json.as_deref(), options.html.as_deref())?;
    if let Some(path) = &options.markdown {
        std::fs::write(path, report::markdown(&report)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::from(report.exit_code()))
}

/// Runs the selected benchmarks, and checks the gates. `progress` is called with each result.
pub async fn run(options: &Options, mut progress: impl FnMut(&str)) -> anyhow::Result<Report> {
    let benches = options.benches();
    let folder = Folder::new()?;
    let mut programs = Programs {
        weir: options.weir.clone(),
        weir_b: options.weir_b.clone(),
        relay_config: options.relay_config.clone(),
        relay_b_config: options.relay_b_config.clone(),
        peer: None,
        folder: folder.0.clone(),
    };
    let mut no_peer = String::new();
    if benches.iter().any(|bench| options.subjects(bench.as_ref()).iter().any(|subject| subject.is_peer())) {
        match peers::build().await {
            Ok(path) => programs.peer = Some(path),
            Err(why) => no_peer = format!("go-control-plane was not built: {why:#}"),
        }
    }
    let mut cells = Vec::new();
    for bench in benches {
        let name = bench.name();
        progress(&name);
        let (subjects, missing): (Vec<_>, Vec<_>) = options
            .subjects(bench.as_ref())
            .into_iter()
            .partition(|subject| !subject.is_peer() || programs.peer.is_some());
        let missing = missing.iter().map(|subject| (subject.to_string(), no_peer.clone())).collect();
        let (mut samples, mut errors) = (Vec::new(), Vec::new());
        for repetition in 0..options.repetitions() {
            for subject in &subjects {
                match bench.run(*subject, &programs).await {
                    Ok(Scene { figures, timeline, fan_out }) => {
                        let sample = Sample { figures, timeline, fan_out, ..Sample::empty(*subject, repetition) };
                        progress(&format!("  {}: {subject}: {}", repetition + 1, first_figures(&sample)));
                        samples.push(sample);
                    }
                    // An error of one subject does not stop the others.
                    Err(error) => {
                        errors.push(format!("{subject}: {error:#}"));
                        progress(&format!("  {}: {subject}: error: {error:#}", repetition + 1));
                    }
                }
            }
        }
        let cell = judge(bench.as_ref(), name, samples);
        cells.push(Cell { missing, errors, ..cell });
    }
    let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    Ok(Report { command, machine: Machine::this(), cells })
}

fn judge(bench: &dyn Bench, name: String, samples: Vec<Sample>) -> Cell {
    let band = bench.plausible();
    let off = band.and_then(|band| band.violated(&samples).map(|ratio| (band, ratio)));
    let (measured, limits): (BTreeSet<_>, _) = (samples.iter().map(|sample| sample.subject).collect(), bench.gates());
    let mut gates = Vec::new();
    for subject in measured {
        let limits = limits.iter().filter(|gate| gate.is_for(subject));
        gates.extend(limits.map(|gate| gate.judge(subject, &samples)));
    }
    if off.is_some() {
        gates
            .iter_mut()
            .filter(|gate| gate.verdict != Verdict::NotMeasured)
            .for_each(|gate| gate.verdict = Verdict::NotJudged);
    }
    Cell { name, samples, gates, off, ..Cell::default() }
}

fn first_figures(sample: &Sample) -> String {
    let figures = sample.figures.iter().filter(|(name, _)| !name.contains("acked") && !name.contains("max"));
    figures.map(|(name, value)| format!("{name} {}", crate::report::short(*value))).collect::<Vec<_>>().join(", ")
}

/// A folder for the configurations of this run, deleted at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("weir-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // if it cannot be deleted, it stays in the folder for temporary files
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::gate::{Gate, Plausible};
    use super::super::{Running, Subject};
    use super::*;

    /// A benchmark that returns given figures.
    struct Measured;

    impl Bench for Measured {
        fn name(&self) -> String {
            "measured".into()
        }

        fn subjects(&self) -> Vec<Subject> {
            vec![Subject::Relay, Subject::Floor, Subject::PlainTonic]
        }

        fn gates(&self) -> Vec<Gate> {
            vec![Gate::ratio("cpu", Subject::Floor, 2.0), Gate::ratio("cpu", Subject::Linear, 1.0)]
        }

        fn plausible(&self) -> Option<Plausible> {
            let (of, against) = (Subject::PlainTonic, Subject::Floor);
            Some(Plausible { figure: "cpu".into(), of, against, from: 2.0, to: 4.0 })
        }

        fn run<'a>(&'a self, _: Subject, _: &'a Programs) -> Running<'a> {
            Box::pin(async { Ok(Scene::of(BTreeMap::new())) })
        }
    }

    fn exit_code(relay: f64, tonic: f64) -> u8 {
        let samples = [(Subject::Relay, relay), (Subject::Floor, 1.0), (Subject::PlainTonic, tonic)];
        let samples = samples.map(|(subject, cpu)| Sample {
            figures: BTreeMap::from([("cpu".to_owned(), cpu)]),
            ..Sample::empty(subject, 0)
        });
        let cell = judge(&Measured, "measured".into(), samples.into());
        Report { command: String::new(), machine: Machine::this(), cells: vec![cell] }.exit_code()
    }

    #[test]
    fn a_gate_is_for_the_relay_and_its_other_build_or_for_the_subject_that_it_names() {
        let gate = Gate::absolute("cpu", 1.0);
        let subjects = [Subject::Relay, Subject::RelayB, Subject::RelayTls, Subject::RelayTlsShared, Subject::Floor];
        assert_eq!(subjects.map(|subject| gate.is_for(subject)), [true, true, false, false, false]);
        let named = gate.of(Subject::RelayTls);
        assert_eq!(subjects.map(|subject| named.is_for(subject)), [false, false, true, false, false]);
    }

    #[test]
    fn a_gate_is_judged_only_between_baselines_that_are_where_they_should_be() {
        assert_eq!(exit_code(1.9, 3.0), 0, "passed");
        assert_eq!(exit_code(2.1, 3.0), 1, "missed");
        assert_eq!(exit_code(2.1, 4.5), 3, "plain-tonic is too slow, or the floor too fast");
        assert_eq!(exit_code(1.9, 1.5), 3, "plain-tonic is too fast, or the floor too slow");
    }
}
