//! `weir tap`: the requests and replies of one client of a running relay, live.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use weir_core::xds::short_type_name;

use super::admin::{AdminArgs, AdminError};
use super::output::OutputArgs;
use super::screen::interrupted;
use super::{CANNOT_ASK, error, json_line, note, printable, show_more};
use crate::plural::plural;

/// Shows the requests and replies of one client of a running relay as they go
///
/// It ends by Ctrl-C. A client that is not connected is waited for. The relay has to be asked at its admin socket, or with a certificate that
/// admin.tls.may_tap lists; its log says who taps whom. Exit code: 0, or 2 if the relay cannot be asked or goes away.
#[derive(Debug, Args)]
pub struct Tap {
    /// The client: the number of its session, or the id of its node with all its streams
    #[arg(long, value_name = "ID")]
    client: String,
    /// Shows whole messages too, without secrets
    #[arg(long)]
    full: bool,
    /// Ends after this many requests and replies
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    relay: AdminArgs,
}

/// Why no more lines come.
enum Failure {
    Relay(AdminError),
    Lost,
    Write(std::io::Error),
}

impl Tap {
    /// Prints lines until the user ends it, or the relay does.
    pub async fn run(self) -> ExitCode {
        let ended = tokio::select! {
            ended = self.follow() => ended,
            () = interrupted() => Ok(()),
        };
        let reason = match ended {
            Ok(()) => return ExitCode::SUCCESS,
            Err(Failure::Relay(fault)) => fault.to_string(),
            Err(Failure::Lost) => "the connection to the relay was lost".to_owned(),
            Err(Failure::Write(fault)) => format!("cannot write: {fault}"),
        };
        error(&reason);
        ExitCode::from(CANNOT_ASK)
    }

    async fn follow(&self) -> Result<(), Failure> {
        let full = if self.full { "1" } else { "0" };
        let parameters = [("client", self.client.as_str()), ("full", full)];
        let mut lines = self.relay.follow("/tap", &parameters).await.map_err(Failure::Relay)?;
        let mut left = self.count;
        loop {
            let Some(line) = lines.next().await.map_err(Failure::Relay)? else { return Err(Failure::Lost) };
            let event = line["event"].as_str().unwrap_or_default();
            if event == "end" {
                note(&format!("the tap ends: {}", printable(line["reason"].as_str().unwrap_or_default())));
            }
            if event == "tap" && line["connected"] == false {
                note(&format!("{} is not connected; waiting", printable(&self.client)));
            }
            let text = if self.output.is_json() { json_line(&line) } else { text(&line) };
            if !show_more(&text).map_err(Failure::Write)? || event == "end" {
                return Ok(());
            }
            if matches!(event, "request" | "reply") {
                left = left.map(|left| left - 1);
            }
            if left == Some(0) {
                return Ok(());
            }
        }
    }
}

/// Returns the text that is printed for a line.
fn text(line: &Value) -> String {
    let words = match line["event"].as_str().unwrap_or_default() {
        "tap" => {
            return line["streams"].as_array().into_iter().flatten().map(|of| stream(line, of, "is open")).collect();
        }
        "opened" => return stream(line, line, "opened"),
        "request" => request(line),
        "reply" => reply(line),
        "unchanged" => "reply    nothing new".to_owned(),
        "ended" => ended(line),
        "dropped" => {
            return format!("{}  {} left out: they came faster than they were read\n", clock(line), plural_of(line));
        }
        _ => return String::new(), // printed on stderr, or from a later version of the relay
    };
    let mut out = format!("{}  {:>6}  {words}\n", clock(line), session(line));
    if let Some(body) = line.get("body").filter(|body| !body.is_null()) {
        format!("{body:#}").lines().for_each(|line| {
            let _ = writeln!(out, "    {}", printable(line)); // writing to a String does not fail
        });
    }
    out
}

fn stream(line: &Value, of: &Value, what: &str) -> String {
    let text = |key: &str| printable(of[key].as_str().unwrap_or_default());
    let (node, peer, view, variant) = (text("node"), text("peer"), text("view"), text("variant"));
    format!("{}  {:>6}  stream {what}: node {node}, {peer}, view {view}, {variant}\n", clock(line), session(of))
}

fn request(line: &Value) -> String {
    let mut words = format!("request  {}", kind(line));
    let mut add = |more: String| words.push_str(&format!("  {more}"));
    if let (Some(answer), Some(nonce)) = (line["answer"].as_str(), line["nonce"].as_str()) {
        add(format!("{} of {}", answer.to_uppercase(), printable(nonce)));
    }
    version(line).into_iter().for_each(&mut add);
    let names = if line["variant"] == "sotw" { "names" } else { "new names" };
    list(line, "names", names).into_iter().for_each(&mut add);
    list(line, "unsubscribed", "unsubscribed").into_iter().for_each(&mut add);
    if let Some(stated) = line["stated_versions"].as_u64().filter(|stated| *stated > 0) {
        add(format!("states {}", plural(stated as usize, "version")));
    }
    if let Some(message) = line["error"]["message"].as_str() {
        add(format!("error {}: {}", line["error"]["code"], printable(message)));
    }
    words
}

