//! The measured programs: the relay, or a server for comparison. Each is a process of its own, killed when its handle is dropped.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::Resources;
use super::encrypted::certificates;
use crate::link::{Target, Tls};
use crate::measure::{Polls, Process, metric, metrics};
use crate::output;
use crate::wire::Variant;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// The relay
    Relay,
    /// Another build of the relay, given by --weir-b
    RelayB,
    /// The relay without threads for connections: `shards: 0`
    RelayShared,
    /// The relay over TLS, with certificates on both sides
    RelayTls,
    /// The same without threads for connections
    RelayTlsShared,
    /// The relay over a Unix socket
    RelayUnix,
    /// Frames that were made before, without the logic of HTTP/2
    Floor,
    /// A server on tonic that encodes for each client
    PlainTonic,
    /// go-control-plane with its linear cache
    Linear,
    /// go-control-plane with its snapshot cache
    Snapshot,
    /// A client of the control plane that hashes what it receives
    Reader,
    /// go-control-plane that clients connect to, by `front`
    Direct,
    /// The same behind a relay
    OneTier,
    /// The same behind a relay behind a relay
    TwoTiers,
    /// A server that was started elsewhere
    #[value(skip)]
    Server,
}

impl Subject {
    fn is_relay(self) -> bool {
        self.is_shared() || matches!(self, Self::Relay | Self::RelayB | Self::RelayTls | Self::RelayUnix)
    }

    /// Whether the subject is the relay with `shards: 0`.
    fn is_shared(self) -> bool {
        matches!(self, Self::RelayShared | Self::RelayTlsShared)
    }

    /// Whether the subject needs go-control-plane.
    pub fn is_peer(self) -> bool {
        matches!(self, Self::Linear | Self::Snapshot | Self::Direct | Self::OneTier | Self::TwoTiers)
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        out.write_str(match self {
            Self::Relay => "relay",
            Self::RelayB => "relay-b",
            Self::RelayShared => "relay-shared",
            Self::RelayTls => "relay-tls",
            Self::RelayTlsShared => "relay-tls-shared",
            Self::RelayUnix => "relay-unix",
            Self::Floor => "floor",
            Self::PlainTonic => "plain-tonic",
            Self::Linear => "linear",
            Self::Snapshot => "snapshot",
            Self::Reader => "reader",
            Self::Direct => "direct",
            Self::OneTier => "one-tier",
            Self::TwoTiers => "two-tiers",
            Self::Server => "server",
        })
    }
}

/// The executables of the subjects.
#[derive(Debug, Clone)]
pub struct Programs {
    pub weir: PathBuf,
    pub weir_b: Option<PathBuf>,
    /// More configuration of the relay, and of the other build.
    pub relay_config: String,
    pub relay_b_config: String,
    /// go-control-plane, if it could be built.
    pub peer: Option<PathBuf>,
    /// A folder for the configurations of this run.
    pub folder: PathBuf,
}

impl Programs {
    /// Returns the programs with the configuration of this subject as that of the relay.
    fn configured(&self, subject: Subject) -> Self {
        let relay_config = match subject {
            Subject::RelayB => self.relay_b_config.clone(),
            _ if subject.is_shared() => without_shards(&self.relay_config),
            _ => self.relay_config.clone(),
        };
        Self { relay_config, ..self.clone() }
    }
}

/// Returns this configuration with `shards: 0`, in place of another number.
fn without_shards(config: &str) -> String {
    let others = config.lines().filter(|line| !line.starts_with("shards:"));
    others.chain(["shards: 0"]).collect::<Vec<_>>().join("\n")
}

/// What a subject serves, and where its upstream is.
#[derive(Debug, Clone)]
pub struct Setting {
    pub variant: Variant,
    pub resources: Resources,
    /// How many resources change in each round. Only the floor needs it.
    pub changed: usize,
    pub origin: SocketAddr,
    /// Additional configuration of the relay for this benchmark.
    pub relay_config: &'static str,
    /// Whether the relay has an admin address, for its metrics.
    pub admin: bool,
    /// The variant of the relay's upstream stream.
    pub upstream: Variant,
}

impl Setting {
    /// Returns the usual setting: delta on both sides.
    pub fn of(resources: Resources) -> Self {
        let origin = SocketAddr::from(([127, 0, 0, 1], 0));
        let (variant, upstream) = (Variant::Delta, Variant::Delta);
        Self { variant, resources, changed: 1, origin, relay_config: "", admin: false, upstream }
    }
}

/// A running subject.
pub struct Server {
    pub subject: Subject,
    pub target: Target,
    /// The TLS settings for its clients, if they need TLS.
    pub tls: Option<Tls>,
    pub process: Process,
    /// Where a relay has its metrics.
    admin: Option<SocketAddr>,
    child: Child,
}

