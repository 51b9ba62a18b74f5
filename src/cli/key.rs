//! `weir key`: the sharing key of a node, the fields that form it, and how a fleet is divided.

pub mod against;

mod advice;
mod node_comparison;
mod node_query;
mod references;
mod referred;
mod secrets;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use prost::Message;
use weir_core::xds::{KeyField, KeyRule, SharingKey};

pub use self::secrets::about_secrets;
use super::node_json::NodeJson;

/// Returns the report for nodes in JSON, one per line; a single node may take several lines.
pub fn report(rule: &KeyRule, text: &str) -> Result<String, NodesError> {
    let nodes = read(rule, text)?;
    let known = nodes.iter().filter_map(|encoded| Some((rule.key(encoded).ok()?, rule.parts(encoded))));
    let known: Vec<_> = known.collect();
    match known.as_slice() {
        [] => Err(NodesError::None),
        [(key, parts)] => Ok(of_one(key, parts)),
        _ => Ok(of_many(rule, &known) + &advice::for_fleet(rule, &nodes)),
    }
}

fn read(rule: &KeyRule, text: &str) -> Result<Vec<Vec<u8>>, NodesError> {
    let lines = || text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let node_in = |(index, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| NodesError::Line { line: index + 1, error })
    };
    let nodes: Vec<NodeJson> = match serde_json::from_str(text) {
        Ok(node) => vec![node],
        // A single node may take several lines, so its error has a position of its own.
        Err(error) => lines()
            .map(node_in)
            .collect::<Result<_, _>>()
            .map_err(|line| if text.trim_start().starts_with("{\n") { NodesError::Text(error) } else { line })?,
    };
    if rule.fields().contains(&KeyField::ListeningAddresses) && nodes.iter().any(NodeJson::has_addresses) {
        return Err(NodesError::Addresses);
    }
    Ok(nodes.into_iter().map(|node| node.into_node().encode_to_vec()).collect())
}

/// Why the nodes cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NodesError {
    /// The text contains no node.
    #[error("no node was given: expected JSON, a node on each line, such as {}", EXAMPLE)]
    None,
    /// A line is not a valid node.
    #[error("line {line}: {}; expected a node as JSON on each line, such as {}", words(error), EXAMPLE)]
    Line {
        /// The line, from 1.
        line: usize,
        /// The error in it.
        error: serde_json::Error,
    },
    /// The text is not a valid node.
    #[error("{}; expected a node as JSON, such as {}", words(.0), EXAMPLE)]
    Text(serde_json::Error),
    /// The key needs addresses, whose JSON form is not supported.
    #[error("listening_addresses are part of the key, and cannot be read from JSON here")]
    Addresses,
}

type Parts = Vec<(KeyField, String)>;

fn words(error: &serde_json::Error) -> String {
    match error.is_data() {
        true => error.to_string(),
        false => format!("no JSON at column {}", error.column()),
    }
}

const EXAMPLE: &str = r#"{"id": "envoy-1", "cluster": "web"}"#;

fn of_one(key: &SharingKey, parts: &Parts) -> String {
    let width = parts.iter().map(|(field, _)| field.to_string().len()).max().unwrap_or(0);
    let mut out = format!("key {key}\n");
    for (field, value) in parts {
        let _ = writeln!(out, "  {:width$}  {}", field.to_string(), shown(value)); // writing to a String does not fail
    }
    out
}

fn of_many(rule: &KeyRule, known: &[(SharingKey, Parts)]) -> String {
    let mut keys: BTreeMap<&SharingKey, (usize, &Parts)> = BTreeMap::new();
    for (key, parts) in known {
        keys.entry(key).or_insert((0, parts)).0 += 1;
    }
    let mut out = format!("{} nodes, {} keys\n\n", known.len(), keys.len());
    let mut rows: Vec<_> = keys.into_iter().collect();
    rows.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    let head: Vec<_> = ["key", "nodes"].map(String::from).into_iter().chain(names(rule)).collect();
    let cells = |(key, (count, parts)): &(&SharingKey, (usize, &Parts))| {
        let own = [key.to_string(), count.to_string()].into_iter();
        own.chain(parts.iter().map(|(_, value)| shown(value))).collect()
    };
    out.push_str(&table(&head, &rows.iter().map(cells).collect::<Vec<Vec<String>>>()));
    out.push_str("\nvalues of each field over all nodes:\n");
    for (at, name) in names(rule).enumerate() {
        let values: BTreeSet<_> = known.iter().filter_map(|(_, parts)| Some(&parts.get(at)?.1)).collect();
        let _ = writeln!(out, "  {name}  {}", values.len());
    }
    out
}

fn names(rule: &KeyRule) -> impl Iterator<Item = String> {
    rule.fields().iter().map(ToString::to_string)
}

fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let lines = || [head].into_iter().chain(rows.iter().map(Vec::as_slice));
    let width = |at: usize| lines().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let line = |line: &[String]| {
        let cells = line.iter().enumerate().map(|(at, cell)| format!("{cell:width$}", width = width(at)));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines().map(line).collect()
}

fn shown(value: &str) -> String {
    const MOST: usize = 48;
    match value {
        "" => "-".into(),
        _ if value.chars().count() <= MOST => value.into(),
        _ => value.chars().take(MOST - 3).chain("...".chars()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> KeyRule {
        let fields = ["cluster", "locality.region", "metadata.tenant"].map(|text| KeyField::parse(text).unwrap());
        KeyRule::of(fields.into())
    }

    #[test]
    fn key_20_one_node_is_shown_with_what_made_its_key() {
        let node =
            r#"{"id": "1", "cluster": "web", "locality": {"region": "eu", "zone": "a"}, "metadata": {"tenant": "x"}}"#;
        let report = report(&rule(), node).unwrap();
        let lines: Vec<_> = report.lines().collect();
        assert!(lines[0].starts_with("key ") && lines.len() == 4, "{report}");
        assert_eq!(lines[1..], ["  cluster          web", "  locality.region  eu", "  metadata.tenant  \"x\""]);
    }

    #[test]
    fn a_fleet_is_shown_as_it_splits_and_by_what() {
        let node = |id: u32, cluster: &str| {
            format!("{{\"id\": \"{id}\", \"cluster\": \"{cluster}\", \"userAgentName\": \"envoy\"}}\n")
        };
        let fleet: String = (0..10).map(|id| node(id, if id < 7 { "web" } else { "db" })).collect();
        let report = report(&rule(), &fleet).unwrap();
        assert!(report.starts_with("10 nodes, 2 keys\n"), "{report}");
        let counts: Vec<_> =
            report.lines().skip(3).take(2).map(|line| line.split_whitespace().nth(1).unwrap()).collect();
        assert_eq!(counts, ["7", "3"], "{report}");
        assert!(report.contains("cluster  2\n") && report.contains("metadata.tenant  1\n"), "{report}");
    }

    #[test]
    fn a_node_that_cannot_be_read_is_reported_with_its_line() {
        let error = report(&rule(), "{\"id\": \"1\"}\n{\"id\": 2}\n").unwrap_err();
        assert!(error.to_string().starts_with("line 2: "), "{error}");
        assert!(report(&rule(), "{\"colour\": \"red\"}").unwrap_err().to_string().contains("colour"));
        assert!(report(&rule(), "\n").is_err());
    }
}
