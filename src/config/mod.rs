//! The configuration file and its checked form.
//!
//! `Raw*` mirrors the file, with every default in one place. Checking turns it into types that cannot be wrong, and reports every
//! fault with its place, not only the first.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::downstream;
use crate::protocol::limits::Limits;
use crate::protocol::session::Variant;
use crate::upstream::AdsServer;
use crate::xds::{KeyField, KeyRule};

/// Everything that a relay needs to start.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: Vec<SocketAddr>,
    pub admin: Option<SocketAddr>,
    pub server: AdsServer,
    pub key: KeyRule,
    pub most_views: usize,
    pub limits: Limits,
    pub downstream: downstream::Options,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The text says where: line, column and a piece of the file.
    #[error("{}: {text}", path.display())]
    Syntax { path: PathBuf, text: String },
    #[error("{}", listed(path, faults))]
    Faults { path: PathBuf, faults: Vec<Fault> },
}

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The path of keys that leads to it.
    pub at: String,
    pub reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    listen: Vec<RawListen>,
    admin: Option<RawListen>,
    upstream: RawUpstream,
    #[serde(default)]
    views: RawViews,
    #[serde(default)]
    limits: RawLimits,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawListen {
    address: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawUpstream {
    servers: Vec<RawServer>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawServer {
    uri: String,
    protocol: Option<RawProtocol>,
    connect_timeout: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawProtocol {
    Delta,
    Sotw,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawViews {
    key: Option<Vec<String>>,
    limit: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLimits {
    message_bytes: Option<usize>,
    half_received_bytes: Option<usize>,
    types_per_stream: Option<usize>,
    names_per_type: Option<usize>,
    linger: Option<String>,
}

impl Config {
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.into(), source })?;
        Self::parse(path, &text)
    }

    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let raw: RawConfig = serde_saphyr::from_str(text)
            .map_err(|error| ConfigError::Syntax { path: path.into(), text: error.to_string() })?;
        let mut faults = Vec::new();
        raw.check(&mut faults).filter(|_| faults.is_empty()).ok_or(ConfigError::Faults { path: path.into(), faults })
    }
}

impl RawConfig {
    fn check(self, faults: &mut Vec<Fault>) -> Option<Config> {
        if self.listen.is_empty() {
            fault(faults, "listen", "at least one address is needed");
        }
        let listen = self.listen.iter().enumerate();
        let listen: Vec<_> = listen.filter_map(|(at, listen)| listen.check(&format!("listen[{at}]"), faults)).collect();
        let admin = self.admin.as_ref().map(|admin| admin.check("admin", faults));
        let message_bytes = self.limits.message_bytes.unwrap_or(MESSAGE_BYTES);
        let server = self.upstream.check(message_bytes, faults);
        let key = self.views.rule(faults);
        let limits = self.limits.check(faults);
        let downstream = downstream::Options {
            message_bytes,
            half_received_bytes: self.limits.half_received_bytes.unwrap_or(HALF_RECEIVED_BYTES),
            control_plane: "weir".into(),
        };
        let most_views = self.views.limit.unwrap_or(MOST_VIEWS);
        Some(Config { listen, admin: admin.flatten(), server: server?, key: key?, most_views, limits, downstream })
    }
}

impl RawListen {
    fn check(&self, at: &str, faults: &mut Vec<Fault>) -> Option<SocketAddr> {
        let address = self.address.parse();
        address
            .map_err(|_| fault(faults, &format!("{at}.address"), &format!("{:?} is no address and port", self.address)))
            .ok()
    }
}

impl RawUpstream {
    fn check(&self, message_bytes: usize, faults: &mut Vec<Fault>) -> Option<AdsServer> {
        let [server] = self.servers.as_slice() else {
            fault(faults, "upstream.servers", "exactly one server is needed; fallback to others is not there yet");
            return None;
        };
        let uri: Result<http::Uri, _> = server.uri.parse();
        match &uri {
            Ok(uri) if uri.scheme_str() == Some("http") && uri.host().is_some() => {}
            Ok(uri) if uri.scheme_str() == Some("https") => {
                fault(faults, "upstream.servers[0].uri", "TLS towards upstream is not there yet");
            }
            _ => fault(faults, "upstream.servers[0].uri", &format!("{:?} is no http:// URI", server.uri)),
        }
        let connect_timeout = duration(&server.connect_timeout, "upstream.servers[0].connect_timeout", faults);
        let variant = server.protocol.map(|protocol| match protocol {
            RawProtocol::Delta => Variant::Delta,
            RawProtocol::Sotw => Variant::Sotw,
        });
        let connect_timeout = connect_timeout.unwrap_or(CONNECT_TIMEOUT);
        Some(AdsServer { uri: server.uri.clone(), variant, connect_timeout, message_bytes })
    }
}

impl RawViews {
    fn rule(&self, faults: &mut Vec<Fault>) -> Option<KeyRule> {
        let Some(key) = &self.key else { return Some(KeyRule::default()) };
        let mut fields = Vec::new();
        for (at, text) in key.iter().enumerate() {
            match key_field(text) {
                Some(field) => fields.push(field),
                None => {
                    fault(faults, &format!("views.key[{at}]"), &format!("{text:?} is no part of a node; {KEY_FIELDS}"))
                }
            }
        }
        (fields.len() == key.len()).then(|| KeyRule::of(fields))
    }
}

impl RawLimits {
    fn check(&self, faults: &mut Vec<Fault>) -> Limits {
        let defaults = Limits::default();
        Limits {
            types: self.types_per_stream.unwrap_or(defaults.types),
            names: self.names_per_type.unwrap_or(defaults.names),
            linger: duration(&self.linger, "limits.linger", faults).unwrap_or(defaults.linger),
            ..defaults
        }
    }
}

fn key_field(text: &str) -> Option<KeyField> {
    Some(match text {
        "id" => KeyField::Id,
        "cluster" => KeyField::Cluster,
        "locality" => KeyField::Locality,
        "locality.region" => KeyField::Region,
        "locality.zone" => KeyField::Zone,
        "locality.sub_zone" => KeyField::SubZone,
        "metadata" => KeyField::Metadata,
        "user_agent" => KeyField::UserAgent,
        "extensions" => KeyField::Extensions,
        "client_features" => KeyField::ClientFeatures,
        "listening_addresses" => KeyField::ListeningAddresses,
        "dynamic_parameters" => KeyField::DynamicParameters,
        "unknown" => KeyField::Unknown,
        _ => {
            let path = text.strip_prefix("metadata.").filter(|path| path.split('.').all(|key| !key.is_empty()))?;
            KeyField::MetadataPath(path.split('.').map(String::from).collect())
        }
    })
}

fn duration(text: &Option<String>, at: &str, faults: &mut Vec<Fault>) -> Option<Duration> {
    let text = text.as_ref()?;
    let duration = humantime::parse_duration(text);
    duration.map_err(|error| fault(faults, at, &format!("{text:?} is no duration: {error}"))).ok()
}

fn fault(faults: &mut Vec<Fault>, at: &str, reason: &str) {
    faults.push(Fault { at: at.into(), reason: reason.into() });
}

fn listed(path: &Path, faults: &[Fault]) -> String {
    let lines: Vec<_> =
        faults.iter().map(|fault| format!("{}: {}: {}", path.display(), fault.at, fault.reason)).collect();
    lines.join("\n")
}

const KEY_FIELDS: &str = "there are id, cluster, locality, locality.region, locality.zone, locality.sub_zone, metadata, \
    metadata.<path>, user_agent, extensions, client_features, listening_addresses, dynamic_parameters, unknown";
const MESSAGE_BYTES: usize = 64 << 20;
const HALF_RECEIVED_BYTES: usize = 512 << 20;
const MOST_VIEWS: usize = 10_000;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("relay.yaml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn the_commented_example_is_a_valid_configuration() {
        let config = parse(include_str!("../../config/relay.yaml")).unwrap();
        assert_eq!(config.listen.len(), 1);
    }

    #[test]
    fn every_fault_is_told_at_once_with_its_path() {
        let text = "listen: [{address: nowhere}]\nupstream: {servers: [{uri: 'cp:1', connect_timeout: soon}]}\nviews: {key: [cluster, colour]}\n";
        let message = parse(text).unwrap_err();
        for part in ["listen[0].address", "servers[0].uri", "servers[0].connect_timeout", "views.key[1]"] {
            assert!(message.contains(part), "{part} is missing in:\n{message}");
        }
    }

    #[test]
    fn a_key_that_does_not_exist_is_told_with_its_line() {
        let message = parse("listen: []\nupstream:\n  servers: []\n  sevrers: []\n").unwrap_err();
        assert!(message.contains("relay.yaml") && message.contains("sevrers") && message.contains('4'), "{message}");
    }
}
