//! A report as tables for a document: each gate with its figures.

use std::fmt::Write;

use super::{Cell, Report, short};
use crate::bench::{Subject, Verdict};

/// Returns a section for each benchmark, with a row for each gate and for each figure that is shown without a gate.
pub fn markdown(report: &Report) -> String {
    let mut out = String::new();
    let mut section = "";
    for cell in &report.cells {
        let (bench, rest) = cell.name.split_once(": ").unwrap_or((&cell.name, ""));
        if bench != section {
            let _ = write!(out, "{}### {bench}\n\n", if section.is_empty() { "" } else { "\n" });
            out.push_str("| Parameters | Figure | Relay | Beside | Ratio, median (least to most) | Gate |\n|---|---|---|---|---|---|\n");
            section = bench;
        }
        rows(cell, rest, &mut out);
    }
    out
}

fn rows(cell: &Cell, parameters: &str, out: &mut String) {
    for gate in &cell.gates {
        let figure = &gate.gate.figure;
        let value = |subject, figure: &str| cell.median(subject, figure).map_or_else(|| "-".into(), short);
        let beside = match gate.gate.against {
            None => "-".to_owned(),
            Some(against) => {
                let base = gate.gate.base.as_ref().unwrap_or(figure);
                format!("{against} {}", value(against, base))
            }
        };
        let ratio = match &gate.spread {
            None => "-".to_owned(),
            Some(spread) if spread.min == spread.max => short(spread.median),
            Some(spread) => format!("{} ({} to {})", short(spread.median), short(spread.min), short(spread.max)),
        };
        let verdict = match gate.verdict {
            Verdict::Passed => "passed",
            Verdict::Missed => "missed",
            Verdict::NotMeasured => "not measured",
            Verdict::NotJudged => "not judged",
        };
        let (relay, limit) = (value(gate.subject, figure), short(gate.gate.limit));
        let name = if gate.subject == Subject::Relay { String::new() } else { format!("{} ", gate.subject) };
        let _ =
            writeln!(out, "| {parameters} | `{figure}` | {name}{relay} | {beside} | {ratio} | {limit}, {verdict} |");
    }
    if cell.gates.is_empty() {
        for figure in cell.samples.first().iter().flat_map(|sample| sample.figures.keys()) {
            let relay = cell.median(Subject::Relay, figure).map_or_else(|| "-".into(), short);
            let _ = writeln!(out, "| {parameters} | `{figure}` | {relay} | - | - | none |");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Machine, Sample};
    use super::*;
    use crate::bench::Gate;

    #[test]
    fn a_gate_has_a_row_in_the_section_of_its_benchmark() {
        let sample = |subject, cpu: f64, repetition| Sample {
            figures: BTreeMap::from([("cpu".to_owned(), cpu)]),
            ..Sample::empty(subject, repetition)
        };
        let samples = vec![
            sample(Subject::Relay, 3.0, 0),
            sample(Subject::Floor, 2.0, 0),
            sample(Subject::Relay, 5.0, 1),
            sample(Subject::Floor, 2.0, 1),
        ];
        let gates = vec![Gate::ratio("cpu", Subject::Floor, 1.9).judge(Subject::Relay, &samples)];
        let cell = Cell { name: "fanout: small".into(), samples, gates, ..Cell::default() };
        let report = Report { command: String::new(), machine: Machine::this(), cells: vec![cell] };
        let text = markdown(&report);
        assert!(text.starts_with("### fanout\n\n"), "{text}");
        let row = "| small | `cpu` | 4.000 | floor 2.000 | 2.000 (1.500 to 2.500) | 1.900, missed |";
        assert!(text.lines().any(|line| line == row), "{text}");
    }
}
