//! The pages and the example file that are written from the declarations of keys.

use std::collections::BTreeMap;

use weir_core::protocol::wait::{WaitKind, WaitRow};

use super::example::example_file;
use crate::config::Applies;
use crate::config::form::{Presence, Row, Section, as_written};
use crate::config::raw::Root;
use crate::limit::Limit;
use crate::written::{check_tables, check_text, head, row};

/// Returns the sections by their paths, such as `upstream.servers[].tls`.
fn sections() -> BTreeMap<String, Vec<Row>> {
    let mut found = BTreeMap::new();
    collect(String::new(), Root::rows(), &mut found);
    found
}

fn collect(path: String, rows: Vec<Row>, found: &mut BTreeMap<String, Vec<Row>>) {
    for row in &rows {
        let inner = (row.inner)();
        if !inner.rows.is_empty() {
            collect(below(&path, &format!("{}{}", row.key, inner.items)), inner.rows, found);
        }
    }
    found.insert(path, rows);
}

fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Returns the keys by their paths, without the signs of lists.
fn keys() -> BTreeMap<String, Row> {
    let keys = sections()
        .into_iter()
        .flat_map(|(path, rows)| rows.into_iter().map(move |row| (below(&path, row.key).replace("[]", ""), row)));
    keys.collect()
}

fn default_of(row: &Row) -> String {
    match (&row.default, row.absent, row.presence) {
        (_, Some(absent), _) => absent.to_owned(),
        (Some(default), ..) => format!("`{}`", as_written(default)),
        (None, None, Presence::Needed) => "required".to_owned(),
        (None, None, Presence::Optional) => "none".to_owned(),
        (None, None, Presence::Always) => String::new(),
    }
}

/// Joins the two parts of a key's comment for one cell of a table.
pub(super) fn sentences(first: &str, more: &str) -> String {
    let end = if more.is_empty() || first.ends_with(['.', ':', '?']) { "" } else { "." };
    format!("{first}{end} {more}").trim_end().to_owned()
}

fn table_of_section(rows: &[Row]) -> Vec<String> {
    let has_sorts = rows.iter().any(|row| row.only.is_some());
    let columns = |first: &str, sorts: &str, rest: [&str; 3]| {
        let sorts = has_sorts.then_some(sorts);
        row(&[first].into_iter().chain(sorts).chain(rest).collect::<Vec<_>>())
    };
    let mut lines = head(&["Key", "Type", "Default", "What it does"]);
    if has_sorts {
        lines = head(&["Key", "For", "Type", "Default", "What it does"]);
    }
    for row in rows {
        let sorts = row.only.map(|only| format!("`{}`", only.replace(", ", "`, `"))).unwrap_or_default();
        let words = sentences(&row.summary(), &row.more());
        lines.push(columns(&format!("`{}`", row.key), &sorts, [&(row.pages.form)(), &default_of(row), &words]));
    }
    lines
}

#[test]
fn the_tables_of_keys_are_written_from_their_declarations() {
    let sections = sections();
    let listed = std::cell::RefCell::new(Vec::new());
    check_tables("docs/configuration.md", |what, of| {
        (what == "keys").then(|| {
            listed.borrow_mut().push(of.to_owned());
            table_of_section(sections.get(of).unwrap_or_else(|| panic!("{of} is no section")))
        })
    });
    // Sections with the same declaration need only one table.
    let same = [
        "admin.tls.certificates[]",
        "admin.tls.trust_domains[]",
        "admin.tls.may_change[]",
        "admin.tls.may_tap[]",
        "upstream.servers[].backoff",
        "upstream.servers[].tenants[].headers.<name>",
    ];
    let is_same =
        |path: &String| same.contains(&path.as_str()) || path.starts_with("upstream.authorities.<name>.servers");
    let mut expected: Vec<_> = sections.into_keys().filter(|path| !is_same(path)).collect();
    let mut listed = listed.into_inner();
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected, "listed, and declared");
}

#[test]
fn the_table_of_reloads_is_written_from_the_declarations() {
    let words = |when: Applies| match when {
        Applies::AtOnce => "at once",
        Applies::NewStreams => "new streams",
        Applies::Restart => "restart",
    };
    let keys = keys();
    for key in keys.iter().filter(|(_, of)| (of.inner)().rows.is_empty()).map(|(key, _)| key) {
        let mut ways = key.match_indices('.').map(|(at, _)| &key[..at]).chain([key.as_str()]);
        assert!(ways.any(|way| keys.get(way).is_some_and(|of| of.applies.is_some())), "{key}: applies(…) is missing");
    }
    check_tables("docs/reload.md", |what, _| {
        let rows = keys.iter().filter_map(|(key, of)| Some(row(&[&format!("`{key}`"), words(of.applies?)])));
        (what == "changes").then(|| head(&["Key", "A change counts"]).into_iter().chain(rows).collect())
    });
}

#[test]
fn the_tables_of_limits_are_written_from_those_of_keys_and_limits() {
    let keys = keys();
    let line = |limit: Limit| {
        let words = limit.words();
        let default = keys.get(limit.key()).map(|key| match default_of(key) {
            none if none == "`0`" && key.summary().contains("0: no limit") => "no limit".to_owned(),
            default => default,
        });
        let default = default.unwrap_or_else(|| "the hard limit of the system".to_owned()); // of open files, whose limit is no key
        row(&[&format!("`{}`", limit.key()), &default, words.why, words.gets])
    };
    for limit in Limit::ALL {
        assert!(limit == Limit::OpenFiles || keys.contains_key(limit.key()), "{} is no key", limit.key());
    }
    let written = std::cell::Cell::new(0);
    check_tables("docs/limits.md", |what, of| {
        let rows: Vec<_> = Limit::ALL.into_iter().filter(|limit| limit.words().page == of).map(line).collect();
        written.set(written.get() + rows.len());
        (what == "limits")
            .then(|| head(&["Key", "Default", "Why", "What the client gets"]).into_iter().chain(rows).collect())
    });
    assert_eq!(written.get(), Limit::ALL.len(), "each limit is under one heading");
}

#[test]
fn the_table_of_waits_is_written_from_that_of_the_program() {
    let keys = keys();
    let line = |kind: WaitKind| {
        let WaitRow { name, what, bound, key } = kind.row();
        assert!(key.is_empty() || keys.contains_key(key), "{name}: {key}");
        let key = if key.is_empty() { String::new() } else { format!("`{key}`") };
        row(&[&format!("`{name}`"), what, bound, &key])
    };
    check_tables("docs/operations.md", |what, _| {
        let rows = WaitKind::ALL.into_iter().map(line);
        (what == "waits")
            .then(|| head(&["Wait", "What waits, and for what", "At most", "Key"]).into_iter().chain(rows).collect())
    });
}

#[test]
fn each_part_of_the_example_names_its_chapter() {
    let page = std::fs::read_to_string("docs/configuration.md").unwrap();
    for row in Root::rows() {
        assert!(page.contains(&format!("\n## `{}`\n", row.key)), "{}", row.key);
    }
}

#[test]
fn the_example_with_every_key_is_written_from_the_declarations() {
    check_text("config/relay.yaml", &example_file());
}
