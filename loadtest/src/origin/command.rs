//! `weir-loadtest origin`

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;

use super::{Churn, Counts, Fault, Origin, Pattern, control};
use crate::output;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Address for gRPC without TLS; port 0 takes a free one, which is printed.
    #[arg(long, default_value = "127.0.0.1:18010")]
    pub listen: SocketAddr,
    /// Address for commands, which docs/load-testing.md lists.
    #[arg(long)]
    pub control: Option<SocketAddr>,
    #[command(flatten)]
    pub counts: Counts,
    /// Changes by itself, in this pattern.
    #[arg(long)]
    pub churn: Option<Pattern>,
    /// Time between two steps of the pattern.
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    pub every: Duration,
    /// Resources of a step, or updates of a burst.
    #[arg(long, default_value_t = 1)]
    pub count: usize,
    /// One thing that it does wrong on purpose.
    #[arg(long)]
    pub fault: Option<Fault>,
}

/// Serves until it is interrupted.
pub async fn run(options: &Options) -> anyhow::Result<()> {
    let origin = Arc::new(Origin::start(options.listen, options.counts, options.fault).await?);
    output::line(format!("origin listens on {}", origin.address));
    let commands = match options.control {
        None => None,
        Some(address) => {
            let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
            output::line(format!("commands on {}", listener.local_addr()?));
            Some(tokio::spawn(control(listener, origin.clone())))
        }
    };
    let churn = options.churn.map(|pattern| Churn { pattern, every: options.every, count: options.count });
    tokio::select! {
        () = forever(&origin, churn.as_ref()) => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    if let Some(commands) = commands {
        commands.abort();
    }
    Ok(())
}

async fn forever(origin: &Origin, churn: Option<&Churn>) {
    match churn {
        Some(churn) => origin.churn(churn).await,
        None => std::future::pending().await,
    }
}
