//! Checks docs/conformance.md: it has every rule once, in a valid state, and the tests that it names exist. Checks the tests in docs/testing.md too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The number of rules of each kind, numbered from one.
const RULES: [(&str, u32); 17] = [
    ("TRN", 24),
    ("WIRE", 14),
    ("TYPE", 10),
    ("SOTW", 60),
    ("DELTA", 51),
    ("UP", 49),
    ("XLAT", 38),
    ("ORD", 19),
    ("NAME", 30),
    ("BOOT", 26),
    ("FB", 33),
    ("COLL", 25),
    ("KEY", 20),
    ("LRS", 21),
    ("CSDS", 10),
    ("REST", 12),
    ("FS", 6),
];

/// Rules that are often implemented wrongly.
const TRAPS: &str = "
    TRN-2 TRN-11 TRN-13 TRN-16 TRN-19 WIRE-2 WIRE-9 WIRE-14 TYPE-3 TYPE-4
    SOTW-2 SOTW-4 SOTW-7 SOTW-12 SOTW-14 SOTW-16 SOTW-21 SOTW-22 SOTW-23 SOTW-26 SOTW-28 SOTW-33 SOTW-38 SOTW-39 SOTW-40
    SOTW-45 SOTW-50 SOTW-55 SOTW-57
    DELTA-3 DELTA-6 DELTA-10 DELTA-11 DELTA-13 DELTA-16 DELTA-18 DELTA-21 DELTA-24 DELTA-30 DELTA-31 DELTA-32 DELTA-36
    DELTA-39 DELTA-45
    UP-7 UP-8 UP-9 UP-12 UP-21 UP-24 UP-32 UP-36
    XLAT-3 XLAT-10 XLAT-11 XLAT-12 XLAT-13 XLAT-16 XLAT-19 XLAT-20 XLAT-36 XLAT-37
    ORD-4 ORD-7 ORD-9 ORD-10
    NAME-6 NAME-12 NAME-16 NAME-24 BOOT-2 BOOT-6 BOOT-10 FB-3 FB-12 FB-13 FB-14 FB-21 FB-26 COLL-3 COLL-5 COLL-15 COLL-20
    KEY-2 KEY-4 KEY-9 KEY-11 LRS-10 LRS-14 CSDS-8
    REST-3 REST-6";

const STATES: [&str; 4] = ["done", "partly", "not yet", "not applicable"];

/// The parts of docs/operations.md whose tables list symptoms: what the log and the pages show, and what an operator does about it.
const RUNBOOK: [&str; 7] = [
    "Logs",
    "When a view fails",
    "When a brake holds",
    "What waits",
    "When a region starts cold",
    "Problems",
    "Troubleshooting",
];

/// The part of docs/testing.md that has a row for each of these symptoms.
const SYMPTOMS: &str = "Symptoms: each is made to happen";

/// A row of a table with three columns.
struct Row {
    subject: String,
    state: String,
    shown: String,
}

/// A test as the page names it: `file::function`.
struct Named {
    file: String,
    function: String,
}

impl Row {
    fn parse(line: &str) -> Option<Self> {
        let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
        let [subject, state, shown] = line.split(" | ").collect::<Vec<_>>().try_into().ok()?;
        let [subject, state, shown] = [subject, state, shown].map(|cell: &str| cell.trim().to_owned());
        Some(Self { subject, state, shown }).filter(|row| row.state != "State")
    }

    /// Returns the rule's ID, if the row is about one rule.
    fn rule(&self) -> Option<&str> {
        self.subject.strip_prefix("**")?.split_once("**").map(|(rule, _)| rule)
    }

    fn is_marked_a_trap(&self) -> bool {
        self.subject.split_once(':').is_some_and(|(start, _)| start.ends_with("** trap"))
    }

    fn tests(&self) -> Vec<Named> {
        let quoted = self.shown.split('`').skip(1).step_by(2);
        let named = quoted.filter_map(|quoted| quoted.split_once("::"));
        named.map(|(file, function)| Named { file: file.to_owned(), function: function.to_owned() }).collect()
    }