impl Server {
    pub fn start(subject: Subject, setting: &Setting, programs: &Programs) -> anyhow::Result<Self> {
        let (mut listener, mut tls) = (String::from("address: '127.0.0.1:0'"), None);
        let programs = &programs.configured(subject);
        let mut command = match subject {
            Subject::Relay | Subject::RelayShared => relay(&programs.weir, &listener, setting, programs)?,
            Subject::RelayB => {
                relay(programs.weir_b.as_deref().context("--weir-b is missing")?, &listener, setting, programs)?
            }
            Subject::RelayTls | Subject::RelayTlsShared => {
                let (encrypted, of_clients) = certificates(&programs.folder)?;
                tls = Some(of_clients);
                listener = format!("{listener}, {encrypted}");
                relay(&programs.weir, &listener, setting, programs)?
            }
            Subject::RelayUnix => {
                listener = format!("address: 'unix:{}'", programs.folder.join("relay.sock").display());
                relay(&programs.weir, &listener, setting, programs)?
            }
            Subject::Floor => floor(setting)?,
            Subject::PlainTonic => plain_tonic(setting)?,
            Subject::Reader => reader(setting)?,
            Subject::Direct | Subject::OneTier | Subject::TwoTiers => bail!("{subject} is more than one process"),
            Subject::Server => bail!("a server that was started elsewhere cannot be started here"),
            Subject::Linear => peer("linear", setting, programs)?,
            Subject::Snapshot => peer("snapshot", setting, programs)?,
        };
        let is_relay = subject.is_relay();
        command.stdin(Stdio::piped());
        match is_relay {
            true => command.stderr(Stdio::piped()).stdout(Stdio::null()),
            false => command.stdout(Stdio::piped()),
        };
        let mut child = command.spawn().with_context(|| format!("cannot start {subject}: {command:?}"))?;
        let output: Box<dyn Read + Send> = match is_relay {
            true => Box::new(child.stderr.take().context("standard error is a pipe")?),
            false => Box::new(child.stdout.take().context("standard output is a pipe")?),
        };
        let process = Process::new(child.id());
        // From here on, dropping the handle kills the child.
        let mut server = Self { subject, target: setting.origin.into(), tls, process: process?, admin: None, child };
        let addresses = addresses(output).with_context(|| format!("{subject} does not say where it listens"))?;
        (server.target, server.admin) = addresses;
        Ok(server)
    }

    /// Returns the polls that the relay has measured so far, if it measures any.
    pub fn polls(&self) -> impl Future<Output = Option<Polls>> + Send + use<> {
        let admin = self.admin;
        async move { Polls::in_metrics(&metrics(admin?).await.ok()?).filter(|polls| polls.measured > 0) }
    }

    /// Returns how often the server has written to sockets. `None` if it is a relay whose metrics do not have that.
    pub async fn writes(&self) -> anyhow::Result<Option<f64>> {
        match self.admin {
            // A relay writes with `send`, which the kernel does not count for the process.
            Some(admin) => Ok(metric(&metrics(admin).await?, CLIENT_WRITES)),
            None if self.subject.is_relay() => Ok(None),
            None => Ok(Some(self.process.write_calls()? as f64)),
        }
    }

    /// Tells the floor to begin a round.
    pub fn push(&mut self, round: u32) -> anyhow::Result<()> {
        let Some(input) = &mut self.child.stdin else { bail!("{} has no input", self.subject) };
        input.write_all(format!("{round}\n").as_bytes()).with_context(|| format!("{} has ended", self.subject))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have exited already
        let _ = self.child.wait();
    }
}

/// Finds the addresses for clients and operators in the program's output. A thread then keeps reading the output.
fn addresses(output: Box<dyn Read + Send>) -> anyhow::Result<(Target, Option<SocketAddr>)> {
    #[allow(clippy::disallowed_methods, reason = "lines of a program that is starting")]
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line.clone()).is_err() && (line.contains("ERROR") || line.contains("WARN")) {
                output::note(line); // the program has started, so its further output is shown
            }
        }
    });
    let mut said = Vec::new();
    loop {
        let Ok(line) = lines.recv_timeout(START) else { bail!("it printed: {}", said.join("\n")) };
        match address_in(&line) {
            Some(address) => return Ok((address, admin_in(&line))),
            None => said.push(line),
        }
    }
}

fn address_in(line: &str) -> Option<Target> {
    let rest = line.strip_prefix("listening ").or_else(|| {
        let (_, started) = line.split_once("weir started")?;
        started.split_once("listen=\"")?.1.split(['"', ' ']).next()
    });
    let place = rest?.trim();
    match place.strip_prefix("unix:") {
        Some(path) => Some(Target::Unix(Path::new(path).into())),
        None => place.parse().ok().map(Target::Tcp),
    }
}

