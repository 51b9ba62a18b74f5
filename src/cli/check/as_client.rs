//! `weir check --as`: what the permissions decide for one client, and why.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use prost::Message;
use weir_core::protocol::session::Identity;
use weir_core::xds::{CertificateNames, HeaderHashes, NamePattern, Peer, PeerProof};

use crate::cli::node_json::NodeJson;
use crate::config::Config;

/// What a client would prove, and the node that it would send.
#[derive(Debug, clap::Args)]
pub struct AsClient {
    /// Instead of the report: what the permissions decide for a client with this identity: a SPIFFE id, uri:URI, dns:NAME, uid:NUMBER,
    /// gid:NUMBER, or the address that it connects from. Several are of one client
    #[arg(long = "as", value_name = "IDENTITY", value_parser = parse)]
    identities: Vec<Proof>,
    /// With --as: the node that it sends, as JSON; without it an empty one
    #[arg(long, value_name = "FILE", requires = "identities")]
    node: Option<std::path::PathBuf>,
}

/// One identity on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Proof {
    Spiffe(Box<str>),
    Uri(Box<str>),
    Dns(Box<str>),
    Uid(u32),
    Gid(u32),
    Address(IpAddr),
}

/// Why a question cannot be answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum QuestionError {
    #[error("a client has a certificate or is on a Unix socket, not both")]
    Mixed,
    #[error("cannot read {path}: {error}")]
    Read { path: String, error: std::io::Error },
    #[error("invalid node in {path}: {error}")]
    Node { path: String, error: serde_json::Error },
}

fn parse(text: &str) -> Result<Proof, String> {
    let number = |text: &str| text.parse().map_err(|_| format!("invalid number {text:?}"));
    match text.split_once(':') {
        Some(("spiffe", _)) => Ok(Proof::Spiffe(text.into())),
        Some(("uri", uri)) => Ok(Proof::Uri(uri.into())),
        Some(("dns", name)) => Ok(Proof::Dns(name.into())),
        Some(("uid", uid)) => number(uid).map(Proof::Uid),
        Some(("gid", gid)) => number(gid).map(Proof::Gid),
        _ => text
            .parse()
            .map(Proof::Address)
            .map_err(|_| "expected a SPIFFE id, uri:URI, dns:NAME, uid:NUMBER, gid:NUMBER or an IP address".to_owned()),
    }
}

impl AsClient {
    /// Whether an identity is given.
    pub fn is_given(&self) -> bool {
        !self.identities.is_empty()
    }

    /// Returns the decision in words, and whether the client is served.
    pub(super) fn answer(&self, config: &Config) -> Result<(String, bool), QuestionError> {
        let peer = Arc::new(self.peer()?);
        let node = match &self.node {
            Some(path) => node_in(path)?,
            None => Vec::new(),
        };
        Ok(decision(config, peer, &node))
    }

    fn peer(&self) -> Result<Peer, QuestionError> {
        let mut peer = Peer { connection: 0, address: None, proven: None };
        let mut names = CertificateNames::default();
        let (mut uid, mut gid) = (None, None);
        for identity in &self.identities {
            match identity {
                Proof::Spiffe(id) => names.spiffe = Some(id.clone()),
                Proof::Uri(uri) => names.uris.push(uri.clone()),
                Proof::Dns(name) => names.dns.push(name.clone()),
                Proof::Uid(number) => uid = Some(*number),
                Proof::Gid(number) => gid = Some(*number),
                Proof::Address(address) => peer.address = Some(SocketAddr::new(*address, 0)),
            }
        }
        let has_certificate = names != CertificateNames::default();
        peer.proven = match (has_certificate, uid.or(gid)) {
            (true, Some(_)) => return Err(QuestionError::Mixed),
            (true, None) => Some(PeerProof::Certificate(names)),
            // A number that is not given becomes one that no rule has.
            (false, Some(_)) => Some(PeerProof::Process { uid: uid.unwrap_or(u32::MAX), gid: gid.unwrap_or(u32::MAX) }),
            (false, None) => None,
        };
        Ok(peer)
    }
}

