//! `weir key --against`: whether a control plane sends the same to nodes that would share a view.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use futures_util::future::select_all;
use prost::Message;
use tokio::time::{Instant, timeout_at};
use weir_core::proto::node::Node;
use weir_core::xds::{KeyField, KeyRule};

use super::node_comparison::NodeComparison;
use super::node_query::NodeQuery;
use super::{NodesError, read};
use crate::cli::endpoint::{EndpointError, TlsArgs};
use crate::cli::output::OutputArgs;
use crate::cli::query_args::{ArgumentError, VariantArg, transcoder_with};
use crate::cli::split::Split;
use crate::cli::xds_client::{Client, Event};
use crate::cli::{CANNOT_ASK, FOUND, error, note, printable, show};
use crate::upstream::AdsServer;

/// The control plane that is asked, and how.
#[derive(Debug, Args)]
pub struct NodesAgainst {
    /// Control plane: compares what it sends to the given nodes, two to five that have one key, instead of showing keys. Exit code: 0 if it
    /// sends the same, 1 if something differs, 2 if that is not known
    #[arg(long, value_name = "URI", conflicts_with = "admin")]
    against: Option<String>,
    /// With --against: JSON web token to send; TLS only
    #[arg(long, value_name = "FILE", requires = "against")]
    token_file: Option<PathBuf>,
    /// With --against: variant of the protocol [default: delta, or sotw if the server does not support it]
    #[arg(long, value_enum, requires = "against")]
    variant: Option<VariantArg>,
    /// With --against: longest wait, for all nodes together
    #[arg(long, value_parser = humantime::parse_duration, default_value = "60s")]
    timeout: Duration,
    /// With --against: how long nothing may change before it is compared
    #[arg(long, value_parser = humantime::parse_duration, default_value = "5s")]
    quiet_period: Duration,
    /// With --against: FileDescriptorSet with types that Envoy does not have; repeatable
    #[arg(long, value_name = "FILE", requires = "against")]
    descriptors: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Why the comparison is impossible.
#[derive(Debug, thiserror::Error)]
enum AgainstError {
    #[error(transparent)]
    Nodes(#[from] NodesError),
    #[error("expected {} to {} nodes with --against, not {count}", MIN_NODES, MAX_NODES)]
    Count { count: usize },
    #[error("the nodes have different keys, so they do not share a view: {} splits them\nnode fields that differ: {fields}", by.join(", "))]
    Keys { by: Vec<String>, fields: String },
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Arguments(Vec<ArgumentError>),
}

impl NodesAgainst {
    /// Whether a control plane was named.
    pub fn is_given(&self) -> bool {
        self.against.is_some()
    }

    /// Whether the output is to be JSON.
    pub fn is_json(&self) -> bool {
        self.output.is_json()
    }

    /// Compares what the control plane sends to the nodes of a text, which must have one key by this rule, and shows what that means for secrets.
    /// `split` has the files for TLS.
    pub async fn run(self, rule: &KeyRule, text: &str, about_secrets: &str, split: &Split) -> ExitCode {
        let compared = match self.compared(rule, text, split.tls()).await {
            Ok(compared) => compared,
            Err(reasons) => {
                error(&printable_lines(&reasons.to_string()));
                return ExitCode::from(CANNOT_ASK);
            }
        };
        let words = || match compared.text() {
            nothing if nothing.is_empty() => nothing,
            words => words + about_secrets,
        };
        let shown = show(&self.output.of(&compared.page(), words));
        if self.is_json() && !about_secrets.is_empty() {
            note(&about_secrets.trim().replace('\n', " "));
        }
        compared.errors.iter().for_each(|reason| error(&printable_lines(reason)));
        if let Err(fault) = &shown {
            error(&format!("cannot write: {fault}"));
        }
        if shown.is_err() || !compared.errors.is_empty() {
            return ExitCode::from(CANNOT_ASK);
        }
        if compared.differs() { ExitCode::from(FOUND) } else { ExitCode::SUCCESS }
    }

