//! The relay's process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::file;
use crate::output;
use crate::reserved::Reserved;

/// A running relay. It ends when it is dropped.
pub struct Relay {
    pub address: SocketAddr,
    /// The address for probes, if the relay's configuration has one.
    pub probes: SocketAddr,
    binary: PathBuf,
    arguments: Vec<String>,
    config: PathBuf,
    child: Child,
    /// The addresses stay reserved during restarts.
    _reserved: [Reserved; 2],
}

impl Relay {
    pub async fn start(relay: &file::Relay, binary: Option<&Path>, upstream: SocketAddr) -> anyhow::Result<Self> {
        let reserved = [Reserved::new()?, Reserved::new()?];
        let [address, probes] = [&reserved[0], &reserved[1]].map(|reserved| reserved.address);
        let config = relay.config.replace("{listen}", &address.to_string());
        let config = config.replace("{probes}", &probes.to_string());
        let config = config.replace("{upstream}", &upstream.to_string());
        let path = std::env::temp_dir().join(format!("weir-loadtest-{}-{}.yaml", std::process::id(), address.port()));
        std::fs::write(&path, config).with_context(|| format!("cannot write {}", path.display()))?;
        let arguments = relay.arguments.iter().map(|text| text.replace("{config}", &path.display().to_string()));
        let arguments: Vec<_> = arguments.collect();
        let binary = binary.unwrap_or(&relay.binary).to_owned();
        let child = spawn(&binary, &arguments)?;
        let mut started = Self { address, probes, binary, arguments, config: path, child, _reserved: reserved };
        started.accepts().await?;
        output::line(format!("relay {} listens on {address}", started.child.id().unwrap_or_default()));
        Ok(started)
    }

    /// Returns the process, unless it has ended.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends SIGTERM, as an orchestrator does, and starts the process again after it has exited.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        if let Some(pid) = self.child.id() {
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGTERM); // it may have exited
        }
        let status = timeout(DRAIN, self.child.wait()).await.context("the relay does not end")??;
        if !status.success() {
            bail!("the relay ended with {status}");
        }
        self.child = spawn(&self.binary, &self.arguments)?;
        self.accepts().await
    }

    /// Waits until the relay accepts connections.
    async fn accepts(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START;
        while TcpStream::connect(self.address).await.is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended: {status}", self.binary.display());
            }
            if Instant::now() > deadline {
                bail!("{} does not accept connections at {}", self.binary.display(), self.address);
            }
            sleep(LOOK).await;
        }
        Ok(())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.config); // if it cannot be deleted, it stays in the folder for temporary files
    }
}

fn spawn(binary: &Path, arguments: &[String]) -> anyhow::Result<Child> {
    let mut command = Command::new(binary);
    command.args(arguments).kill_on_drop(true);
    command.spawn().with_context(|| format!("cannot start {}", binary.display()))
}

/// The time limit for the relay to exit.
const DRAIN: Duration = Duration::from_secs(60);
const START: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(10);
