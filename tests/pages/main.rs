//! What the pages say of things that a change can remove or rename: links, paths, configuration keys, metrics, commands, log lines. Each finder
//! is shown planted false ones, and leaves alone what it cannot judge. `loadtest/tests/pages.rs` has the commands of `weir-loadtest`.

mod commands;
mod keys;
mod links;
mod log_lines;
mod markdown;
mod metrics;
mod paths;

use std::path::Path;

use self::markdown::{Page, pages, root};

/// Fails with all faults of all pages.
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

#[test]
fn quoted_log_lines_are_literals_of_the_source() {
    let literals = log_lines::Literals::read(&root());
    expect_none(|page| literals.faults(page));
}