fn node_in(path: &Path) -> Result<Vec<u8>, QuestionError> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| QuestionError::Read { path: shown.clone(), error })?;
    let node: NodeJson = serde_json::from_str(&text).map_err(|error| QuestionError::Node { path: shown, error })?;
    Ok(node.into_node().encode_to_vec())
}

/// Decides as for the first request of a stream.
fn decision(config: &Config, peer: Arc<Peer>, node: &[u8]) -> (String, bool) {
    let views = &config.views;
    let rule = Arc::new(views.rule.clone());
    let identity = match Identity::of(rule, views.permissions.clone(), peer.clone(), HeaderHashes::default(), node) {
        Ok(identity) => identity,
        Err(error) => return (format!("refused: {error}\n"), false),
    };
    let parts = identity.key().parts(&views.rule);
    let parts: Vec<_> = parts.iter().map(|(field, value)| format!("{field} {value:?}")).collect();
    let mut rows = vec![("key", format!("{} ({})", identity.key(), parts.join(", ")))];
    match identity.permit() {
        None => rows.insert(0, ("rule", "none: without permissions, every client may send any node".to_owned())),
        Some(permit) => {
            rows.insert(0, ("rule", permit.rule.to_string()));
            rows.push(("tenant", permit.tenant.as_deref().unwrap_or("none").to_owned()));
            rows.push(("types", permit.types().map_or_else(|| "all".into(), |types| types.join(", "))));
            let names =
                permit.names().map(|names| listed(names, "none: all of the rule refer to what it has not proved"));
            rows.push(("names", names.unwrap_or_else(|| "all, but for secrets".into())));
            rows.push(("secrets", listed(permit.secrets(), "none")));
        }
    }
    if !views.access.rules().is_empty() {
        let access = match peer.address {
            Some(address) => format!("must allow each resource too, for {}", address.ip()),
            None => {
                "must allow each resource too, by an address that is not given: --as ADDRESS beside the identity".into()
            }
        };
        rows.push(("access", access));
    }
    let mut out = String::from("served\n");
    for (what, value) in rows {
        let _ = writeln!(out, "  {what:7}  {value}"); // writing to a String does not fail
    }
    (out, true)
}