    async fn compared(&self, rule: &KeyRule, text: &str, tls: &TlsArgs) -> Result<NodeComparison, AgainstError> {
        let nodes = read(rule, text)?;
        if !(MIN_NODES..=MAX_NODES).contains(&nodes.len()) {
            return Err(AgainstError::Count { count: nodes.len() });
        }
        let (server, transcoder) = match (self.server(tls), transcoder_with(&self.descriptors)) {
            (Ok(server), Ok(transcoder)) => (server, transcoder),
            (server, transcoder) => {
                let faults = server.err().into_iter().flatten().chain(transcoder.err());
                return Err(AgainstError::Arguments(faults.collect()));
            }
        };
        let node_fields = transcoder.differing_node_fields(&nodes);
        let by = splitting(rule, &nodes);
        if !by.is_empty() {
            let fields = node_fields.into_iter().collect::<Vec<_>>().join(", ");
            return Err(AgainstError::Keys { by, fields });
        }
        note_what_nodes_lack(rule);
        let key = nodes.first().and_then(|node| rule.key(node).ok()).map(|key| key.to_string()).unwrap_or_default();
        let labels = labels(&nodes);
        let query = |node: Vec<u8>| NodeQuery::new(Bytes::from(node), transcoder.clone());
        let start = |node: Vec<u8>| Client::start(server.clone(), query(node));
        let mut clients: Vec<Client<NodeQuery>> = nodes.into_iter().map(start).collect();
        let mut errors = self.listen(&mut clients, &labels).await;
        for (client, label) in clients.iter().zip(&labels) {
            let troubles = client.query().troubles().into_iter();
            errors.extend(troubles.map(|names| format!("{label}: the server reports an error for {names}")));
        }
        let mut compared = NodeComparison::of(server.name(), key, labels, node_fields);
        compared.compare(&transcoder, &clients.iter().map(Client::query).collect::<Vec<_>>());
        compared.errors = errors;
        Ok(compared)
    }

    fn server(&self, tls: &TlsArgs) -> Result<AdsServer, Vec<ArgumentError>> {
        let uri = self.against.as_deref().unwrap_or_default();
        let mut faults = Vec::new();
        let server = tls.endpoint(FLAG, uri);
        let server = server.map_err(|errors| faults.extend(errors.into_iter().map(ArgumentError::from))).ok();
        if !uri.starts_with("https://") && self.token_file.is_some() {
            faults.push(EndpointError::RequiresTls("--token-file", FLAG).into());
        }
        match server {
            Some(server) if faults.is_empty() => {
                let variant = self.variant.map(VariantArg::variant);
                Ok(AdsServer { tokens: self.token_file.iter().cloned().collect(), variant, ..server })
            }
            _ => Err(faults),
        }
    }

    /// Listens until each node's subscriptions are answered and nothing has changed for a while. Returns what is still unknown at the end.
    async fn listen(&self, clients: &mut [Client<NodeQuery>], labels: &[String]) -> Vec<String> {
        let deadline = Instant::now() + self.timeout.min(LONGEST_WAIT);
        let mut changed = Instant::now();
        loop {
            let is_complete = clients.iter().all(|client| client.query().is_complete());
            let quiet = changed + self.quiet_period.min(LONGEST_WAIT);
            let until = if is_complete { deadline.min(quiet) } else { deadline };
            let next = select_all(clients.iter_mut().map(|client| Box::pin(client.next())));
            let next = timeout_at(until, next).await.map(|(event, at, _)| (event, at));
            match next {
                Err(_) if is_complete && quiet <= deadline => return Vec::new(),
                Err(_) => return self.late(clients, labels),
                Ok((Event::Open(_), _)) => {}
                Ok((Event::News(changes), _)) => {
                    if !is_complete || !changes.is_empty() {
                        changed = Instant::now();
                    }
                }
                Ok((Event::Lost { turns: true, .. }, at)) => {
                    note(&format!("{}: the server does not support delta; using sotw", printable(&labels[at])));
                }
                Ok((Event::Lost { reason, .. }, at)) => return vec![format!("{}: {reason}", labels[at])],
            }
        }
    }

