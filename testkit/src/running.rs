//! A running command, and the lines that it prints.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longer than any step takes. A test that hangs fails after this time.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A running command. It is killed when this is dropped.
pub struct Running {
    pub child: Child,
    lines: Receiver<String>,
}

impl Running {
    /// Starts a command, and reads one of its outputs, which has to be a pipe.
    pub fn start(command: &mut Command, output: fn(&mut Child) -> Box<dyn Read + Send>) -> Self {
        let mut child = command.spawn().unwrap();
        let lines = lines_of(output(&mut child));
        Self { child, lines }
    }

    /// Waits for a text, and returns everything that is printed up to it.
    pub fn until(&self, text: &str) -> String {
        let mut printed = String::new();
        while !printed.contains(text) {
            let line = self.lines.recv_timeout(PATIENCE);
            printed += &(line.unwrap_or_else(|_| panic!("no {text} in {printed}")) + "\n");
        }
        printed
    }

    /// Waits for a line with a text, and returns it.
    pub fn says(&self, text: &str) -> String {
        self.until(text).lines().last().unwrap().to_owned()
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have exited already
        let _ = self.child.wait();
    }
}

pub fn stdout(child: &mut Child) -> Box<dyn Read + Send> {
    Box::new(child.stdout.take().unwrap())
}

pub fn stderr(child: &mut Child) -> Box<dyn Read + Send> {
    Box::new(child.stderr.take().unwrap())
}

pub fn lines_of(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = sender.send(line); // the test may be over
        }
    });
    lines
}
