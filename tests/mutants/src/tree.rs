//! The copy of the repository in which code is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const VERSION: &str = "0.1.0-mutants";
/// The sources of the crates whose code is changed.
const ROOTS: [&str; 2] = ["src", "core/src"];
const SWITCH: &str = include_str!("../switch.rs");
/// What fails in any case when it runs is still code. Only a build finds it, and not the check that blames mutants for errors.
const ALLOWED: &str = "#![allow(arithmetic_overflow, unconditional_panic)]\n";

pub struct Tree {
    pub root: PathBuf,
    /// The sources of the core and the relay, unchanged.
    pub sources: BTreeMap<String, String>,
}

impl Tree {
    /// Copies the files that git tracks, as they are on disk.
    pub fn copy(repository: &Path, root: PathBuf) -> Result<Self> {
        let files = git(repository, &["ls-files", "--cached", "--others", "--exclude-standard"])?;
        let mut sources = BTreeMap::new();
        remove_others(&root, &files)?;
        for file in files.lines() {
            let Ok(content) = fs::read(repository.join(file)) else { continue }; // removed and not committed yet
            if within(file).is_some() && file.ends_with(".rs") {
                sources.insert(file.to_owned(), String::from_utf8(content)?);
            } else {
                write(&root.join(file), &as_other_packages(file, content)?)?;
            }
        }
        let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
        ensure!(manifest.contains(VERSION), "the version in Cargo.toml is no longer the one that is looked for");
        Ok(Self { root, sources })
    }

    /// Writes the sources, with the changed ones in place of the original ones, and other files that are changed.
    pub fn write(&self, changed: &BTreeMap<String, String>) -> Result<()> {
        for (file, source) in &self.sources {
            let mut text = changed.get(file).unwrap_or(source).clone();
            if within(file) == Some("lib.rs") {
                text = format!("{ALLOWED}{text}\nmod mutant_switch;\n");
            }
            write(&self.root.join(file), text.as_bytes())?;
        }
        for (file, text) in changed.iter().filter(|(file, _)| !self.sources.contains_key(*file)) {
            write(&self.root.join(file), text.as_bytes())?;
        }
        ROOTS.iter().try_for_each(|root| write(&self.root.join(root).join("mutant_switch.rs"), SWITCH.as_bytes()))
    }

    /// Returns the unchanged text of a file.
    pub fn text(&self, file: &str) -> Result<String> {
        let path = self.root.join(file);
        self.sources.get(file).cloned().map_or_else(|| fs::read_to_string(&path).with_context(|| file.to_owned()), Ok)
    }
}

/// Returns the path of a file below the source folder of its crate, if it is there.
pub fn within(file: &str) -> Option<&str> {
    ROOTS.iter().find_map(|root| file.strip_prefix(root)?.strip_prefix('/'))
}

/// Removes files of an earlier copy that the repository no longer has: cargo would find tests in them.
fn remove_others(root: &Path, files: &str) -> Result<()> {
    let known: BTreeSet<PathBuf> = files.lines().map(|file| root.join(file)).collect();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue }; // there is no copy yet
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if !known.contains(&path) && !path.ends_with("mutant_switch.rs") {
                fs::remove_file(&path).with_context(|| path.display().to_string())?;
            }
        }
    }
    Ok(())
}

/// Gives the packages another version. Cargo caches its builds by name and version of a package, wherever the sources are: without
/// this, the builds of the copy would count as builds of the repository.
fn as_other_packages(file: &str, content: Vec<u8>) -> Result<Vec<u8>> {
    if !file.ends_with("Cargo.toml") && !file.ends_with("Cargo.lock") {
        return Ok(content);
    }
    let mut text = String::from_utf8(content)?;
    for name in ["weir", "weir-core", "weir-loadtest", "weir-testkit"] {
        let start = format!("name = \"{name}\"\nversion = \"");
        let Some(at) = text.find(&start).map(|at| at + start.len()) else { continue };
        let end = at + text[at..].find('"').context("a version ends")?;
        text.replace_range(at..end, VERSION);
    }
    Ok(text.into_bytes())
}

/// Writes a file only if its content differs, so that unchanged files are not compiled again.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
    fs::write(path, content).with_context(|| path.display().to_string())
}

/// Returns the output of a git command.
pub fn git(repository: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").current_dir(repository).args(arguments).output()?;
    ensure!(output.status.success(), "git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the lines of the sources that were changed since a revision, committed or not.
pub fn changed_lines(repository: &Path, since: &str) -> Result<Vec<(String, std::ops::Range<usize>)>> {
    let mut file = String::new();
    let mut lines = Vec::new();
    let arguments =
        [&["diff", "--unified=0", "--no-prefix", "--find-renames", "-l0", since, "--"][..], &ROOTS].concat();
    for line in git(repository, &arguments)?.lines() {
        if let Some(path) = line.strip_prefix("+++ ") {
            file = path.to_owned();
        } else if let Some(hunk) = line.strip_prefix("@@ ") {
            let added = hunk.split(' ').find_map(|part| part.strip_prefix('+')).context("a hunk says what it adds")?;
            let (first, count) = added.split_once(',').unwrap_or((added, "1"));
            let first: usize = first.parse()?;
            lines.push((file.clone(), first..first + count.parse::<usize>()?));
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_repository_has_no_more_is_removed_from_an_earlier_copy() {
        let root = std::env::temp_dir().join(format!("weir-mutants-{}", std::process::id()));
        for file in ["a/kept.rs", "a/gone/old.rs", "src/mutant_switch.rs"] {
            write(&root.join(file), b"").unwrap();
        }
        remove_others(&root, "a/kept.rs\nb.rs").unwrap();
        let there = ["a/kept.rs", "a/gone/old.rs", "src/mutant_switch.rs"].map(|file| root.join(file).exists());
        assert_eq!(there, [true, false, true]);
        fs::remove_dir_all(root).unwrap();
    }
}