    /// Returns the text of the last column without the tests in it.
    fn says(&self) -> String {
        let plain = self.shown.split('`').step_by(2).collect::<String>();
        plain.trim_matches([' ', ',', '.']).to_owned()
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rows() -> Vec<Row> {
    rows_of("docs/conformance.md")
}

fn rows_of(page: &str) -> Vec<Row> {
    text_of(page).lines().filter_map(Row::parse).collect()
}

fn text_of(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap()
}

/// Returns the first cell of each row of the tables in these parts of a page, with the heading above it.
fn first_cells<'a>(page: &'a str, parts: &[&str]) -> Vec<(&'a str, &'a str)> {
    let (mut cells, mut is_in, mut heading) = (Vec::new(), false, "");
    let next = page.lines().skip(1).chain([""]);
    for (line, next) in page.lines().zip(next) {
        if let Some(part) = line.strip_prefix("## ") {
            (is_in, heading) = (parts.contains(&part), part);
        } else if let Some(title) = line.strip_prefix("### ") {
            heading = title;
        }
        let is_header = next.starts_with("|---");
        let cell = line.strip_prefix("| ").and_then(|line| line.split_once(" | ")).map(|(cell, _)| cell);
        cells.extend(cell.filter(|_| is_in && !is_header).map(|cell| (heading, cell)));
    }
    cells
}

/// Returns symptoms of a runbook that a list lacks, symptoms that only the list has, and symptoms that it has twice. If several rows of the runbook
/// have the same first cell, the list adds their heading.
fn differences(runbook: &str, list: &str) -> Vec<String> {
    let rows = first_cells(runbook, &RUNBOOK);
    let times = |cell: &str| rows.iter().filter(|(_, other)| *other == cell).count();
    let subject = |(heading, cell): &(&str, &str)| match times(cell) {
        1 => (*cell).to_owned(),
        _ => format!("{cell} ({heading})"),
    };
    let expected: BTreeSet<_> = rows.iter().map(subject).collect();
    let listed: Vec<_> = first_cells(list, &[SYMPTOMS]).into_iter().map(|(_, cell)| cell.to_owned()).collect();
    let listed_once: BTreeSet<_> = listed.iter().cloned().collect();
    let missing = expected.difference(&listed_once).map(|row| format!("docs/testing.md lacks the symptom {row}"));
    let surplus = listed_once.difference(&expected).map(|row| format!("docs/operations.md has no row {row}"));
    let twice = (listed.len() != listed_once.len()).then(|| "a symptom is in the list twice".to_owned());
    let alike = (expected.len() != rows.len()).then(|| "two rows below one heading begin alike".to_owned());
    missing.chain(surplus).chain(twice).chain(alike).collect()
}

fn every_rule() -> BTreeSet<String> {
    RULES.iter().flat_map(|(kind, count)| (1..=*count).map(move |number| format!("{kind}-{number}"))).collect()
}

fn traps() -> BTreeSet<&'static str> {
    TRAPS.split_whitespace().collect()
}

/// Whether a function's name contains a rule's ID: `sotw_7` is in `sotw_7_and_more`, and not in `sotw_77`.
fn names_rule(function: &str, rule: &str) -> bool {
    let id = rule.to_lowercase().replace('-', "_");
    format!("_{function}_").contains(&format!("_{id}_"))
}

/// Fails with all errors, and not only the first.
fn expect_nothing(wrong: impl IntoIterator<Item = String>) {
    let wrong: Vec<_> = wrong.into_iter().collect();
    assert!(wrong.is_empty(), "the page:\n  {}", wrong.join("\n  "));
}

#[test]
fn every_rule_stands_in_the_table_once() {
    let mut seen = BTreeMap::new();
    let rows = rows();
    for rule in rows.iter().filter_map(Row::rule) {
        *seen.entry(rule.to_owned()).or_insert(0) += 1;
    }
    let every = every_rule();
    let missing = every.iter().filter(|rule| !seen.contains_key(*rule)).map(|rule| format!("{rule} is missing"));
    let unknown = seen.keys().filter(|rule| !every.contains(*rule)).map(|rule| format!("{rule} is no rule"));
    let twice =
        seen.iter().filter(|(_, times)| **times > 1).map(|(rule, times)| format!("{rule} is there {times} times"));
    expect_nothing(missing.chain(unknown).chain(twice));
}

#[test]
fn every_row_of_a_table_is_read() {
    let page = fs::read_to_string(root().join("docs/conformance.md")).unwrap();
    let of_a_rule = |line: &&str| line.starts_with("| **");
    let unread = page.lines().filter(of_a_rule).filter(|line| Row::parse(line).is_none_or(|row| row.rule().is_none()));
    expect_nothing(unread.map(|line| format!("not three columns: {line}")));
}

#[test]
fn every_state_is_one_of_four_and_says_what_it_rests_on() {
    let rows = rows();
    let wrong = rows.iter().filter_map(|row| {
        let Row { subject, state, .. } = row;
        match state.as_str() {
            state if !STATES.contains(&state) => Some(format!("{subject}: there is no state {state:?}")),
            "done" if row.tests().is_empty() && !row.says().starts_with("By construction") => {
                Some(format!("{subject}: done, and nothing shows it"))
            }
            "partly" | "not yet" | "not applicable" if row.says().is_empty() => {
                Some(format!("{subject}: {state}, and no reason is given"))
            }
            _ => None,
        }
    });
    expect_nothing(wrong);
}

#[test]
fn every_test_that_is_named_exists() {
    expect_nothing(missing_tests(&rows()));
}

