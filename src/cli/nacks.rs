//! `weir nacks`: what clients of a running relay reject, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use weir_core::xds::short_type_name;

use super::admin::{AdminArgs, AdminError};
use super::output::{OutputArgs, finish};
use super::view_words::ViewWords;
use super::{one_line, printable, seconds};
use crate::plural::plural;

/// Shows what clients of a running relay reject, and why
///
/// A paragraph for each type and reason, over all views. A resource is suspected if the reason of a client quotes its name, or if the rejected reply
/// had no other; `in reply` is what else was in it. Exit code: 0 if
/// no client rejects anything, 1 if one does, 2 if the relay cannot be asked.
#[derive(Debug, Args)]
pub struct Nacks {
    /// Only this type, such as clusters
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only this view, by its words or its hash
    #[arg(long)]
    view: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    relay: AdminArgs,
}

/// The clients, views and resources for which one reason is given.
#[derive(Debug, Default)]
struct Rejection {
    clients: u64,
    views: BTreeSet<String>,
    longest: f64,
    nodes: BTreeSet<String>,
    suspected: BTreeMap<String, u64>,
    /// Other resources in the rejected replies.
    in_reply: BTreeMap<String, u64>,
}

/// A reason that clients give for one version of a view.
struct GivenReason<'p> {
    /// The reason, on one line.
    text: String,
    clients: u64,
    /// The clients that give the reason; `None` if the page does not list them.
    nodes: Option<&'p Vec<Value>>,
}

impl Nacks {
    /// Asks the relay and prints the answer.
    pub async fn run(self) -> ExitCode {
        finish(self.answer().await)
    }

    async fn answer(&self) -> Result<(String, bool), AdminError> {
        let words = ViewWords::ask(&self.relay).await?;
        let view = self.view.as_deref().map(|view| words.meant(view));
        let given = [("type", self.kind.as_deref()), ("view", view)];
        let given = given.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let parameters: Vec<_> = [("nacked", "1"), ("limit", MOST)].into_iter().chain(given).collect();
        let page = self.relay.get("/nacks", &parameters).await?;
        let found = page["total"].as_u64().unwrap_or_default() > 0;
        Ok((self.output.of(&page, || text(&page, &words)), found))
    }
}

fn text(page: &Value, words: &ViewWords) -> String {
    let types: Vec<_> = page["types"].as_array().into_iter().flatten().collect();
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    let mut found: BTreeMap<(&str, String), Rejection> = BTreeMap::new();
    for of_type in &types {
        let (kind, view) = (of_type["type"].as_str().unwrap_or_default(), of_type["view"].as_str().unwrap_or_default());
        *sums.entry(kind).or_default() += of_type["clients"].as_u64().unwrap_or_default();
        for version in of_type["versions"].as_array().into_iter().flatten() {
            let reasons = reasons(version);
            let of_all = (reasons.len() == 1).then_some(version); // with several reasons, the page does not say to which of them resources belong
            for given in reasons {
                let seconds = version["nacked_seconds"].as_f64().unwrap_or_default();
                found.entry((kind, given.text.clone())).or_default().add(view, &given, seconds, of_all);
            }
        }
    }
    if found.is_empty() {
        return "no client rejects anything\n".to_owned();
    }
    let mut sorted: Vec<_> = found.into_iter().collect();
    sorted.sort_by_key(|(_, rejection)| std::cmp::Reverse(rejection.clients));
    let mut out = String::new();
    for ((kind, reason), rejection) in &sorted {
        let Rejection { clients, views, longest, nodes, suspected, in_reply } = rejection;
        let (kind, of) = (short_type_name(kind), sums.get(kind).copied().unwrap_or_default());
        // Writing to a String does not fail.
        let (since, many) = (seconds(*longest), plural(views.len(), "view"));
        let _ =
            writeln!(out, "{clients} of {} reject {kind} in {many} for {since}", plural(of as usize, "client stream"));
        let _ = writeln!(out, "  reason     {reason}");
        if !suspected.is_empty() {
            let quoted = suspected.iter().map(|(name, count)| format!("{} ({count})", printable(name)));
            let _ = writeln!(out, "  suspected  {}", quoted.collect::<Vec<_>>().join(", "));
        }
        if !in_reply.is_empty() {
            let named = in_reply.iter().map(|(name, count)| format!("{} ({count})", printable(name)));
            let _ = writeln!(out, "  in reply   {}", named.collect::<Vec<_>>().join(", "));
        }
        let shown: Vec<_> = nodes.iter().take(NODES).map(|node| printable(node)).collect();
        if !shown.is_empty() {
            let _ = writeln!(out, "  clients    {}", shown.join(", "));
        }
        let _ = writeln!(out, "  views      {}", words.some(views));
    }
    let (total, read) = (page["total"].as_u64().unwrap_or_default(), types.len() as u64);
    if total > read {
        let _ = writeln!(out, "\n{read} of {total} types of views were read");
    }
    out
}

