//! Shows the output of a command again every two seconds.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use super::admin::AdminError;
use super::{CANNOT_ASK, error, note, show_more};

/// Shows a text once, or again and again until its reader closes the pipe. A relay that does not answer is asked again.
pub(super) async fn show_again(is_watched: bool, text: impl AsyncFn() -> Result<String, AdminError>) -> ExitCode {
    loop {
        let begin = if is_watched && io::stdout().is_terminal() { CLEAR } else { "" };
        let shown = match text().await {
            Ok(text) => show_more(&format!("{begin}{text}")).map_err(|error| format!("cannot write: {error}")),
            Err(error) if is_watched && matches!(error, AdminError::Unreachable(..) | AdminError::Late(_)) => {
                note(&error.to_string());
                Ok(true) // the relay may come back
            }
            Err(error) => Err(error.to_string()),
        };
        match shown {
            Ok(is_read) if is_watched && is_read => {}
            Ok(_) => return ExitCode::SUCCESS,
            Err(reason) => {
                error(&reason);
                return ExitCode::from(CANNOT_ASK);
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

const INTERVAL: Duration = Duration::from_secs(2);
/// Clears a terminal.
pub(super) const CLEAR: &str = "\x1b[2J\x1b[H";
