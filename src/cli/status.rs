//! `weir status`: the ladders and the clients of a running relay, a line each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use weir_core::xds::short_type_name;

use super::admin::{AdminArgs, AdminError};
use super::again::show_again;
use super::output::OutputArgs;
use super::summary::Summary;
use super::table::Table;
use super::view_words::ViewWords;
use super::{CANNOT_ASK, FOUND, error, json_text, seconds, show};
use crate::plural::plural;

/// Shows the servers and clients of a running relay
///
/// A line for each ladder, and one for each client with the state of each type: SYNCED, NOT_SENT, NOT_ASKED (no server was asked for the
/// type yet), REFUSED (the server ends streams that request the type), STALE (the client lacks something, or has not answered), NACKED. Exit code:
/// 0, or 2 if the relay cannot be reached; with --ready also 1 if it is not ready.
#[derive(Debug, Args)]
pub struct Status {
    /// Only clients whose node id has this part
    #[arg(long)]
    node: Option<String>,
    /// Only clients of this view
    #[arg(long)]
    view: Option<String>,
    /// Only clients in this state: synced, not_sent, not_asked, refused, stale or nacked
    #[arg(long)]
    state: Option<String>,
    /// Only this type, such as clusters
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Clients to show
    #[arg(long, default_value = "1000", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    limit: u64,
    /// Clients by how long they have lacked something, or by their names. By default those that lack something are first
    #[arg(long, value_enum)]
    sort: Option<Sort>,
    /// Show it again every two seconds, until interrupted
    #[arg(long)]
    watch: bool,
    /// Only whether the relay is ready, and the reasons if it is not. It ends within 5 s; --admin may be the address for probes
    #[arg(long, conflicts_with_all = ["node", "view", "state", "kind", "limit", "watch"])]
    ready: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    relay: AdminArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    Lag,
    Name,
}

impl Status {
    /// Prints the state of the relay once, or again and again.
    pub async fn run(self) -> ExitCode {
        if self.ready {
            return self.readiness().await;
        }
        show_again(self.watch, async || self.text().await).await
    }

    async fn readiness(&self) -> ExitCode {
        let (code, text) = match self.relay.readiness().await {
            Ok((true, said)) => (ExitCode::SUCCESS, format!("{said}\n")),
            Ok((false, reasons)) => (ExitCode::from(FOUND), format!("not ready\n{reasons}\n")),
            Err(fault) => {
                error(&fault.to_string());
                return ExitCode::from(CANNOT_ASK);
            }
        };
        let _ = show(&text); // the exit code says it too
        code
    }

    async fn text(&self) -> Result<String, AdminError> {
        let upstreams = self.relay.get("/upstreams", &[]).await?;
        let (summary, words) =
            (Summary::ask(&self.relay, &upstreams, self.output.is_json()).await?, ViewWords::of(&upstreams));
        let is_by_lag = self.sort == Some(Sort::Lag) || self.sort.is_none() && summary.has_laggards();
        let (clients, open) = self.clients(&words, is_by_lag).await?;
        if self.output.is_json() {
            let page = json!({"summary": summary.json(), "upstreams": upstreams, "clients": clients, "open": open});
            return Ok(json_text(&page));
        }
        let mut out = format!("{}\n{}", summary.text(&self.relay), ladders(&upstreams, &words));
        if !clients.is_empty() {
            let _ = write!(out, "\n{}", client_table(&clients, &words)); // writing to a String does not fail
        }
        let shown = clients.len() as u64;
        let _ = match shown == self.limit && open > shown {
            true => writeln!(out, "\n{shown} of {open} client streams; --limit shows more"),
            false => writeln!(out, "\n{shown} of {}", plural(open as usize, "client stream")),
        };
        Ok(out)
    }

