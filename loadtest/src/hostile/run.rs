//! Plays behaviours, one after another, each with the phases before, during and after.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ValueEnum;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::behaviour::Behaviour;
use super::container::Container;
use super::health::{self, Counted};
use super::options::Options;
use super::outcome::{Bounds, Memory, Outcome, Report};
use super::stage::Stage;
use super::times::Phase;
use crate::measure::{Process, raise_open_files};
use crate::output;
use crate::report::Machine;

/// Plays the behaviours, prints and writes the outcomes, and returns whether all passed.
pub async fn command(options: &Options) -> anyhow::Result<bool> {
    if options.list {
        Behaviour::value_variants().iter().for_each(|one| output::line(format!("{:<20}{}", one.name(), one.help())));
        return Ok(true);
    }
    let report = run(options, |outcome| {
        let verdict = if outcome.passed() { "passed" } else { "FAILED" };
        output::line(format!("{}: {verdict}", outcome.behaviour.name()));
    })
    .await?;
    output::line(format!("\n{report}"));
    if let Some(path) = &options.json {
        report.write(path)?;
    }
    Ok(report.passed())
}

/// Plays the selected behaviours, and calls `progress` with each outcome.
pub async fn run(options: &Options, mut progress: impl FnMut(&Outcome)) -> anyhow::Result<Report> {
    raise_open_files(if options.small { CONNECTIONS / 20 } else { CONNECTIONS })?;
    if let Some(one) = options.behaviours().into_iter().find(|one| one.needs_admin() && !options.has_admin()) {
        bail!("{} needs --admin", one.name());
    }
    let mut outcomes = Vec::new();
    for behaviour in options.behaviours() {
        let outcome = play(options, behaviour).await.with_context(|| behaviour.name())?;
        progress(&outcome);
        outcomes.push(outcome);
    }
    let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    Ok(Report { command, machine: Machine::this(), outcomes })
}

async fn play(options: &Options, behaviour: Behaviour) -> anyhow::Result<Outcome> {
    let stage = Stage::start(options, behaviour).await?;
    well(&stage, options).await?;
    let before = stage.phases.begin();
    sleep(options.before()).await;
    let memory_before = rss(stage.process)?;
    let peak = Peak::start(stage.process, options.weir.is_some());
    let log_before = stage.log_bytes();
    let (counted_before, unread_before) = health::known(health::counted(stage.admin).await);

    let during = stage.phases.begin();
    let began = Instant::now();
    let offender = stage.offender.clone();
    let hostile = tokio::spawn(timeout(options.duration(), behaviour.play(offender)));
    let _ = hostile.await.with_context(|| format!("{} broke off", behaviour.name()))?; // it ends when its time is over
    let ended = Instant::now();

    let (memory, recovery) = (options.memory_bound(), options.recovery().as_secs());
    let bounds = Bounds { memory, recovery, is_relay_bounded: options.is_relay_bounded() };
    let (after, recovered_after) = recover(&stage, options, memory_before, ended).await;
    let memory = match (memory_before, rss(stage.process)) {
        (Some(before), Ok(Some(after))) => Some(Memory { before, peak: peak.stop(), after }),
        _ => None,
    };
    let (Counted { limits, polls }, unread) = health::known(health::counted(stage.admin).await);
    let mut outcome = Outcome {
        behaviour,
        seconds: (ended - began).as_secs_f64(),
        done: stage.offender.did.done(),
        before: before.figures(),
        during: during.figures(),
        after: after.figures(),
        recovered_after: recovered_after.map(|time| time.as_secs_f64()),
        memory,
        contained: stage.container.as_ref().map(Container::counted).transpose()?,
        log_bytes: stage.log_bytes().map(|bytes| bytes - log_before.unwrap_or_default()),
        forged_lines: stage.forged_lines(),
        limits,
        // Without the first count, all that was polled before would count for this behaviour.
        polls: polls.zip(counted_before.polls).map(|(polls, before)| polls.since(before)),
        failures: Vec::new(),
    };
    outcome.judge(bounds);
    if options.weir.is_some() {
        outcome.failures.extend(unread_before.into_iter().chain(unread));
    }
    if stage.process.is_some_and(|process| process.rss().is_err()) {
        outcome.failures.push("the server's process has ended".into());
    }
    stage.stop().await;
    Ok(outcome)
}

/// Waits until the honest clients are served without a problem.
async fn well(stage: &Stage, options: &Options) -> anyhow::Result<()> {
    let deadline = Instant::now() + if options.weir.is_some() { START } else { START_ELSEWHERE };
    let mut phase = stage.phases.begin();
    while !phase.is_well() {
        if Instant::now() > deadline {
            bail!("the server does not serve the honest clients: {:?}", phase.figures().problems);
        }
        if !phase.figures().problems.is_empty() {
            phase = stage.phases.begin();
        }
        sleep(LOOK).await;
    }
    Ok(())
}

/// Waits until everything is as before, in periods of a second. Returns the figures of the last period, and how long it took if it was in time.
async fn recover(
    stage: &Stage,
    options: &Options,
    memory: Option<u64>,
    ended: Instant,
) -> (Arc<Phase>, Option<Duration>) {
    loop {
        let phase = stage.phases.begin();
        sleep(PERIOD).await;
        let is_near = match (memory, rss(stage.process)) {
            (Some(before), Ok(Some(now))) => now <= before + NEAR,
            (None, _) => true,
            (Some(_), _) => return (phase, None), // the process has ended
        };
        if phase.is_well() && is_near {
            return (phase, Some(ended.elapsed()));
        }
        if ended.elapsed() > options.recovery() {
            return (phase, None);
        }
    }
}

fn rss(process: Option<Process>) -> anyhow::Result<Option<u64>> {
    process.map(|process| process.rss()).transpose()
}

/// The maximum of RSS: from the kernel, if its counter may be used, and from samples.
struct Peak {
    process: Option<Process>,
    is_exact: bool,
    seen: tokio::task::JoinHandle<()>,
    max: Arc<std::sync::atomic::AtomicU64>,
}

impl Peak {
    /// The kernel's maximum for a process that was just started counts even if it cannot be reset.
    fn start(process: Option<Process>, is_new: bool) -> Self {
        let is_exact = process.is_some_and(|process| process.reset_peak().is_ok() || is_new);
        let max = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let kept = max.clone();
        let seen = tokio::spawn(async move {
            let mut ticks = interval(LOOK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while let Ok(Some(rss)) = rss(process) {
                kept.fetch_max(rss, std::sync::atomic::Ordering::Relaxed);
                ticks.tick().await;
            }
        });
        Self { process, is_exact, seen, max }
    }

    fn stop(self) -> u64 {
        self.seen.abort();
        let exact = self.process.filter(|_| self.is_exact).and_then(|process| process.peak_rss().ok());
        self.max.load(std::sync::atomic::Ordering::Relaxed).max(exact.unwrap_or_default())
    }
}

/// The maximum of open connections of this process, both of the control plane and of the clients.
const CONNECTIONS: usize = 8000;
const START: Duration = Duration::from_secs(30);
/// The time limit for the start of a relay that ran before its control plane: its attempts may be far apart by then.
const START_ELSEWHERE: Duration = Duration::from_secs(150);
const LOOK: Duration = Duration::from_millis(20);
const PERIOD: Duration = Duration::from_secs(1);
/// How much more RSS than before still counts as recovered, because the allocator may keep it.
const NEAR: u64 = 64 << 20;
