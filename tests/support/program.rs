//! The relay in its own process.
#![allow(dead_code)] // each test binary uses its own part of it

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// The program, until this is dropped.
pub struct Program {
    pub child: Child,
    pub address: String,
    /// Empty if it has no admin address.
    pub admin: String,
    log: Arc<Mutex<Vec<String>>>,
}

impl Program {
    /// Starts it with a configuration, written to a file of this name, and waits until it listens.
    pub fn start(name: &str, config: &str, patience: Duration) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_weir")), name, config, patience)
    }

    /// Starts it after shell commands that set limits of the system for it.
    pub fn start_after(commands: &str, name: &str, config: &str, patience: Duration) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{commands}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_weir")]);
        Self::start_by(shell, name, config, patience)
    }

    /// Starts it by a command to which the options of the program are added.
    pub fn start_by(mut command: Command, name: &str, config: &str, patience: Duration) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, config).unwrap();
        if !command.get_args().any(|argument| argument == "--log") {
            command.args(["--log", "info"]);
        }
        command.arg("--config").arg(path).env("NO_COLOR", "1").stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::<Mutex<Vec<String>>>::default();
        let mut program = Self { child, address: String::new(), admin: String::new(), log: log.clone() };
        let (sender, started) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                log.lock().unwrap().push(line.clone());
                if line.contains("weir started") {
                    let _ = sender.send(line); // only the first is awaited
                }
            }
        });
        let started = started.recv_timeout(patience).expect("the program does not report where it listens");
        program.address = field(&started, "listen").unwrap();
        program.admin = field(&started, "admin").unwrap_or_default();
        program
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Waits until a line of the log has this text, and returns it.
    pub fn says(&self, text: &str, patience: Duration) -> String {
        let begun = Instant::now();
        loop {
            if let Some(line) = self.logged(text).pop() {
                return line;
            }
            assert!(begun.elapsed() < patience, "{text} is missing in {:?}", self.logged(""));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until it has ended, and returns whether it did so without an error.
    pub fn has_succeeded(&mut self, patience: Duration) -> bool {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            assert!(begun.elapsed() < patience, "it has not ended: {:?}", self.logged(""));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the lines of the log with this text.
    pub fn logged(&self, text: &str) -> Vec<String> {
        self.log.lock().unwrap().iter().filter(|line| line.contains(text)).cloned().collect()
    }
}

/// Returns the value of a field in a line of the log, or the first of several.
pub fn field(line: &str, name: &str) -> Option<String> {
    let (_, rest) = line.split_once(&format!(" {name}="))?;
    rest.trim_start_matches('"').split(['"', ' ']).next().map(str::to_owned)
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have exited already
        let _ = self.child.wait();
    }
}