    /// Returns the client streams, sorted by how long they have lacked something or by name, and how many streams are open.
    async fn clients(&self, words: &ViewWords, is_by_lag: bool) -> Result<(Vec<Value>, u64), AdminError> {
        let given = [("node", &self.node), ("state", &self.state), ("type", &self.kind)];
        let given = given.iter().filter_map(|(key, value)| Some((*key, value.as_deref()?)));
        let given: Vec<_> = given.chain(self.view.as_deref().map(|view| ("view", words.meant(view)))).collect();
        let mut clients = Vec::new();
        if is_by_lag {
            let most = self.limit.min(PAGE).to_string();
            let parameters: Vec<_> = given.iter().copied().chain([("limit", most.as_str())]).collect();
            let page = self.relay.get("/laggards", &parameters).await?;
            clients = page["clients"].as_array().cloned().unwrap_or_default();
        }
        let first: BTreeSet<_> = clients.iter().filter_map(|client| client["session"].as_u64()).collect();
        let is_other = |of: &Value| of["session"].as_u64().is_none_or(|session| !first.contains(&session));
        let wanted = self.limit.saturating_sub(clients.len() as u64);
        let (mut others, mut after) = (Vec::new(), "0".to_owned());
        let open = loop {
            let left = (wanted - others.len() as u64).clamp(1, PAGE).to_string();
            let place = [("limit", left.as_str()), ("after", after.as_str())];
            let parameters: Vec<_> = given.iter().copied().chain(place).collect();
            let mut page = self.relay.get("/clients", &parameters).await?;
            let found = page["clients"].as_array_mut().map(std::mem::take).unwrap_or_default();
            others.extend(found.into_iter().filter(is_other).take(wanted as usize - others.len()));
            match page["next"].as_u64().filter(|_| (others.len() as u64) < wanted) {
                Some(next) => after = next.to_string(),
                None => break page["open"].as_u64().unwrap_or_default(),
            }
        };
        let name =
            |client: &Value| ["node", "peer", "view"].map(|key| client[key].as_str().unwrap_or_default().to_owned());
        others.sort_by_cached_key(name);
        clients.extend(others);
        Ok((clients, open))
    }
}

/// Returns a table with a line for each client, in the order of their first streams.
pub(super) fn client_table(clients: &[Value], words: &ViewWords) -> String {
    table(&lines(clients), words).to_string()
}

/// One client: all streams of a node over one connection. An Envoy without an aggregated stream has several.
#[derive(Debug, Default)]
struct ClientLine {
    sessions: Vec<u64>,
    variant: String,
    /// The states of its types, by the short name of the type.
    types: BTreeMap<String, String>,
}

type Key = (String, String, String);

/// Returns a line for each node, peer and view, in the order in which their first streams come.
fn lines(clients: &[Value]) -> Vec<(Key, ClientLine)> {
    let (mut lines, mut places) = (Vec::<(Key, ClientLine)>::new(), BTreeMap::<Key, usize>::new());
    for client in clients {
        let of = |key: &str| client[key].as_str().unwrap_or_default().to_owned();
        let key = (of("node"), of("peer"), of("view"));
        let at = *places.entry(key.clone()).or_insert(lines.len());
        if at == lines.len() {
            lines.push((key, ClientLine::default()));
        }
        let line = &mut lines[at].1;
        line.sessions.extend(client["session"].as_u64());
        line.variant = of("variant");
        for of_type in client["types"].as_array().into_iter().flatten() {
            let kind = short_type_name(of_type["type"].as_str().unwrap_or_default());
            line.types.insert(kind, cell(of_type));
        }
    }
    lines
}

fn cell(of_type: &Value) -> String {
    let state = of_type["state"].as_str().unwrap_or_default();
    match of_type["behind_seconds"].as_f64().filter(|_| state != "SYNCED") {
        Some(since) => format!("{state} {}", seconds(since)),
        None => state.to_owned(),
    }
}

fn table(lines: &[(Key, ClientLine)], words: &ViewWords) -> Table {
    let types: BTreeSet<_> = lines.iter().flat_map(|(_, line)| line.types.keys()).collect();
    let heads = ["CLIENT", "SESSION", "VIEW", "VARIANT"].into_iter().map(str::to_owned);
    let mut table = Table::new(heads.chain(types.iter().map(|kind| (*kind).clone())));
    for ((node, _, view), line) in lines {
        let session = match line.sessions[..] {
            [session] => session.to_string(),
            [first, ..] => format!("{first} +{}", line.sessions.len() - 1),
            [] => String::new(),
        };
        let cells = types.iter().map(|kind| line.types.get(*kind).map_or("-", String::as_str).to_owned());
        let view = words.name(view).to_owned();
        table.row([node.clone(), session, view, line.variant.clone()].into_iter().chain(cells));
    }
    table
}

