//! What a server sends to several nodes, compared resource by resource.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde::Serialize;
use serde_json::{Value, json};
use weir_core::xds::short_type_name;

use super::node_query::NodeQuery;
use crate::cli::printable;
use crate::cli::query_state::ReceivedResource;
use crate::plural::plural;
use crate::transcode::{ContentDifference, REDACTED, Transcoder};

/// Nodes with the same key, and what a server sends to them.
pub(super) struct NodeComparison {
    pub(super) server: String,
    pub(super) key: String,
    /// Names for the nodes.
    pub(super) nodes: Vec<String>,
    /// The fields in which the nodes differ.
    pub(super) node_fields: BTreeSet<String>,
    /// How many resources are equal for all nodes, by type.
    same: BTreeMap<String, usize>,
    differences: Vec<NodeDifference>,
    /// What could not be found out.
    pub(super) errors: Vec<String>,
}

/// A resource that differs between two nodes.
#[derive(Debug, Serialize)]
struct NodeDifference {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    /// The two nodes that are compared.
    nodes: [String; 2],
    /// The node that has the resource, if only one has it.
    only: Option<String>,
    /// Where it differs, if both have it.
    difference: Option<ContentDifference>,
}

impl NodeComparison {
    pub(super) fn of(server: String, key: String, nodes: Vec<String>, node_fields: BTreeSet<String>) -> Self {
        let (same, differences, errors) = Default::default();
        Self { server, key, nodes, node_fields, same, differences, errors }
    }

    /// Compares what the first node is sent with what each other node is sent. A resource whose state is unknown for either node is left out.
    pub(super) fn compare(&mut self, transcoder: &Transcoder, queries: &[&NodeQuery]) {
        let Some((first, others)) = queries.split_first() else { return };
        let all: BTreeSet<_> = queries.iter().flat_map(|query| query.received()).collect();
        for (kind, name) in all {
            let mut is_same = true;
            for (other, label) in others.iter().zip(self.nodes.iter().skip(1)) {
                let sides = (first.resource(kind, name), other.resource(kind, name));
                let (Some(one), Some(other)) = sides else {
                    is_same = false; // nothing was compared
                    continue;
                };
                let (difference, only) = match (one, other) {
                    (Some(one), Some(other)) => (difference(transcoder, kind, one, other), None),
                    (Some(_), None) => (None, self.nodes.first().cloned()),
                    (None, Some(_)) => (None, Some(label.clone())),
                    (None, None) => continue,
                };
                if difference.is_none() && only.is_none() {
                    continue;
                }
                is_same = false;
                let nodes = [self.nodes.first().cloned().unwrap_or_default(), label.clone()];
                let (kind, name) = (kind.to_owned(), name.to_owned());
                self.differences.push(NodeDifference { kind, name, nodes, only, difference });
            }
            if is_same {
                *self.same.entry(kind.to_owned()).or_default() += 1;
            }
        }
    }

    pub(super) fn differs(&self) -> bool {
        !self.differences.is_empty()
    }

    fn equal(&self) -> String {
        plural(self.same.values().sum(), "resource") + " of " + &plural(self.same.len(), "type")
    }

    /// Returns the comparison as JSON.
    pub(super) fn page(&self) -> Value {
        json!({
            "server": self.server, "key": self.key, "nodes": self.nodes, "node_fields": self.node_fields,
            "same": self.same.values().sum::<usize>(), "differences": self.differences, "errors": self.errors,
        })
    }

    /// Returns the comparison for people; empty if nothing is known and nothing differs.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        let nodes = plural(self.nodes.len(), "node");
        // Writing to a String does not fail.
        if !self.differs() {
            if !self.errors.is_empty() {
                return out;
            }
            let _ = writeln!(out, "{} sends the same to {nodes} of key {}: {}", self.server, self.key, self.equal());
        } else {
            let _ = writeln!(out, "{} does not send the same to {nodes} of key {}", self.server, self.key);
            let _ = writeln!(out, "equal for all: {}", self.equal());
            for difference in &self.differences {
                let _ = write!(out, "\n{}", printable_lines(&difference.text()));
            }
            out.push('\n');
        }
        let fields: Vec<_> = self.node_fields.iter().map(|field| printable(field)).collect();
        let fields = if fields.is_empty() { "none".to_owned() } else { fields.join(", ") };
        let _ = writeln!(out, "node fields that differ: {fields}");
        out
    }
}

