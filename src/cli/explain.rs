//! `weir explain`: why a client of a running relay has a resource, or lacks it.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::admin::AdminArgs;
use super::{CANNOT_ASK, FOUND, error, one_line, printable, show};

/// Explains why a client of a running relay has a resource, or lacks it
///
/// Prints a verdict and the chain of reasons, from what the client subscribes to, over what the server has sent, to what the client was sent
/// and how it answered. Exit code: 0 if the client has accepted the newest version, 1 if not, 2 if the relay does not know the client.
#[derive(Debug, Args)]
pub struct Explain {
    /// The client: the number of its session, or the id of its node
    #[arg(long, value_name = "ID")]
    client: String,
    /// Resource type: lds or listeners, cds or clusters, eds, rds, sds, …, or a type URL
    #[arg(value_name = "TYPE")]
    kind: String,
    /// Resource name, or `*` for the whole set of the type
    #[arg(value_name = "NAME")]
    name: String,
    /// Print the page of the relay as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    relay: AdminArgs,
}

impl Explain {
    /// Asks the relay and prints the answer.
    pub async fn run(self) -> ExitCode {
        let parameters = [("client", self.client.as_str()), ("type", &self.kind), ("name", &self.name)];
        let page = match self.relay.get("/explain", &parameters).await {
            Ok(page) => page,
            Err(fault) => {
                error(&fault.to_string());
                return ExitCode::from(CANNOT_ASK);
            }
        };
        let text = if self.json { format!("{page:#}\n") } else { text(&page) };
        if let Err(fault) = show(&text) {
            error(&format!("cannot write: {fault}"));
            return ExitCode::from(CANNOT_ASK);
        }
        if has_it(&page) { ExitCode::SUCCESS } else { ExitCode::from(FOUND) }
    }
}

/// Whether the client has accepted the newest version, on any of its streams.
fn has_it(page: &Value) -> bool {
    page.as_array().is_some_and(|streams| streams.iter().any(|stream| stream["verdict"] == "acked"))
}

/// Returns a paragraph for each stream on which the type was requested. A client without an aggregated stream has several streams.
fn text(page: &Value) -> String {
    let streams: Vec<_> = page.as_array().into_iter().flatten().collect();
    let concerned = |stream: &&&Value| stream["reasons"][0]["code"] != "type_not_requested";
    let concerned: Vec<_> = streams.iter().filter(concerned).collect();
    let shown: Vec<_> = if concerned.is_empty() { streams.iter().take(1).collect() } else { concerned };
    let mut out = String::new();
    for stream in shown {
        let of = |key: &str| printable(stream[key].as_str().unwrap_or_default());
        let kind = of("type");
        let kind = kind.rsplit('.').next().unwrap_or_default();
        let (node, session, view) = (of("node"), &stream["session"], of("view"));
        let verdict = of("verdict").replace('_', " ");
        let _ = writeln!(out, "{kind} {} at {node} (session {session}, view {view}): {verdict}", of("name"));
        for reason in stream["reasons"].as_array().into_iter().flatten() {
            let text = reason["text"].as_str().unwrap_or_default();
            let quotes_client = reason["code"].as_str().is_some_and(|code| code.ends_with("nacked"));
            let text = if quotes_client { one_line(text) } else { printable(text) };
            let _ = writeln!(out, "  - {text}{}", times(reason));
        }
        // A client that has the newest version waits for nothing, so its waits are not shown.
        let awaits = ["waiting", "unknown", "missing", "not_in_set", "held"];
        let is_awaiting = stream["verdict"].as_str().is_some_and(|verdict| awaits.contains(&verdict));
        for wait in stream["waits"].as_array().into_iter().flatten().filter(|_| is_awaiting) {
            let _ = writeln!(out, "  - {}", waiting(wait));
        }
    }
    out
}

fn waiting(wait: &Value) -> String {
    let (kind, what) = (wait["wait"].as_str().unwrap_or_default(), wait["what"].as_str().unwrap_or_default());
    let seconds = wait["seconds"].as_f64().unwrap_or_default();
    let bound = match wait["bound_seconds"].as_f64() {
        Some(bound) => format!("at most {}", super::seconds(bound)),
        None => printable(wait["unbounded"].as_str().unwrap_or_default()),
    };
    let key = wait["key"].as_str().map(|key| format!(", {}", printable(key))).unwrap_or_default();
    let of = format!("wait `{}`: {}", printable(kind), printable(what));
    format!("{of} (for {}, {bound}{key})", super::seconds(seconds))
}

