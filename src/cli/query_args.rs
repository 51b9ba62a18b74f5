//! The arguments of `weir get` and `weir watch`: the server, what to request, as which node, and how to print it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use prost::Message;
use weir_core::protocol::session::Variant;
use weir_core::xds::{ERRORS_FEATURE, NameFault, TypeTable, UnknownType, Xdstp, type_by_word};

use super::endpoint::{EndpointError, TlsArgs};
use super::node_json::NodeJson;
use super::query_state::Question;
use crate::transcode::{TranscodeError, Transcoder};
use crate::upstream::AdsServer;

#[derive(Debug, Args)]
pub(super) struct QueryArgs {
    /// Resource type: lds or listeners, cds or clusters, eds, rds, sds, …, a type URL, or an xdstp:// name, which has its type in it
    #[arg(value_name = "TYPE")]
    kind: String,
    /// Resource names [default: all resources that the server has for the node]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// xDS server: HOST:PORT, http://HOST:PORT, https://HOST:PORT, or unix:PATH for a Unix socket
    #[arg(long, value_name = "URI", default_value = "http://127.0.0.1:18000")]
    server: String,
    #[command(flatten)]
    tls: TlsArgs,
    /// JSON web token to send; TLS only
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Variant of the protocol [default: delta, or sotw if the server does not support it]
    #[arg(long, value_enum)]
    variant: Option<VariantArg>,
    /// Node to send, as JSON
    #[arg(long, value_name = "JSON", conflicts_with = "node_file")]
    node: Option<String>,
    /// File with the node to send, as JSON
    #[arg(long, value_name = "FILE")]
    node_file: Option<PathBuf>,
    /// Node id
    #[arg(long)]
    id: Option<String>,
    /// Node cluster
    #[arg(long)]
    cluster: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "yaml")]
    pub(crate) output: Output,
    /// Print private keys and other secrets
    #[arg(long)]
    pub(crate) show_secrets: bool,
    /// FileDescriptorSet with types that Envoy does not have; repeatable
    #[arg(long, value_name = "FILE")]
    descriptors: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum VariantArg {
    Delta,
    Sotw,
}

impl VariantArg {
    pub(super) fn variant(self) -> Variant {
        match self {
            Self::Delta => Variant::Delta,
            Self::Sotw => Variant::Sotw,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// One YAML document per resource: name, version, resource
    Yaml,
    /// A JSON array of the same; with watch, one JSON object per change and line
    Json,
    /// Protobuf text format
    Text,
    /// Names only
    Names,
    /// An encoded DiscoveryResponse, as file sources take it (get only)
    Wire,
}

/// Why an argument is invalid.
#[derive(Debug, thiserror::Error)]
pub(super) enum ArgumentError {
    #[error("invalid name {name:?}: {error}")]
    Name { name: String, error: NameFault },
    #[error("{0}")]
    Type(UnknownType),
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{place}: {error}")]
    Node { place: String, error: serde_json::Error },
    #[error("invalid node: listening_addresses are not supported here")]
    Addresses,
    #[error("--descriptors: {0}")]
    Descriptors(TranscodeError),
    #[error("--output wire works with weir get only")]
    WireOutput,
}

/// The valid arguments.
pub(super) struct Checked {
    pub(crate) server: AdsServer,
    pub(crate) question: Question,
    pub(crate) transcoder: Arc<Transcoder>,
}

impl QueryArgs {
    /// Checks the arguments, and returns either the valid form or all errors.
    pub(crate) fn check(&self) -> Result<Checked, Vec<ArgumentError>> {
        let mut faults = Vec::new();
        let server = self.server(&mut faults);
        // A new-style name contains its type.
        let named = Xdstp::is_new_style(&self.kind).then(|| Xdstp::parse(&self.kind));
        let word = match &named {
            None => Ok(self.kind.clone()),
            Some(Ok(name)) => Ok(name.kind.clone()),
            Some(Err(error)) => Err(ArgumentError::Name { name: self.kind.clone(), error: *error }),
        };
        let kind = word.and_then(|word| type_by_word(&TypeTable::new(), &word).map_err(ArgumentError::Type));
        let kind = kind.map_err(|error| faults.push(error)).ok();
        let names: Vec<_> = named.iter().map(|_| self.kind.clone()).chain(self.names.iter().cloned()).collect();
        let node = self.node().map_err(|fault| faults.push(fault)).ok();
        let transcoder = transcoder_with(&self.descriptors).map_err(|fault| faults.push(fault)).ok();
        match (server, kind, node, transcoder) {
            (Some(server), Some(kind), Some(node), Some(transcoder)) if faults.is_empty() => {
                let type_url = match self.kind.contains('/') && named.is_none() {
                    true => self.kind.clone(),
                    false => kind.url().into_owned(),
                };
                Ok(Checked { server, question: Question { kind, type_url, names, node }, transcoder })
            }
            _ => Err(faults),
        }
    }

    fn server(&self, faults: &mut Vec<ArgumentError>) -> Option<AdsServer> {
        let variant = self.variant.map(VariantArg::variant);
        let server = self.tls.endpoint("--server", &self.server);
        let server = server.map_err(|errors| faults.extend(errors.into_iter().map(ArgumentError::Endpoint))).ok();
        let is_plain = !self.server.starts_with("https://");
        if is_plain && self.token_file.is_some() {
            faults.push(EndpointError::RequiresTls("--token-file", "--server").into());
        }
        Some(AdsServer { tokens: self.token_file.iter().cloned().collect(), variant, ..server? })
    }

    fn node(&self) -> Result<Bytes, ArgumentError> {
        let text = match (&self.node, &self.node_file) {
            (Some(text), _) => Some(("--node".to_owned(), text.clone())),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|error| ArgumentError::File { path: path.clone(), error })?;
                Some((path.display().to_string(), text))
            }
            (None, None) => None,
        };
        let mut node = NodeJson::default();
        match text {
            Some((place, text)) => {
                node = serde_json::from_str(&text).map_err(|error| ArgumentError::Node { place, error })?;
            }
            None => node.id = "weir".into(),
        }
        if node.has_addresses() {
            return Err(ArgumentError::Addresses);
        }
        self.id.iter().for_each(|id| node.id.clone_from(id));
        self.cluster.iter().for_each(|cluster| node.cluster.clone_from(cluster));
        let mut node = node.into_node();
        // Announces all features that these commands can read: names of types without one, and errors for names.
        for feature in ["xds.config.resource-in-sotw", ERRORS_FEATURE] {
            if !node.client_features.iter().any(|known| known == feature) {
                node.client_features.push(feature.into());
            }
        }
        Ok(node.encode_to_vec().into())
    }
}

