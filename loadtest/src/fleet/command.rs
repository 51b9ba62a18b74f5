//! `weir-loadtest clients`

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Behaviour, Fleet, FleetOptions, Group, NodeTemplate};
use crate::address::{TlsOptions, resolve};
use crate::checks::Check;
use crate::observe::Observer;
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
    /// Checks to leave out, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub skip: Vec<Check>,
    #[command(flatten)]
    pub node: NodeTemplate,
    #[command(flatten)]
    pub tls: TlsOptions,
}

/// Runs the clients for the configured time, and returns whether every check passed.
pub async fn run(options: &Options, observer: Arc<dyn Observer>) -> anyhow::Result<bool> {
    let (target, tls) = resolve(&options.target, &options.tls).await?;
    let skipped: BTreeSet<Check> =
        options.skip.iter().copied().chain(Check::ALL.into_iter().filter(|c| c.needs_origin())).collect();
    let groups = options.groups.iter().map(|(behaviour, count)| Group {
        variant: options.variant,
        clients_per_connection: options.clients_per_connection,
        node: options.node.clone(),
        listeners: options.listeners.clone(),
        period: options.period,
        window: options.window,
        ..Group::new(*behaviour, *count)
    });
    let checks = Check::ALL.into_iter().filter(|check| !skipped.contains(check)).collect();
    let fleet = FleetOptions {
        targets: vec![target],
        tls,
        groups: groups.collect(),
        checks,
        connect_rate: options.connect_rate,
    };
    let fleet = Fleet::start(fleet, None, observer)?;
    let end = Instant::now() + options.duration;
    while Instant::now() < end {
        let pause = PROGRESS.min(end.saturating_duration_since(Instant::now()));
        tokio::select! {
            () = tokio::time::sleep(pause) => println!("{}", fleet.counters()),
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                break;
            }
        }
    }
    let counters = fleet.stop().await;
    let violations = counters.kept_violations();
    violations.iter().for_each(|violation| println!("{violation}"));
    let off: Vec<_> = skipped.iter().map(|check| check.name()).collect();
    println!("checks off: {}", if off.is_empty() { "none".into() } else { off.join(", ") });
    println!("violations: {}", counters.violations.value());
    Ok(counters.violations.value() == 0)
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
