//! The results of a run, as Markdown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use anyhow::Result;

use crate::judge::Verdict;
use crate::mutation::Mutant;
use crate::settings::Settings;
use crate::tests_of::{TestProgram, reaching};

/// Returns the mutants of which docs/testing.md explains that they change nothing observable.
pub fn equivalents(path: &Path) -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(path)?;
    let section = text.split("\n## ").find(|section| section.starts_with("Mutants that change nothing")).unwrap_or("");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    Ok(rows.flat_map(|(names, _)| names_of_row(names)).collect())
}

/// Returns the mutants of a row. A name without a file belongs to the file before it.
fn names_of_row(names: &str) -> Vec<String> {
    let (mut file, mut found) = ("", Vec::new());
    for name in names.split("`, `") {
        let begins_with_file = name.split_once(".rs::").is_some_and(|(path, _)| !path.contains(' '));
        if begins_with_file {
            file = &name[..name.find("::").unwrap_or_default()];
        }
        let full = if begins_with_file { name.to_owned() } else { format!("{file}::{name}") };
        found.push(full.replace("\\|", "|"));
    }
    found
}

#[derive(Default)]
struct Counts {
    judged: usize,
    caught: usize,
    ran_away: usize,
    equivalent: usize,
}

pub fn report(
    mutants: &[Mutant],
    viable: &BTreeSet<usize>,
    verdicts: &BTreeMap<usize, Verdict>,
    programs: &[TestProgram],
    settings: &Settings,
    equivalent: &BTreeSet<String>,
) -> String {
    let mut areas: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut missed = String::new();
    let reaching = reaching(programs);
    for (number, verdict) in verdicts {
        let mutant = &mutants[*number];
        let counts = areas.entry(settings.area(&mutant.file).unwrap_or("")).or_default();
        match verdict {
            Verdict::Caught { .. } => counts.caught += 1,
            Verdict::RanAway { .. } => counts.ran_away += 1,
            Verdict::Missed | Verdict::Unreached if equivalent.contains(&mutant.name()) => {
                counts.equivalent += 1;
                continue;
            }
            Verdict::Missed | Verdict::Unreached => {
                let tests = reaching.get(number).copied().unwrap_or(0);
                let _ =
                    writeln!(missed, "- {}:{} `{}` ({tests} tests reach it)", mutant.file, mutant.line, mutant.name());
            }
        }
        counts.judged += 1;
    }
    let mut text = format!(
        "{} mutants, {} compile, {} judged.\n\n| Area | Judged | Caught | Ran away | Missed | Caught in all | Goal | Equivalent |\n|---|---|---|---|---|---|---|---|\n",
        mutants.len(),
        viable.len(),
        verdicts.len()
    );
    for (area, counts) in &areas {
        let noticed = counts.caught + counts.ran_away;
        let _ = writeln!(
            text,
            "| `{area}` | {} | {} | {} | {} | {} % | {} % | {} |",
            counts.judged,
            counts.caught,
            counts.ran_away,
            counts.judged - noticed,
            100 * noticed / counts.judged.max(1),
            settings.areas.get(*area).copied().unwrap_or(0),
            counts.equivalent
        );
    }
    let _ = write!(text, "\nMissed:\n\n{missed}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mutant_of_the_document_is_in_a_file_that_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let names = equivalents(&root.join("docs/testing.md")).unwrap();
        assert!(names.len() > 15, "{names:?}");
        for name in names {
            let (file, _) = name.split_once("::").unwrap();
            assert!(["src", "core/src"].iter().any(|sources| root.join(sources).join(file).exists()), "{name}");
        }
        assert_eq!(
            names_of_row("a/b.rs::C::d: x is left out`, `E::f: y"),
            ["a/b.rs::C::d: x is left out", "a/b.rs::E::f: y"]
        );
    }
}
