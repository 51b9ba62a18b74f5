//! A report as a text table.

use std::collections::BTreeSet;
use std::fmt;

use super::load_table::sections;
use super::{Cell, Report};
use crate::bench::{GateResult, Subject, Verdict};

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        writeln!(out, "{}", self.command)?;
        writeln!(out, "{} cores, Linux {}", self.machine.cores, self.machine.kernel)?;
        self.cells.iter().try_for_each(|cell| write!(out, "\n{cell}"))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let tables: Vec<_> = self.samples.iter().flat_map(sections).collect();
        if !tables.is_empty() {
            return tables.iter().enumerate().try_for_each(|(at, table)| {
                if at > 0 {
                    writeln!(out)?
                }
                write!(out, "{table}")
            });
        }
        writeln!(out, "{}", self.name)?;
        let subjects: BTreeSet<Subject> = self.samples.iter().map(|sample| sample.subject).collect();
        let names: BTreeSet<&String> = self.samples.iter().flat_map(|sample| sample.figures.keys()).collect();
        write!(out, "  {:<34}", "median")?;
        subjects.iter().try_for_each(|subject| write!(out, "{:>14}", subject.to_string()))?;
        writeln!(out)?;
        for name in names {
            write!(out, "  {name:<34}")?;
            for subject in &subjects {
                write!(out, "{:>14}", self.median(*subject, name).map_or_else(|| "-".into(), short))?;
            }
            writeln!(out)?;
        }
        self.missing.iter().try_for_each(|(subject, why)| writeln!(out, "  {subject} is missing: {why}"))?;
        self.errors.iter().try_for_each(|error| writeln!(out, "  error: {error}"))?;
        if let Some((band, ratio)) = &self.off {
            let (of, against, from, to) = (band.of, band.against, band.from, band.to);
            writeln!(
                out,
                "  not judged: {} of {of} is {ratio:.2} times that of {against}; expected {from} to {to}",
                band.figure
            )?;
        }
        self.gates.iter().try_for_each(|gate| writeln!(out, "  {gate}"))
    }
}

impl fmt::Display for GateResult {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Passed => "passed",
            Verdict::Missed => "MISSED",
            Verdict::NotMeasured => "not measured",
            Verdict::NotJudged => "not judged",
        };
        write!(out, "{verdict:<12} {} {}", self.subject, self.gate.figure)?;
        if let Some(against) = self.gate.against {
            write!(out, " / {against}")?;
        }
        if let Some(spread) = &self.spread {
            write!(out, " = {} ({} to {})", short(spread.median), short(spread.min), short(spread.max))?;
        }
        write!(out, ", at most {}", short(self.gate.limit))?;
        self.gate.stretch.map_or(Ok(()), |stretch| write!(out, ", better {}", short(stretch)))
    }
}

/// Formats a value with three significant digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        large if large >= 1000.0 => format!("{value:.0}"),
        large if large >= 100.0 => format!("{value:.1}"),
        large if large >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