    fn late(&self, clients: &[Client<NodeQuery>], labels: &[String]) -> Vec<String> {
        let timeout = humantime::format_duration(self.timeout);
        let missing = clients.iter().zip(labels).filter(|(client, _)| !client.query().is_complete());
        let missing = missing.map(|(client, label)| {
            format!("{label}: no response within {timeout} for {}", client.query().missing().join("; "))
        });
        let missing: Vec<_> = missing.collect();
        match missing.is_empty() {
            true => vec![format!("the server still changes what it sends after {timeout}")],
            false => missing,
        }
    }
}

/// Returns the fields of the key in which the nodes differ; none if their keys are equal.
fn splitting(rule: &KeyRule, nodes: &[Vec<u8>]) -> Vec<String> {
    let keys: HashSet<_> = nodes.iter().map(|node| rule.key(node).ok().map(|key| key.to_string())).collect();
    if keys.len() == 1 {
        return Vec::new();
    }
    let parts: Vec<_> = nodes.iter().map(|node| rule.parts(node)).collect();
    let differs = |at: usize| parts.iter().any(|of| of.get(at) != parts.first().and_then(|first| first.get(at)));
    let names = rule.fields().iter().enumerate().filter(|(at, _)| differs(*at));
    let names: Vec<_> = names.map(|(_, field)| field.to_string()).collect();
    if names.is_empty() { vec!["views.key".to_owned()] } else { names }
}

/// Prints which parts of the key a node does not contain: they may differ between real clients.
fn note_what_nodes_lack(rule: &KeyRule) {
    let lacks = |field: &&KeyField| matches!(field, KeyField::Header(_) | KeyField::Tenant);
    let lacking: Vec<_> = rule.fields().iter().filter(lacks).map(ToString::to_string).collect();
    if !lacking.is_empty() {
        note(&format!("{} is not in a node, and is taken as equal", lacking.join(", ")));
    }
}

/// Returns names for the nodes: their ids, if these are all different.
fn labels(nodes: &[Vec<u8>]) -> Vec<String> {
    let ids = nodes.iter().map(|node| Node::decode(node.as_slice()).map(|node| node.id).unwrap_or_default());
    let ids: Vec<_> = ids.collect();
    let distinct: HashSet<_> = ids.iter().filter(|id| !id.is_empty()).collect();
    match distinct.len() == ids.len() {
        true => ids,
        false => (1..=ids.len()).map(|number| format!("node {number}")).collect(),
    }
}

/// Returns lines without characters that control a terminal: ids come from clients, and names from servers.
fn printable_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

const FLAG: &str = "--against";
const MIN_NODES: usize = 2;
const MAX_NODES: usize = 5;
/// A longer time could overflow the clock.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(text: &str) -> Vec<Vec<u8>> {
        read(&KeyRule::default(), text).unwrap()
    }

    #[test]
    fn the_fields_that_split_nodes_are_those_of_the_key_in_which_they_differ() {
        let fields = ["cluster", "locality.zone", "metadata.APP"].map(|text| KeyField::parse(text).unwrap());
        let rule = KeyRule::of(fields.into());
        let one = r#"{"id": "1", "cluster": "web", "locality": {"zone": "a"}, "metadata": {"APP": "x", "NAME": "1"}}"#;
        let same = r#"{"id": "2", "cluster": "web", "locality": {"zone": "a"}, "metadata": {"APP": "x", "NAME": "2"}}"#;
        let other =
            r#"{"id": "3", "cluster": "web", "locality": {"zone": "b"}, "metadata": {"APP": "y", "NAME": "3"}}"#;
        assert_eq!(splitting(&rule, &nodes(&format!("{one}\n{same}"))), [""; 0]);
        assert_eq!(splitting(&rule, &nodes(&format!("{one}\n{same}\n{other}"))), ["locality.zone", "metadata.APP"]);
    }

    #[test]
    fn nodes_are_called_by_their_ids_unless_two_have_one() {
        assert_eq!(labels(&nodes("{\"id\": \"a\"}\n{\"id\": \"b\"}")), ["a", "b"]);
        assert_eq!(labels(&nodes("{\"id\": \"a\"}\n{\"id\": \"a\"}")), ["node 1", "node 2"]);
        assert_eq!(labels(&nodes("{\"id\": \"a\"}\n{}")), ["node 1", "node 2"]);
    }
}