impl NodeDifference {
    fn text(&self) -> String {
        let [one, other] = &self.nodes;
        let resource = format!("{} {}", short_type_name(&self.kind), self.name);
        match (&self.only, &self.difference) {
            (Some(only), _) => {
                let lacks = if only == one { other } else { one };
                format!("{resource}\n  {only} is sent it, and {lacks} is not\n")
            }
            (None, Some(difference)) => format!("{resource}, {one} and {other}\n  {difference}\n"),
            (None, None) => format!("{resource}\n"),
        }
    }
}

/// Returns lines without characters that control a terminal.
fn printable_lines(text: &str) -> String {
    text.lines().map(|line| printable(line) + "\n").collect()
}

/// Returns where a resource differs: in its body, or in its wrapper. Versions are not compared.
fn difference(
    transcoder: &Transcoder,
    kind: &str,
    one: &ReceivedResource,
    other: &ReceivedResource,
) -> Option<ContentDifference> {
    if one.resource.type_url != other.resource.type_url {
        let [first, second] = [one, other].map(|of| Some(Value::from(of.resource.type_url.clone())));
        return Some(ContentDifference { path: "wrapper.resource.type_url".to_owned(), first, second });
    }
    transcoder.difference(kind, &one.resource.value, &other.resource.value).or_else(|| beside(one, other))
}

fn beside(one: &ReceivedResource, other: &ReceivedResource) -> Option<ContentDifference> {
    let hidden = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map(|_| Value::from(REDACTED));
    let (path, first, second) = if one.aliases != other.aliases {
        ("aliases", Some(json!(one.aliases)), Some(json!(other.aliases)))
    } else if one.ttl != other.ttl {
        let seconds = |of: &ReceivedResource| of.ttl.map(|ttl| Value::from(format!("{}s", ttl.as_secs_f64())));
        ("ttl", seconds(one), seconds(other))
    } else if one.metadata != other.metadata {
        ("metadata", hidden(&one.metadata), hidden(&other.metadata))
    } else if one.constraints != other.constraints {
        ("constraints", hidden(&one.constraints), hidden(&other.constraints))
    } else if one.do_not_cache != other.do_not_cache {
        ("do_not_cache", Some(json!(one.do_not_cache)), Some(json!(other.do_not_cache)))
    } else {
        return None;
    };
    Some(ContentDifference { path: format!("wrapper.{path}"), first, second })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use weir_core::proto::Any;

    use super::*;

    fn received(body: &'static [u8], aliases: &[&str], version: &str) -> ReceivedResource {
        ReceivedResource {
            version: version.into(),
            aliases: aliases.iter().map(ToString::to_string).collect(),
            ttl: None,
            metadata: None,
            constraints: None,
            do_not_cache: false,
            resource: Any { type_url: "t/c".into(), value: Bytes::from_static(body) },
        }
    }

    #[test]
    fn what_travels_beside_a_resource_counts_and_its_version_does_not() {
        let of = |one: &ReceivedResource, other: &ReceivedResource| {
            let found = difference(&Transcoder::envoy(), "envoy.config.cluster.v3.Cluster", one, other);
            found.map(|found| found.to_string())
        };
        assert_eq!(of(&received(b"\x0a\x01a", &[], "1"), &received(b"\x0a\x01a", &[], "2")), None);
        let expected = Some("wrapper.aliases: [\"x\"] and []".to_owned());
        assert_eq!(of(&received(b"", &["x"], ""), &received(b"", &[], "")), expected);
        let expected = Some("name: \"a\" and \"b\"".to_owned());
        assert_eq!(of(&received(b"\x0a\x01a", &["x"], ""), &received(b"\x0a\x01b", &[], "")), expected);
        let with = |metadata: &'static [u8]| ReceivedResource {
            metadata: Some(Bytes::from_static(metadata)),
            ..received(b"", &[], "")
        };
        let expected = Some("wrapper.metadata: two values that are not shown".to_owned());
        assert_eq!(of(&with(b"\x0a\x00"), &with(b"")), expected);
    }
}
