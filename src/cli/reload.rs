//! `weir reload`: has a running relay read its configuration file again.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use http::StatusCode;
use serde_json::Value;

use super::admin::{AdminArgs, AdminError};
use super::output::{OutputArgs, finish};
use super::{FOUND, error};

/// Has a running relay read its configuration file again
///
/// Prints what has changed, and what waits for a restart. A relay takes changes over its admin socket, or with a certificate that
/// admin.tls.may_change lists. Exit code: 0, 1 if the relay does not take the file and goes on as before, 2 if it cannot be asked.
#[derive(Debug, Args)]
pub struct Reload {
    /// Only says what would change
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    relay: AdminArgs,
}

impl Reload {
    /// Sends the request and prints the result.
    pub async fn run(self) -> ExitCode {
        match self.answer().await {
            Err(AdminError::Refused { status: StatusCode::UNPROCESSABLE_ENTITY, reason }) => {
                error(&reason);
                ExitCode::from(FOUND)
            }
            answer => finish(answer.map(|text| (text, false))),
        }
    }

    async fn answer(&self) -> Result<String, AdminError> {
        let path = if self.dry_run { "/config/reload/dry_run" } else { "/config/reload" }; // an older relay does not know `dry_run`
        let said = self.relay.post(path, &[]).await?;
        let page = serde_json::from_str(&said).unwrap_or_default();
        Ok(self.output.of(&page, || text(&page, self.dry_run)))
    }
}

fn text(page: &Value, is_dry: bool) -> String {
    let keys =
        |of: &str| page[of].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    let (changed, pending) = (keys("changed"), keys("pending"));
    let mut out = String::new();
    let [changes, waits] =
        if is_dry { ["would change", "would wait for a restart"] } else { ["changed", "waits for a restart"] };
    for (title, keys) in [(changes, changed), (waits, pending)] {
        if !keys.is_empty() {
            let _ = writeln!(out, "{title}: {keys}"); // writing to a String does not fail
        }
    }
    if out.is_empty() { "nothing changes\n".to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_changes_and_what_waits_is_told() {
        let page = json!({"changed": ["limits.linger", "drain.grace"], "pending": ["listen"]});
        assert_eq!(text(&page, false), "changed: limits.linger, drain.grace\nwaits for a restart: listen\n");
        assert_eq!(text(&page, true), "would change: limits.linger, drain.grace\nwould wait for a restart: listen\n");
        assert_eq!(text(&json!({"changed": [], "pending": []}), false), "nothing changes\n");
    }
}
