//! The results of a benchmark.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::sample::Sample;
use crate::bench::{GateResult, Plausible, Subject, Verdict};
use crate::measure::median;

/// One run of the program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    pub command: String,
    pub machine: Machine,
    pub cells: Vec<Cell>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    pub cores: usize,
    pub kernel: String,
}

/// One benchmark with one set of parameters: comparable samples.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Cell {
    pub name: String,
    pub samples: Vec<Sample>,
    pub gates: Vec<GateResult>,
    /// The allowed range for the ratio of the baselines and the measured ratio, if that is out of range.
    pub off: Option<(Plausible, f64)>,
    /// Subjects that could not be measured, with the reason.
    pub missing: BTreeMap<String, String>,
    /// Errors of single repetitions.
    pub errors: Vec<String>,
}

impl Report {
    /// 0 if no gate was missed, 1 if one was, 2 after an error, 3 if the baselines were out of range and the gates were not judged.
    pub fn exit_code(&self) -> u8 {
        if self.cells.iter().any(|cell| !cell.errors.is_empty()) {
            return 2;
        }
        let has = |verdict| self.cells.iter().flat_map(|cell| &cell.gates).any(|gate| gate.verdict == verdict);
        match (has(Verdict::Missed), has(Verdict::NotJudged)) {
            (true, _) => 1,
            (false, true) => 3,
            (false, false) => 0,
        }
    }
}

impl Cell {
    pub fn median(&self, subject: Subject, figure: &str) -> Option<f64> {
        let of = self.samples.iter().filter(|sample| sample.subject == subject);
        median(&of.filter_map(|sample| sample.figures.get(figure).copied()).collect::<Vec<_>>())
    }
}

impl Machine {
    pub fn this() -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        Self { cores, kernel: kernel.trim().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Gate;

    fn report(verdicts: &[Verdict]) -> Report {
        let gate = Gate::absolute("rss", 1.0);
        let result = |verdict: &Verdict| GateResult {
            gate: gate.clone(),
            subject: Subject::Relay,
            spread: None,
            verdict: *verdict,
        };
        let gates = verdicts.iter().map(result).collect();
        let cell = Cell { gates, ..Cell::default() };
        Report { command: String::new(), machine: Machine::this(), cells: vec![cell] }
    }

    #[test]
    fn a_missed_gate_and_baselines_that_are_off_show_in_the_exit_code() {
        use Verdict::*;
        assert_eq!(report(&[Passed, NotMeasured]).exit_code(), 0);
        assert_eq!(report(&[Passed, Missed, NotJudged]).exit_code(), 1);
        assert_eq!(report(&[Passed, NotJudged]).exit_code(), 3);
        let mut broken = report(&[Passed, Missed]);
        broken.cells[0].errors.push("the relay ended".into());
        assert_eq!(broken.exit_code(), 2);
    }
}
