//! Compiles all mutants at once, leaving out those that do not compile.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::mutation::Mutant;
use crate::rewrite::{Rewritten, rewrite};
use crate::settings::Program;
use crate::tree::Tree;

/// The result of compiling.
pub struct Compiled {
    /// The numbers of the mutants that compile.
    pub viable: BTreeSet<usize>,
    /// The test programs by name.
    pub programs: BTreeMap<String, PathBuf>,
}

pub fn compile(tree: &Tree, mutants: &[Mutant], programs: &[Program], target: &Path) -> Result<Compiled> {
    let mut viable: BTreeSet<usize> = (0..mutants.len()).collect();
    let packages = packages(tree, programs);
    loop {
        let rewritten = put_in(tree, mutants, &viable)?;
        let check = cargo(tree, target, &NOT_OPTIMIZED, &[&["check", "--lib"], packages].concat())?;
        if check.errors.is_empty() {
            ensure!(check.succeeded, "cargo check failed without an error in the code");
            break;
        }
        let blamed = blame(&check.errors, &rewritten, mutants)?;
        eprintln!("{} mutants are no valid code", blamed.len());
        viable.retain(|number| !blamed.contains(number));
    }
    let built = build_tests(tree, programs, target, &NOT_OPTIMIZED)?;
    ensure!(built.succeeded, "the tests do not compile: {:?}", built.errors.first().map(|error| &error["rendered"]));
    Ok(Compiled { viable, programs: built.programs })
}

/// Compiles the test programs with the planted faults, which are in these files. An error names the faults that it is about. The code is
/// optimized as in other tests: the histories that find the faults are arithmetic, and so the dependencies of those tests are shared.
pub fn compile_planted(
    tree: &Tree,
    files: &BTreeMap<String, Rewritten>,
    names: &[&str],
    programs: &[Program],
    target: &Path,
) -> Result<BTreeMap<String, PathBuf>> {
    tree.write(&files.iter().map(|(file, planted)| (file.clone(), planted.text.clone())).collect())?;
    let mut all = BTreeMap::new();
    for programs in apart(programs, |program| program.is_of_core(&tree.root)) {
        let built = build_tests(tree, &programs, target, &[])?;
        if !built.succeeded {
            let mut spans = Vec::new();
            built.errors.iter().for_each(|error| collect_spans(error, &mut spans));
            let numbers = spans.into_iter().flat_map(|span| overlaps(span, files, |placed| placed.1.clone()));
            let blamed: BTreeSet<&str> = numbers.map(|number| names[number]).collect();
            let first = built.errors.first().and_then(|error| error["rendered"].as_str()).unwrap_or_default();
            bail!("the planted faults do not compile; to blame: {blamed:?}\n{first}");
        }
        all.extend(built.programs);
    }
    Ok(all)
}

/// Returns the programs that one call of cargo compiles each. If all are of the core, that is one call, for its package alone. Otherwise the
/// tests beside the core's code come by themselves: in one call with the others, `--lib` would compile the tests beside the relay's code, too, which
/// takes minutes. The core's other programs come with the relay's, and share the library.
fn apart(programs: &[Program], is_of_core: impl Fn(&Program) -> bool) -> Vec<Vec<Program>> {
    if programs.iter().all(&is_of_core) {
        return vec![programs.to_vec()];
    }
    let (alone, others): (Vec<_>, Vec<_>) =
        programs.iter().cloned().partition(|program| program.is_beside_code() && is_of_core(program));
    [alone, others].into_iter().filter(|programs| !programs.is_empty()).collect()
}

fn build_tests(tree: &Tree, programs: &[Program], target: &Path, profile: &[&str]) -> Result<Run> {
    let mut arguments = [&["test", "--no-run"], packages(tree, programs)].concat();
    if programs.iter().any(Program::is_beside_code) {
        arguments.push("--lib");
    }
    for program in programs.iter().filter(|program| !program.is_beside_code()) {
        arguments.extend(["--test", &program.name]);
    }
    cargo(tree, target, profile, &arguments)
}