/// Returns a transcoder that also knows the types in these files.
pub(super) fn transcoder_with(descriptors: &[PathBuf]) -> Result<Arc<Transcoder>, ArgumentError> {
    if descriptors.is_empty() {
        return Ok(Transcoder::envoy());
    }
    let read = |path: &PathBuf| std::fs::read(path).map_err(|error| ArgumentError::File { path: path.clone(), error });
    let sets: Vec<Bytes> = descriptors.iter().map(|path| read(path).map(Bytes::from)).collect::<Result<_, _>>()?;
    Transcoder::with_descriptor_sets(&sets).map_err(ArgumentError::Descriptors)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use weir_core::proto::node::Node;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        asking: QueryArgs,
    }

    fn check(line: &str) -> Result<Checked, String> {
        Line::try_parse_from(["x"].into_iter().chain(line.split_whitespace()))
            .unwrap()
            .asking
            .check()
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn without_arguments_everything_is_requested_from_the_relay_on_this_machine() {
        let Checked { server, question, .. } = check("cds").unwrap();
        assert_eq!((server.name().as_str(), server.variant, server.tls), ("http://127.0.0.1:18000", None, None));
        assert_eq!(question.type_url, "type.googleapis.com/envoy.config.cluster.v3.Cluster");
        assert!(question.names.is_empty());
        assert_eq!(Node::decode(question.node).unwrap().id, "weir");
    }

    #[test]
    fn a_node_is_what_is_given_with_its_shorthands_over_it() {
        let node = |line: &str| Node::decode(check(line).unwrap().question.node).unwrap();
        let made =
            node(r#"cds --node {"id":"a","cluster":"b","userAgentName":"envoy","client_features":["f"]} --id c"#);
        assert_eq!((made.id.as_str(), made.cluster.as_str(), made.user_agent_name.as_str()), ("c", "b", "envoy"));
        assert_eq!(made.client_features, ["f", "xds.config.resource-in-sotw", ERRORS_FEATURE]);
        assert_eq!(node("cds --cluster web").cluster, "web");
    }

    #[test]
    fn tls_comes_with_the_scheme() {
        let server =
            check("sds --server https://cp --ca ca.pem --cert c.pem --key k.pem --token-file t").unwrap().server;
        let tls = server.tls.unwrap();
        assert_eq!((tls.server_name.to_str(), tls.ca), ("cp".into(), Some("ca.pem".into())));
        assert!(tls.own.is_some() && server.tokens == [PathBuf::from("t")]);
        assert_eq!(check("sds --server cp:1").unwrap().server.name(), "http://cp:1");
    }

    #[test]
    fn a_server_may_be_at_a_unix_socket() {
        for text in ["unix:/run/weir.sock", "unix:///run/weir.sock"] {
            let server = check(&format!("cds --server {text}")).unwrap().server;
            assert_eq!((server.name().as_str(), server.tls), ("unix:/run/weir.sock", None), "{text}");
        }
        assert!(check("cds --server unix:").err().unwrap().contains("expected the path of a socket"));
        assert!(check("cds --server unix:/a --ca ca.pem").err().unwrap().contains("--ca requires TLS"));
    }

    #[test]
    fn an_xdstp_name_says_its_type() {
        let name = "xdstp://a/envoy.config.cluster.v3.Cluster/b";
        let Checked { question, .. } = check(&format!("{name} other")).unwrap();
        assert_eq!(question.type_url, "type.googleapis.com/envoy.config.cluster.v3.Cluster");
        assert_eq!(question.names, [name, "other"]);
        assert!(check("xdstp://a").is_err_and(|error| error.contains("invalid name")));
    }

    #[test]
    fn everything_that_is_wrong_is_reported_at_once() {
        let reported = check("pods --server http://a/b --node { -o wire").err().unwrap();
        for part in ["unknown type \"pods\"", "--server:", "expected nothing after the host and port", "--node: EOF"] {
            assert!(reported.contains(part), "{part} is missing in:\n{reported}");
        }
        let reported = check("cds --ca ca.pem --token-file t").err().unwrap();
        assert!(reported.contains("--ca requires TLS") && reported.contains("--token-file requires TLS"), "{reported}");
        let reported = check("cds --node-file /none --descriptors /neither").err().unwrap();
        assert!(reported.contains("/none: ") && reported.contains("/neither: "), "{reported}");
    }
}