#[test]
fn each_budget_timer_waiter_and_symptom_has_a_test_and_every_test_that_is_named_exists() {
    let is_entry = |row: &Row| !row.subject.starts_with("---") && row.shown != "Shown by";
    let page = text_of("docs/testing.md");
    let rows: Vec<_> = page.lines().filter_map(Row::parse).filter(is_entry).collect();
    assert!(rows.len() > 130, "the lists are read");
    let symptoms: Vec<_> = first_cells(&page, &[SYMPTOMS]).into_iter().map(|(_, cell)| cell).collect();
    let is_symptom = |row: &Row| symptoms.contains(&&*row.subject);
    let has_reason = |row: &Row| row.says().starts_with("By construction: ") && is_symptom(row);
    let untested = rows.iter().filter(|row| row.tests().is_empty() && !has_reason(row));
    let untested = untested.map(|row| format!("{}: no test", row.subject));
    expect_nothing(missing_tests(&rows).into_iter().chain(untested));
}

#[test]
fn each_symptom_of_the_runbook_is_in_the_list_and_no_other_is() {
    let (runbook, list) = (text_of("docs/operations.md"), text_of("docs/testing.md"));
    assert!(first_cells(&runbook, &RUNBOOK).len() > 100, "the tables are read");
    for part in RUNBOOK {
        assert!(runbook.contains(&format!("\n## {part}\n")), "there is no part {part}");
    }
    let symptoms = list.split_once(SYMPTOMS).unwrap().1.split("\n## ").next().unwrap();
    let unread = symptoms.lines().filter(|line| line.starts_with("| "));
    let unread = unread.filter(|line| Row::parse(line).is_none()).map(|line| format!("not three columns: {line}"));
    expect_nothing(differences(&runbook, &list).into_iter().chain(unread));
}

#[test]
fn a_symptom_that_the_list_lacks_or_has_beside_the_runbook_is_found() {
    let runbook = "## Troubleshooting\n### One\n| At | Do |\n|---|---|\n| x | y |\n| z | y |\n### Two\n| x | y |\n## Other\n| w | y |";
    let list =
        |rows: &str| format!("## {SYMPTOMS}\n| Symptom | At | By |\n|---|---|---|\n{rows}## Mutants\n| v | y | y |\n");
    let found = |rows: &str| differences(runbook, &list(rows));
    assert_eq!(found("| x (One) | a | b |\n| z | a | b |\n| x (Two) | a | b |\n"), [""; 0]);
    assert_eq!(found("| x (One) | a | b |\n| z | a | b |\n"), ["docs/testing.md lacks the symptom x (Two)"]);
    let twice = "| x (One) | a | b |\n| z | a | b |\n| z | a | b |\n| x (Two) | a | b |\n| w | a | b |\n";
    assert_eq!(found(twice), ["docs/operations.md has no row w", "a symptom is in the list twice"]);
    for part in RUNBOOK {
        let planted = format!("{runbook}\n## {part}\n| At | Do |\n|---|---|\n| planted | y |");
        let found = differences(&planted, &list("| x (One) | a | b |\n| z | a | b |\n| x (Two) | a | b |\n"));
        assert_eq!(found, ["docs/testing.md lacks the symptom planted"], "{part}");
    }
}

fn missing_tests(rows: &[Row]) -> Vec<String> {
    let mut sources: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut wrong = Vec::new();
    for Named { file, function } in rows.iter().flat_map(Row::tests) {
        let path = root().join(&file);
        let inside = Path::new(&file).components().all(|part| matches!(part, std::path::Component::Normal(_)));
        let read = |path: &PathBuf| if inside { fs::read_to_string(path).unwrap_or_default() } else { String::new() };
        let source = sources.entry(path).or_insert_with_key(read);
        if !source.contains(&format!("fn {function}(")) {
            wrong.push(format!("{file} has no fn {function}"));
        }
    }
    wrong
}

#[test]
fn traps_are_marked_as_such_and_nothing_else_is() {
    let (rows, traps) = (rows(), traps());
    let wrong = rows.iter().filter_map(|row| {
        let rule = row.rule()?;
        let (is, marked) = (traps.contains(rule), row.is_marked_a_trap());
        (is != marked).then(|| format!("{rule}: trap: {is}, marked: {marked}"))
    });
    expect_nothing(wrong);
}

#[test]
fn a_trap_that_is_done_has_a_test_named_after_it() {
    let (rows, traps) = (rows(), traps());
    let wrong = rows.iter().filter_map(|row| {
        let rule = row.rule().filter(|rule| traps.contains(rule) && row.state == "done")?;
        let has_own = row.tests().iter().any(|test| names_rule(&test.function, rule));
        (!has_own).then(|| format!("{rule}: no test has its ID in the name"))
    });
    expect_nothing(wrong);
}

#[test]
fn a_rule_is_not_taken_for_another_that_begins_alike() {
    assert!(names_rule("sotw_7_a_cold_cache", "SOTW-7") && names_rule("delta_16_and_sotw_7", "SOTW-7"));
    assert!(!names_rule("sotw_77_and_more", "SOTW-7") && !names_rule("not_sotw_7x", "SOTW-7"));
}
