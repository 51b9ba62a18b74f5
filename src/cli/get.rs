//! `weir get`: asks an xDS server once, and shows what it has.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use prost::Message;
use tokio::time::{Instant, timeout_at};

use super::printer::{Printer, plain};
use super::query_args::{Checked, Output, QueryArgs};
use super::query_state::{Change, NameStatus, QueryState};
use super::xds_client::{Client, Event};
use crate::proto::Any;
use crate::proto::discovery::{DiscoveryResponse, Resource};
use crate::xds::WRAPPER_TYPE;

/// Asks an xDS server, this or another, and shows its resources.
///
/// Ends when everything that was asked for by name is known to be there or not; without names, when the server has said nothing more
/// for --settle. Exit code: 0, or 1 if something that was asked for does not exist, or 2 if that could not be found out.
#[derive(Debug, Args)]
pub struct Get {
    #[command(flatten)]
    asking: QueryArgs,
    /// How long to wait for what was asked for.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "15s")]
    timeout: Duration,
    /// Without names: how long a server has to be quiet after its first response for that to be all.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "500ms")]
    settle: Duration,
}

impl Get {
    pub async fn run(self) -> ExitCode {
        let Checked { server, question, transcoder } = match self.asking.check() {
            Ok(checked) => checked,
            Err(faults) => {
                faults.lines().for_each(tell);
                return ExitCode::from(FAILED);
            }
        };
        let shower = Printer { transcoder, output: self.asking.output, secrets: self.asking.show_secrets };
        let mut client = Client::start(server, QueryState::new(question));
        let failure = self.listen(&mut client).await.err();
        let picture = &client.picture;
        let absent = |standing: &NameStatus| matches!(standing, NameStatus::Absent);
        let trouble = picture.standings().values().any(|standing| *standing == NameStatus::Trouble);
        // What came is shown, whatever else went wrong.
        let shown = match failure.is_some() && picture.held().is_empty() {
            true => Ok(()),
            false => show(picture, &shower, &mut io::stdout().lock()),
        };
        if let Some(failure) = &failure {
            tell(failure);
        } else if picture.held().is_empty() && picture.is_open_ended() {
            tell(&format!("the server has no {} for this node", picture.question().kind.name()));
        }
        match shown {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS, // whoever reads has had enough
            Err(error) => {
                tell(&format!("cannot write: {error}"));
                ExitCode::from(FAILED)
            }
            Ok(()) if failure.is_some() || trouble => ExitCode::from(FAILED),
            Ok(()) if picture.standings().values().any(absent) => ExitCode::from(MISSING),
            Ok(()) => ExitCode::SUCCESS,
        }
    }

    /// Until all is known, or it is known that it will not be.
    async fn listen(&self, client: &mut Client) -> Result<(), String> {
        let deadline = Instant::now() + self.timeout;
        let mut heard = Instant::now();
        loop {
            let known = client.picture.is_known();
            if known && !client.picture.is_open_ended() {
                return Ok(());
            }
            let until = if known { deadline.min(heard + self.settle) } else { deadline };
            match timeout_at(until, client.next()).await {
                Err(_) if known => return Ok(()),
                Err(_) => return Err(self.late(&client.picture)),
                Ok(Event::Open(_)) => {}
                Ok(Event::News(changes)) => {
                    heard = Instant::now();
                    changes.iter().for_each(tell_change);
                }
                Ok(Event::Lost { turns: true, .. }) => tell("the server does not speak delta; it is asked in sotw"),
                Ok(Event::Lost { reason, .. }) => return Err(reason),
            }
        }
    }

    fn late(&self, picture: &QueryState) -> String {
        let within = format!("within {}", humantime::format_duration(self.timeout));
        let unknown = picture.standings().iter().filter(|(_, standing)| **standing == NameStatus::Unknown);
        let unknown: Vec<_> = unknown.map(|(name, _)| plain(name.as_str())).collect();
        match unknown.is_empty() {
            true => format!("the server said nothing {within}"),
            // By sotw a server has no word for what is not there, but for whole sets.
            false => format!("the server said nothing of {} {within}", unknown.join(", ")),
        }
    }
}

fn tell(what: &str) {
    super::tell(&format!("weir get: {what}"));
}

fn tell_change(change: &Change) {
    match change {
        Change::Absent { name } => tell(&format!("{} does not exist", plain(name))),
        Change::Removed { name, .. } => tell(&format!("{} is gone", plain(name))),
        Change::Trouble { name, reason } => tell(&format!("{}: {}", plain(name), plain(reason))),
        Change::Unasked { type_url } => tell(&format!("the server speaks of {} unasked", plain(type_url))),
        Change::Set { .. } => {}
    }
}

fn show(picture: &QueryState, shower: &Printer, out: &mut impl Write) -> io::Result<()> {
    match shower.output {
        Output::Yaml | Output::Text => {
            for (number, (name, held)) in picture.held().iter().enumerate() {
                if number > 0 && shower.output == Output::Yaml {
                    writeln!(out, "---")?;
                }
                write!(out, "{}", shower.text(name, held))?;
            }
        }
        Output::Json => {
            let all: Vec<_> = picture.held().iter().map(|(name, held)| shower.document(name, held)).collect();
            serde_json::to_writer_pretty(&mut *out, &all)?;
            writeln!(out)?;
        }
        Output::Names => {
            for name in picture.held().keys() {
                writeln!(out, "{}", plain(name))?;
            }
        }
        Output::Wire => out.write_all(&wire(picture))?,
    }
    out.flush()
}

/// In wrappers, so that nothing is lost.
fn wire(picture: &QueryState) -> Vec<u8> {
    let resources = picture.held().iter().map(|(name, held)| {
        let wrapper = Resource {
            name: name.clone(),
            version: held.version.clone(),
            aliases: held.aliases.clone(),
            ttl: held.ttl.and_then(|ttl| ttl.try_into().ok()),
            metadata: held.metadata.clone(),
            resource: Some(held.resource.clone()),
            ..Resource::default()
        };
        Any { type_url: format!("type.googleapis.com/{WRAPPER_TYPE}"), value: wrapper.encode_to_vec().into() }
    });
    let type_url = picture.question().type_url.clone();
    DiscoveryResponse { type_url, resources: resources.collect(), ..Default::default() }.encode_to_vec()
}

const MISSING: u8 = 1;
const FAILED: u8 = 2;
