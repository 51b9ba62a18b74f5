//! `weir watch`: follows the resources of an xDS server, and prints each change.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::diff::{self, Line};
use super::printer::{Printer, plain};
use super::query_args::{ArgumentError, Checked, Output, QueryArgs};
use super::query_state::{Change, QueryState, ReceivedResource};
use super::xds_client::{Client, Event};
use super::{CANNOT_ASK, error, note};

/// Follows the resources of an xDS server and prints each change as a diff
///
/// Existing resources are printed as added. Every response is ACKed, and lost connections are re-established. Exit code: 0, or 2 if the
/// server was never reached or --count was not.
#[derive(Debug, Args)]
pub struct Watch {
    #[command(flatten)]
    asking: QueryArgs,
    /// Ends after this many changes, existing resources included
    #[arg(long)]
    count: Option<usize>,
    /// Ends after this time
    #[arg(long, value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
}

impl Watch {
    /// Prints changes until the stream ends or a limit is reached, and returns the exit code.
    pub async fn run(self) -> ExitCode {
        let checked = match self.asking.check() {
            _ if self.asking.output == Output::Wire => Err(vec![ArgumentError::WireOutput]),
            checked => checked,
        };
        let Checked { server, question, transcoder } = match checked {
            Ok(checked) => checked,
            Err(errors) => {
                errors.iter().for_each(|fault| error(&fault.to_string()));
                return ExitCode::from(CANNOT_ASK);
            }
        };
        let out = io::stdout();
        let colour = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let printer = Printer { transcoder, output: self.asking.output, secrets: self.asking.show_secrets };
        let mut changes_out = ChangePrinter { printer, colour, out };
        let whom = server.name();
        let mut client = Client::start(server, QueryState::new(question));
        match self.follow(&mut client, &whom, &mut changes_out).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(Failure::Write(fault)) if fault.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Err(Failure::Write(fault)) => {
                error(&format!("cannot write: {fault}"));
                ExitCode::from(CANNOT_ASK)
            }
            Err(Failure::Server(reason)) => {
                error(&reason);
                ExitCode::from(CANNOT_ASK)
            }
        }
    }

    async fn follow(&self, client: &mut Client, whom: &str, changes_out: &mut ChangePrinter) -> Result<(), Failure> {
        let mut left = self.count;
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        let (mut first, mut connected, mut last_error) = (true, false, None);
        while left != Some(0) {
            let event = match deadline {
                None => client.next().await,
                Some(deadline) => match timeout_at(deadline, client.next()).await {
                    Ok(event) => event,
                    Err(_) if !connected => {
                        let reason = last_error.unwrap_or_else(|| "no connection".to_owned());
                        return Err(Failure::Server(format!("never connected to {whom}: {reason}")));
                    }
                    Err(_) if self.count.is_none() => return Ok(()),
                    Err(_) => return Err(Failure::Server("fewer changes than --count within --timeout".into())),
                },
            };
            match event {
                Event::Open(variant) => {
                    connected = true;
                    note(&format!("connected to {whom}, variant {}", variant.name()));
                }
                Event::Lost { turns: true, .. } => note("the server does not support delta; using sotw"),
                Event::Lost { hopeless: true, reason, .. } => return Err(Failure::Server(plain(&reason))),
                Event::Lost { reason, .. } => {
                    note(&format!("connection lost; retrying: {}", plain(&reason)));
                    last_error = Some(plain(&reason));
                }
                Event::News(changes) => {
                    if changes.is_empty() && std::mem::take(&mut first) && client.query().received().is_empty() {
                        note(&format!("the server has no {} yet", client.query().question().kind.name()));
                    }
                    first = false;
                    for change in &changes {
                        if left == Some(0) {
                            break;
                        }
                        changes_out.note(change, client.query())?;
                        left = left.map(|left| left - 1);
                    }
                }
            }
        }
        Ok(())
    }
}