fn listed(patterns: &[NamePattern], none: &str) -> String {
    match patterns {
        [] => none.into(),
        patterns => patterns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use weir_core::proto::node::Node;

    use super::*;

    fn config(rest: &str) -> Config {
        let text = format!("listen: [{{address: '127.0.0.1:0'}}]\nupstream: {{files: x}}\n{rest}");
        Config::parse(Path::new("relay.yaml"), &text).unwrap()
    }

    fn asked(identities: &[&str]) -> AsClient {
        AsClient { identities: identities.iter().map(|text| parse(text).unwrap()).collect(), node: None }
    }

    const RULES: &str = "views: {key: [cluster, tenant]}
permissions:
- {name: workloads, identities: [{spiffe: 'spiffe://prod/ns/{ns}/*'}], node: {cluster: '{ns}-*'}, secrets: ['{ns}/*'], tenant: '{ns}'}
";

    #[test]
    fn the_decision_is_shown_with_its_rule_and_what_it_gives() {
        let config = config(RULES);
        let node = |cluster: &str| Node { cluster: cluster.into(), ..Node::default() }.encode_to_vec();
        let peer = Arc::new(asked(&["spiffe://prod/ns/pay/web", "10.0.0.1"]).peer().unwrap());
        let (text, is_served) = decision(&config, peer.clone(), &node("pay-web"));
        assert!(is_served, "{text}");
        let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!((&*lines[0], &*lines[1], &*lines[3]), ("served", "rule workloads", "tenant pay"), "{text}");
        assert!(lines[2].ends_with("(cluster \"pay-web\", tenant \"pay\")"), "{text}");
        assert_eq!(lines[4..], ["types all", "names all, but for secrets", "secrets pay/*"]);
        let (text, is_served) = decision(&config, peer, &node("bill-web"));
        assert!(!is_served);
        assert_eq!(text, "refused: node.cluster is \"bill-web\": rule workloads of permissions permits \"pay-*\"\n");
        let (text, is_served) = asked(&["uid:7"]).answer(&config).unwrap();
        assert!(!is_served && text == "refused: no rule of permissions is for unix (uid:7)\n", "{text}");
    }

    #[test]
    fn without_rules_the_answer_says_so() {
        let (text, is_served) = asked(&["dns:a.example"]).answer(&config("")).unwrap();
        assert!(is_served && text.contains("every client may send any node"), "{text}");
    }

    #[test]
    fn identities_are_read_or_said_to_be_unreadable() {
        assert_eq!(parse("spiffe://a/b"), Ok(Proof::Spiffe("spiffe://a/b".into())));
        assert_eq!(parse("uri:https://a/b"), Ok(Proof::Uri("https://a/b".into())));
        assert_eq!(parse("::1"), Ok(Proof::Address("::1".parse().unwrap())));
        assert!(parse("uid:me").is_err() && parse("someone").is_err());
        assert!(matches!(asked(&["uid:1", "dns:a"]).peer(), Err(QuestionError::Mixed)));
    }

    #[test]
    fn a_client_has_proved_what_is_given_and_is_no_user_or_group_beside_it() {
        let proven = |identities: &[&str]| asked(identities).peer().unwrap().proven;
        assert_eq!(proven(&["gid:5"]), Some(PeerProof::Process { uid: u32::MAX, gid: 5 }));
        assert_eq!(proven(&["uid:7"]), Some(PeerProof::Process { uid: 7, gid: u32::MAX }));
        assert_eq!(proven(&["gid:5", "uid:7"]), Some(PeerProof::Process { uid: 7, gid: 5 }));
        let names = CertificateNames {
            uris: vec!["x://a".into()],
            dns: vec!["a.example".into(), "b.example".into()],
            ..CertificateNames::default()
        };
        assert_eq!(proven(&["dns:a.example", "uri:x://a", "dns:b.example"]), Some(PeerProof::Certificate(names)));
        let peer = asked(&["10.0.0.1"]).peer().unwrap();
        assert_eq!((peer.proven, peer.address.map(|address| address.ip())), (None, Some([10, 0, 0, 1].into())));
        let root =
            config("views: {key: [cluster]}\npermissions: [{name: root, identities: [{uid: 0}], free: [cluster]}]\n");
        assert!(asked(&["uid:0"]).answer(&root).unwrap().1);
        assert!(!asked(&["gid:0"]).answer(&root).unwrap().1, "no user is given");
    }

    #[test]
    fn rules_of_networks_and_what_a_rule_limits_are_part_of_the_decision() {
        let cluster = "envoy.config.cluster.v3.Cluster";
        let text = format!(
            "views: {{key: [cluster]}}
access: [{{types: [{cluster}], allow_from: [10.0.0.0/8]}}]
permissions:
- {{name: few, identities: [{{uid: 1}}], free: [cluster], types: [{cluster}], names: [a, 'b/*']}}
"
        );
        let config = config(&text);
        let rows = |identities: &[&str]| {
            let (text, is_served) = asked(identities).answer(&config).unwrap();
            assert!(is_served, "{text}");
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        let of_one = rows(&["uid:1"]);
        let expected = [
            "tenant uid:1",
            &format!("types {cluster}"),
            "names a, b/*",
            "secrets none",
            "access must allow each resource too, by an address that is not given: --as ADDRESS beside the identity",
        ];
        assert_eq!(of_one[3..], expected);
        let elsewhere = rows(&["uid:1", "10.1.2.3"]);
        assert_eq!(elsewhere.last().unwrap(), "access must allow each resource too, for 10.1.2.3");
    }
}
