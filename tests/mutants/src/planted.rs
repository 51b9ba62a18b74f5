//! Planted faults: changes of the source, written by hand, each of which breaks one rule. The tests that are named for a fault have to notice it.
//!
//! All faults are put into one build, each behind its switch, like generated mutants.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::judge::{End, Run, run};
use crate::rewrite::{Rewritten, switch};
use crate::settings::{Program, Settings};
use crate::tests_of::{Test, TestProgram};
use crate::tree::within;

#[cfg(test)]
#[path = "planted_tests.rs"]
mod tests;

/// Stands for "this fault is turned on" in the new text of a change.
const PLACEHOLDER: &str = "PLANTED";
/// The word for tests that make many checks, and where they are: `tests/process/conformance.rs`.
const CONFORMANCE: &str = "conformance";
const PROGRAM_OF_CONFORMANCE: &str = "process";
/// How long a test of a planted fault is taken to last; its time limit is a multiple of that.
const TAKES: Duration = Duration::from_secs(20);

/// An entry of `tests/mutants/planted/*.yaml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What goes wrong, after the rule that it breaks.
    pub breaks: String,
    pub changes: Vec<Change>,
    /// Each of these tests has to fail.
    pub caught_by: Vec<TestName>,
    /// For those tests, besides what mutants.yaml sets.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

/// A change of one file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The path from the root of the repository.
    pub file: String,
    /// What the file has once. Any white space equals any other.
    pub old: String,
    /// What replaces it. `PLANTED` is the condition that the fault is turned on.
    pub new: String,
}

/// A test, written as the names of its program and its own with a space between them. A test of conformance is written as that word, its name and a
/// rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct TestName {
    pub program: String,
    pub test: String,
    /// Such a test makes dozens of checks. A fault is noticed only if a check of this rule fails.
    pub rule: Option<String>,
}

impl TryFrom<String> for TestName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.split(' ').collect::<Vec<_>>()[..] {
            [program, test] if program != CONFORMANCE => {
                Ok(Self { program: program.into(), test: test.into(), rule: None })
            }
            [CONFORMANCE, test, rule] => Ok(Self {
                program: PROGRAM_OF_CONFORMANCE.into(),
                test: format!("{CONFORMANCE}::{test}"),
                rule: Some(rule.into()),
            }),
            _ => Err(format!("{text} is not a program and a test, nor {CONFORMANCE}, a test and a rule")),
        }
    }
}

impl std::fmt::Display for TestName {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.rule {
            Some(rule) => write!(to, "{CONFORMANCE} {} {rule}", self.function()),
            None => write!(to, "{} {}", self.program, self.test),
        }
    }
}

impl Fault {
    /// Checks what the format of the file does not ensure.
    fn check(&self) -> Result<()> {
        let has_switch = self.changes.iter().any(|change| change.new.contains(PLACEHOLDER));
        ensure!(has_switch, "no change has {PLACEHOLDER}");
        ensure!(!self.caught_by.is_empty(), "no test is named");
        let mut named = BTreeSet::new();
        for test in &self.caught_by {
            ensure!(named.insert(test), "a test is named twice: {test}");
        }
        Ok(())
    }
}

/// Returns all faults by name, in the order of their numbers.
pub fn read(repository: &Path) -> Result<BTreeMap<String, Fault>> {
    let folder = repository.join("tests/mutants/planted");
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut all = BTreeMap::new();
    for entry in entries {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let of_file: BTreeMap<String, Fault> =
            serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
        for (name, fault) in of_file {
            fault.check().with_context(|| name.clone())?;
            let earlier = all.insert(name.clone(), fault);
            ensure!(earlier.is_none(), "{name}: there are two faults of this name");
        }
    }
    Ok(all)
}

/// Returns the files with all faults in them. Each has the number of its place in the map.
pub fn plant(
    faults: &BTreeMap<String, Fault>,
    text_of: impl Fn(&str) -> Result<String>,
) -> Result<BTreeMap<String, Rewritten>> {
    let mut by_file: BTreeMap<&str, Vec<Place>> = BTreeMap::new();
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for (number, (name, fault)) in faults.iter().enumerate() {
        for change in &fault.changes {
            let file = change.file.as_str();
            let text = match texts.entry(file) {
                Entry::Occupied(text) => text.into_mut(),
                Entry::Vacant(entry) => entry.insert(text_of(file).with_context(|| name.clone())?),
            };
            let found = places(text, &change.old);
            let [range] = found.as_slice() else {
                bail!("{name}: {file} has this {} times, and not once: {}", found.len(), change.old)
            };
            by_file.entry(file).or_default().push(Place { range: range.clone(), number, name, new: &change.new });
        }
    }
    let mut files = BTreeMap::new();
    for (file, mut places) in by_file {
        places.sort_by_key(|place| place.range.start);
        for pair in places.windows(2) {
            let apart = pair[0].range.end <= pair[1].range.start;
            ensure!(apart, "{} and {} change the same text of {file}", pair[0].name, pair[1].name);
        }
        files.insert(file.to_owned(), rewrite(file, &texts[file], &places));
    }
    Ok(files)
}

