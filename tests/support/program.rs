//! The relay in its own process.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The program, until this is dropped.
pub struct Program {
    pub child: Child,
    pub address: String,
}

impl Program {
    /// Starts it with a configuration, written to a file of this name, and waits until it listens.
    pub fn start(name: &str, config: &str, patience: Duration) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("--config").arg(path).args(["--log", "info"]).env("NO_COLOR", "1").stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut program = Self { child, address: String::new() };
        let (sender, address) = mpsc::channel();
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                let started = line.split_once("weir started").and_then(|(_, line)| line.split_once("listen=\""));
                if let Some((_, rest)) = started {
                    let address = rest.split(['"', ' ']).next().unwrap_or_default();
                    let _ = sender.send(address.to_owned()); // only the first is awaited
                }
            }
        });
        program.address = address.recv_timeout(patience).expect("the program does not report where it listens");
        program
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have exited already
        let _ = self.child.wait();
    }
}
