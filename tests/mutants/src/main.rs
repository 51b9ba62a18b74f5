//! Changes Weir in many places, one at a time, and reports which changes its tests do not notice.
//!
//! A tool that compiles each change by itself needs a build for each. This one puts all changes into one build, each behind a switch in
//! the environment. It records which tests reach which change, and runs only those.

mod compile;
mod find;
mod judge;
mod mutation;
mod planted;
mod report;
mod rewrite;
mod settings;
mod tests_of;
mod tree;
mod values;
mod verdicts;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;

use mutation::Mutant;
use planted::TestName;
use settings::{Program, Settings};
use tests_of::Recorded;
use tree::Tree;
use verdicts::Verdicts;

/// Changes the code in many places, one at a time, and reports the changes that no test notices.
#[derive(Parser)]
#[command(name = "tests/mutants/run")]
struct Options {
    /// How many mutants to judge, spread over the areas; without it, all
    #[arg(long)]
    sample: Option<usize>,
    /// Chooses which ones
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only lines that were changed since this revision
    #[arg(long, value_name = "REVISION")]
    since: Option<String>,
    /// Only files below src/ or core/src/ whose path there begins so
    #[arg(long, value_name = "PATH")]
    only: Vec<String>,
    /// Only mutants whose name contains this, as the report prints it
    #[arg(long, value_name = "TEXT")]
    named: Vec<String>,
    /// Only these test programs
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    programs: Vec<String>,
    /// Judges mutants for no longer than this; compiling them and finding the tests that reach them does not count
    #[arg(long)]
    minutes: Option<u64>,
    /// Does not judge again what an earlier run has judged; for code that has not changed since
    #[arg(long)]
    resume: bool,
    /// Prints the mutants and stops
    #[arg(long)]
    list: bool,
    /// Judges the planted faults instead, and fails if one is not noticed
    #[arg(long)]
    planted: bool,
    /// With --planted: by all tests that are named for a fault, also conformance and the relay's, which take longest to compile
    #[arg(long, requires = "planted")]
    relay: bool,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let target = target_directory(&repository)?;
    let mut settings = Settings::read(&repository)?;
    if !options.programs.is_empty() {
        let known = |name: &String| settings.programs.iter().any(|program| program.name == *name);
        ensure!(options.programs.iter().all(known), "mutants.yaml has other programs");
        settings.programs.retain(|program| options.programs.contains(&program.name));
    }
    let tree = Tree::copy(&repository, target.join("mutants/tree"))?;
    if options.planted {
        return judge_planted(&options, &settings, &tree, &repository, &target);
    }
    let mutants = choose(&tree, &settings, &options, &repository)?;
    if options.list {
        mutants.iter().for_each(|mutant| println!("{}", mutant.name()));
    }
    eprintln!("{} mutants", mutants.len());
    if options.list || mutants.is_empty() {
        return Ok(());
    }

    let started = Instant::now();
    let compiled = compile::compile(&tree, &mutants, &settings.programs, &target)?;
    eprintln!("{} of {} mutants compile; built in {:.0?}", compiled.viable.len(), mutants.len(), started.elapsed());
    let scratch = target.join("mutants/reached");
    let (names, recorded) = (mutants.iter().map(Mutant::name).collect::<Vec<_>>(), target.join("mutants/tests.json"));
    let earlier = Recorded::read(&recorded).filter(|of| options.resume && of.is_of(&names, &compiled, &settings));
    let tests = match earlier {
        Some(recorded) => recorded,
        None => Recorded { mutants: names, programs: tests_of::run_each(&compiled, &settings, &tree.root, &scratch)? },
    };
    tests.write(&recorded)?;
    let programs = tests.for_judging(&settings);
    let until = options.minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let order = in_random_order(&compiled.viable);
    let verdicts = Verdicts::open(target.join("mutants/verdicts.jsonl"), options.resume, &mutants)?;
    let verdicts = verdicts.judge(&order, &mutants, &programs, &settings, &tree.root, until)?;
    let equivalent = report::equivalents(&repository.join("docs/testing.md"))?;
    let report = report::report(&mutants, &compiled.viable, &verdicts, &programs, &settings, &equivalent);
    std::fs::write(target.join("mutants/report.md"), &report)?;
    println!("{report}");
    Ok(())
}