fn ladders(upstreams: &Value, words: &ViewWords) -> Table {
    let mut table = Table::new(["VIEW", "CLIENTS", "AUTHORITY", "STATE", "FOR", "SERVER"].map(str::to_owned));
    for view in upstreams.as_array().into_iter().flatten() {
        for ladder in view["authorities"].as_array().into_iter().flatten() {
            let of = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            let authority = Some(of(&ladder["authority"])).filter(|name| !name.is_empty()).unwrap_or("-".into());
            let reason = ladder["reason"].as_str().map(|reason| format!(" ({reason})")).unwrap_or_default();
            let server = format!("{}{reason}", of(&ladder["server"]));
            let since = seconds(ladder["state_seconds"].as_f64().unwrap_or_default());
            let name = words.full(view["view"].as_str().unwrap_or("-"));
            table.row([name, view["clients"].to_string(), authority, of(&ladder["state"]), since, server]);
        }
    }
    table
}

const PAGE: u64 = 1_000;

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use clap::Parser;
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_client_with_a_stream_for_each_type_has_one_line() {
        let stream = |session: u64, kind: &str, state: &str, behind: Option<f64>| {
            let of_type = json!({"type": kind, "state": state, "behind_seconds": behind});
            json!({"session": session, "node": "envoy-1", "peer": "10.0.0.1:4", "view": "3f2a", "variant": "delta", "types": [of_type]})
        };
        let clients = [
            stream(1, "envoy.config.cluster.v3.Cluster", "SYNCED", None),
            stream(2, "envoy.config.listener.v3.Listener", "STALE", Some(12.4)),
            json!({"session": 3, "node": "envoy-2", "peer": "10.0.0.2:4", "view": "3f2a", "variant": "sotw", "types": []}),
        ];
        let expected = "\
CLIENT   SESSION  VIEW  VARIANT  CDS     LDS
envoy-1  1 +1     3f2a  delta    SYNCED  STALE 12s
envoy-2  3        3f2a  sotw     -       -
";
        assert_eq!(client_table(&clients, &ViewWords::default()), expected);
    }

    #[test]
    fn a_ladder_has_a_line_with_the_reason_of_a_fallback() {
        let upstreams = json!([{"view": "3f2a", "clients": 2, "authorities": [
            {"authority": "", "state": "active", "server": "http://b:1", "state_seconds": 75, "reason": "a:1: refused"},
        ]}]);
        let expected = "\
VIEW  CLIENTS  AUTHORITY  STATE   FOR     SERVER
3f2a  2        -          active  1m 15s  http://b:1 (a:1: refused)
";
        assert_eq!(ladders(&upstreams, &ViewWords::default()).to_string(), expected);
    }

    #[test]
    fn each_ladder_of_each_view_has_a_line_and_what_is_not_known_a_dash() {
        let ladder = |authority: &str, state: &str, server: Option<&str>, reason: Option<&str>| json!({"authority": authority, "state": state, "server": server, "state_seconds": 0, "reason": reason});
        let upstreams = json!([
            {"view": "a", "clients": 12, "authorities": [
                ladder("", "active", Some("http://b:1"), None),
                ladder("x.example", "down", None, Some("refused\u{7}")),
            ]},
            {"view": "b", "clients": 0, "authorities": []},
            {"view": "c", "clients": 3, "authorities": [ladder("", "idle", None, None)]},
        ]);
        let expected = "\
VIEW  CLIENTS  AUTHORITY  STATE   FOR   SERVER
a     12       -          active  0.0s  http://b:1
a     12       x.example  down    0.0s  - (refused\u{fffd})
c     3        -          idle    0.0s  -
";
        assert_eq!(ladders(&upstreams, &ViewWords::default()).to_string(), expected);
    }

    #[test]
    fn a_cell_says_since_when_a_client_lacks_something() {
        let shown = |state: &str, behind: Value| cell(&json!({"state": state, "behind_seconds": behind}));
        assert_eq!(shown("SYNCED", json!(3.0)), "SYNCED");
        assert_eq!(shown("STALE", json!(9.94)), "STALE 9.9s");
        assert_eq!(shown("NACKED", json!(10.0)), "NACKED 10s");
        assert_eq!(shown("NOT_SENT", json!(3600.9)), "NOT_SENT 1h");
        assert_eq!(shown("NACKED", json!(null)), "NACKED");
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        status: Status,
    }

    /// Starts a relay with seven client streams that shows two at a time. Returns its address, and the queries that it receives.
    async fn relay() -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, queries) = (listener.local_addr().unwrap().to_string(), Arc::<Mutex<Vec<String>>>::default());
        let seen = queries.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let mut socket = BufReader::new(socket);
                let mut line = String::new();
                socket.read_line(&mut line).await.unwrap();
                while line.lines().last().is_some_and(|last| !last.is_empty()) {
                    socket.read_line(&mut line).await.unwrap();
                }
                let path = line.split(' ').nth(1).unwrap();
                let page = match path.strip_prefix("/clients?") {
                    None => json!([]),
                    Some(query) => {
                        seen.lock().unwrap().push(query.to_owned());
                        page(query)
                    }
                };
                let page = page.to_string();
                let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{page}", page.len());
                socket.write_all(response.as_bytes()).await.unwrap();
            }
        });
        (address, queries)
    }

    fn page(query: &str) -> Value {
        let of = |key: &str| {
            let value = query.split('&').find_map(|pair| pair.strip_prefix(key));
            value.unwrap_or_else(|| panic!("no {key} in {query}")).parse::<u64>().unwrap()
        };
        let first = of("after=") + 1;
        let last = (first + of("limit=").min(2) - 1).min(7);
        let stream = |session| json!({"session": session, "node": format!("envoy-{session}"), "types": []});
        let clients: Vec<_> = (first..=last).map(stream).collect();
        json!({"clients": clients, "open": 7, "next": (last < 7).then_some(last)})
    }

    #[tokio::test]
    async fn clients_are_read_page_by_page_up_to_the_limit() {
        let (address, queries) = relay().await;
        for (limit, expected, end) in [
            ("5", [(5, 0), (3, 2), (1, 4)].as_slice(), "\n5 of 7 client streams; --limit shows more\n"),
            ("7", &[(7, 0), (5, 2), (3, 4), (1, 6)], "\n7 of 7 client streams\n"),
            ("9", &[(9, 0), (7, 2), (5, 4), (3, 6)], "\n7 of 7 client streams\n"),
            ("2", &[(2, 0)], "\n2 of 7 client streams; --limit shows more\n"),
        ] {
            let arguments = ["x", "--admin", address.as_str(), "--limit", limit, "--node", "a b", "--type", "cds"];
            let text = Line::try_parse_from(arguments).unwrap().status.text().await.unwrap();
            assert!(text.ends_with(end), "{text}");
            let shown = text.lines().filter(|line| line.starts_with("envoy-")).count();
            assert_eq!(shown, limit.parse::<usize>().unwrap().min(7), "{text}");
            let queries = std::mem::take(&mut *queries.lock().unwrap());
            let asked =
                expected.iter().map(|(limit, after)| format!("node=a%20b&type=cds&limit={limit}&after={after}"));
            assert_eq!(queries, asked.collect::<Vec<_>>(), "the same clients on each page");
        }
    }

    #[test]
    fn clients_of_one_name_are_one_only_if_their_connection_and_view_are_too() {
        let stream = |session: u64, peer: &str, view: &str| json!({"session": session, "node": "envoy", "peer": peer, "view": view, "variant": "delta", "types": []});
        let clients = [stream(1, "a:1", "x"), stream(2, "a:2", "x"), stream(3, "a:1", "y"), stream(4, "a:1", "x")];
        let sessions: Vec<_> = lines(&clients).into_iter().map(|(_, line)| line.sessions).collect();
        assert_eq!(sessions, [vec![1, 4], vec![2], vec![3]]);
    }
}
