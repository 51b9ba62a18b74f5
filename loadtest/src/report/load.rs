//! The report of a run of simulated clients: their times, and what a server process spent meanwhile.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

use super::{Cell, Machine, Point, Report, Sample};
use crate::bench::Subject;
use crate::measure::{Latencies, Process, Rates, Recorder, Times, tcp_memory};
use crate::observe::{Conduct, Observer};
use crate::output;

/// What is measured of a run, and where it is written.
#[derive(Debug, clap::Args)]
pub struct Measures {
    /// Process of the server, whose processor time and memory are measured
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Print rates every so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub rates: Option<u64>,
    /// Print times and costs at the end
    #[arg(long)]
    pub report: bool,
    /// Write times and costs to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write times and costs to this file as a page with plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl Measures {
    /// Whether a report is written to a file.
    pub fn writes_files(&self) -> bool {
        self.json.is_some() || self.html.is_some()
    }
}

/// Runs clients that report to an observer, and writes the selected reports. Returns the result of `run`.
pub async fn measured<T, R>(measures: &Measures, run: impl FnOnce(Arc<dyn Observer>) -> R) -> anyhow::Result<T>
where
    R: Future<Output = anyhow::Result<T>>,
{
    let recorder = Arc::new(Recorder::default());
    let process = measures.pid.map(Process::new).transpose()?;
    let mut log = Log::start(process)?;
    let mut run = std::pin::pin!(run(recorder.clone()));
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shown = recorder.counts();
    let result = loop {
        tokio::select! {
            result = &mut run => break result?,
            _ = ticks.tick() => {
                let rates = log.look(&recorder);
                if measures.rates.is_some_and(|seconds| rates.now.elapsed - shown.elapsed >= Duration::from_secs(seconds)) {
                    output::line(Rates { now: rates.now, before: shown });
                    shown = rates.now;
                }
            }
        }
    };
    log.look(&recorder);
    let report = log.report(&recorder)?;
    if measures.report {
        output::line(&report);
    }
    super::write(&report, measures.json.as_deref(), measures.html.as_deref())?;
    Ok(result)
}

/// The measurements so far.
struct Log {
    start: Instant,
    process: Option<Process>,
    first: First,
    last: (Instant, Duration),
    counts: crate::measure::Counts,
    times: BTreeMap<Conduct, Times>,
    timeline: Vec<Point>,
    /// The maximum of RSS so far.
    rss: u64,
    pss: u64,
    sockets: u64,
    connected: u64,
}

/// The state at the start.
#[derive(Debug, Default)]
struct First {
    cpu: Duration,
    write_calls: u64,
    rss: u64,
    pss: u64,
    sockets: u64,
}

impl Log {
    fn start(process: Option<Process>) -> anyhow::Result<Self> {
        let mut first = First { sockets: tcp_memory()?, ..First::default() };
        if let Some(process) = process {
            let memory = process.memory()?;
            (first.cpu, first.write_calls) = (process.cpu()?, process.write_calls()?);
            (first.rss, first.pss) = (memory.rss, memory.pss);
        }
        let now = Instant::now();
        let (counts, times) = Default::default();
        let last = (now, first.cpu);
        let (rss, pss, sockets, connected) = (0, 0, 0, 0);
        Ok(Self { start: now, process, first, last, counts, times, timeline: Vec::new(), rss, pss, sockets, connected })
    }

