//! Checks things in the pages that a change may remove or rename: links, paths, configuration keys, metrics, commands. Each finder has a test
//! with planted errors, and ignores what it cannot judge. `loadtest/tests/pages.rs` has the commands of `weir-loadtest`.

mod commands;
mod keys;
mod links;
mod markdown;
mod metrics;
mod paths;

use std::path::Path;

use self::markdown::{Page, pages, root};

/// Fails with the faults of all pages.
fn expect_none(faults: impl Fn(&Page) -> Vec<String>) {
    let pages = pages();
    assert!(pages.len() > 25, "the pages are read");
    let found: Vec<_> = pages.iter().flat_map(faults).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn links_lead_to_files_and_headings() {
    expect_none(|page| links::faults(page, &root()));
}

/// Longest line of prose, in characters. Rows of tables cannot be broken.
const LONGEST_LINE: usize = 200;

#[test]
fn lines_of_prose_are_short() {
    expect_none(|page| {
        let is_long = |text: &str| text.chars().count() > LONGEST_LINE && !text.trim_start().starts_with('|');
        let long = page.prose().filter(|line| is_long(&line.text));
        long.map(|line| page.fault(line, format!("more than {LONGEST_LINE} characters"))).collect()
    });
}

/// The number of lines of the README: one and a half screens.
const README_LINES: std::ops::RangeInclusive<usize> = 60..=80;

/// The maximum of words in the README.
const README_WORDS: usize = 700;

#[test]
fn the_readme_is_read_in_three_minutes() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (lines, words) = (text.lines().count(), text.split_whitespace().count());
    assert!(README_LINES.contains(&lines) && words <= README_WORDS, "{lines} lines, {words} words");
}

/// Readers do not find a page that the table of contents lacks.
#[test]
fn every_page_is_in_the_table_of_contents() {
    let pages = pages();
    let contents = pages.iter().find(|page| page.path == "docs/README.md").unwrap();
    let has = |path: &str| contents.prose().any(|line| line.text.contains(&format!("]({path})")));
    let below = pages.iter().filter_map(|page| page.path.strip_prefix("docs/")).filter(|path| *path != "README.md");
    let missing: Vec<_> = below.filter(|path| !has(path)).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn paths_exist() {
    expect_none(|page| paths::missing(page, &root()));
}

#[test]
fn types_are_defined_in_the_files_that_are_named() {
    expect_none(|page| paths::undefined(page, &root()));
}

#[test]
fn keys_exist() {
    let keys = keys::Keys::read();
    expect_none(|page| keys.faults(page));
}

#[test]
fn metrics_exist() {
    let metrics = metrics::Metrics::read(&root());
    expect_none(|page| metrics.faults(page));
}

#[test]
fn commands_and_options_exist() {
    let program = commands::Program::read("weir", Path::new(env!("CARGO_BIN_EXE_weir")));
    expect_none(|page| program.faults(page));
}
