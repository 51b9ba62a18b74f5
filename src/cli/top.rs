//! `weir top`: the clients of a running relay that have lacked something for longest, live.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::signal::unix::{SignalKind, signal};

use super::admin::{AdminArgs, AdminError};
use super::status::{CLEAR, client_table};
use super::summary::Summary;
use super::view_words::ViewWords;
use super::{CANNOT_ASK, error, show, show_more};

/// Shows the clients of a running relay that have lacked something for longest, again every two seconds
///
/// It ends by Ctrl-C, and leaves the terminal as it was. Exit code: 0, or 2 if the relay was never reached.
#[derive(Debug, Args)]
pub struct Top {
    /// Clients to show
    #[arg(long, default_value = "20", value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// How often to show it; without it until interrupted
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    relay: AdminArgs,
}

/// The other screen of a terminal, for as long as this lives.
struct Screen(bool);

impl Screen {
    fn enter() -> Self {
        let is_terminal = io::stdout().is_terminal();
        if is_terminal {
            let _ = show(ENTER); // a closed stdout is noticed at the next picture
        }
        Self(is_terminal)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.0 {
            let _ = show(LEAVE); // nothing can be done about a terminal that is gone
        }
    }
}

impl Top {
    /// Prints the picture again and again.
    pub async fn run(self) -> ExitCode {
        let screen = Screen::enter();
        let ended = tokio::select! {
            ended = self.repeat(screen.0) => ended,
            () = interrupted() => Ok(()),
        };
        drop(screen);
        match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) => {
                error(&reason);
                ExitCode::from(CANNOT_ASK)
            }
        }
    }

    async fn repeat(&self, is_terminal: bool) -> Result<(), String> {
        let mut was_reached = false;
        let mut left = self.count;
        loop {
            let text = match self.picture().await {
                Ok(text) => {
                    was_reached = true;
                    text
                }
                Err(error) if was_reached => format!("{error}\n"), // it may come back
                Err(error) => return Err(error.to_string()),
            };
            let begin = if is_terminal { CLEAR } else { "" };
            let is_read = show_more(&format!("{begin}{text}")).map_err(|error| format!("cannot write: {error}"))?;
            left = left.map(|left| left - 1);
            if !is_read || left == Some(0) {
                return Ok(());
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn picture(&self) -> Result<String, AdminError> {
        let upstreams = self.relay.get("/upstreams", &[]).await?;
        let summary = Summary::ask(&self.relay, &upstreams, false).await?;
        let clients = summary.laggards(usize::from(self.limit));
        let table = match clients.is_empty() {
            true => "every client has what there is for it\n".to_owned(),
            false => client_table(clients, &ViewWords::of(&upstreams)),
        };
        Ok(format!("{}\n{table}", summary.text(&self.relay)))
    }
}

/// Waits for a signal by which somebody, or the end of the terminal, ends the program.
pub(super) async fn interrupted() {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
    let signals = kinds.into_iter().filter_map(|kind| signal(kind).ok());
    let mut waits: FuturesUnordered<_> = signals.map(|mut signal| async move { signal.recv().await }).collect();
    if waits.next().await.is_none() {
        std::future::pending().await // none can be caught
    }
}

const PERIOD: Duration = Duration::from_secs(2);
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
