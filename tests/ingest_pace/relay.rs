//! The relay as a process of its own, whose processor time and memory can be read.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

pub const PATIENCE: Duration = Duration::from_secs(120);

/// The program, until this is dropped.
pub struct Relay {
    child: Child,
    pub address: SocketAddr,
}

impl Relay {
    pub fn over(upstream: SocketAddr, of: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ingest-{of}.yaml"));
        let text = format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nviews: {{key: [cluster]}}\nlimits: {{message_bytes: 512MiB}}\n\
             upstream: {{servers: [{{uri: 'http://{upstream}', variant: sotw}}]}}\n"
        );
        std::fs::write(&path, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("--config").arg(path).args(["--log", "info"]).env("NO_COLOR", "1").stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let (sender, address) = mpsc::channel();
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                let started = line.split_once("weir started").and_then(|(_, line)| line.split_once("listen=\""));
                if let Some((_, rest)) = started {
                    let address = rest.split(['"', ' ']).next().unwrap_or_default();
                    let _ = sender.send(address.to_owned()); // only the first is waited for
                }
            }
        });
        let address = address.recv_timeout(PATIENCE).expect("the program does not say where it listens");
        Self { child, address: address.parse().unwrap() }
    }

    /// Seconds of processor time that it has used, once it does nothing any more.
    pub async fn used(&self) -> f64 {
        let mut before = used(&format!("/proc/{}", self.child.id()));
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = used(&format!("/proc/{}", self.child.id()));
            if now - before < 0.001 {
                return now;
            }
            before = now;
        }
    }

    /// The most memory that it had at one time, and what it has now, in bytes.
    pub fn memory(&self) -> (f64, f64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let of = |key: &str| {
            let line = status.lines().find(|line| line.starts_with(key)).unwrap();
            1024.0 * line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap()
        };
        (of("VmHWM:"), of("VmRSS:"))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended by itself
        let _ = self.child.wait();
    }
}

/// Seconds of processor time of the threads of a process by its folder, or of one thread by its own.
pub fn used(folder: &str) -> f64 {
    let threads = std::fs::read_dir(format!("{folder}/task")).into_iter().flatten();
    let threads = threads.map(|thread| thread.unwrap().path().join("schedstat"));
    let of = |path: std::path::PathBuf| -> f64 {
        let text = std::fs::read_to_string(path).unwrap_or_default(); // the thread may have ended
        text.split_whitespace().next().map_or(0.0, |nanoseconds| nanoseconds.parse().unwrap())
    };
    let all: Vec<f64> = threads.map(of).collect();
    let own = || of(Path::new(folder).join("schedstat"));
    let nanoseconds = if all.is_empty() { own() } else { all.iter().sum() };
    nanoseconds / 1e9
}
