//! The effects of a behaviour on others, and the verdict.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::behaviour::Behaviour;
use super::container::Contained;
use super::offender::Done;
use super::times::{Figures, Percentiles};
use crate::measure::Polls;
use crate::report::{Machine, short};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    pub command: String,
    pub machine: Machine,
    pub outcomes: Vec<Outcome>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    pub behaviour: Behaviour,
    /// How many seconds the behaviour lasted.
    pub seconds: f64,
    pub done: Done,
    pub before: Figures,
    pub during: Figures,
    /// The figures of the last second: the one before everything was as before, or before the tool gave up.
    pub after: Figures,
    /// Seconds from the end of the behaviour until everything was as before.
    pub recovered_after: Option<f64>,
    /// The memory of the server's process, if the process is known.
    pub memory: Option<Memory>,
    /// The counts of the relay's control group, if the tool has created one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contained: Option<Contained>,
    /// How many bytes a relay has logged that the tool has started.
    pub log_bytes: Option<u64>,
    /// How many lines of this log a client has forged.
    pub forged_lines: Option<u64>,
    /// How often limits were reached, as the server counts them.
    pub limits: BTreeMap<String, u64>,
    /// The polls from the beginning of the behaviour on, if the server measures polls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polls: Option<Polls>,
    /// Why the behaviour failed; empty if it passed.
    pub failures: Vec<String>,
}

/// Bytes of RSS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    pub before: u64,
    /// The maximum from the beginning of the behaviour to the end of the recovery.
    pub peak: u64,
    pub after: u64,
}

/// The bounds beyond which a behaviour did harm.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes that RSS may never exceed.
    pub memory: u64,
    /// The maximum seconds for the recovery.
    pub recovery: u64,
    /// Whether the relay bounds its memory. Then the times of honest clients and of `/healthz` are judged too.
    pub is_relay_bounded: bool,
}

impl Outcome {
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }

    /// Records why the behaviour failed, if it did.
    pub fn judge(&mut self, bounds: Bounds) {
        let problems = self.during.problems.iter().filter(|(what, _)| !what.starts_with("/healthz"));
        self.failures = problems.map(|(what, count)| format!("{count} x {what}")).collect();
        if self.done.connections == 0 {
            self.failures.push("nothing was played: no connection was opened".into());
        }
        let figures = &self.during;
        for (what, times) in [
            ("the established client received no change", &figures.received),
            ("no request of the established client was answered", &figures.answered),
            ("no new client was served", &figures.served),
        ] {
            if times.is_none() {
                self.failures.push(what.into());
            }
        }
        if bounds.is_relay_bounded {
            self.judge_times();
        }
        if let Some(memory) = self.memory.filter(|memory| memory.peak > bounds.memory) {
            self.failures.push(format!("memory of {} MiB, over {} MiB", mib(memory.peak), mib(bounds.memory)));
        }
        self.failures.extend(self.contained.and_then(Contained::failure));
        if let Some(log) = self.log_bytes.filter(|bytes| *bytes > LOG) {
            self.failures.push(format!("{} MiB of log, over {} MiB", mib(log), mib(LOG)));
        }
        if let Some(lines) = self.forged_lines.filter(|lines| *lines > 0) {
            self.failures.push(format!("{lines} forged lines in the log"));
        }
        if let Some(polls) = self.polls.filter(|polls| polls.measured >= POLLS && polls.long_percent() > LONG_POLLS) {
            let Polls { measured, long, .. } = polls;
            self.failures.push(format!("{long} of {measured} polls took over 1 ms; {LONG_POLLS} % may"));
        }
        if let Some(polls) = self.polls.filter(|polls| polls.very_long > VERY_LONG_POLLS) {
            let Polls { measured, very_long, .. } = polls;
            self.failures.push(format!("{very_long} of {measured} polls took over 50 ms; {VERY_LONG_POLLS} may"));
        }
        if self.recovered_after.is_none() {
            let mut why: Vec<_> = self.after.problems.keys().cloned().collect();
            why.extend(
                self.memory.map(|memory| format!("memory {} MiB after {} MiB", mib(memory.after), mib(memory.before))),
            );
            self.failures.push(format!("not as before after {} s: {}", bounds.recovery, why.join("; ")));
        }
    }

    /// Records times that are much longer than before the behaviour.
    fn judge_times(&mut self) {
        let p99 = |times: Option<Percentiles>| times.map_or(0.0, |times| times.p99);
        let (before, during) = (p99(self.before.later), p99(self.during.later));
        let bound = CHANGE.max(TIMES * before);
        if during > bound {
            let [during, bound, before] = [during, bound, before].map(short);
            let whole = match self.during.whole() {
                0 => String::new(),
                count => format!("; {count} changes count in full, without a time at that client"),
            };
            self.failures.push(format!(
                "p99 of changes {during} ms later than at a client of the control plane itself, over {bound} ms; \
                 {before} ms before{whole}"
            ));
        }
        match self.during.health {
            None => self.failures.push("/healthz was not answered".into()),
            Some(times) if times.max > HEALTH => {
                self.failures.push(format!("/healthz in {} ms, over {HEALTH} ms", short(times.max)));
            }
            Some(_) => {}
        }
        let problems = self.during.problems.iter().filter(|(what, _)| what.starts_with("/healthz"));
        self.failures.extend(problems.map(|(what, count)| format!("{count} x {what}")));
    }
}

