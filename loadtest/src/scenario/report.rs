//! The result of a scenario.

use std::fmt;
use std::ops::Sub;
use std::sync::Arc;
use std::time::Duration;

use crate::checks::Check;
use crate::fleet::{Counters, Fleet};

pub struct Report {
    pub description: String,
    pub counters: Arc<Counters>,
    /// The time until all clients had their first set. `None` after a timeout.
    pub first_sync: Option<Duration>,
    /// The time until all clients had the last change. `None` after a timeout.
    pub convergence: Option<Duration>,
    pub steps: Vec<StepReport>,
    /// How many connections ended although no step ends connections.
    pub unexpected_ends: u64,
    pub checks_off: Vec<Check>,
}

/// What happened in a step.
pub struct StepReport {
    pub step: &'static str,
    pub time: Duration,
    pub traffic: Traffic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    pub connects: u64,
    pub bytes: u64,
}

impl Traffic {
    pub fn of(fleet: &Fleet) -> Self {
        let Counters { connects, bytes, .. } = &**fleet.counters();
        Self { connects: connects.value(), bytes: bytes.value() }
    }
}

impl Sub for Traffic {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { connects: self.connects - before.connects, bytes: self.bytes - before.bytes }
    }
}

impl Report {
    pub fn passed(&self) -> bool {
        self.counters.violations.value() == 0
            && self.first_sync.is_some()
            && self.convergence.is_some()
            && self.unexpected_ends == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for violation in self.counters.kept_violations() {
            writeln!(f, "{violation}")?;
        }
        let time = |time: Option<Duration>| {
            time.map_or("not in time".to_owned(), |time| format!("{:.3} s", time.as_secs_f64()))
        };
        writeln!(f, "scenario:         {}", self.description)?;
        writeln!(f, "first sync:       {}", time(self.first_sync))?;
        for StepReport { step, time, traffic: Traffic { connects, bytes } } in &self.steps {
            let time = time.as_secs_f64();
            writeln!(f, "step:             {step}, {time:.1} s, {connects} connects, {bytes} bytes")?;
        }
        let mut waits = self.counters.newcomers_waits();
        if let Some(longest) = waits.iter().max().copied() {
            waits.sort_unstable();
            let median = waits[waits.len() / 2];
            let (count, median, longest) = (waits.len(), median.as_secs_f64(), longest.as_secs_f64());
            writeln!(f, "clients joined:   {count}; first set after {median:.3} s (median), {longest:.3} s (longest)")?;
        }
        writeln!(f, "last change:      {}", time(self.convergence))?;
        writeln!(f, "unexpected ends:  {}", self.unexpected_ends)?;
        let off: Vec<_> = self.checks_off.iter().map(|check| check.name()).collect();
        writeln!(f, "checks off:       {}", if off.is_empty() { "none".into() } else { off.join(", ") })?;
        writeln!(f, "counters:         {}", self.counters)?;
        for (first, count) in self.counters.errors.counted() {
            writeln!(f, "{:<17} {count} x {first}", "error:")?;
        }
        write!(f, "result:           {}", if self.passed() { "passed" } else { "FAILED" })
    }
}