/// Fails if a planted fault does not fit the source, or if one of its tests does not notice it.
fn judge_planted(options: &Options, settings: &Settings, tree: &Tree, repository: &Path, target: &Path) -> Result<()> {
    let is_named = |name: &String| options.named.is_empty() || options.named.iter().any(|part| name.contains(part));
    let mut faults = planted::read(repository)?;
    faults.retain(|name, _| is_named(name));
    ensure!(!faults.is_empty(), "no planted fault has this in its name");
    if options.list {
        faults.iter().for_each(|(name, fault)| println!("{name}: {}", fault.breaks));
        return Ok(());
    }
    let started = Instant::now();
    let files = planted::plant(&faults, |file| tree.text(file))?;
    let counts = |test: &TestName| options.relay || test.program().is_of_core(&tree.root);
    let tests = planted::tests_of(&faults, counts);
    let programs: BTreeSet<&str> = tests.iter().map(|test| test.program.as_str()).collect();
    let programs: Vec<_> = programs.into_iter().map(|name| Program { name: name.into(), waits: false }).collect();
    let names: Vec<&str> = faults.keys().map(String::as_str).collect();
    let compiled = compile::compile_planted(tree, &files, &names, &programs, target)?;
    eprintln!("{} planted faults; built in {:.0?}", names.len(), started.elapsed());
    let scratch = target.join("mutants/results");
    let wrong = planted::judge(&faults, &tests, &compiled, settings, &tree.root, &scratch)?;
    ensure!(wrong.is_empty(), "planted faults:\n{}", wrong.join("\n"));
    println!("{} planted faults are noticed by {} tests, in {:.0?}", names.len(), tests.len(), started.elapsed());
    Ok(())
}

/// Returns the target directory in which cargo has put this program. It has the dependencies of the relay's tests too.
fn target_directory(repository: &Path) -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(2).context("the program is in a target directory")?;
    ensure!(target != repository, "the target directory is not the repository");
    Ok(target.to_owned())
}

fn choose(tree: &Tree, settings: &Settings, options: &Options, repository: &Path) -> Result<Vec<Mutant>> {
    let changed = options.since.as_ref().map(|since| tree::changed_lines(repository, since)).transpose()?;
    let mut by_area: BTreeMap<&str, Vec<Mutant>> = BTreeMap::new();
    let mut for_tests = Vec::new();
    for (file, source) in &tree.sources {
        for_tests.extend(find::modules_for_tests(file, source)?);
    }
    let is_for_tests = |file: &str| {
        let below =
            |module: &String| file.strip_prefix(module.as_str()).is_some_and(|rest| rest.starts_with(['.', '/']));
        for_tests.iter().any(below)
    };
    for (file, source) in tree.sources.iter().filter(|(file, _)| !is_for_tests(file)) {
        let Some(area) = settings.area(file) else { continue };
        let begins =
            |only: &String| file.starts_with(only) || tree::within(file).is_some_and(|file| file.starts_with(only));
        if !options.only.is_empty() && !options.only.iter().any(begins) {
            continue;
        }
        let of_area = by_area.entry(area).or_default();
        of_area.extend(find::mutants(file, source)?.into_iter().filter(|mutant| {
            let is_changed =
                |(file, lines): &(String, std::ops::Range<usize>)| *file == mutant.file && lines.contains(&mutant.line);
            changed.as_ref().is_none_or(|changed| changed.iter().any(is_changed))
                && (options.named.is_empty() || options.named.iter().any(|text| mutant.name().contains(text.as_str())))
        }));
    }
    let by_area = by_area.into_values().collect();
    let mut chosen = match options.sample {
        Some(wanted) => sample(by_area, wanted, options.seed),
        None => by_area.concat(),
    };
    chosen.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
    Ok(chosen)
}

/// Returns this many of all items: half of them spread evenly over the areas, and half in proportion to the areas' sizes, rounded up.
fn sample<T>(mut by_area: Vec<Vec<T>>, wanted: usize, seed: u64) -> Vec<T> {
    let found: usize = by_area.iter().map(Vec::len).sum();
    if wanted < found {
        let (areas, mut dice) = (by_area.len(), seed);
        for of_area in &mut by_area {
            let share = (wanted.div_ceil(areas) + (of_area.len() * wanted).div_ceil(found)).div_ceil(2);
            while of_area.len() > share {
                of_area.swap_remove((random(&mut dice) % of_area.len() as u64) as usize);
            }
        }
    }
    by_area.into_iter().flatten().collect()
}

/// SplitMix64, so that a seed gives the same sample everywhere.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns the numbers in random order, so that a run that is cut short has judged a sample of all files.
fn in_random_order(numbers: &BTreeSet<usize>) -> Vec<usize> {
    let mut dice = 1;
    let mut order: Vec<(u64, usize)> = numbers.iter().map(|number| (random(&mut dice), *number)).collect();
    order.sort();
    order.into_iter().map(|(_, number)| number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_spread_over_the_areas_and_one_of_all_is_all() {
        let areas = || vec![(0..100).collect(), (100..120).collect(), Vec::new()];
        let of_all = sample(areas(), 120, 1);
        assert_eq!(of_all, (0..120).collect::<Vec<_>>());
        let some = sample(areas(), 30, 1);
        let of_first = some.iter().filter(|number| **number < 100).count();
        assert_eq!((of_first, some.len() - of_first), (18, 8), "half by size, and half alike");
        assert_eq!(sample(areas(), 30, 1), some);
        assert!(sample(vec![Vec::<u8>::new()], 5, 1).is_empty());
    }
}
