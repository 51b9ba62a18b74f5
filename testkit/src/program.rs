//! The relay in its own process. A test names the program: `env!("CARGO_BIN_EXE_weir")`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::folder::Folder;
#[cfg(target_os = "linux")]
use crate::wait::PATIENCE;

/// The running program. It ends when this is dropped.
pub struct Program {
    pub child: Child,
    pub address: String,
    /// The admin address; empty if there is none.
    pub admin: String,
    log: Arc<Mutex<Vec<String>>>,
    is_unread: Arc<AtomicBool>,
    /// Whether the reader of the log has stopped.
    #[cfg(target_os = "linux")]
    is_stopped: Arc<AtomicBool>,
    /// The name of its configuration, and the folder. A file that other runs of the test write too would be theirs.
    config: (String, Folder),
}

impl Program {
    /// Starts the program with a configuration, written to a file of this name, and waits until it listens.
    pub fn start(binary: &str, name: &str, config: &str, patience: Duration) -> Self {
        Self::start_by(Command::new(binary), name, config, patience)
    }

    /// Starts the program after shell commands that set system limits for it.
    pub fn start_after(binary: &str, commands: &str, name: &str, config: &str, patience: Duration) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{commands}; exec \"$0\" \"$@\""), binary]);
        Self::start_by(shell, name, config, patience)
    }

    /// Starts the program by a command, to which the options of the program are added.
    pub fn start_by(mut command: Command, name: &str, config: &str, patience: Duration) -> Self {
        let folder = Folder::new("program");
        folder.write(name, config);
        if !command.get_args().any(|argument| argument == "--log") {
            command.args(["--log", "info"]);
        }
        command.arg("--config").arg(folder.file(name)).env("NO_COLOR", "1").stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::<Mutex<Vec<String>>>::default();
        let (is_unread, is_stopped) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (address, admin) = (String::new(), String::new());
        let mut program = Self {
            child,
            address,
            admin,
            log: log.clone(),
            is_unread: is_unread.clone(),
            #[cfg(target_os = "linux")]
            is_stopped: is_stopped.clone(),
            config: (name.to_owned(), folder),
        };
        let (sender, started) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                while is_unread.load(Ordering::Relaxed) {
                    is_stopped.store(true, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(5));
                }
                is_stopped.store(false, Ordering::Relaxed);
                log.lock().unwrap().push(line.clone());
                if line.contains("weir started") {
                    let _ = sender.send(line); // the test waits only for the first
                }
            }
        });
        let started = started.recv_timeout(patience).expect("the program does not report where it listens");
        program.address = field(&started, "listen").unwrap();
        program.admin = field(&started, "admin").unwrap_or_default();
        program
    }

    /// Stops reading the log, and fills its pipe.
    #[cfg(target_os = "linux")]
    pub fn leave_log_unread(&self) {
        use std::os::unix::fs::OpenOptionsExt;
        const NONBLOCK: i32 = 0o4000;
        self.is_unread.store(true, Ordering::Relaxed);
        let path = format!("/proc/{}/fd/2", self.child.id());
        let mut pipe = std::fs::File::options().write(true).custom_flags(NONBLOCK).open(path).unwrap();
        let _ = pipe.write_all(b"\n"); // the reader stops after a line; if the pipe is full, there is one
        let begun = Instant::now();
        while !self.is_stopped.load(Ordering::Relaxed) {
            assert!(begun.elapsed() < PATIENCE, "the log is still read");
            std::thread::sleep(Duration::from_millis(1));
        }
        while pipe.write(b".").is_ok() {}
    }

    pub fn read_log(&self) {
        self.is_unread.store(false, Ordering::Relaxed);
    }

    /// Writes another configuration in place of its own.
    pub fn write_config(&self, text: &str) {
        let (name, folder) = &self.config;
        folder.write(name, text);
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

    /// Waits until the program has ended, and returns whether it succeeded.
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
        self.read_log();
        let _ = self.child.kill(); // it may have exited already
        let _ = self.child.wait();
    }
}