    fn look(&mut self, recorder: &Recorder) -> Rates {
        let rates = Rates { now: recorder.counts(), before: std::mem::replace(&mut self.counts, recorder.counts()) };
        let times = recorder.take_times();
        times.iter().for_each(|(conduct, times)| self.times.entry(*conduct).or_default().add(times));
        let mut figures = BTreeMap::new();
        for (names, received) in
            [(ALL_OVER_TIME, sum(&times, false).received), (BEHAVING_OVER_TIME, sum(&times, true).received)]
        {
            let ms = |percentile| received.percentile(percentile).as_secs_f64() * 1e3;
            let found = names.into_iter().zip([50.0, 99.0, 100.0]).filter(|_| received.count() > 0);
            figures.extend(found.map(|(name, percentile)| (name, ms(percentile))));
        }
        let now = Instant::now();
        // If the process has ended, there are no further figures, even if it was started again with another pid.
        if let Some((cpu, memory)) =
            self.process.and_then(|process| Some((process.cpu().ok()?, process.memory().ok()?)))
        {
            let cores = (cpu - self.last.1).as_secs_f64() / (now - self.last.0).as_secs_f64().max(1e-6);
            figures.extend([("cpu_cores", cores), ("rss_mib", memory.rss as f64 / MIB)]);
            (self.rss, self.pss) = (self.rss.max(memory.rss), self.pss.max(memory.pss));
            self.last = (now, cpu);
        }
        self.sockets = self.sockets.max(tcp_memory().unwrap_or_default());
        self.connected = self.connected.max(rates.now.connected.saturating_sub(rates.now.disconnected));
        if self.timeline.len() == POINTS {
            let mut index = 0;
            self.timeline.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
        let figures = figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        self.timeline.push(Point { seconds: (now - self.start).as_secs_f64(), figures });
        rates
    }

    fn report(self, recorder: &Recorder) -> anyhow::Result<Report> {
        let counts = recorder.counts();
        let seconds = counts.elapsed.as_secs_f64();
        let mut figures = BTreeMap::from([
            ("connects".to_owned(), counts.connected as f64),
            ("connects_per_s".to_owned(), counts.connected as f64 / seconds),
            ("synced".to_owned(), counts.synced as f64),
            ("changes_received".to_owned(), counts.changes as f64),
            ("received_mib".to_owned(), counts.bytes as f64 / MIB),
            ("violations".to_owned(), counts.violations as f64),
            ("tcp_memory_growth_mib".to_owned(), self.sockets.saturating_sub(self.first.sockets) as f64 / MIB),
            ("duration_s".to_owned(), seconds),
        ]);
        let (all, behaving) = (sum(&self.times, false), sum(&self.times, true));
        figures.extend(figures_of(&all).filter(|(name, _)| name.ends_with("_ms")));
        figures.extend(figures_of(&behaving).map(|(name, value)| (format!("behaving_{name}"), value)));
        let asked = recorder.asked();
        let clients: usize = asked.iter().filter(|(conduct, _)| conduct.behaves).map(|(_, clients)| clients).sum();
        figures.insert("behaving_clients".into(), clients as f64);
        let by_behaviour = asked.iter().map(|(conduct, clients)| {
            let times = self.times.get(conduct).cloned().unwrap_or_default();
            let own = [("clients".to_owned(), *clients as f64), ("behaves".to_owned(), f64::from(conduct.behaves))];
            (conduct.name.to_owned(), own.into_iter().chain(figures_of(&times)).collect())
        });
        let by_behaviour = by_behaviour.collect();
        if let Some(process) = self.process {
            let cpu = self.last.1.saturating_sub(self.first.cpu);
            figures.insert("cpu_s".into(), cpu.as_secs_f64());
            if counts.changes > 0 {
                figures.insert("cpu_us_per_delivery".into(), cpu.as_secs_f64() * 1e6 / counts.changes as f64);
            }
            let each =
                |most: u64, first: u64| most.saturating_sub(first) as f64 / 1024.0 / self.connected.max(1) as f64;
            figures.insert("rss_kib_per_connection".into(), each(self.rss, self.first.rss));
            figures.insert("pss_kib_per_connection".into(), each(self.pss, self.first.pss));
            if let Ok(writes) = process.write_calls() {
                figures.insert("write_calls".into(), writes.saturating_sub(self.first.write_calls) as f64);
            }
        }
        let sample = Sample {
            figures,
            timeline: self.timeline,
            fan_out: super::fan_out(&all.received),
            by_behaviour,
            behaving_fan_out: super::fan_out(&behaving.received),
            ..Sample::empty(Subject::Server, 0)
        };
        let cell = Cell { name: "clients".into(), samples: vec![sample], ..Cell::default() };
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        Ok(Report { command, machine: Machine::this(), cells: vec![cell] })
    }
}

/// Returns the times of all clients, or only of those that behave.
fn sum(times: &BTreeMap<Conduct, Times>, behaving: bool) -> Times {
    let mut sum = Times::default();
    times.iter().filter(|(conduct, _)| conduct.behaves || !behaving).for_each(|(_, times)| sum.add(times));
    sum
}

/// Returns the figures that follow from the times of some clients.
fn figures_of(times: &Times) -> impl Iterator<Item = (String, f64)> + '_ {
    let Times { first_sync, received, acked } = times;
    let counts = [("synced", first_sync), ("changes_received", received), ("changes_acked", acked)];
    let counts = counts.map(|(name, latencies)| (name.to_owned(), latencies.count() as f64));
    let times = [("first_sync", first_sync), ("received", received), ("acked", acked)];
    counts.into_iter().chain(times.into_iter().flat_map(|(what, latencies)| percentiles(what, latencies)))
}

/// Returns the usual percentiles.
pub fn percentiles<'a>(what: &'a str, latencies: &'a Latencies) -> impl Iterator<Item = (String, f64)> + 'a {
    let of = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)];
    let some = (latencies.count() > 0).then_some(of);
    some.into_iter().flatten().map(move |(name, percentile)| {
        (format!("{what}_{name}_ms"), latencies.percentile(percentile).as_secs_f64() * 1e3)
    })
}

const ALL_OVER_TIME: [&str; 3] = ["p50_ms", "p99_ms", "max_ms"];
const BEHAVING_OVER_TIME: [&str; 3] = ["behaving_p50_ms", "behaving_p99_ms", "behaving_max_ms"];
const TICK: Duration = Duration::from_secs(1);
/// How many points a timeline may have. A longer one loses every other point.
const POINTS: usize = 4000;
const MIB: f64 = (1 << 20) as f64;
