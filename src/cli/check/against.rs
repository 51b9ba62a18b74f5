//! `weir check --against`: what a file would change in a running relay.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use crate::cli::admin::{AdminArgs, AdminError};
use crate::cli::endpoint::TlsArgs;
use crate::config::{Applies, Config, InUse, Reloaded, applies};

/// The relay that a file is compared with.
#[derive(Debug, clap::Args)]
pub struct Against {
    /// Admin address of a running relay: also shows what this file would change there, what waits for a restart, and how many streams end.
    /// The relay is only read
    #[arg(long, value_name = "URI", conflicts_with = "identities")]
    against: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
}

/// Why the effect on a relay cannot be foretold.
#[derive(Debug, thiserror::Error)]
pub(super) enum AgainstError {
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error("{0} shows no configuration; is it a relay of this version?")]
    NoConfiguration(String),
}

/// The effect that a file would have.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Foretold {
    Taken(String),
    /// The relay would keep its present configuration.
    Refused(String),
}

impl Against {
    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self { against: None, tls: TlsArgs::default() }
    }

    /// Returns the relay, if one is given to compare with.
    pub(super) fn relay(self) -> Option<AdminArgs> {
        let Self { against, tls } = self;
        Some(AdminArgs::of("--against", against?, tls))
    }
}

/// Returns what the relay would do with this file.
pub(super) async fn foretell(
    relay: &AdminArgs,
    path: &Path,
    text: &str,
    config: &Config,
) -> Result<Foretold, AgainstError> {
    let page = relay.get("/config", &[]).await?;
    let clients = relay.get("/clients", &[("limit", "1")]).await?;
    let bootstrap = page["bootstrap_sha256"].as_str().map(str::to_owned);
    let is_known = page["config"].is_object() && page.get("bootstrap_sha256").is_some();
    let in_use = is_known.then(|| InUse::of_shown(&page["config"], bootstrap)).flatten();
    let in_use = in_use.ok_or_else(|| AgainstError::NoConfiguration(relay.address().to_owned()))?;
    let told = in_use.compare(path, text, config.clone());
    let told = told.map_err(|error| error.to_string()).and_then(|told| admitted(told, &page["command_line"]));
    let file = page["file"].as_str().unwrap_or_default();
    let head = format!("\nin the relay at {}, which has read {file}\n", relay.address());
    Ok(match told {
        Ok(told) => Foretold::Taken(head + &words(&told, clients["open"].as_u64().unwrap_or_default())),
        Err(reason) => Foretold::Refused(format!("the relay at {} would not take it: {reason}", relay.address())),
    })
}

/// Returns the same result if the relay's command line permits it, otherwise the reason why not.
fn admitted(mut told: Reloaded, command_line: &Value) -> Result<Reloaded, String> {
    if let Some(admin) = command_line["--admin"].as_str().and_then(|admin| admin.parse().ok()) {
        told.config.admin_at(admin).map_err(|reason| format!("--admin: {reason}"))?;
    }
    Ok(told)
}

fn words(told: &Reloaded, open: u64) -> String {
    let Reloaded { config, changed, pending } = told;
    let of = |when| changed.iter().filter(|key| applies(key) == when).cloned().collect::<Vec<_>>();
    let (at_once, new_streams) = (of(Applies::AtOnce), of(Applies::NewStreams));
    let mut out = String::new();
    let mut row = |title: &str, keys: &[String]| {
        if !keys.is_empty() {
            let _ = writeln!(out, "  {title:<13} {}", keys.join(", ")); // writing to a String does not fail
        }
    };
    row("at once", &at_once);
    row("new streams", &new_streams);
    row("a restart", pending);
    if changed.is_empty() && pending.is_empty() {
        return "  nothing changes\n".to_owned();
    }
    let judged = at_once.iter().any(|key| key == "permissions" || key.starts_with("listen.tls"));
    let end = if !new_streams.is_empty() {
        let times = config.drain.of_reload();
        let (grace, spread) = (humantime::format_duration(times.grace), humantime::format_duration(times.spread));
        let streams = if open == 1 { "the open stream ends".to_owned() } else { format!("{open} open streams end") };
        match open {
            0 => "no stream is open".to_owned(),
            _ => format!("{streams} within {spread}; one without a response is kept for {grace} more"),
        }
    } else if judged {
        "only clients end that come under another rule, or whose certificates would not be accepted".to_owned()
    } else {
        "no stream ends".to_owned()
    };
    let _ = writeln!(out, "  {end}");
    out
}
