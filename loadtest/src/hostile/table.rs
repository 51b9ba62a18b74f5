//! A report as a text table.

use std::fmt;

use super::outcome::{Outcome, Report, mib};
use super::times::{Figures, Percentiles};
use crate::report::short;

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        writeln!(out, "{}", self.command)?;
        writeln!(out, "{} cores, Linux {}\n", self.machine.cores, self.machine.kernel)?;
        writeln!(
            out,
            "{:<20}{:<8}{:>22}{:>22}{:>12}{:>12}{:>12}{:>10}{:>18}{:>10}",
            "",
            "",
            "change later, before",
            "during: p50/p99/max",
            "direct p99",
            "answer p99",
            "new client",
            "healthz",
            "MiB",
            "as before"
        )?;
        writeln!(
            out,
            "{:<20}{:<8}{:>22}{:>22}{:>12}{:>12}{:>12}{:>10}{:>18}{:>10}",
            "behaviour",
            "verdict",
            "ms: p50/p99/max",
            "ms",
            "ms",
            "ms",
            "max ms",
            "max ms",
            "before/peak/after",
            "after s"
        )?;
        self.outcomes.iter().try_for_each(|outcome| row(out, outcome))?;
        let failed = self.outcomes.iter().filter(|outcome| !outcome.passed()).count();
        write!(out, "\n{} of {} passed", self.outcomes.len() - failed, self.outcomes.len())
    }
}

fn row(out: &mut fmt::Formatter, outcome: &Outcome) -> fmt::Result {
    let Outcome { before, during, .. } = outcome;
    let verdict = if outcome.passed() { "passed" } else { "FAILED" };
    let memory =
        outcome.memory.map(|memory| [memory.before, memory.peak, memory.after].map(|bytes| mib(bytes).to_string()));
    let max = |times: Option<Percentiles>| times.map_or_else(dash, |times| short(times.max));
    writeln!(
        out,
        "{:<20}{verdict:<8}{:>22}{:>22}{:>12}{:>12}{:>12}{:>10}{:>18}{:>10}",
        outcome.behaviour.name(),
        three(before),
        three(during),
        during.direct.map_or_else(dash, |times| short(times.p99)),
        during.answered.map_or_else(dash, |times| short(times.p99)),
        max(during.served),
        max(during.health),
        memory.map_or_else(dash, |memory| memory.join("/")),
        outcome.recovered_after.map_or_else(dash, short),
    )?;
    outcome.failures.iter().try_for_each(|failure| writeln!(out, "  failed: {failure}"))?;
    if during.whole() > 0 {
        writeln!(out, "  {} changes count in full, without a time at a client of the control plane", during.whole())?;
    }
    let health = during.problems.iter().filter(|(what, _)| what.starts_with("/healthz"));
    health.into_iter().try_for_each(|(what, count)| writeln!(out, "  {count} x {what}"))?;
    let done = &outcome.done;
    write!(
        out,
        "  {:.0} s: {} connections, {} streams, {} messages, {} MiB",
        outcome.seconds,
        done.connections,
        done.streams,
        done.messages,
        mib(done.bytes)
    )?;
    outcome.log_bytes.map_or(Ok(()), |bytes| write!(out, "; {} MiB of log", mib(bytes)))?;
    let contained = outcome.contained.map(|counted| mib(counted.peak));
    contained.map_or(Ok(()), |peak| write!(out, "; at most {peak} MiB in its control group"))?;
    let polls = outcome.polls.filter(|polls| polls.measured > 0);
    polls.map_or(Ok(()), |polls| {
        let percent = short(polls.long_percent());
        write!(out, "; {} polls measured, {percent} % over 1 ms, {} over 50 ms", polls.measured, polls.very_long)
    })?;
    writeln!(out)?;
    done.ends.iter().try_for_each(|(why, count)| writeln!(out, "  {count} x ended: {why}"))?;
    outcome.limits.iter().try_for_each(|(limit, count)| writeln!(out, "  {count} x limit {limit}"))
}

fn three(figures: &Figures) -> String {
    let show = |times: Percentiles| format!("{}/{}/{}", short(times.p50), short(times.p99), short(times.max));
    figures.later.map_or_else(dash, show)
}

fn dash() -> String {
    "-".into()
}
