//! The nodes of clients.

use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use weir_core::proto::node::{Locality, Node};

/// What nodes are made of. `{number}` in any of them is the client's number, and `{number%100}` that number modulo 100; `{n}` and
/// `{n%100}` are the same. The help says `{number}` alone: clap would print `{n}` as a line break.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeTemplate {
    /// Node ID; {number} is the client's number, {number%10} the number modulo 10.
    #[arg(long = "node-id", default_value = "loadtest-{number}")]
    pub id: String,
    /// Node cluster, with the same placeholders.
    #[arg(long = "node-cluster", default_value = "loadtest")]
    pub cluster: String,
    /// Locality zone, with the same placeholders.
    #[arg(long = "node-zone", default_value = "")]
    pub zone: String,
    /// Bytes of metadata, which a sidecar of a service mesh has many of.
    #[arg(long = "node-bytes", default_value_t = 0)]
    pub bytes: usize,
}

impl Default for NodeTemplate {
    fn default() -> Self {
        Self { id: "loadtest-{number}".into(), cluster: "loadtest".into(), zone: String::new(), bytes: 0 }
    }
}

impl NodeTemplate {
    /// Returns the encoded node of the client with this number.
    pub fn encode(&self, number: usize) -> Vec<u8> {
        let zone = filled(&self.zone, number);
        let locality = (!zone.is_empty()).then(|| Locality { zone, ..Default::default() });
        let (id, cluster) = (filled(&self.id, number), filled(&self.cluster, number));
        let agent = "weir-loadtest".to_owned();
        let metadata = (self.bytes > 0).then(|| padding(self.bytes));
        Node { id, cluster, locality, metadata, user_agent_name: agent, ..Default::default() }.encode_to_vec()
    }
}

/// Returns a map with one text of this many bytes.
fn padding(bytes: usize) -> Struct {
    let text = Value { kind: Some(Kind::StringValue("x".repeat(bytes))) };
    Struct { fields: [("PADDING".to_owned(), text)].into() }
}

fn filled(template: &str, number: usize) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some(start) = rest.find('{') {
        let Some(end) = rest[start..].find('}').map(|length| start + length) else { break };
        text.push_str(&rest[..start]);
        match &rest[start + 1..end] {
            "n" | "number" => text.push_str(&number.to_string()),
            inside => match modulus(inside) {
                Some(modulus) => text.push_str(&number.checked_rem(modulus).unwrap_or(0).to_string()),
                None => text.push_str(&rest[start..=end]),
            },
        }
        rest = &rest[end + 1..];
    }
    text + rest
}

fn modulus(inside: &str) -> Option<usize> {
    let (name, modulus) = inside.split_once('%')?;
    matches!(name, "n" | "number").then_some(modulus)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_filled_in_and_other_braces_stay() {
        assert_eq!(filled("a-{n}-{n%10}-{x}-{", 123), "a-123-3-{x}-{");
        assert_eq!(filled("{n%0}", 5), "0");
        assert_eq!(filled("a-{number}-{number%10}-{numbers%10}", 123), "a-123-3-{numbers%10}");
    }

    #[test]
    fn a_node_has_the_metadata_that_it_should() {
        let node = NodeTemplate { bytes: 61_000, ..Default::default() }.encode(1);
        assert!((61_000..61_100).contains(&node.len()), "{}", node.len());
    }
}
