//! `weir-loadtest clients`

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::signal::unix::{SignalKind, signal};

use super::{Behaviour, Fleet, FleetOptions, Group, Judged, NodeTemplate, Progress, Verdict};
use crate::address::{TlsOptions, resolve};
use crate::checks::Check;
use crate::observe::Observer;
use crate::output;
use crate::wire::Variant;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Server under test: HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:PATH.
    pub target: String,
    /// Clients of a behaviour, as BEHAVIOUR=COUNT; may be repeated.
    #[arg(long = "clients", value_name = "BEHAVIOUR=COUNT", default_value = "envoy-ads-delta=100", value_parser = group)]
    pub groups: Vec<(Behaviour, usize)>,
    /// Variant of behaviours that leave a choice [default: delta; sotw for envoy-per-type].
    #[arg(long)]
    pub variant: Option<Variant>,
    /// Clients that share a connection, each with its own streams.
    #[arg(long, default_value_t = 1)]
    pub clients_per_connection: usize,
    /// Connections opened per second [default: no limit].
    #[arg(long)]
    pub connect_rate: Option<u32>,
    /// Time after which the clients stop.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    pub duration: Duration,
    /// Listeners from which gRPC clients start, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub listeners: Vec<String>,
    /// Time between two connections of flappers, and between two steps of subscription churn.
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    pub period: Duration,
    /// HTTP/2 receive window in bytes [default: 2147483647; 65535 for slow readers].
    #[arg(long)]
    pub window: Option<u32>,
    /// Clients that behave (envoy-*, grpc) and have to receive everything that they subscribe to [default: all of them].
    #[arg(long, value_name = "COUNT")]
    pub min_synced: Option<u64>,
    /// Checks to leave out, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub skip: Vec<Check>,
    #[command(flatten)]
    pub node: NodeTemplate,
    #[command(flatten)]
    pub tls: TlsOptions,
}

/// Runs the clients for the configured time, and returns the verdict.
pub async fn run(options: &Options, observer: Arc<dyn Observer>) -> anyhow::Result<Verdict> {
    let [clients, subscribing, behaving, min_synced] = options.counts()?;
    let (target, tls) = resolve(&options.target, &options.tls).await?;
    let skipped: BTreeSet<Check> =
        options.skip.iter().copied().chain(Check::ALL.into_iter().filter(|c| c.needs_origin())).collect();
    let checks = Check::ALL.into_iter().filter(|check| !skipped.contains(check)).collect();
    let fleet = FleetOptions {
        targets: vec![target],
        tls,
        groups: options.groups(),
        checks,
        connect_rate: options.connect_rate,
    };
    let mut interrupt = signal(SignalKind::interrupt())?;
    let fleet = Fleet::start(fleet, None, observer)?;
    let (start, duration) = (Instant::now(), options.duration);
    let mut interrupted = String::new();
    while start.elapsed() < duration && interrupted.is_empty() {
        let pause = PROGRESS.min(duration.saturating_sub(start.elapsed()));
        tokio::select! {
            () = tokio::time::sleep(pause) => {
                let counters = fleet.counters();
                output::line(Progress { elapsed: start.elapsed(), duration, clients: clients as usize, counters });
            }
            _ = interrupt.recv() => {
                let [elapsed, duration] = [start.elapsed(), duration].map(|time| time.as_secs_f64());
                interrupted = format!(" (interrupted after {elapsed:.0} s of {duration:.0} s)");
            }
        }
    }
    let counters = fleet.stop().await;
    counters.kept_violations().iter().for_each(output::line);
    let judged = Judged::new(&counters, [subscribing, behaving, min_synced]);
    let off: Vec<_> = skipped.iter().map(|check| check.name()).collect();
    output::line(format!("checks off: {}", if off.is_empty() { "none".into() } else { off.join(", ") }));
    output::line(format!("violations: {}", counters.violations.value()));
    output::line(format!("synced:     {} of {clients}", counters.synced.value()));
    let errors = counters.errors.counted();
    output::line(format!("errors:     {}", if errors.is_empty() { "none" } else { "the first of each kind" }));
    errors.iter().for_each(|(first, count)| output::line(format!("  {count} x {first}")));
    output::line(format!("result:     {judged}{interrupted}"));
    Ok(judged.verdict())
}

impl Options {
    /// Returns how many clients there are, how many of them request anything, how many behave, and how many of those have to sync.
    fn counts(&self) -> anyhow::Result<[u64; 4]> {
        let count = |of: fn(Behaviour) -> bool| -> u64 {
            let counted = self.groups.iter().filter(|(behaviour, _)| of(*behaviour)).map(|(_, count)| *count as u64);
            counted.fold(0, u64::saturating_add)
        };
        let (clients, behaving) = (count(|_| true), count(Behaviour::behaves));
        ensure!(clients > 0, "no clients: expected --clients BEHAVIOUR=COUNT with a count above 0");
        let has_listeners = !self.listeners.is_empty() || count(|behaviour| behaviour == Behaviour::Grpc) == 0;
        ensure!(has_listeners, "gRPC clients request listeners by name: expected --listeners NAME,...");
        let min_synced = self.min_synced.unwrap_or(behaving);
        ensure!(min_synced <= behaving, "--min-synced is {min_synced}, and {behaving} clients are asked to behave");
        Ok([clients, count(Behaviour::subscribes), behaving, min_synced])
    }

    fn groups(&self) -> Vec<Group> {
        let group = |(behaviour, count): &(Behaviour, usize)| Group {
            variant: self.variant,
            clients_per_connection: self.clients_per_connection,
            node: self.node.clone(),
            listeners: self.listeners.clone(),
            period: self.period,
            window: self.window,
            ..Group::new(*behaviour, *count)
        };
        self.groups.iter().map(group).collect()
    }
}

fn group(text: &str) -> Result<(Behaviour, usize), String> {
    let (behaviour, count) = text.split_once('=').unwrap_or((text, "1"));
    let behaviour = <Behaviour as clap::ValueEnum>::from_str(behaviour, false).map_err(|_| {
        let known = Behaviour::ALL.map(|behaviour| behaviour.to_string()).join(", ");
        format!("unknown behaviour {behaviour:?}: expected one of {known}")
    })?;
    Ok((behaviour, count.parse().map_err(|_| format!("invalid count {count:?}"))?))
}

const PROGRESS: Duration = Duration::from_secs(5);