fn reply(line: &Value) -> String {
    let mut words = format!("reply    {}", kind(line));
    let mut add = |more: String| words.push_str(&format!("  {more}"));
    line["nonce"].as_str().into_iter().for_each(|nonce| add(format!("nonce {}", printable(nonce))));
    version(line).into_iter().for_each(&mut add);
    list(line, "names", "resources").into_iter().for_each(&mut add);
    list(line, "removed", "removed").into_iter().for_each(&mut add);
    list(line, "unresolved", "absent").into_iter().for_each(&mut add);
    list(line, "errors", "errors").into_iter().for_each(&mut add);
    list(line, "heartbeats", "heartbeats").into_iter().for_each(&mut add);
    add(format!("{} bytes", line["bytes"]));
    words
}

fn ended(line: &Value) -> String {
    let reason = printable(line["reason"].as_str().unwrap_or_default());
    let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
    format!("ended    status {}{reason}", line["status"])
}

fn kind(line: &Value) -> String {
    printable(&short_type_name(line["type"].as_str().unwrap_or_default()))
}

fn version(line: &Value) -> Option<String> {
    Some(format!("version {}", printable(line["version"].as_str()?)))
}

/// Returns a list of names; `None` if it is empty.
fn list(line: &Value, key: &str, what: &str) -> Option<String> {
    let count = line[key]["count"].as_u64().filter(|count| *count > 0)?;
    let first: Vec<_> = line[key]["first"].as_array()?.iter().filter_map(Value::as_str).map(printable).collect();
    let more = if first.len() as u64 == count { "" } else { ", …" };
    Some(format!("{count} {what}: {}{more}", first.join(", ")))
}

fn plural_of(line: &Value) -> String {
    plural(line["dropped"].as_u64().unwrap_or_default() as usize, "line")
}

fn session(line: &Value) -> String {
    line["session"].to_string()
}

/// Returns the time of day, in UTC.
fn clock(line: &Value) -> String {
    let at = line["at"].as_str().unwrap_or_default();
    printable(at.split('T').nth(1).unwrap_or_default().trim_end_matches('Z'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_says_what_went_and_nothing_in_it_controls_the_terminal() {
        let at = "2026-01-31T12:00:01.250Z";
        let of = |names: &[&str], count: usize| json!({"count": count, "first": names});
        let request = json!({
            "at": at, "event": "request", "session": 7, "variant": "delta", "type": "envoy.config.cluster.v3.Cluster", "answer": "nack",
            "nonce": "5", "version": null, "names": of(&["a", "b"], 2), "unsubscribed": of(&[], 0), "stated_versions": 1,
            "error": {"code": 3, "message": "no\u{1b}[2J"},
        });
        assert_eq!(
            text(&request),
            "12:00:01.250       7  request  CDS  NACK of 5  2 new names: a, b  states 1 version  error 3: no\u{fffd}[2J\n"
        );
        let reply = json!({
            "at": at, "event": "reply", "session": 7, "variant": "sotw", "type": "envoy.config.cluster.v3.Cluster", "nonce": "6",
            "version": "1.x", "names": of(&["a"], 30), "removed": of(&["r"], 1), "unresolved": of(&["u"], 1),
            "errors": of(&["e"], 1), "heartbeats": of(&["h", "i"], 2), "bytes": 99,
            "body": {"resources": ["\u{7}"]},
        });
        assert_eq!(
            text(&reply),
            "12:00:01.250       7  reply    CDS  nonce 6  version 1.x  30 resources: a, …  1 removed: r  1 absent: u  \
             1 errors: e  2 heartbeats: h, i  99 bytes\n    \
             {\n      \"resources\": [\n        \"\\u0007\"\n      ]\n    }\n"
        );
        let ended = json!({"at": at, "event": "ended", "session": 7, "status": 14, "reason": "draining"});
        assert_eq!(text(&ended), "12:00:01.250       7  ended    status 14: draining\n");
        let dropped = json!({"at": at, "event": "dropped", "dropped": 3});
        assert_eq!(text(&dropped), "12:00:01.250  3 lines left out: they came faster than they were read\n");
        let opened = json!({"at": at, "event": "opened", "session": 7, "node": "n", "peer": "p", "view": "v", "variant": "delta"});
        assert_eq!(text(&opened), "12:00:01.250       7  stream opened: node n, p, view v, delta\n");
        let begin = json!({"at": at, "event": "tap", "connected": true, "streams": [opened]});
        assert_eq!(text(&begin), "12:00:01.250       7  stream is open: node n, p, view v, delta\n");
        assert_eq!(text(&json!({"event": "later"})), "");
    }
}
