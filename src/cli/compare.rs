//! `weir diff`: compares the resources of two clients of a running relay, or those of a view with those of its server.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::admin::{AdminArgs, AdminError};
use super::compare_server::{CompareError, Compared, ServerArgs};
use super::diff::{self, Line};
use super::differences::{Difference, page};
use super::output::{OutputArgs, finish};
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
    output: OutputArgs,
    #[command(flatten)]
    relay: AdminArgs,
}

/// The resources of a client, by the text of each entry.
type Entries = BTreeMap<String, DumpEntry>;

/// A resource in a list of a dump, without its version and the time when it came.
#[derive(Debug)]
struct DumpEntry {
    list: String,
    shown: Value,
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
        let Compared { relay, server, whom, same, equal, differences, failures } = match self.compared().await {
            Ok(compared) => compared,
            Err(fault) => return refused(&fault.to_string()),
        };
        let lines = diff::lines(&relay, &server);
        let differs = !lines.is_empty();
        let text = || match (differs, failures.is_empty()) {
            (true, _) => text(RELAY, &whom, &lines),
            (false, true) => format!("{RELAY} and {} have the same: {}\n", printable(&whom), printable(&same)),
            (false, false) => String::new(), // what could not be found out may differ
        };
        let page = page((RELAY, &whom), equal, &differences, &failures);
        let ended = finish::<AdminError>(Ok((self.output.of(&page, text), differs)));
        failures.iter().for_each(|failure| error(&printable(failure)));
        if failures.is_empty() { ended } else { ExitCode::from(CANNOT_ASK) }
    }

    async fn compared(&self) -> Result<Compared, CompareError> {
        let upstreams = self.relay.get("/upstreams", &[]).await?;
        let words = ViewWords::of(&upstreams);
        let view = match (&self.server.view, self.clients.as_slice()) {
            (Some(view), _) => words.meant(view).to_owned(),
            (None, [client, ..]) => self.view_of(client).await?,
            (None, []) => String::new(), // a view or a client is required
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
        let (differences, same) = differences(&before, &after);
        let text = || match differences.is_empty() {
            true => format!("{} and {} have the same\n", printable(one), printable(other)),
            false => text(one, other, &diff::lines(&joined(&before), &joined(&after))),
        };
        let shown = self.output.of(&page((one, other), same, &differences, &[]), text);
        Ok((shown, !differences.is_empty()))
    }

    /// Returns the resources that a client has on all its streams.
    async fn dump(&self, client: &str) -> Result<Entries, AdminError> {
        let mut entries = Entries::new();
        for session in self.sessions(client).await? {
            let page = self.relay.get("/config_dump", &[("client", &session), ("include_eds", "1")]).await?;
            entries.extend(entries_of(&page));
        }
        Ok(entries)
    }

    /// Returns the streams of the newest connection of a client that is named by its node's id: an Envoy without an aggregated stream has several. A
    /// text that is no node's id is the number of a session.
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

/// Returns the resources of a dump, each with the list that it is in, without their versions and the times when they came.
fn entries_of(page: &Value) -> Entries {
    let mut entries = Entries::new();
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
                entries.insert(format!("{list}: {entry:#}"), DumpEntry { list: list.clone(), shown: entry });
            }
        }
    }
    entries
}

fn joined(entries: &Entries) -> String {
    entries.keys().map(String::as_str).collect::<Vec<_>>().join("\n")
}

/// Returns the differences, and how many entries are equal. Two entries with the same name in the same list are one difference.
fn differences(first: &Entries, second: &Entries) -> (Vec<Difference>, usize) {
    let mut found = BTreeMap::<(&str, &str), [Vec<&Value>; 2]>::new();
    for (side, (own, others)) in [(first, second), (second, first)].into_iter().enumerate() {
        for entry in own.iter().filter(|(text, _)| !others.contains_key(*text)).map(|(_, entry)| entry) {
            let of_name = found.entry((entry.list.as_str(), name_in(&entry.shown))).or_default();
            of_name[side].push(&entry.shown);
        }
    }
    let mut differences = Vec::new();
    for ((list, name), [ones, others]) in found {
        for at in 0..ones.len().max(others.len()) {
            let sides = [&ones, &others].map(|side| side.get(at).map(|shown| (*shown).clone()));
            differences.push(Difference::in_dump(list, name, sides));
        }
    }
    (differences, first.keys().filter(|text| second.contains_key(*text)).count())
}

/// Returns the name of a resource in a dump: in some lists it is beside the body, in others inside it.
fn name_in(entry: &Value) -> &str {
    let bodies = entry.as_object().into_iter().flat_map(|fields| fields.values());
    std::iter::once(entry).chain(bodies).find_map(own_name).unwrap_or_default()
}

fn own_name(of: &Value) -> Option<&str> {
    ["name", "cluster_name"].into_iter().find_map(|key| of.get(key)?.as_str())
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

/// The name of the first side if the second is a server.
const RELAY: &str = "the relay";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn clients_that_have_the_same_resources_do_not_differ_by_their_order_or_times() {
        let dump = |names: &[&str], at: &str| {
            let of = |name: &&str| json!({"last_updated": at, "version_info": at, "cluster": {"name": name}});
            let clusters: Vec<_> = names.iter().map(of).collect();
            joined(&entries_of(&json!({"configs": [{"dynamic_active_clusters": clusters, "version_info": at}]})))
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
            joined(&entries_of(&json!({"configs": [{"dynamic_listeners": [state]}]})))
        };
        assert_eq!(dump(&["/a", "/"], "1"), dump(&["/a", "/"], "1"));
        assert_ne!(dump(&["/a", "/"], "1"), dump(&["/", "/a"], "1"));
        assert_ne!(dump(&["/a"], "1"), dump(&["/a"], "2"));
    }

    #[test]
    fn what_differs_is_listed_by_its_list_and_name_with_what_both_have() {
        let cluster = |name: &str, timeout: &str| json!({"version_info": "1", "cluster": {"name": name, "connect_timeout": timeout}});
        let dump = |clusters: &[Value]| {
            let endpoints = json!([{"endpoint_config": {"cluster_name": "e"}}]);
            let lists = json!({"dynamic_active_clusters": clusters, "dynamic_endpoint_configs": endpoints});
            entries_of(&json!({"configs": [lists]}))
        };
        let one = dump(&[cluster("a", "1s"), cluster("b", "1s"), cluster("same", "1s")]);
        let other = dump(&[cluster("same", "1s"), cluster("b", "2s"), cluster("c", "1s")]);
        let (found, same) = differences(&one, &other);
        let body = |name: &str, timeout: &str| json!({"cluster": {"name": name, "connect_timeout": timeout}});
        let list = "dynamic_active_clusters";
        let expected = json!({"first": "1", "second": "two", "same": 2, "errors": [], "differences": [
            {"list": list, "name": "a", "first": body("a", "1s"), "second": null},
            {"list": list, "name": "b", "first": body("b", "1s"), "second": body("b", "2s")},
            {"list": list, "name": "c", "first": null, "second": body("c", "1s")},
        ]});
        assert_eq!(page(("1", "two"), same, &found, &[]), expected);
        assert!(differences(&one, &one).0.is_empty());
        assert_eq!(name_in(&json!({"endpoint_config": {"cluster_name": "e"}})), "e");
        assert_eq!(name_in(&json!({"name": "l", "active_state": {"listener": {"name": "other"}}})), "l");
    }
}
