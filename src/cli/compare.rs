//! `weir diff`: what one client of a running relay has, against what another one has, or what its view has against its server.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::admin::{AdminArgs, AdminError};
use super::compare_server::{CompareError, Compared, ServerArgs};
use super::diff::{self, Line};
use super::output::finish;
use super::view_words::ViewWords;
use super::{CANNOT_ASK, error, printable};

/// Compares what two clients of a running relay have, or what it has with what its server says, as `diff -u` does
///
/// What is compared is shown as /config_dump has it, without secrets; with --server secrets are compared too, by their versions. Exit code: 0
/// if both have the same, 1 if not, 2 if the relay or the server cannot be asked, or the relay knows no such client.
#[derive(Debug, Args)]
pub struct Compare {
    /// A client: the number of its session, or the id of its node. Given twice, or once with --server
    #[arg(long = "client", value_name = "ID", required_unless_present = "view")]
    clients: Vec<String>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    relay: AdminArgs,
}

impl Compare {
    /// Asks the relay and prints the difference.
    pub async fn run(self) -> ExitCode {
        match (self.server.is_given(), self.clients.as_slice()) {
            (true, [_] | []) => self.with_server().await,
            (true, _) => refused("expected --client once with --server: which client's view is compared?"),
            (false, [one, other]) => finish(self.answer(one, other).await),
            (false, _) => refused("expected --client twice, or --server: what is compared?"),
        }
    }

    async fn with_server(&self) -> ExitCode {
        let Compared { relay, server, whom, same, failures } = match self.compared().await {
            Ok(compared) => compared,
            Err(fault) => return refused(&fault.to_string()),
        };
        let lines = diff::lines(&relay, &server);
        let same = format!("the relay and {} have the same: {}\n", printable(&whom), printable(&same));
        let shown = if lines.is_empty() { same } else { text("the relay", &whom, &lines) };
        // What could not be found out may differ.
        let is_said = failures.is_empty() || !lines.is_empty();
        let ended = finish::<AdminError>(Ok((if is_said { shown } else { String::new() }, !lines.is_empty())));
        failures.iter().for_each(|failure| error(&printable(failure)));
        if failures.is_empty() { ended } else { ExitCode::from(CANNOT_ASK) }
    }

    async fn compared(&self) -> Result<Compared, CompareError> {
        let upstreams = self.relay.get("/upstreams", &[]).await?;
        let words = ViewWords::of(&upstreams);
        let view = match (&self.server.view, self.clients.as_slice()) {
            (Some(view), _) => words.meant(view).to_owned(),
            (None, [client, ..]) => self.view_of(client).await?,
            (None, []) => String::new(), // one of both is required
        };
        self.server.compare(&self.relay, &view, &upstreams).await
    }

    /// Returns the view of a client: that of its newest stream.
    async fn view_of(&self, client: &str) -> Result<String, AdminError> {
        let page = self.relay.get("/diff", &[("client", client)]).await?;
        let newest = page.as_array().and_then(|sessions| sessions.last());
        Ok(newest.and_then(|session| session["view"].as_str()).unwrap_or_default().to_owned())
    }

    async fn answer(&self, one: &str, other: &str) -> Result<(String, bool), AdminError> {
        let [before, after] = [self.dump(one).await?, self.dump(other).await?];
        let lines = diff::lines(&before, &after);
        if lines.is_empty() {
            return Ok((format!("{} and {} have the same\n", printable(one), printable(other)), false));
        }
        Ok((text(one, other, &lines), true))
    }

    /// Returns what a client has on all its streams.
    async fn dump(&self, client: &str) -> Result<String, AdminError> {
        let mut entries = BTreeSet::new();
        for session in self.sessions(client).await? {
            let page = self.relay.get("/config_dump", &[("client", &session), ("include_eds", "1")]).await?;
            entries.extend(entries_of(&page));
        }
        Ok(entries.into_iter().collect::<Vec<_>>().join("\n"))
    }

    /// Returns the streams of a client that is named by its node: those of its newest connection, as an Envoy without an aggregated stream has
    /// several. What is the id of no node is the number of a session.
    async fn sessions(&self, client: &str) -> Result<Vec<String>, AdminError> {
        let (mut found, mut after) = (Vec::new(), "0".to_owned());
        loop {
            let page = self.relay.get("/clients", &[("node", client), ("limit", "1000"), ("after", &after)]).await?;
            let of_node = page["clients"].as_array().into_iter().flatten().filter(|found| found["node"] == client);
            found.extend(of_node.map(|found| (found["peer"].clone(), found["session"].to_string())));
            match page["next"].as_u64() {
                Some(next) => after = next.to_string(),
                None => break,
            }
        }
        let Some(newest) = found.last().map(|(peer, _)| peer.clone()) else { return Ok(vec![client.to_owned()]) };
        Ok(found.into_iter().filter(|(peer, _)| *peer == newest).map(|(_, session)| session).collect())
    }
}

fn refused(reason: &str) -> ExitCode {
    error(reason);
    ExitCode::from(CANNOT_ASK)
}

/// Returns the resources of a dump, each below the list that it is in, without when they came and by which version.
fn entries_of(page: &Value) -> Vec<String> {
    let mut entries = Vec::new();
    for part in page["configs"].as_array().into_iter().flatten() {
        for (list, found) in part.as_object().into_iter().flatten() {
            for entry in found.as_array().into_iter().flatten() {
                let mut entry = entry.clone();
                for of in ["", "/active_state", "/error_state"] {
                    if let Some(fields) = entry.pointer_mut(of).and_then(Value::as_object_mut) {
                        fields.retain(|key, _| {
                            !["last_updated", "version_info", "last_update_attempt"].contains(&key.as_str())
                        });
                    }
                }
                entries.push(format!("{list}: {entry:#}"));
            }
        }
    }
    entries
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
            let of = |name: &&str| json!({"last_updated": at, "version_info": at, "cluster": {"name": name}});
            let clusters: Vec<_> = names.iter().map(of).collect();
            let page = json!({"configs": [{"dynamic_active_clusters": clusters, "version_info": at}]});
            entries_of(&page).into_iter().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("\n")
        };
        let (one, same, other) = (dump(&["a", "b"], "1"), dump(&["b", "a"], "2"), dump(&["a", "c"], "1"));
        assert_eq!(diff::lines(&one, &same), []);
        let text = text("one", "two", &diff::lines(&one, &other));
        assert!(text.starts_with("--- one\n+++ two\n@@ "), "{text}");
        assert!(text.contains("\n-    \"name\": \"b\"\n+    \"name\": \"c\"\n"), "{text}");
    }

    #[test]
    fn the_order_within_a_resource_and_all_that_is_in_it_count() {
        let dump = |routes: &[&str], version: &str| {
            let routes: Vec<_> = routes.iter().map(|prefix| json!({"prefix": prefix})).collect();
            let listener = json!({"routes": routes, "metadata": {"version_info": version}});
            let state = json!({"active_state": {"listener": listener, "version_info": "9"}});
            entries_of(&json!({"configs": [{"dynamic_listeners": [state]}]}))
        };
        assert_eq!(dump(&["/a", "/"], "1"), dump(&["/a", "/"], "1"));
        assert_ne!(dump(&["/a", "/"], "1"), dump(&["/", "/a"], "1"));
        assert_ne!(dump(&["/a"], "1"), dump(&["/a"], "2"));
    }
}