impl Report {
    pub fn passed(&self) -> bool {
        self.outcomes.iter().all(Outcome::passed)
    }

    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

pub fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

/// How many bytes a relay may log because of one behaviour.
const LOG: u64 = 16 << 20;
/// A p99 of changes up to these milliseconds passes in any case, and so does one up to `TIMES` the p99 from before.
const CHANGE: f64 = 50.0;
const TIMES: f64 = 10.0;
/// How many polls have to be measured for a judgement.
const POLLS: u64 = 10_000;
/// The percentage of polls that may take over a millisecond.
const LONG_POLLS: f64 = 0.1;
/// How many measured polls may take over 50 milliseconds, whatever the number of others. One of 64 is measured, so these are some 200.
const VERY_LONG_POLLS: u64 = 3;
/// Milliseconds in which `/healthz` has to answer.
const HEALTH: f64 = 1000.0;

#[cfg(test)]
mod tests {
    use super::super::times::Percentiles;
    use super::*;

    fn outcome() -> Outcome {
        let times = Some(Percentiles { count: 1, p50: 1.0, p99: 1.0, max: 1.0 });
        let problems = BTreeMap::new();
        let changes = Figures { received: times, direct: times, later: times, ..Figures::default() };
        let well = Figures { answered: times, served: times, health: times, problems, ..changes };
        Outcome {
            behaviour: Behaviour::Nacks,
            seconds: 1.0,
            done: Done { connections: 1, ..Done::default() },
            before: well.clone(),
            during: well.clone(),
            after: well,
            recovered_after: Some(1.0),
            memory: Some(Memory { before: 1 << 20, peak: 9 << 20, after: 1 << 20 }),
            contained: None,
            log_bytes: Some(1 << 20),
            forged_lines: Some(0),
            limits: BTreeMap::new(),
            polls: None,
            failures: Vec::new(),
        }
    }

    fn failures(change: impl FnOnce(&mut Outcome)) -> Vec<String> {
        judged(change, false)
    }

    fn judged(change: impl FnOnce(&mut Outcome), is_relay_bounded: bool) -> Vec<String> {
        let mut outcome = outcome();
        change(&mut outcome);
        outcome.judge(Bounds { memory: 10 << 20, recovery: 60, is_relay_bounded });
        outcome.failures
    }