/// What one change replaces in a file, and with what.
struct Place<'a> {
    range: Range<usize>,
    number: usize,
    name: &'a str,
    new: &'a str,
}

fn rewrite(file: &str, source: &str, places: &[Place]) -> Rewritten {
    let (mut text, mut placed, mut at) = (String::new(), Vec::new(), 0);
    for Place { range, number, new, .. } in places {
        text.push_str(&source[at..range.start]);
        let start = text.len();
        // Tests have no switch of their own.
        let is_on = match within(file) {
            Some(_) => switch(*number),
            None => format!("std::env::var_os(\"WEIR_MUTANT\").is_some_and(|on| on == \"{number}\")"),
        };
        text.push_str(&new.trim_end().replace(PLACEHOLDER, &is_on));
        placed.push((*number, start..text.len(), start..text.len()));
        at = range.end;
    }
    text.push_str(&source[at..]);
    Rewritten { text, placed }
}

/// Returns where a source has a text. How both are broken into lines does not matter.
fn places(source: &str, text: &str) -> Vec<Range<usize>> {
    let mut words = text.split_whitespace();
    let Some(first) = words.next() else { return Vec::new() };
    let begins = source.match_indices(first).map(|(start, _)| start);
    begins
        .filter_map(|start| {
            let mut rest = &source[start + first.len()..];
            for word in words.clone() {
                let next = rest.trim_start();
                rest = (next.len() < rest.len()).then(|| next.strip_prefix(word)).flatten()?;
            }
            Some(start..source.len() - rest.len())
        })
        .collect()
}

/// Returns the tests of all faults for which `counts` is true.
pub fn tests_of(faults: &BTreeMap<String, Fault>, counts: impl Fn(&TestName) -> bool) -> BTreeSet<TestName> {
    let all = faults.values().flat_map(|fault| &fault.caught_by);
    all.filter(|test| counts(test)).cloned().collect()
}

impl TestName {
    pub fn program(&self) -> Program {
        Program { name: self.program.clone(), waits: false }
    }

    /// Returns the name of the test without its modules.
    fn function(&self) -> &str {
        self.test.rsplit("::").next().unwrap_or_default()
    }
}

/// Runs each of these tests without a fault, which it has to pass, and then with each fault that names it, which it has to notice. Returns what
/// went wrong. `scratch` is a folder for results of checks.
pub fn judge(
    faults: &BTreeMap<String, Fault>,
    tests: &BTreeSet<TestName>,
    programs: &BTreeMap<String, PathBuf>,
    settings: &Settings,
    root: &Path,
    scratch: &Path,
) -> Result<Vec<String>> {
    fs::create_dir_all(scratch)?;
    let alone = tests.iter().map(|test| Job { fault: None, test, settings: settings.clone() });
    let wrong = work(alone.collect(), programs, root, scratch, settings.jobs)?;
    if !wrong.is_empty() {
        return Ok(wrong);
    }
    let mut jobs = Vec::new();
    for (number, (name, fault)) in faults.iter().enumerate() {
        let mut settings = settings.clone();
        settings.environment.extend(settings.environment_of_planted.clone());
        settings.environment.extend(fault.environment.clone());
        let named = fault.caught_by.iter().filter(|test| tests.contains(*test));
        jobs.extend(named.map(|test| Job { fault: Some((number, name.as_str())), test, settings: settings.clone() }));
    }
    work(jobs, programs, root, scratch, settings.jobs)
}

/// One run of a test.
struct Job<'a> {
    fault: Option<(usize, &'a str)>,
    test: &'a TestName,
    settings: Settings,
}