fn admin_in(line: &str) -> Option<SocketAddr> {
    let (_, started) = line.split_once("weir started")?;
    started.split_once(" admin=")?.1.trim_start_matches('"').split(['"', ' ']).next()?.parse().ok()
}

fn relay(program: &Path, listener: &str, setting: &Setting, programs: &Programs) -> anyhow::Result<Command> {
    let path = programs.folder.join("relay.yaml");
    let is_given = programs.relay_config.lines().any(|line| line.starts_with("admin:"));
    let admin = if setting.admin && !is_given { "admin: {address: '127.0.0.1:0'}" } else { "" };
    let config = format!(
        "listen: [{{{listener}}}]\n\
         upstream: {{servers: [{{uri: 'http://{}', variant: {}, initial_set: one_response}}]}}\n\
         views: {{key: [cluster]}}\n\
         {admin}\n{}\n{}\n",
        setting.origin, setting.upstream, setting.relay_config, programs.relay_config
    );
    std::fs::write(&path, config).with_context(|| format!("cannot write {}", path.display()))?;
    let mut command = Command::new(program);
    command.arg("--config").arg(path).args(["--log", "info"]).env("NO_COLOR", "1");
    Ok(command)
}

fn floor(setting: &Setting) -> anyhow::Result<Command> {
    let Resources { kind, count, size } = setting.resources;
    let mut command = this_program()?;
    command.arg("floor").args(["--variant", &setting.variant.to_string()]).args(["--kind", kind.word()]);
    command.arg(format!("--count={count}")).arg(format!("--size={size}")).arg(format!("--changed={}", setting.changed));
    Ok(command)
}

fn plain_tonic(setting: &Setting) -> anyhow::Result<Command> {
    let kind = setting.resources.kind;
    let mut command = this_program()?;
    command.arg("plain-tonic").args(["--kind", kind.word()]).arg(format!("--upstream=http://{}", setting.origin));
    Ok(command)
}

fn reader(setting: &Setting) -> anyhow::Result<Command> {
    let mut command = this_program()?;
    command.arg("reader").args(["--kind", setting.resources.kind.word()]).arg(format!("--upstream={}", setting.origin));
    Ok(command)
}

fn peer(cache: &str, setting: &Setting, programs: &Programs) -> anyhow::Result<Command> {
    let program = programs.peer.as_ref().context("go-control-plane was not built: there is no `go` here")?;
    let mut command = Command::new(program);
    command.arg(format!("-cache={cache}")).arg(format!("-upstream={}", setting.origin));
    command.arg(format!("-type={}", setting.resources.kind.type_url()));
    Ok(command)
}

fn this_program() -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.arg("baseline");
    Ok(command)
}

const CLIENT_WRITES: &str = "weir_client_writes_total";
const START: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_relay_has_no_other_number_of_shards() {
        assert_eq!(without_shards(""), "shards: 0");
        assert_eq!(without_shards("shards: 2\nlimits: {streams: 9}"), "limits: {streams: 9}\nshards: 0");
    }

    #[test]
    fn addresses_are_found_in_what_programs_print() {
        let log =
            "2026-11-21T10:00:00Z  INFO weir: weir started version=\"0.1.0\" listen=\"127.0.0.1:4011\" admin=\"\"";
        let tcp = |text: &str| text.parse().ok().map(Target::Tcp);
        assert_eq!((address_in(log), admin_in(log)), (tcp("127.0.0.1:4011"), None));
        let admin = |text: &str| admin_in(&format!("weir: weir started listen=\"x\" admin={text} probes=none"));
        let seven = "127.0.0.1:7".parse::<SocketAddr>().ok();
        assert_eq!(["127.0.0.1:7", "\"127.0.0.1:7\""].map(admin), [seven; 2]);
        assert_eq!(address_in("listening 127.0.0.1:7"), tcp("127.0.0.1:7"));
        let unix = Some(Target::Unix(Path::new("/tmp/relay.sock").into()));
        assert_eq!(address_in("weir: weir started listen=\"unix:/tmp/relay.sock\""), unix);
        assert_eq!(address_in("INFO weir: view created"), None);
        let admin = "weir: weir started listen=\"127.0.0.1:4011\" admin=127.0.0.1:4012 servers=\"\"";
        assert_eq!((address_in(admin), admin_in(admin)), (tcp("127.0.0.1:4011"), "127.0.0.1:4012".parse().ok()));
        assert_eq!((admin_in(log), admin_in("listening 127.0.0.1:7")), (None, None));
    }
}
