//! Advice about a key that gives nearly every node a view of its own.

use std::collections::BTreeSet;
use std::fmt::Write;

use prost::Message;

use weir_core::proto::node::Node;
use weir_core::xds::{KeyField, KeyRule};

/// Returns which field splits the fleet most and what the key could have instead; nothing if most nodes share a view.
pub(super) fn for_fleet(rule: &KeyRule, nodes: &[Vec<u8>]) -> String {
    let keys = keys(rule, nodes);
    if nodes.len() < FEWEST_NODES || keys * 2 <= nodes.len() {
        return String::new();
    }
    let by_field = rule.fields().iter().map(|field| (field, values(field, nodes)));
    let Some((widest, count)) = by_field.min_by_key(|(_, count)| std::cmp::Reverse(*count)) else {
        return String::new();
    };
    let others: Vec<_> = rule.fields().iter().filter(|field| *field != widest).cloned().collect();
    let without = self::keys(&KeyRule::of(others), nodes);
    let mut out = format!(
        "\nMost nodes have a view of their own. {widest} splits the fleet most: it has {count} values. Keys without it: {without}\n"
    );
    let is_by_what_is_left_out = matches!(widest, KeyField::MetadataExcept(_));
    if !is_by_what_is_left_out {
        out.push_str("If the control plane does not read it, leave it out of views.key.\n");
    }
    let mut parts: Vec<_> = parts(widest, nodes).into_iter().map(|field| (values(&field, nodes), field)).collect();
    parts.sort_by_key(|(count, _)| *count);
    if is_by_what_is_left_out {
        parts.reverse();
        out.push_str("Leave those out too that change nothing in what the control plane sends. Their values:\n");
    } else if !parts.is_empty() {
        let _ = writeln!(out, "If it reads some parts of it, list those instead of {widest}. Their values:"); // a String does not fail
    }
    let width = parts.iter().take(MOST_PARTS).map(|(_, field)| field.to_string().len()).max().unwrap_or(0);
    for (count, field) in parts.iter().take(MOST_PARTS) {
        let _ = writeln!(out, "  {:width$}  {count}", field.to_string());
    }
    if parts.len() > MOST_PARTS {
        let _ = writeln!(out, "  and {} more", parts.len() - MOST_PARTS);
    }
    out
}

fn keys(rule: &KeyRule, nodes: &[Vec<u8>]) -> usize {
    nodes.iter().filter_map(|node| rule.key(node).ok()).collect::<BTreeSet<_>>().len()
}

fn values(field: &KeyField, nodes: &[Vec<u8>]) -> usize {
    let rule = KeyRule::of(vec![field.clone()]);
    let texts = nodes.iter().filter_map(|node| Some(rule.parts(node).pop()?.1));
    texts.collect::<BTreeSet<_>>().len()
}

/// Returns the parts of a field that a key can have instead of the field.
fn parts(field: &KeyField, nodes: &[Vec<u8>]) -> Vec<KeyField> {
    match field {
        KeyField::Locality => vec![KeyField::Region, KeyField::Zone, KeyField::SubZone],
        KeyField::Metadata | KeyField::MetadataExcept(_) => {
            let is_left_out = |name: &String| match field {
                KeyField::MetadataExcept(paths) => paths.iter().any(|path| path.iter().eq([name])),
                _ => false,
            };
            let metadata = nodes.iter().filter_map(|node| Node::decode(node.as_slice()).ok()?.metadata);
            let names: BTreeSet<_> = metadata.flat_map(|metadata| metadata.fields.into_keys()).collect();
            names.into_iter().filter(|name| !is_left_out(name)).map(|name| KeyField::MetadataPath(vec![name])).collect()
        }
        _ => Vec::new(),
    }
}

/// With fewer nodes, no conclusion about a fleet is possible.
const FEWEST_NODES: usize = 10;
const MOST_PARTS: usize = 20;

#[cfg(test)]
mod tests {
    use weir_core::xds::{KeyField, KeyRule};

    use crate::cli::key::report;

    /// A fleet like one of Istio: each node has its own name in its metadata.
    fn fleet(nodes: usize) -> String {
        let node = |number: usize| {
            let namespace = number % 3;
            format!(
                "{{\"id\": \"{number}\", \"cluster\": \"app-{namespace}\", \"metadata\": {{\"NAME\": \"pod-{number}\", \
                 \"NAMESPACE\": \"ns-{namespace}\"}}}}\n"
            )
        };
        (0..nodes).map(node).collect()
    }

    #[test]
    fn a_fleet_that_splits_one_to_one_is_told_by_what_and_what_the_key_could_have() {
        let report = report(&KeyRule::default(), &fleet(30)).unwrap();
        let expected = "
Most nodes have a view of their own. metadata splits the fleet most: it has 30 values. Keys without it: 3
If the control plane does not read it, leave it out of views.key.
If it reads some parts of it, list those instead of metadata. Their values:
  metadata.NAMESPACE  3
  metadata.NAME       30
";
        assert!(report.ends_with(expected), "{report}");
    }

    #[test]
    fn a_fleet_that_splits_by_what_is_not_left_out_is_told_by_which_fields_first_by_those_of_most_values() {
        let rule = KeyRule::of(vec![KeyField::metadata_except(vec![vec!["ZONE".into()]])]);
        let report = report(&rule, &fleet(30)).unwrap();
        let expected = "
Most nodes have a view of their own. metadata except ZONE splits the fleet most: it has 30 values. Keys without it: 1
Leave those out too that change nothing in what the control plane sends. Their values:
  metadata.NAME       30
  metadata.NAMESPACE  3
";
        assert!(report.ends_with(expected), "{report}");
    }

    #[test]
    fn a_field_whose_name_has_points_is_named_as_a_key_can_have_it() {
        let node = |number: usize| format!("{{\"id\": \"1\", \"metadata\": {{\"acme.io/pod\": \"{number}\"}}}}\n");
        let report = report(&KeyRule::default(), &(0..10).map(node).collect::<String>()).unwrap();
        let named = r#"metadata["acme.io/pod"]"#;
        assert!(report.contains(&format!("\n  {named}  10\n")) && KeyField::parse(named).is_some(), "{report}");
    }

    #[test]
    fn a_fleet_that_shares_or_is_small_is_told_nothing() {
        let key = ["cluster", "metadata.NAMESPACE"].map(|text| weir_core::xds::KeyField::parse(text).unwrap());
        let report_of = |rule: &KeyRule, nodes| report(rule, &fleet(nodes)).unwrap();
        assert!(!report_of(&KeyRule::of(key.into()), 30).contains("Most nodes"));
        assert!(!report_of(&KeyRule::default(), 9).contains("Most nodes"));
        assert!(report_of(&KeyRule::default(), 10).contains("Most nodes"));
    }
}