/// Returns the packages to compile. The core's own tests do not need the relay, which takes ten times as long to compile.
fn packages(tree: &Tree, programs: &[Program]) -> &'static [&'static str] {
    let of_core = |program: &Program| program.is_of_core(&tree.root);
    if programs.iter().all(of_core) { &["--package", "weir-core"] } else { &[] }
}

/// The relay itself without optimization, since it is compiled again and again. Dependencies are shared with the other tests.
const NOT_OPTIMIZED: [&str; 8] = [
    "--config",
    "profile.test.package.weir.opt-level=0",
    "--config",
    "profile.test.package.weir-core.opt-level=0",
    "--config",
    "profile.test.package.weir-loadtest.opt-level=0",
    "--config",
    "profile.test.package.weir-testkit.opt-level=0",
];

fn put_in(tree: &Tree, mutants: &[Mutant], viable: &BTreeSet<usize>) -> Result<BTreeMap<String, Rewritten>> {
    let mut by_file: BTreeMap<&str, Vec<(usize, &Mutant)>> = BTreeMap::new();
    for number in viable {
        by_file.entry(&mutants[*number].file).or_default().push((*number, &mutants[*number]));
    }
    let rewritten: BTreeMap<String, Rewritten> =
        by_file.into_iter().map(|(file, of_file)| (file.to_owned(), rewrite(&tree.sources[file], &of_file))).collect();
    tree.write(&rewritten.iter().map(|(file, rewritten)| (file.clone(), rewritten.text.clone())).collect())?;
    Ok(rewritten)
}

struct Run {
    succeeded: bool,
    errors: Vec<Value>,
    programs: BTreeMap<String, PathBuf>,
}

fn cargo(tree: &Tree, target: &Path, profile: &[&str], arguments: &[&str]) -> Result<Run> {
    let mut cargo = Command::new("cargo")
        .current_dir(&tree.root)
        .args(profile)
        .args(arguments)
        .args(["--message-format", "json", "--locked", "--target-dir"])
        .arg(target)
        .env("CARGO_INCREMENTAL", if profile == NOT_OPTIMIZED { "1" } else { "0" }) // planted faults are compiled once
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cargo")?;
    let stderr = cargo.stderr.take().context("piped")?;
    let last_words = std::thread::spawn(move || {
        let lines: Vec<String> = BufReader::new(stderr).lines().map_while(Result::ok).collect();
        lines.into_iter().filter(|line| line.starts_with("error")).collect::<Vec<_>>().join("\n")
    });
    let (mut errors, mut programs) = (Vec::new(), BTreeMap::new());
    for line in BufReader::new(cargo.stdout.take().context("piped")?).lines() {
        let message: Value = serde_json::from_str(&line?)?;
        if let ("compiler-artifact", Some(path)) =
            (message["reason"].as_str().unwrap_or(""), message["executable"].as_str())
        {
            if message["profile"]["test"] == true {
                programs.insert(message["target"]["name"].as_str().unwrap_or("").to_owned(), PathBuf::from(path));
            }
        } else if message["message"]["level"] == "error"
            && message["message"]["spans"].as_array().is_some_and(|spans| !spans.is_empty())
        {
            errors.push(message["message"].clone());
        }
    }
    let succeeded = cargo.wait()?.success();
    let last_words = last_words.join().unwrap_or_default();
    if !succeeded && errors.is_empty() {
        bail!("cargo {}: {last_words}", arguments.join(" "));
    }
    Ok(Run { succeeded, errors, programs })
}