enum Failure {
    Write(io::Error),
    Server(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

struct ChangePrinter<O = io::Stdout> {
    printer: Printer,
    colour: bool,
    out: O,
}

impl<O: Write> ChangePrinter<O> {
    fn note(&mut self, change: &Change, query: &QueryState) -> io::Result<()> {
        match self.printer.output {
            Output::Json => self.json(change, query)?,
            Output::Names => self.name(change)?,
            _ => self.difference(change, query)?,
        }
        self.out.flush()
    }

    fn difference(&mut self, change: &Change, query: &QueryState) -> io::Result<()> {
        match change {
            Change::Set { name, before } => {
                let Some(now) = query.received().get(name) else { return Ok(()) };
                let new = self.printer.text(name, now);
                match before {
                    None => {
                        self.line(ADDED, &format!("+++ {}", title(name, now)))?;
                        new.lines().try_for_each(|line| self.line(ADDED, &format!("+{line}")))
                    }
                    Some(before) => {
                        self.line(REMOVED, &format!("--- {}", title(name, before)))?;
                        self.line(ADDED, &format!("+++ {}", title(name, now)))?;
                        let old = self.printer.text(name, before);
                        let lines = diff::lines(&old, &new);
                        if lines.is_empty() {
                            self.line(PLACE, "@@ only omitted fields changed @@")?;
                        }
                        lines.iter().try_for_each(|line| self.piece(line))
                    }
                }
            }
            Change::Removed { name, before } => self.line(REMOVED, &format!("--- {}, removed", title(name, before))),
            Change::Absent { name } => self.line(REMOVED, &format!("--- {}, does not exist", plain(name))),
            Change::Trouble { name, reason } => self.line(PLACE, &format!("!!! {}: {}", plain(name), plain(reason))),
            Change::Unasked { type_url } => self.line(PLACE, &format!("!!! {}, unasked", plain(type_url))),
        }
    }

    fn piece(&mut self, line: &Line) -> io::Result<()> {
        match line {
            Line::At { old, new } => self.line(PLACE, &format!("@@ -{},{} +{},{} @@", old.0, old.1, new.0, new.1)),
            Line::Same(text) => writeln!(self.out, " {text}"),
            Line::Less(text) => self.line(REMOVED, &format!("-{text}")),
            Line::More(text) => self.line(ADDED, &format!("+{text}")),
        }
    }

    fn line(&mut self, colour: &str, text: &str) -> io::Result<()> {
        match self.colour {
            true => writeln!(self.out, "\x1b[{colour}m{text}\x1b[0m"),
            false => writeln!(self.out, "{text}"),
        }
    }

    fn json(&mut self, change: &Change, query: &QueryState) -> io::Result<()> {
        let line = match change {
            Change::Set { name, before } => {
                let Some(now) = query.received().get(name) else { return Ok(()) };
                let what = if before.is_some() { "changed" } else { "added" };
                json!({ "change": what, "name": name, "now": self.printer.document(name, now) })
            }
            Change::Removed { name, .. } => json!({ "change": "removed", "name": name }),
            Change::Absent { name } => json!({ "change": "absent", "name": name }),
            Change::Trouble { name, reason } => json!({ "change": "error", "name": name, "reason": reason }),
            Change::Unasked { type_url } => json!({ "change": "unasked", "type": type_url }),
        };
        writeln!(self.out, "{line}")
    }

    fn name(&mut self, change: &Change) -> io::Result<()> {
        let (sign, name) = match change {
            Change::Set { name, before: None } => ('+', name),
            Change::Set { name, before: Some(_) } => ('~', name),
            Change::Removed { name, .. } => ('-', name),
            Change::Absent { name } | Change::Trouble { name, .. } | Change::Unasked { type_url: name } => ('!', name),
        };
        writeln!(self.out, "{sign} {}", plain(name))
    }
}

fn title(name: &str, received: &ReceivedResource) -> String {
    match received.version.is_empty() {
        true => plain(name),
        false => format!("{}, version {}", plain(name), plain(&received.version)),
    }
}

// ANSI colour codes.
const ADDED: &str = "32";
const REMOVED: &str = "31";
const PLACE: &str = "36";

#[cfg(test)]
mod tests;
