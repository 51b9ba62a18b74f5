//! `weir-loadtest record` and `weir-loadtest replay`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;

use super::file::Writer;
use super::record::{alone, record};
use super::replay::Replay;
use crate::address::{TlsOptions, resolve};
use crate::fleet::{Behaviour, Client, NodeTemplate};
use crate::output;

#[derive(Debug, clap::Args)]
pub struct RecordOptions {
    /// Server to record: HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:PATH.
    pub target: String,
    /// File to write.
    pub file: PathBuf,
    /// Which client it is: envoy-ads-delta, envoy-ads-sotw or grpc.
    #[arg(long, default_value = "envoy-ads-delta")]
    pub behaviour: Behaviour,
    /// Listeners from which a gRPC client starts, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub listeners: Vec<String>,
    /// Time after which the recording ends; Ctrl-C ends it earlier.
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration)]
    pub duration: Duration,
    #[command(flatten)]
    pub node: NodeTemplate,
    #[command(flatten)]
    pub tls: TlsOptions,
}

#[derive(Debug, clap::Args)]
pub struct ReplayOptions {
    /// Recording to send.
    pub file: PathBuf,
    /// Address for gRPC without TLS; port 0 takes a free one, which is printed.
    #[arg(long, default_value = "127.0.0.1:18010")]
    pub listen: SocketAddr,
    /// Times the recorded pace; 0 sends without pauses.
    #[arg(long, default_value_t = 1.0)]
    pub speed: f64,
}

pub async fn run_record(options: &RecordOptions) -> anyhow::Result<()> {
    let behaviours = [Behaviour::EnvoyAdsDelta, Behaviour::EnvoyAdsSotw, Behaviour::Grpc];
    ensure!(behaviours.contains(&options.behaviour), "only aggregated streams are recorded");
    let target = resolve(&options.target, &options.tls).await?;
    let shared = alone();
    let listeners: Vec<_> = options.listeners.iter().map(|name| shared.names.intern(name)).collect();
    let client = Client::new(1, options.behaviour, None, options.node.encode(1), &listeners, shared);
    let writer = Writer::create(&options.file)?;
    let variant = options.behaviour.variant(None);
    let responses = record(target, client, variant, options.duration, writer).await?;
    output::line(format!("recorded {responses} responses in {}", options.file.display()));
    Ok(())
}

pub async fn run_replay(options: &ReplayOptions) -> anyhow::Result<()> {
    let replay = Replay::start(options.listen, options.file.clone(), options.speed).await?;
    output::line(format!("replay listens on {}", replay.address));
    tokio::signal::ctrl_c().await?;
    Ok(())
}
