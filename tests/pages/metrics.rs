//! Finds metrics in the pages that do not exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::markdown::Page;

const PREFIX: &str = "weir_";

/// What the series of a histogram append to its name.
const OF_HISTOGRAMS: [&str; 3] = ["_bucket", "_sum", "_count"];

/// Crates of the repository, whose names begin like those of metrics.
const CRATES: [&str; 3] = ["weir_core", "weir_loadtest", "weir_testkit"];

/// The names in the table of metrics.
pub struct Metrics(BTreeSet<String>);

impl Metrics {
    pub fn read(root: &Path) -> Self {
        let table = fs::read_to_string(root.join("src/telemetry/table.rs")).unwrap();
        let names = table.split('"').filter(|part| part.starts_with(PREFIX)).map(str::to_owned);
        Self(names.collect())
    }

    fn has(&self, name: &str) -> bool {
        let histogram = OF_HISTOGRAMS.iter().find_map(|end| name.strip_suffix(end));
        self.0.contains(name) || CRATES.contains(&name) || histogram.is_some_and(|name| self.0.contains(name))
    }

    /// Returns the metrics in code spans and code blocks of a page that do not exist. `weir_client_*` stands for all with this beginning.
    pub fn faults(&self, page: &Page) -> Vec<String> {
        let in_spans = page.spans().into_iter();
        let in_blocks = page.lines.iter().filter(|line| line.block.is_some()).map(|line| (line, line.text.as_str()));
        let mut faults = Vec::new();
        for (line, text) in in_spans.chain(in_blocks) {
            for (name, is_start) in named(text) {
                let exists = if is_start { self.0.iter().any(|other| other.starts_with(name)) } else { self.has(name) };
                if !exists {
                    faults.push(page.fault(line, format!("no metric {name}")));
                }
            }
        }
        faults
    }
}

/// Returns words that look like metrics, and whether each is only the beginning of names.
fn named(text: &str) -> Vec<(&str, bool)> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts = text.match_indices(PREFIX).map(|(at, _)| at);
    let starts = starts.filter(|at| !text[..*at].ends_with(|c: char| c.is_ascii_alphanumeric() || "_/.-".contains(c)));
    starts
        .map(|at| {
            let name = &text[at..];
            let name = &name[..name.find(|c: char| !is_part(c)).unwrap_or(name.len())];
            let after = &text[at + name.len()..];
            (name, after.starts_with('*') || after.starts_with('…'))
        })
        .collect()
}

#[test]
fn a_metric_that_does_not_exist_is_found() {
    let metrics = Metrics::read(&crate::markdown::root());
    assert!(metrics.0.len() > 50, "the table is read");
    let found = |text: &str| metrics.faults(&Page::parse("a.md", text));
    let good = "`weir_views`, `weir_client_*`, `weir_core`, `rate(weir_views[5m])`, `a_weir_x`, weir_not_code";
    assert_eq!(found(good), [""; 0]);
    assert_eq!(found("`weir_vews`"), ["a.md:1: no metric weir_vews"]);
    assert_eq!(found("`weir_vews_*`"), ["a.md:1: no metric weir_vews_"]);
    assert_eq!(found("```promql\nsum(weir_nothing_total)\n```"), ["a.md:2: no metric weir_nothing_total"]);
}
