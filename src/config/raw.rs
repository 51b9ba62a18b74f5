//! The configuration file as it is written. What may turn out wrong carries its place.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::connection::{RawBackoff, RawProbe};

pub(super) type Text = Spanned<String>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Root {
    pub listen: Spanned<Vec<Listen>>,
    pub admin: Option<Listen>,
    pub upstream: Spanned<Upstream>,
    #[serde(default)]
    pub views: Views,
    #[serde(default)]
    pub clients: Clients,
    #[serde(default)]
    pub types: Vec<TypeEntry>,
    #[serde(default)]
    pub access: Vec<AccessEntry>,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub drain: Drain,
    #[serde(default)]
    pub load_reports: Loads,
    #[serde(default)]
    pub rest: Rest,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listen {
    pub address: Text,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Upstream {
    pub servers: Option<Spanned<Vec<Server>>>,
    pub files: Option<Spanned<Paths>>,
    #[serde(default)]
    pub authorities: BTreeMap<String, Authority>,
    pub bootstrap: Option<Text>,
    pub bootstrap_from_environment: Option<Spanned<bool>>,
    #[serde(default)]
    pub shared_authorities: Vec<Text>,
    #[serde(default)]
    pub descriptors: Vec<Text>,
    #[serde(default)]
    pub fallback: Fallback,
    pub backoff: Option<RawBackoff>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Authority {
    #[serde(default)]
    pub servers: Vec<Server>,
    #[serde(default)]
    pub fallback_on_reachability_only: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fallback {
    pub delay: Option<Text>,
    pub hold_down: Option<Text>,
    #[serde(default)]
    pub on_missing: OnMissing,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnMissing {
    #[default]
    Keep,
    Delete,
}

/// How a server sends a set to a client that has nothing of it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum InitialSet {
    #[default]
    Auto,
    OneResponse,
    Pieces,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    pub uri: Option<Text>,
    pub files: Option<Spanned<Paths>>,
    pub rest: Option<Text>,
    pub refresh_delay: Option<Text>,
    pub request_timeout: Option<Text>,
    pub tls: Option<Spanned<Tls>>,
    pub token_file: Option<Text>,
    pub variant: Option<Variant>,
    pub connect_timeout: Option<Text>,
    pub liveness: Option<Spanned<RawProbe>>,
    pub keepalive: Option<Spanned<RawProbe>>,
    pub backoff: Option<RawBackoff>,
    #[serde(default)]
    pub node_in_every_request: bool,
    #[serde(default = "yes")]
    pub supports_initial_resource_versions: bool,
    #[serde(default)]
    pub initial_set: InitialSet,
    #[serde(default = "yes")]
    pub supports_empty_subscription: bool,
    #[serde(default)]
    pub ignore_deletions: bool,
    #[serde(default)]
    pub resource_timer_is_transient_error: bool,
    #[serde(default)]
    pub fail_on_data_errors: bool,
}

/// One path, or a list of them.
#[derive(Debug)]
pub(super) struct Paths(pub Vec<String>);

impl<'de> Deserialize<'de> for Paths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;

        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Paths;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path or a list of paths")
            }

            fn visit_str<E: de::Error>(self, path: &str) -> Result<Paths, E> {
                Ok(Paths(vec![path.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Paths, A::Error> {
                let mut paths = Vec::new();
                while let Some(path) = list.next_element()? {
                    paths.push(path);
                }
                Ok(Paths(paths))
            }
        }

        deserializer.deserialize_any(OneOrMore)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tls {
    pub ca: Option<Text>,
    pub certificate: Option<Text>,
    pub key: Option<Text>,
    pub server_name: Option<Text>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Variant {
    Delta,
    Sotw,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Views {
    pub key: Option<Vec<Text>>,
    pub max: Option<Spanned<usize>>,
    pub max_in_metrics: Option<Spanned<usize>>,
    pub idle_timeout: Option<Text>,
    #[serde(default)]
    pub accept_missing_node: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Clients {
    pub control_plane_identifier: String,
    pub v2: bool,
    pub vhds_wildcard: VhdsWildcard,
    pub grpc_fail_fast: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum VhdsWildcard {
    SubscribedRoutes,
    None,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TypeEntry {
    pub name: Text,
    pub name_field: Option<Spanned<u32>>,
    pub full_state: Option<Spanned<bool>>,
    pub legacy_wildcard: Option<Spanned<bool>>,
    pub order_with: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AccessEntry {
    pub types: Spanned<Vec<Text>>,
    #[serde(default)]
    pub names: Vec<String>,
    pub allow_from: Vec<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    pub message_bytes: Option<Spanned<usize>>,
    pub incomplete_request_bytes: Option<Spanned<usize>>,
    pub types_per_stream: Option<Spanned<usize>>,
    pub names_per_type: Option<Spanned<usize>>,
    pub absent_names_per_stream: Option<Spanned<usize>>,
    pub linger: Option<Text>,
    pub reply_bytes: Option<Spanned<usize>>,
    pub resource_timer: Option<Text>,
    pub second_silence: Option<Text>,
    pub reference_hold: Option<Text>,
    pub fetch_timeout: Option<Text>,
    pub file_bytes: Option<Spanned<usize>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Drain {
    pub delay: Option<Text>,
    pub grace: Option<Text>,
    pub spread: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Loads {
    pub mode: LoadsMode,
    pub max_outage: Option<Text>,
    pub bytes_per_view: Option<Spanned<usize>>,
    pub bytes_total: Option<Spanned<usize>>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LoadsMode {
    #[default]
    PassThrough,
    Aggregate,
    Off,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Rest {
    pub enabled: bool,
    pub timeout: Option<Text>,
    pub long_poll: Option<Text>,
    pub cache_bytes: Option<Spanned<usize>>,
    pub response_bytes: Option<Spanned<usize>>,
}

impl Default for Rest {
    fn default() -> Self {
        Self { enabled: true, timeout: None, long_poll: None, cache_bytes: None, response_bytes: None }
    }
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            control_plane_identifier: "weir".into(),
            v2: false,
            vhds_wildcard: VhdsWildcard::SubscribedRoutes,
            grpc_fail_fast: true,
        }
    }
}

fn yes() -> bool {
    true
}