fn times(reason: &Value) -> String {
    let since = reason["since_seconds"].as_f64().map(|seconds| format!("for {}", super::seconds(seconds)));
    let until = reason["until_seconds"].as_f64().map(|seconds| format!("at most {} more", super::seconds(seconds)));
    let heard = reason["heard_seconds"].as_f64().map(|ago| format!("last heard {} ago", super::seconds(ago)));
    let times: Vec<_> = since.into_iter().chain(until).chain(heard).collect();
    if times.is_empty() { String::new() } else { format!(" ({})", times.join(", ")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn streams_that_have_not_requested_the_type_are_left_out_unless_none_has() {
        let stream = |session: u64, verdict: &str, code: &str, text: &str| {
            let reasons = json!([{"code": code, "text": text, "since_seconds": 61.2}]);
            json!({"session": session, "node": "envoy-1", "view": "3f2a", "type": "envoy.config.cluster.v3.Cluster", "name": "cart",
                   "verdict": verdict, "reasons": reasons})
        };
        let other = stream(1, "not_subscribed", "type_not_requested", "not requested");
        let asked = stream(2, "waiting", "present", "version 1");
        let expected = "Cluster cart at envoy-1 (session 2, view 3f2a): waiting\n  - version 1 (for 1m 1s)\n";
        assert_eq!(text(&json!([other, asked])), expected);
        assert!(text(&json!([other])).contains("session 1, view 3f2a): not subscribed\n  - not requested"));
    }

    #[test]
    fn a_wait_is_shown_with_its_bound_or_why_it_has_none_unless_the_client_has_what_there_is() {
        let wait = |bound: Value, why: Value| json!({"wait": "name", "what": "A name", "seconds": 2.0, "bound_seconds": bound, "unbounded": why, "key": "a.b"});
        assert_eq!(waiting(&wait(json!(15.0), Value::Null)), "wait `name`: A name (for 2.0s, at most 15s, a.b)");
        assert_eq!(waiting(&wait(Value::Null, json!("it is away"))), "wait `name`: A name (for 2.0s, it is away, a.b)");
        let stream = |verdict: &str| {
            let waits = json!([wait(json!(15.0), Value::Null)]);
            json!([{"session": 1, "type": "x.Cluster", "name": "c", "verdict": verdict, "reasons": [], "waits": waits}])
        };
        let awaiting = ["waiting", "unknown", "missing", "not_in_set", "held"].map(|verdict| (verdict, 1));
        for (verdict, shown) in awaiting.into_iter().chain([("acked", 0), ("nacked", 0)]) {
            assert_eq!(text(&stream(verdict)).matches("wait `").count(), shown, "{verdict}");
        }
    }

    #[test]
    fn a_reason_says_since_when_and_for_how_much_longer_as_far_as_that_is_known() {
        let shown = |since: Value, until: Value| times(&json!({"since_seconds": since, "until_seconds": until}));
        assert_eq!(shown(json!(0.44), json!(12.9)), " (for 0.4s, at most 12s more)");
        assert_eq!(shown(json!(null), json!(3.0)), " (at most 3.0s more)");
        assert_eq!(shown(json!(90.0), json!(null)), " (for 1m 30s)");
        assert_eq!(shown(json!(null), json!(null)), "");
        assert_eq!(times(&json!({"heard_seconds": 39.4})), " (last heard 39s ago)");
    }

    #[test]
    fn each_stream_that_is_concerned_has_its_reasons_and_one_that_has_it_is_enough() {
        let stream = |session: u64, verdict: &str, codes: &[&str]| {
            let reasons: Vec<_> =
                codes.iter().map(|code| json!({"code": code, "text": format!("it is {code}")})).collect();
            json!({"session": session, "node": "a\u{1b}b", "view": "v", "type": "x.Cluster", "name": "c", "verdict": verdict, "reasons": reasons})
        };
        let page = json!([
            stream(1, "unacked", &["one", "type_not_requested"]),
            stream(2, "not_subscribed", &["type_not_requested"]),
            stream(3, "acked", &["two"]),
        ]);
        let expected = "\
Cluster c at a\u{fffd}b (session 1, view v): unacked
  - it is one
  - it is type_not_requested
Cluster c at a\u{fffd}b (session 3, view v): acked
  - it is two
";
        assert_eq!(text(&page), expected);
        assert!(has_it(&page) && !has_it(&json!([page[0], page[1]])) && !has_it(&json!([])));
        let none = json!([
            stream(1, "not_subscribed", &["type_not_requested"]),
            stream(2, "not_subscribed", &["type_not_requested"])
        ]);
        assert_eq!(text(&none).lines().count(), 2, "one of them is enough");
    }
}