/// Returns the mutants that the errors concern.
fn blame(errors: &[Value], rewritten: &BTreeMap<String, Rewritten>, mutants: &[Mutant]) -> Result<BTreeSet<usize>> {
    let mut blamed = BTreeSet::new();
    for error in errors {
        let mut spans = Vec::new();
        collect_spans(error, &mut spans);
        spans.sort_by_key(|span| span["is_primary"] != true);
        let own = |span: &Value| overlaps(span, rewritten, |placed| placed.1.clone());
        let around = |span: &Value| innermost(span, rewritten);
        let of_error = (spans.iter().copied().map(own).find(|found| !found.is_empty()))
            .or_else(|| spans.iter().copied().map(around).find(|found| !found.is_empty()))
            .or_else(|| {
                spans.iter().copied().map(|span| in_function(span, rewritten, mutants)).find(|found| !found.is_empty())
            });
        match of_error {
            Some(found) => blamed.extend(found),
            None => bail!("an error that no mutant can be blamed for:\n{}", error["rendered"].as_str().unwrap_or("")),
        }
    }
    Ok(blamed)
}

/// Collects the spans of an error, of its notes, and of the macro calls around them.
fn collect_spans<'a>(message: &'a Value, spans: &mut Vec<&'a Value>) {
    spans.extend(message["spans"].as_array().into_iter().flatten());
    for child in message["children"].as_array().into_iter().flatten() {
        collect_spans(child, spans);
    }
}

type Placed = (usize, std::ops::Range<usize>, std::ops::Range<usize>);

fn overlaps(
    span: &Value,
    rewritten: &BTreeMap<String, Rewritten>,
    range: impl Fn(&Placed) -> std::ops::Range<usize>,
) -> Vec<usize> {
    let Some((file, start, end)) = bytes(span) else { return Vec::new() };
    let placed = rewritten.get(file).into_iter().flat_map(|file| &file.placed);
    placed.filter(|placed| range(placed).start < end && start < range(placed).end).map(|placed| placed.0).collect()
}

/// Returns the mutant with the smallest place around an error.
fn innermost(span: &Value, rewritten: &BTreeMap<String, Rewritten>) -> Vec<usize> {
    let Some((file, start, end)) = bytes(span) else { return Vec::new() };
    let placed = rewritten.get(file).into_iter().flat_map(|file| &file.placed);
    let around = placed.filter(|placed| placed.2.start < end && start < placed.2.end);
    around.min_by_key(|placed| placed.2.len()).map(|placed| placed.0).into_iter().collect()
}

/// Returns all mutants of the function around an error, for an error that does not concern a single mutant.
fn in_function(span: &Value, rewritten: &BTreeMap<String, Rewritten>, mutants: &[Mutant]) -> Vec<usize> {
    let Some((file, start, _)) = bytes(span) else { return Vec::new() };
    let placed = rewritten.get(file).into_iter().flat_map(|file| &file.placed);
    let Some(nearest) = placed.clone().min_by_key(|placed| placed.1.start.abs_diff(start)) else { return Vec::new() };
    let function = &mutants[nearest.0].function;
    placed.filter(|placed| mutants[placed.0].function == *function).map(|placed| placed.0).collect()
}

fn bytes(span: &Value) -> Option<(&str, usize, usize)> {
    let file = span["file_name"].as_str()?;
    Some((file, span["byte_start"].as_u64()? as usize, span["byte_end"].as_u64()? as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(names: &[&str]) -> Vec<Vec<String>> {
        let programs: Vec<_> = names.iter().map(|name| Program { name: (*name).into(), waits: false }).collect();
        let is_of_core = |program: &Program| ["weir_core", "model", "rules"].contains(&program.name.as_str());
        let names =
            |programs: Vec<Program>| -> Vec<String> { programs.into_iter().map(|program| program.name).collect() };
        apart(&programs, is_of_core).into_iter().map(names).collect()
    }

    #[test]
    fn tests_beside_the_cores_code_are_compiled_without_those_beside_the_relays() {
        assert_eq!(calls(&["model", "rules", "weir_core"]), [["model", "rules", "weir_core"]]);
        let with_relay = calls(&["process", "model", "rules", "weir_core"]);
        assert_eq!(with_relay, [vec!["weir_core"], vec!["process", "model", "rules"]]);
        assert_eq!(calls(&["process"]), [["process"]]);
    }
}
