//! Compares two reports: the medians of the second divided by those of the first.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{Report, short};
use crate::bench::Subject;

/// Returns a table of the ratios of all figures that both reports have, by benchmark and subject.
pub fn compare(first: &Report, second: &Report) -> String {
    let mut out = String::new();
    for cell in &first.cells {
        let Some(other) = second.cells.iter().find(|other| other.name == cell.name) else {
            let _ = writeln!(out, "{}\n  only in the first\n", cell.name);
            continue;
        };
        let _ = writeln!(out, "{}", cell.name);
        let _ = writeln!(out, "  {:<14}{:<34}{:>12}{:>12}{:>10}", "", "median", "first", "second", "ratio");
        let subjects: BTreeSet<Subject> = cell.samples.iter().map(|sample| sample.subject).collect();
        for subject in subjects {
            let figures: BTreeSet<&String> = cell.samples.iter().flat_map(|sample| sample.figures.keys()).collect();
            for figure in figures {
                let (Some(a), Some(b)) = (cell.median(subject, figure), other.median(subject, figure)) else {
                    continue;
                };
                let ratio = if a == 0.0 { "-".to_owned() } else { short(b / a) };
                let subject = subject.to_string();
                let _ = writeln!(out, "  {subject:<14}{figure:<34}{:>12}{:>12}{ratio:>10}", short(a), short(b));
            }
        }
        out.push('\n');
    }
    for cell in second.cells.iter().filter(|cell| first.cells.iter().all(|other| other.name != cell.name)) {
        let _ = writeln!(out, "{}\n  only in the second\n", cell.name);
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::html::page;
    use super::super::{Cell, Machine, Sample};
    use super::*;

    fn report(name: &str, cpu: &[f64]) -> Report {
        let sample = |(repetition, cpu): (usize, &f64)| Sample {
            figures: BTreeMap::from([("cpu".to_owned(), *cpu)]),
            ..Sample::empty(Subject::Relay, repetition)
        };
        let samples = cpu.iter().enumerate().map(sample).collect();
        let cell = Cell { name: name.into(), samples, ..Cell::default() };
        Report { command: "bench".into(), machine: Machine::this(), cells: vec![cell] }
    }

    #[test]
    fn medians_are_divided_and_what_only_one_has_is_named() {
        let text = compare(&report("a", &[2.0, 90.0, 4.0]), &report("a", &[5.0, 6.0, 7.0]));
        assert!(
            text.lines()
                .any(|line| line.split_whitespace().collect::<Vec<_>>() == ["relay", "cpu", "4.000", "6.000", "1.500"]),
            "{text}"
        );
        let text = compare(&report("a", &[1.0]), &report("b", &[1.0]));
        assert!(text.contains("a\n  only in the first") && text.contains("b\n  only in the second"), "{text}");
    }

    #[test]
    fn a_report_is_the_same_after_a_trip_through_json() {
        let report = report("a", &[1.5]);
        let json = serde_json::to_string(&report).unwrap();
        let back: Report = serde_json::from_str(&json).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), json);
        assert!(page(&back).contains("<td>cpu</td><td>1.500</td>"));
    }
}