/// Returns the reasons that are given for a version.
fn reasons(version: &Value) -> Vec<GivenReason<'_>> {
    let listed = version["reasons"].as_array().into_iter().flatten().map(GivenReason::of);
    let others = version["other_reasons"].as_u64().filter(|others| *others > 0);
    let others = others.map(|clients| GivenReason { text: "other reasons".to_owned(), clients, nodes: None });
    listed.chain(others).collect()
}

impl<'p> GivenReason<'p> {
    fn of(row: &'p Value) -> Self {
        let text = row["reason"].as_str().unwrap_or_default();
        Self {
            text: if text.is_empty() { "none was given".to_owned() } else { one_line(text) },
            clients: row["clients"].as_u64().unwrap_or_default(),
            nodes: row["nodes"].as_array(),
        }
    }
}

impl Rejection {
    /// Adds a reason. `version` has the names of clients and resources; it is given if they all belong to this reason.
    fn add(&mut self, view: &str, given: &GivenReason<'_>, seconds: f64, version: Option<&Value>) {
        self.clients += given.clients;
        self.views.insert(view.to_owned());
        self.longest = self.longest.max(seconds);
        // Earlier relays list the clients only for the version, not for each reason.
        let nodes = given.nodes.or_else(|| version.and_then(|version| version["nodes"].as_array()));
        self.nodes.extend(nodes.into_iter().flatten().filter_map(|node| node.as_str().map(str::to_owned)));
        let Some(version) = version else { return };
        let texts = |key: &str| version[key].as_array().into_iter().flatten();
        for (key, sums) in [("suspected", &mut self.suspected), ("in_reply", &mut self.in_reply)] {
            for named in texts(key) {
                let name = named["name"].as_str().unwrap_or_default().to_owned();
                *sums.entry(name).or_default() += named["clients"].as_u64().unwrap_or_default();
            }
        }
    }
}

/// How many types of views to read.
const MOST: &str = "1000";
/// The number of clients that are named for each reason.
const NODES: usize = 5;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_reasons_are_one_over_all_views_and_the_most_frequent_is_first() {
        let of_view = |view: &str, nodes: &[&str], reason: &str, clients: u64| {
            json!({"view": view, "type": "envoy.config.cluster.v3.Cluster", "clients": 10, "nacked": clients, "versions": [{
                "nacked_seconds": 63, "nodes": nodes, "reasons": [{"reason": reason, "clients": clients}], "other_reasons": 0,
                "suspected": [{"name": "cart-v2", "clients": clients}], "in_reply": [{"name": "cart-v1", "clients": clients}],
            }]})
        };
        let page = json!({"total": 3, "types": [
            of_view("a", &["one"], "bad\\ncluster", 1), of_view("b", &["two", "three"], "bad\\ncluster", 2), of_view("a", &["four"], "", 5),
        ]});
        let words = ViewWords::of(&json!([{"view": "a", "key_fields": {"cluster": "shop"}}]));
        let expected = "\
5 of 30 client streams reject CDS in 1 view for 1m 3s
  reason     none was given
  suspected  cart-v2 (5)
  in reply   cart-v1 (5)
  clients    four
  views      cluster=shop
3 of 30 client streams reject CDS in 2 views for 1m 3s
  reason     bad cluster
  suspected  cart-v2 (3)
  in reply   cart-v1 (3)
  clients    one, three, two
  views      cluster=shop and 1 more
";
        assert_eq!(text(&page, &words), expected);
        let two = json!({"nacked_seconds": 1, "nodes": ["one"], "other_reasons": 0, "suspected": [{"name": "cart-v2", "clients": 15}],
            "reasons": [{"reason": "bad cart-v2", "clients": 15}, {"reason": "unknown filter", "clients": 2}]});
        let page = json!({"total": 1, "types": [{"view": "a", "type": "envoy.config.cluster.v3.Cluster", "clients": 20, "versions": [two]}]});
        let both = text(&page, &words);
        assert!(both.contains("15 of 20") && both.contains("2 of 20"), "{both}");
        assert!(!both.contains("suspected") && !both.contains("  clients"), "{both}");
        let named = json!({"nacked_seconds": 1, "nodes": ["one", "two", "three"], "other_reasons": 1, "suspected": [], "reasons": [
            {"reason": "bad cart-v2", "clients": 2, "nodes": ["one", "three"]}, {"reason": "unknown filter", "clients": 1, "nodes": ["two"]}]});
        let page = json!({"total": 1, "types": [{"view": "a", "type": "envoy.config.cluster.v3.Cluster", "clients": 20, "versions": [named]}]});
        let each = text(&page, &words);
        let clients: Vec<_> =
            each.lines().filter(|line| line.starts_with("  reason") || line.starts_with("  clients")).collect();
        let bad = ["  reason     bad cart-v2", "  clients    one, three"];
        let unknown = ["  reason     unknown filter", "  clients    two"];
        assert_eq!(clients[..2], bad, "{each}");
        assert!(
            clients.windows(2).any(|lines| lines == unknown) && clients.contains(&"  reason     other reasons"),
            "{each}"
        );
        assert_eq!(text(&json!({"total": 0, "types": []}), &words), "no client rejects anything\n");
    }
}
