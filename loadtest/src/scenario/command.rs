//! `weir-loadtest run`

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::file::Scenario;
use crate::observe::Observer;
use crate::output;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Scenario, as in loadtest/scenarios.
    pub file: PathBuf,
    /// The relay's program, instead of the one that the file names.
    #[arg(long)]
    pub relay: Option<PathBuf>,
    /// Runs with at most 10 clients of a group, few resources and waits of at most a second, to see that the scenario works.
    #[arg(long)]
    pub short: bool,
}

/// Runs a scenario, and returns whether it passed.
pub async fn run(options: &Options, observer: Arc<dyn Observer>) -> anyhow::Result<bool> {
    let scenario = Scenario::read(&options.file)?;
    let scenario = if options.short { scenario.shortened(10, Duration::from_secs(1)) } else { scenario };
    let report = super::run(&scenario, options.relay.as_deref(), observer).await?;
    output::line(&report);
    Ok(report.passed())
}
