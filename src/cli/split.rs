//! `weir key --admin`: how the clients of a running relay split into views, and by which field of the key.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::admin::{AdminArgs, AdminError};
use super::endpoint::TlsArgs;
use super::output::finish;
use super::table::Table;
use crate::plural::plural;

/// The relay whose clients are counted.
#[derive(Debug, Args)]
pub struct Split {
    /// Admin address of a running relay: shows how its clients split into views, and by which field, instead of the keys of given nodes
    #[arg(long, value_name = "URI", conflicts_with_all = ["config_file", "nodes"])]
    admin: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
}

/// A view: the fields of its key, and the number of its clients.
type View = (BTreeMap<String, String>, u64);

impl Split {
    /// Whether a relay was named.
    pub fn is_given(&self) -> bool {
        self.admin.is_some()
    }

    /// Returns the files for TLS, which are also used for a control plane.
    pub(super) fn tls(&self) -> &TlsArgs {
        &self.tls
    }

    /// Prints the split. [`Self::is_given`] must be true.
    pub async fn run(self) -> ExitCode {
        let relay = AdminArgs::of("--admin", self.admin.unwrap_or_default(), self.tls);
        finish(answer(&relay).await.map(|text| (text, false)))
    }
}

async fn answer(relay: &AdminArgs) -> Result<String, AdminError> {
    Ok(text(&views_of(&relay.get("/upstreams", &[]).await?)))
}

fn views_of(upstreams: &Value) -> Vec<View> {
    let views = upstreams.as_array().into_iter().flatten().filter(|view| view["view"] != "shared");
    let of = |view: &Value| {
        let fields = view["key_fields"].as_object().into_iter().flatten();
        let fields = fields.map(|(field, value)| (field.clone(), value.as_str().unwrap_or("?").to_owned()));
        (fields.collect(), view["clients"].as_u64().unwrap_or_default())
    };
    views.map(of).collect()
}

fn text(views: &[View]) -> String {
    let clients: u64 = views.iter().map(|(_, clients)| clients).sum();
    let mut out = format!("{} in {}\n", plural(clients as usize, "client stream"), plural(views.len(), "view"));
    let fields: BTreeSet<_> = views.iter().flat_map(|(fields, _)| fields.keys()).collect();
    if fields.is_empty() {
        return out;
    }
    let mut table = Table::new(["FIELD", "VALUES", "VIEWS WITHOUT IT", "MOST CLIENTS"].map(str::to_owned));
    for field in fields {
        let mut values: BTreeMap<&str, u64> = BTreeMap::new();
        for (of, clients) in views {
            *values.entry(of.get(field).map_or("", String::as_str)).or_default() += clients;
        }
        let without = views.iter().map(|(of, _)| of.iter().filter(|(key, _)| *key != field).collect::<Vec<_>>());
        let without = without.collect::<BTreeSet<_>>().len();
        let mut most: Vec<_> = values.iter().collect();
        most.sort_by_key(|(_, clients)| std::cmp::Reverse(**clients));
        let most: Vec<_> =
            most.iter().take(SHOWN).map(|(value, clients)| format!("{} ({clients})", quoted(value))).collect();
        table.row([field.clone(), values.len().to_string(), without.to_string(), most.join(", ")]);
    }
    let _ = write!(out, "\n{table}"); // writing to a String does not fail
    out
}

fn quoted(value: &str) -> String {
    if value.is_empty() { "none".to_owned() } else { format!("{value:?}") }
}

/// The number of values that are shown of each field.
const SHOWN: usize = 3;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_field_is_shown_with_what_it_splits() {
        let view = |cluster: &str, region: &str, clients: u64| json!({"view": "x", "key_fields": {"cluster": cluster, "locality.region": region}, "clients": clients});
        let page = json!([view("web", "eu", 7), view("web", "us", 2), view("pay", "eu", 1), {"view": "shared", "clients": 3, "key_fields": {}}]);
        let expected = "\
10 client streams in 3 views

FIELD            VALUES  VIEWS WITHOUT IT  MOST CLIENTS
cluster          2       2                 \"web\" (9), \"pay\" (1)
locality.region  2       2                 \"eu\" (8), \"us\" (2)
";
        assert_eq!(text(&views_of(&page)), expected);
        assert_eq!(text(&views_of(&json!([]))), "0 client streams in 0 views\n");
    }
}