    #[test]
    fn each_harm_is_a_failure() {
        assert!(failures(|_| ()).is_empty());
        assert_eq!(failures(|outcome| outcome.memory = None).len(), 0, "unknown memory is not judged");
        let late = |outcome: &mut Outcome| {
            outcome.during.problems.insert("late".into(), 3);
        };
        assert_eq!(failures(late), ["3 x late"]);
        let before = |outcome: &mut Outcome| {
            outcome.before.problems.insert("late".into(), 3);
        };
        assert_eq!(failures(before).len(), 0, "that was not the behaviour");
        assert_eq!(failures(|outcome| outcome.during.served = None), ["no new client was served"]);
        let peak = |outcome: &mut Outcome| outcome.memory.as_mut().unwrap().peak = 11 << 20;
        assert_eq!(failures(peak), ["memory of 11 MiB, over 10 MiB"]);
        assert_eq!(failures(|outcome| outcome.log_bytes = Some(17 << 20)), ["17 MiB of log, over 16 MiB"]);
        assert_eq!(failures(|outcome| outcome.forged_lines = Some(2)), ["2 forged lines in the log"]);
        assert!(failures(|outcome| outcome.recovered_after = None)[0].starts_with("not as before after 60 s"));
        let polls =
            |measured, long| move |outcome: &mut Outcome| outcome.polls = Some(Polls { measured, long, very_long: 0 });
        assert_eq!(failures(polls(10_000, 11)), ["11 of 10000 polls took over 1 ms; 0.1 % may"]);
        assert!(failures(polls(10_000, 10)).is_empty());
        assert!(failures(polls(9_999, 500)).is_empty(), "too few to judge");
        let very_long = |measured, very_long| {
            move |outcome: &mut Outcome| outcome.polls = Some(Polls { measured, long: very_long, very_long })
        };
        assert_eq!(failures(very_long(9, 4)), ["4 of 9 polls took over 50 ms; 3 may"]);
        assert_eq!(failures(very_long(9_000_000, 4)), ["4 of 9000000 polls took over 50 ms; 3 may"]);
        assert!(failures(very_long(9, 3)).is_empty());
    }

    /// Returns percentiles with these values.
    fn of_ms(p99: f64, max: f64) -> Option<Percentiles> {
        Some(Percentiles { count: 100, p50: 1.0, p99, max })
    }

    #[test]
    fn times_are_judged_if_the_relay_bounds_its_memory() {
        let changes = |before, during| {
            move |outcome: &mut Outcome| {
                (outcome.before.later, outcome.during.later) = (of_ms(before, before), of_ms(during, during));
                outcome.during.direct = of_ms(1.0, 1.0);
            }
        };
        assert!(judged(|_| (), true).is_empty());
        assert!(judged(changes(1.0, 49.0), true).is_empty());
        assert!(judged(changes(7.0, 69.0), true).is_empty());
        let what = "ms later than at a client of the control plane itself, over";
        let late = |times: &str| vec![format!("p99 of changes {}", times.replace("..", what))];
        assert_eq!(judged(changes(1.0, 51.0), true), late("51.00 .. 50.00 ms; 1.000 ms before"));
        assert_eq!(judged(changes(7.0, 71.0), true), late("71.00 .. 70.00 ms; 7.000 ms before"));
        let some_whole = |outcome: &mut Outcome| {
            changes(1.0, 51.0)(outcome);
            outcome.during.direct.as_mut().unwrap().count = 97;
        };
        let whole = "51.00 .. 50.00 ms; 1.000 ms before; 3 changes count in full, without a time at that client";
        assert_eq!(judged(some_whole, true), late(whole));
        let slow_for_all = |outcome: &mut Outcome| {
            (outcome.during.received, outcome.during.direct) = (of_ms(170.0, 170.0), of_ms(168.0, 168.0));
        };
        assert!(judged(slow_for_all, true).is_empty(), "the control plane was slow, and not the relay");
        let health = |max| move |outcome: &mut Outcome| outcome.during.health = of_ms(1.0, max);
        assert!(judged(health(999.0), true).is_empty());
        assert_eq!(judged(health(1001.0), true), ["/healthz in 1001 ms, over 1000 ms"]);
        let silent = |outcome: &mut Outcome| outcome.during.health = None;
        assert_eq!(judged(silent, true), ["/healthz was not answered"]);
        let broken = |outcome: &mut Outcome| {
            outcome.during.problems.insert("/healthz: nothing in 5s".into(), 2);
        };
        assert_eq!(judged(broken, true), ["2 x /healthz: nothing in 5s"]);
        let all = [judged(changes(1.0, 51.0), false), failures(health(1001.0)), failures(silent), failures(broken)];
        assert!(all.concat().is_empty(), "they are shown and not judged");
    }
}
