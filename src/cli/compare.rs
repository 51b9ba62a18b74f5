//! `weir diff`: what one client of a running relay has, against what another one has.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::admin::{AdminArgs, AdminError};
use super::diff::{self, Line};
use super::output::finish;
use super::{CANNOT_ASK, error, printable};

/// Compares what two clients of a running relay have, as `diff -u` does
///
/// Both are compared as /config_dump has them, without secrets. Exit code: 0 if they have the same, 1 if not, 2 if the relay cannot be asked
/// or knows no such client.
#[derive(Debug, Args)]
pub struct Compare {
    /// A client: the number of its session, or the id of its node. Given twice
    #[arg(long = "client", value_name = "ID", required = true)]
    clients: Vec<String>,
    #[command(flatten)]
    relay: AdminArgs,
}

impl Compare {
    /// Asks the relay and prints the difference.
    pub async fn run(self) -> ExitCode {
        let [one, other] = self.clients.as_slice() else {
            error("expected --client twice: which two clients are compared?");
            return ExitCode::from(CANNOT_ASK);
        };
        finish(self.answer(one, other).await)
    }

    async fn answer(&self, one: &str, other: &str) -> Result<(String, bool), AdminError> {
        let [before, after] = [self.dump(one).await?, self.dump(other).await?];
        let lines = diff::lines(&before, &after);
        if lines.is_empty() {
            return Ok((format!("{} and {} have the same\n", printable(one), printable(other)), false));
        }
        Ok((text(one, other, &lines), true))
    }

    /// Returns what a client has, in the order of its types and names.
    async fn dump(&self, client: &str) -> Result<String, AdminError> {
        let session = self.session(client).await?;
        let page = self.relay.get("/config_dump", &[("client", &session), ("include_eds", "1")]).await?;
        Ok(listed(&page))
    }

    /// Returns the session of a client that is named by its node. The first is taken of several: an aggregated stream has all.
    async fn session(&self, client: &str) -> Result<String, AdminError> {
        if client.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(client.to_owned());
        }
        let page = self.relay.get("/clients", &[("node", client), ("limit", "1000")]).await?;
        let found = page["clients"].as_array().into_iter().flatten().find(|found| found["node"] == client);
        Ok(found.map_or_else(|| client.to_owned(), |found| found["session"].to_string()))
    }
}

/// Returns a dump line by line: each resource under its type, without what differs from one client to the next though it has the same.
fn listed(page: &Value) -> String {
    let mut entries = Vec::new();
    for part in page["configs"].as_array().into_iter().flatten() {
        let mut part = part.clone();
        without_times(&mut part);
        entries.push(format!("{part:#}"));
    }
    entries.join("\n")
}

fn without_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| key != "last_updated" && key != "version_info" && key != "node");
            fields.values_mut().for_each(without_times);
        }
        Value::Array(items) => {
            items.iter_mut().for_each(without_times);
            if items.iter().all(Value::is_object) {
                items.sort_by_key(ToString::to_string);
            }
        }
        _ => {}
    }
}

fn text(one: &str, other: &str, lines: &[Line<'_>]) -> String {
    let mut out = format!("--- {}\n+++ {}\n", printable(one), printable(other));
    for line in lines {
        // Writing to a String does not fail.
        let _ = match line {
            Line::At { old, new } => writeln!(out, "@@ -{},{} +{},{} @@", old.0, old.1, new.0, new.1),
            Line::Same(text) => writeln!(out, " {}", printable(text)),
            Line::Less(text) => writeln!(out, "-{}", printable(text)),
            Line::More(text) => writeln!(out, "+{}", printable(text)),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn clients_that_have_the_same_resources_do_not_differ_by_their_order_or_times() {
        let dump = |names: &[&str], at: &str| {
            let of = |name: &&str| json!({"last_updated": at, "cluster": {"name": name}});
            listed(
                &json!({"configs": [{"dynamic_active_clusters": names.iter().map(of).collect::<Vec<_>>(), "version_info": at}]}),
            )
        };
        let (one, same, other) = (dump(&["a", "b"], "1"), dump(&["b", "a"], "2"), dump(&["a", "c"], "1"));
        assert_eq!(diff::lines(&one, &same), []);
        let text = text("one", "two", &diff::lines(&one, &other));
        assert!(text.starts_with("--- one\n+++ two\n@@ "), "{text}");
        assert!(text.contains("\n-        \"name\": \"b\"\n+        \"name\": \"c\"\n"), "{text}");
    }
}
