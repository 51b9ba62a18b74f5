//! Turns a mutant on, and runs the tests that reach it until one fails.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::settings::Settings;
use crate::tests_of::{Test, TestProgram};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Verdict {
    /// A test failed.
    Caught {
        test: String,
    },
    /// The tests did not end in time, or the program ended abnormally.
    RanAway {
        program: String,
    },
    Missed,
    /// No test runs the code.
    Unreached,
}

/// Returns the verdict of the tests on a mutant.
pub fn judge(number: usize, programs: &[TestProgram], settings: &Settings, root: &Path) -> Result<Verdict> {
    let mut verdict = Verdict::Unreached;
    for program in programs {
        let mut tests: Vec<&Test> = program.tests.iter().filter(|test| test.reached.contains(&number)).collect();
        while !tests.is_empty() {
            verdict = Verdict::Missed;
            let run = |tests: &[&Test]| run(Some(number), program, tests, settings, root);
            let Run { passed, end } = run(&tests)?;
            tests.retain(|test| !passed.contains(&test.name));
            let caught = match end {
                End::Passed => break,
                End::Failed(failed) => {
                    // A test that shares the cores with many others may fail for that reason, so it runs once more alone.
                    let alone = tests.iter().position(|test| test.name == failed).map(|index| tests.remove(index));
                    let again = alone.filter(|_| program.waits).map(|test| run(&[test])).transpose()?;
                    again
                        .is_none_or(|again| again.end != End::Passed)
                        .then(|| Verdict::Caught { test: format!("{} {failed}", name(program)) })
                }
                End::Broke => {
                    let again = program.waits.then(|| run(&tests)).transpose()?;
                    let passes = again.as_ref().is_some_and(|again| again.end == End::Passed);
                    tests.clear();
                    (!passes).then(|| Verdict::RanAway { program: name(program) })
                }
            };
            if let Some(caught) = caught {
                return Ok(caught);
            }
        }
    }
    Ok(verdict)
}

/// The result of running a test program.
#[derive(Debug, PartialEq, Eq)]
pub struct Run {
    pub passed: BTreeSet<String>,
    pub end: End,
}

#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Passed,
    /// This test failed. The program was ended without waiting for the others.
    Failed(String),
    /// The tests did not end in time, or the program ended without naming a test.
    Broke,
}

fn name(program: &TestProgram) -> String {
    let file = program.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    file.rsplit_once('-').map_or(file.clone(), |(name, _)| name.to_owned())
}

/// Runs tests with a mutant, or with none, until one fails.
pub fn run(
    number: Option<usize>,
    program: &TestProgram,
    tests: &[&Test],
    settings: &Settings,
    root: &Path,
) -> Result<Run> {
    let threads = if program.waits { 16 } else { 2 };
    let took = tests.iter().map(|test| test.took);
    let limit = settings.timeout.of(took.clone().sum::<Duration>() / threads.min(tests.len() as u32));
    // A mutant that keeps the cores busy for ever may stop all tests that run, long before the limit for the whole program.
    let limit_for_next = settings.timeout.of(took.max().unwrap_or_default());
    let mut child = Command::new("sh")
        .arg("-c")
        // The time ends a program that runs away, if this one was killed.
        .arg(format!("ulimit -t {CPU_SECONDS}; ulimit -v {}; exec \"$0\" \"$@\"", settings.memory_mib * 1024))
        .arg(&program.path)
        .args(["--exact", "--test-threads", &threads.to_string()])
        .args(tests.iter().map(|test| &test.name))
        .current_dir(root)
        .envs(number.map(|number| ("WEIR_MUTANT", number.to_string())))
        .envs(&settings.environment)
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let stdout = child.stdout.take().context("piped")?;
    #[allow(clippy::disallowed_methods, reason = "lines of a test program that ends")]
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    let until = Instant::now() + limit;
    let mut passed = BTreeSet::new();
    let outcome = loop {
        match lines.recv_timeout(limit_for_next.min(until.saturating_duration_since(Instant::now()))) {
            Ok(line) => match result(&line) {
                Some((failed, false)) => break End::Failed(failed),
                Some((test, true)) => drop(passed.insert(test)),
                None => {}
            },
            Err(RecvTimeoutError::Timeout) => break End::Broke,
            Err(RecvTimeoutError::Disconnected) if child.wait()?.success() => break End::Passed,
            Err(RecvTimeoutError::Disconnected) => break End::Broke,
        }
    };
    end(&mut child)?;
    Ok(Run { passed, end: outcome })
}

/// Returns the name of the test in a line such as `test a::b ... ok`, and whether it passed.
fn result(line: &str) -> Option<(String, bool)> {
    let (test, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let passed = result.starts_with("ok") || result.starts_with("ignored");
    (passed || result.ends_with("FAILED")).then(|| (test.trim_end_matches(" - should panic").to_owned(), passed))
}

/// Kills a program and all processes that it has started.
fn end(child: &mut Child) -> Result<()> {
    Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).stderr(Stdio::null()).status()?;
    child.wait()?;
    Ok(())
}

/// The processor time of a program, more than any needs.
const CPU_SECONDS: u32 = 1800;
