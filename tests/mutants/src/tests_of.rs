//! The tests: how long each takes, and which mutants it reaches.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::compile::Compiled;
use crate::settings::Settings;

/// The results of a test program without a mutant.
#[derive(Serialize, Deserialize)]
pub struct TestProgram {
    pub path: PathBuf,
    pub waits: bool,
    pub tests: Vec<Test>,
    /// Tests that fail without a mutant.
    pub left_out: Vec<String>,
}

#[derive(Serialize, Deserialize)]
pub struct Test {
    pub name: String,
    pub took: Duration,
    pub reached: BTreeSet<usize>,
}

/// What an earlier run has recorded, if it was of the same mutants and programs.
#[derive(Serialize, Deserialize)]
pub struct Recorded {
    pub mutants: Vec<String>,
    pub programs: Vec<TestProgram>,
}

impl Recorded {
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Leaves out the tests that the settings leave out, and tells of those that fail anyway.
    pub fn for_judging(mut self, settings: &Settings) -> Vec<TestProgram> {
        for program in &mut self.programs {
            program.tests.retain(|test| !settings.leave_out.contains(&test.name));
            program.left_out.iter().for_each(|name| eprintln!("  left out, as it fails without a mutant: {name}"));
        }
        self.programs
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        Ok(fs::write(path, serde_json::to_vec(self)?)?)
    }

    pub fn is_of(&self, mutants: &[String], compiled: &Compiled, settings: &Settings) -> bool {
        let paths = settings.programs.iter().map(|program| compiled.programs.get(&program.name));
        self.mutants == mutants && self.programs.iter().map(|program| Some(&program.path)).eq(paths)
    }
}

/// Runs each test alone, without a mutant. Tests that fail then are left out.
pub fn run_each(compiled: &Compiled, settings: &Settings, root: &Path, scratch: &Path) -> Result<Vec<TestProgram>> {
    fs::create_dir_all(scratch)?;
    settings
        .programs
        .iter()
        .map(|program| {
            let path =
                compiled.programs.get(&program.name).with_context(|| format!("no test program {}", program.name))?;
            let mut names = list(path, root)?;
            names.retain(|name| !settings.leave_out.contains(name));
            let started = Instant::now();
            let queue = Mutex::new(names.into_iter());
            let (tests, failed) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
            let at_once = if program.waits { 4 * settings.jobs } else { settings.jobs };
            std::thread::scope(|scope| {
                let workers: Vec<_> = (0..at_once)
                    .map(|worker| {
                        let (queue, tests, failed) = (&queue, &tests, &failed);
                        scope.spawn(move || -> Result<()> {
                            loop {
                                let Some(name) = queue.lock().expect("no panics").next() else { return Ok(()) };
                                let reached = scratch.join(format!("{}-{worker}", program.name));
                                match run_alone(path, &name, settings, root, &reached)? {
                                    Some(test) => tests.lock().expect("no panics").push(test),
                                    None => failed.lock().expect("no panics").push(name),
                                }
                            }
                        })
                    })
                    .collect();
                workers.into_iter().try_for_each(|worker| worker.join().expect("no panics"))
            })?;
            let (mut tests, failed) = (tests.into_inner()?, failed.into_inner()?);
            tests.sort_by_key(|test| test.took);
            eprintln!("{}: {} tests, each alone in {:.0?}", program.name, tests.len(), started.elapsed());
            Ok(TestProgram { path: path.clone(), waits: program.waits, tests, left_out: failed })
        })
        .collect()
}

fn list(program: &Path, root: &Path) -> Result<Vec<String>> {
    let output = Command::new(program).current_dir(root).args(["--list", "--format", "terse"]).output()?;
    ensure!(output.status.success(), "{} lists no tests", program.display());
    let lines = String::from_utf8(output.stdout)?;
    Ok(lines.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

fn run_alone(program: &Path, name: &str, settings: &Settings, root: &Path, reached: &Path) -> Result<Option<Test>> {
    let _ = fs::remove_file(reached);
    let started = Instant::now();
    let output = Command::new(program)
        .current_dir(root)
        .args(["--exact", name, "--test-threads", "1"])
        .env("WEIR_MUTANTS_REACHED", reached)
        .envs(&settings.environment)
        .env("RUST_BACKTRACE", "0")
        .output()?;
    let took = started.elapsed();
    let numbers = fs::read_to_string(reached).unwrap_or_default();
    let reached = numbers.lines().filter_map(|number| number.parse().ok()).collect();
    Ok(output.status.success().then(|| Test { name: name.to_owned(), took, reached }))
}

/// Returns how many tests reach each mutant.
pub fn reaching(programs: &[TestProgram]) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    for number in programs.iter().flat_map(|program| &program.tests).flat_map(|test| &test.reached) {
        *counts.entry(*number).or_default() += 1;
    }
    counts
}
