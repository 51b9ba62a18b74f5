//! `weir dangling`: clusters that routing refers to and that do not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use weir_core::xds::short_type_name;

use super::admin::{AdminArgs, AdminError};
use super::output::{OutputArgs, finish};
use super::seconds;
use super::table::Table;
use super::view_words::ViewWords;

/// Shows clusters that routing refers to and that a running relay does not have
///
/// A line for each cluster, over all views. Exit code: 0 if there are none, 1 if there are some, 2 if the relay cannot be asked.
#[derive(Debug, Args)]
pub struct Dangling {
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    relay: AdminArgs,
}

/// One cluster, over all views.
#[derive(Debug, Default)]
struct Missing {
    views: BTreeSet<String>,
    longest: f64,
    from: BTreeSet<String>,
    from_count: u64,
}

impl Dangling {
    /// Asks the relay and prints the answer.
    pub async fn run(self) -> ExitCode {
        finish(self.answer().await)
    }

    async fn answer(&self) -> Result<(String, bool), AdminError> {
        let page = self.relay.get("/dangling", &[]).await?;
        let found = page.as_array().is_some_and(|rows| !rows.is_empty());
        if self.output.is_json() || !found {
            let none = || "every cluster that routing refers to exists\n".to_owned();
            return Ok((self.output.of(&page, none), found));
        }
        Ok((text(&page, &ViewWords::ask(&self.relay).await?), found))
    }
}

fn text(page: &Value, words: &ViewWords) -> String {
    let mut found: BTreeMap<&str, Missing> = BTreeMap::new();
    for row in page.as_array().into_iter().flatten() {
        let missing = found.entry(row["cluster"].as_str().unwrap_or_default()).or_default();
        missing.views.insert(row["view"].as_str().unwrap_or_default().to_owned());
        missing.longest = missing.longest.max(row["seconds"].as_f64().unwrap_or_default());
        missing.from.extend(row["from"].as_array().into_iter().flatten().filter_map(Value::as_str).map(referring));
        missing.from_count = missing.from_count.max(row["from_count"].as_u64().unwrap_or_default());
    }
    let mut table = Table::new(["CLUSTER", "FOR", "VIEWS", "REFERRED TO BY"].map(str::to_owned));
    for (cluster, Missing { views, longest, from, from_count }) in &found {
        let named: Vec<_> = from.iter().take(NAMED).cloned().collect();
        let more = from_count.saturating_sub(named.len() as u64);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        table.row([(*cluster).to_owned(), seconds(*longest), words.some(views), named.join(", ") + &more]);
    }
    table.to_string()
}

/// Returns a resource, with the short name of its type.
fn referring(text: &str) -> String {
    text.split_once(' ').map_or_else(|| text.to_owned(), |(kind, name)| format!("{} {name}", short_type_name(kind)))
}

/// The number of resources that are named for each cluster.
const NAMED: usize = 3;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_has_one_line_over_all_views() {
        let row = |view: &str, seconds: u64| {
            json!({"view": view, "cluster": "nowhere", "seconds": seconds,
            "from": ["envoy.config.route.v3.RouteConfiguration web"], "from_count": 3})
        };
        let words = ViewWords::of(&json!([{"view": "a", "key_fields": {"cluster": "shop"}}]));
        let expected = "\
CLUSTER  FOR  VIEWS                    REFERRED TO BY
nowhere  39s  cluster=shop and 1 more  RDS web and 2 more
";
        assert_eq!(text(&json!([row("a", 12), row("b", 39)]), &words), expected);
    }
}
