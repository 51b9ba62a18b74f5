//! `weir top`: the clients of a running relay that have lacked something for longest, live.

use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::sync::Notify;

use super::admin::{AdminArgs, AdminError};
use super::again::CLEAR;
use super::screen::Screen;
use super::status::client_table;
use super::summary::Summary;
use super::view_words::ViewWords;
use super::{CANNOT_ASK, error, show_more};

/// Shows the clients of a running relay that have lacked something for longest, again every two seconds
///
/// It ends by Ctrl-C, is stopped by Ctrl-Z until the shell continues it, and leaves the terminal as it was. Exit code: 0, or 2 if the relay
/// was never reached.
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

impl Top {
    /// Draws the picture again and again.
    pub async fn run(self) -> ExitCode {
        let (mut screen, continued) = (Screen::enter(), Notify::new());
        let ended = {
            let mut repeat = pin!(self.repeat(screen.is_terminal(), &continued));
            loop {
                tokio::select! {
                    ended = &mut repeat => break ended,
                    is_continued = screen.is_continued() => match is_continued {
                        true => continued.notify_one(),
                        false => break Ok(()),
                    },
                }
            }
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

    async fn repeat(&self, is_terminal: bool, continued: &Notify) -> Result<(), String> {
        let mut was_reached = false;
        let mut left = self.count;
        loop {
            let text = match self.picture().await {
                Ok(text) => {
                    was_reached = true;
                    text
                }
                Err(error) if was_reached => format!("{error}\n"), // the relay may come back
                Err(error) => return Err(error.to_string()),
            };
            let begin = if is_terminal { CLEAR } else { "" };
            let is_read = show_more(&format!("{begin}{text}")).map_err(|error| format!("cannot write: {error}"))?;
            left = left.map(|left| left - 1);
            if !is_read || left == Some(0) {
                return Ok(());
            }
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => {}
                () = continued.notified() => {}
            }
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

const PERIOD: Duration = Duration::from_secs(2);