impl Job<'_> {
    /// Returns what is wrong with the outcome.
    fn run(&self, programs: &BTreeMap<String, PathBuf>, root: &Path, scratch: &Path) -> Result<Option<String>> {
        let Self { fault, test, settings } = self;
        let path = programs.get(&test.program).with_context(|| format!("no test program {}", test.program))?.clone();
        let program = TestProgram { path, waits: false, tests: Vec::new(), left_out: Vec::new() };
        let one = Test { name: test.test.clone(), took: TAKES, reached: BTreeSet::new() };
        let number = fault.map(|(number, _)| number);
        let Some(rule) = &test.rule else {
            return Ok(self.wrong(&run(number, &program, &[&one], settings, root)?));
        };
        // No other run has this name at the same time: a fault names a test with a rule once.
        let name = number.map_or("none".to_owned(), |number| number.to_string());
        let results = scratch.join(format!("{name}-{}-{rule}", test.function()));
        let _ = fs::remove_dir_all(&results); // of an earlier run
        fs::create_dir_all(&results)?;
        let mut settings = settings.clone();
        let variables = [("WEIR_CONFORMANCE_RULE", rule.clone()), ("WEIR_CONFORMANCE_RESULTS", text_of(&results)?)];
        settings.environment.extend(variables.map(|(name, value)| (name.to_owned(), value)));
        let outcome = run(number, &program, &[&one], &settings, root)?;
        let mut lines = String::new(); // none if it did not come to that
        for file in fs::read_dir(&results)? {
            lines += &fs::read_to_string(file?.path())?;
        }
        Ok(self.wrong(&by_rule(outcome, rule, &lines)?))
    }

    fn wrong(&self, outcome: &Run) -> Option<String> {
        let Self { fault, test, .. } = self;
        match (&outcome.end, fault) {
            (End::Passed, _) if outcome.passed.is_empty() => Some(format!("there is nothing to run for {test}")),
            (End::Passed, None) | (End::Failed(_), Some(_)) => None,
            (End::Passed, Some((_, name))) => Some(format!("{name} is not noticed by {test}")),
            (End::Failed(_), None) => Some(format!("{test} fails without a fault")),
            (End::Broke, None) => Some(format!("{test} does not end in time without a fault, or breaks off")),
            (End::Broke, Some((_, name))) => Some(format!("{test} does not end in time with {name}, or breaks off")),
        }
    }
}

/// Returns the outcome of one rule's checks: they failed if one of them did, and passed if one did and none failed. Whatever else the test did
/// does not count, such as a relay that did not start. `results` has a line of JSON for each check.
fn by_rule(outcome: Run, rule: &str, results: &str) -> Result<Run> {
    if outcome.end == End::Broke {
        return Ok(outcome);
    }
    let (mut passed, mut end) = (BTreeSet::new(), End::Passed);
    for line in results.lines() {
        let result: CheckResult = serde_json::from_str(line).with_context(|| line.to_owned())?;
        if !result.rules.iter().any(|of| of == rule) {
            continue;
        }
        match result.verdict {
            CheckVerdict::Ok => drop(passed.insert(rule.to_owned())),
            CheckVerdict::Failed => end = End::Failed(rule.to_owned()),
            CheckVerdict::Skipped => {}
        }
    }
    Ok(Run { passed, end })
}

/// What `weir_loadtest::conformance` says of one check, besides what does not matter here.
#[derive(Deserialize)]
struct CheckResult {
    rules: Vec<String>,
    verdict: CheckVerdict,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum CheckVerdict {
    Ok,
    Failed,
    Skipped,
}

fn text_of(path: &Path) -> Result<String> {
    Ok(path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?.to_owned())
}

/// Runs the jobs, some at a time. Returns what is wrong with their outcomes.
fn work(
    jobs: Vec<Job>,
    programs: &BTreeMap<String, PathBuf>,
    root: &Path,
    scratch: &Path,
    at_once: usize,
) -> Result<Vec<String>> {
    let (queue, wrong) = (Mutex::new(jobs.into_iter()), Mutex::new(Vec::<String>::new()));
    let work = || -> Result<()> {
        loop {
            let Some(job) = queue.lock().expect("no panics").next() else { return Ok(()) };
            let started = Instant::now();
            let found = job.run(programs, root, scratch)?;
            let fault = job.fault.map_or("no fault", |(_, name)| name);
            let outcome = found.as_deref().unwrap_or("as it should be");
            eprintln!("{:6.1?} {fault}, {}: {outcome}", started.elapsed(), job.test);
            wrong.lock().expect("no panics").extend(found);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panics"))
    })?;
    Ok(wrong.into_inner()?)
}
