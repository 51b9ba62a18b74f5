//! Sharing keys: the part of a client's identity that may change the responses of the control plane.
//!
//! A key *is* the canonical encoding of the node that is sent upstream, without the parts that never count. So no difference between two
//! clients of one key can reach the control plane. Tiers of relays agree, because `key(upstream_node(k)) == k`.

mod fields;
mod headers;
mod id_parts;
mod member;
mod metadata;
mod paths;
mod tenant;
mod words;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use prost_types::Struct;
use xxhash_rust::xxh3::xxh3_128;

pub use self::fields::KeyField;
pub use self::headers::{HeaderHashes, HeaderName, HeaderNameFault};
pub use self::id_parts::IdPart;
pub use self::member::MemberNode;
pub(super) use self::tenant::claimed_tenant;
use self::words::words;
use super::wire;
use crate::proto::node::node::UserAgentVersionType;
use crate::proto::node::{BuildVersion, Locality, Node, SemanticVersion};

/// Client features that concern transport only. The relay satisfies them itself, for all clients (KEY-8, SOTW-48).
const TRANSPORT_FEATURES: [&str; 8] = [
    "xds.config.resource-in-sotw",
    "xds.config.supports-resource-in-sotw",
    "envoy.config.resource-in-sotw",
    "xds.config.supports-resource-ttl",
    "envoy.config.supports-resource-ttl",
    "envoy.lrs.supports_send_all_clusters",
    RELAY_MARKER,
    ERRORS_FEATURE,
];

/// The client feature that identifies a relay. User-agent rules do not apply to it, since its agent is copied from a client.
pub(crate) const RELAY_MARKER: &str = "weir.relay";

/// The client feature of a program other than a relay that reads `resource_errors`.
pub const ERRORS_FEATURE: &str = "weir.errors";

/// The parts of a node that form the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRule {
    fields: Vec<KeyField>,
}

/// The part of clients' identities by which they share views: two clients may share one if and only if their keys are equal (KEY-2).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SharingKey {
    canonical: Arc<[u8]>,
    /// Whether the client's id, or a part of it, is in the key, so that the relay must not replace it.
    by_id: bool,
    /// Hashes of those headers in the key that the client has sent. They are not part of the node: servers are shown them as headers.
    headers: HeaderHashes,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the node is not a readable message")]
pub struct NodeError;

impl Default for KeyRule {
    /// The whole node without its id and its addresses (KEY-3).
    fn default() -> Self {
        use KeyField::*;
        Self::of(vec![Cluster, Locality, Metadata, UserAgent, Extensions, ClientFeatures, DynamicParameters, Unknown])
    }
}

impl KeyRule {
    /// Returns the rule by which clients share if their nodes are equal in these fields.
    pub fn of(fields: Vec<KeyField>) -> Self {
        Self { fields }
    }

    /// Returns the key of a client that sent these bytes as its node and no headers, if there are no permissions. Such a client may state any
    /// tenant, and shares only with clients of the same tenant. A rule without fields has one key for all clients.
    pub fn key(&self, encoded_node: &[u8]) -> Result<SharingKey, NodeError> {
        self.key_showing(encoded_node, &HeaderHashes::default())
    }

    /// Like [`Self::key`], for a client that has sent these headers.
    pub fn key_showing(&self, encoded_node: &[u8], headers: &HeaderHashes) -> Result<SharingKey, NodeError> {
        let mut node = Node::decode(encoded_node).map_err(|_| NodeError)?;
        let tenant = tenant::take(&mut node).filter(|_| !self.fields.is_empty());
        Ok(self.key_for(node, encoded_node, tenant.as_deref(), headers))
    }

    /// Returns the key of a client that permissions have judged. Its tenant is `tenant`, not the one that the node states.
    pub(crate) fn key_of_tenant(
        &self,
        encoded_node: &[u8],
        tenant: Option<&str>,
        headers: &HeaderHashes,
    ) -> Result<SharingKey, NodeError> {
        let mut node = Node::decode(encoded_node).map_err(|_| NodeError)?;
        tenant::take(&mut node);
        let tenant = tenant.filter(|_| self.fields.contains(&KeyField::Tenant));
        Ok(self.key_for(node, encoded_node, tenant, headers))
    }

    fn key_for(&self, node: Node, encoded_node: &[u8], tenant: Option<&str>, headers: &HeaderHashes) -> SharingKey {
        let mut kept =
            Node { id: self.kept_id(&node.id), metadata: self.kept_metadata(&node.metadata), ..Node::default() };
        let mut unknown = Vec::new();
        for field in &self.fields {
            match field {
                KeyField::Cluster => kept.cluster = node.cluster.clone(),
                KeyField::Locality => kept.locality = node.locality.clone(),
                KeyField::Region => part(&mut kept).region = part_of(&node).region,
                KeyField::Zone => part(&mut kept).zone = part_of(&node).zone,
                KeyField::SubZone => part(&mut kept).sub_zone = part_of(&node).sub_zone,
                KeyField::MetadataPath(path) => metadata::copy_path(path, &node.metadata, &mut kept.metadata),
                KeyField::UserAgent => {
                    kept.build_version = node.build_version.clone();
                    kept.user_agent_name = node.user_agent_name.clone();
                    kept.user_agent_version_type = node.user_agent_version_type.as_ref().map(major_and_minor);
                }
                KeyField::Extensions => kept.extensions = sorted_extensions(&node),
                KeyField::ClientFeatures => kept.client_features = content_features(&node),
                KeyField::ListeningAddresses => kept.listening_addresses = node.listening_addresses.clone(),
                KeyField::DynamicParameters => kept.dynamic_parameters = node.dynamic_parameters.clone(),
                KeyField::Unknown => unknown = unknown_fields(encoded_node),
                KeyField::Id | KeyField::IdPart(_) | KeyField::Metadata | KeyField::MetadataExcept(_) => {} // applied above
                KeyField::Tenant | KeyField::Header(_) => {}
            }
        }
        if kept.locality.as_ref().is_some_and(|locality| *locality == Locality::default()) {
            kept.locality = None; // an empty locality and a missing one are the same
        }
        if let Some(tenant) = tenant {
            tenant::set(&mut kept, tenant);
        }
        let mut canonical = kept.encode_to_vec();
        canonical.extend(unknown);
        let (by_id, headers) =
            (self.fields.iter().any(KeyField::is_of_id), headers.among(|name| self.headers().any(|of| of == name)));
        SharingKey { canonical: canonical.into(), by_id, headers }
    }

    /// Returns the part of an id that is in the key.
    fn kept_id(&self, id: &str) -> String {
        if self.fields.contains(&KeyField::Id) {
            return id.to_owned();
        }
        let parts = self.fields.iter().filter_map(|field| match field {
            KeyField::IdPart(part) => Some(part),
            _ => None,
        });
        id_parts::kept(&parts.collect::<Vec<_>>(), id)
    }

    /// Returns the part of the metadata that is in the key, except single values. If there are two lists of exceptions, neither is applied: a
    /// key that separates too many clients is safer than one that separates too few.
    fn kept_metadata(&self, metadata: &Option<Struct>) -> Option<Struct> {
        let mut lists = self.fields.iter().filter_map(|field| match field {
            KeyField::MetadataExcept(paths) => Some(paths),
            _ => None,
        });
        match (lists.next(), lists.next()) {
            _ if self.fields.contains(&KeyField::Metadata) => metadata.clone(),
            (None, _) => None,
            (Some(paths), None) => metadata::without(paths, metadata),
            (Some(_), Some(_)) => metadata.clone(),
        }
    }
}

impl KeyRule {
    /// Returns the fields of which the key is made.
    pub fn fields(&self) -> &[KeyField] {
        &self.fields
    }

    /// Returns the headers of which the key is made.
    pub fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.fields.iter().filter_map(|field| match field {
            KeyField::Header(name) => Some(name),
            _ => None,
        })
    }

    /// Returns the value of each field of the key in a node, as text for operators (KEY-20).
    pub fn parts(&self, encoded_node: &[u8]) -> Vec<(KeyField, String)> {
        let node = Node::decode(encoded_node).unwrap_or_default();
        self.fields.iter().map(|field| (field.clone(), words(field, &node, encoded_node))).collect()
    }
}

impl SharingKey {
    /// Returns the fields that form the key: the [`KeyRule::parts`] of every node with this key. For a header it returns the hash.
    pub fn parts(&self, rule: &KeyRule) -> Vec<(KeyField, String)> {
        let with_headers = |(field, words): (KeyField, String)| {
            let hash = if let KeyField::Header(name) = &field { self.headers.get(name) } else { None };
            let words = hash.map_or(words, str::to_owned);
            (field, words)
        };
        rule.parts(&self.canonical).into_iter().map(with_headers).collect()
    }

    /// Returns hashes of the headers in the key that its clients have sent.
    pub fn headers(&self) -> &HeaderHashes {
        &self.headers
    }

    /// Returns the node that is sent upstream for all clients of this key. It depends only on the key (KEY-5, KEY-9).
    pub fn upstream_node(&self) -> Bytes {
        let id = if self.by_id { String::new() } else { format!("weir-{self}") };
        let added = Node { id, client_features: relay_features(), ..Node::default() };
        // Concatenated encodings merge into one message, which keeps fields that are unknown to this build.
        let mut encoded = self.canonical.to_vec();
        encoded.extend(added.encode_to_vec());
        encoded.into()
    }

    /// Returns the node that servers are shown on behalf of one client of this key, which sent `node`. It is that node, with the features and
    /// the tenant of [`Self::upstream_node`]. Its key is this key. `None` if `node` is not a readable message.
    pub fn member_node(&self, node: &[u8]) -> Option<MemberNode> {
        member::member_node(node, self.tenant().as_deref())
    }
}

impl SharingKey {
    /// Returns the tenant of its clients, if the key has one.
    pub fn tenant(&self) -> Option<Arc<str>> {
        let node = Node::decode(&*self.canonical).ok()?;
        claimed_tenant(&node).map(Arc::from)
    }
}

impl fmt::Display for SharingKey {
    /// Writes a short hash: keys appear in logs and file names, node metadata does not (KEY-19).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = if self.headers.is_empty() {
            xxh3_128(&self.canonical)
        } else {
            let mut bytes = self.canonical.to_vec();
            for (name, hash) in self.headers.iter() {
                // A line break is a safe separator: no name and no hash has one.
                bytes.extend([&b"\n"[..], name.as_str().as_bytes(), b"\n", hash.as_bytes()].concat());
            }
            xxh3_128(&bytes)
        };
        write!(f, "{:016x}", hash as u64)
    }
}

impl fmt::Debug for SharingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharingKey({self})")
    }
}

/// Returns the features that the relay translates for any client (UP-41).
fn relay_features() -> Vec<String> {
    ["xds.config.resource-in-sotw", "xds.config.supports-resource-ttl", RELAY_MARKER].map(String::from).into()
}

fn content_features(node: &Node) -> Vec<String> {
    let mut features = node.client_features.clone();
    features.retain(|feature| !TRANSPORT_FEATURES.contains(&feature.as_str()));
    features.sort_unstable();
    features.dedup();
    features
}

fn sorted_extensions(node: &Node) -> Vec<crate::proto::node::Extension> {
    let mut extensions = node.extensions.clone();
    extensions.sort_by_cached_key(Message::encode_to_vec);
    extensions
}

fn part(kept: &mut Node) -> &mut Locality {
    kept.locality.get_or_insert_default()
}

fn part_of(node: &Node) -> Locality {
    node.locality.clone().unwrap_or_default()
}

/// Keeps the major and the minor version: patch releases and build metadata do not change what a control plane configures.
fn major_and_minor(version: &UserAgentVersionType) -> UserAgentVersionType {
    match version {
        UserAgentVersionType::UserAgentVersion(text) => {
            let end = text.match_indices('.').nth(1).map_or(text.len(), |(at, _)| at);
            UserAgentVersionType::UserAgentVersion(text[..end].into())
        }
        UserAgentVersionType::UserAgentBuildVersion(build) => {
            let version = build.version.map(|version| SemanticVersion { patch: 0, ..version });
            UserAgentVersionType::UserAgentBuildVersion(BuildVersion { version, metadata: None })
        }
    }
}

const LAST_KNOWN_FIELD: u32 = 12;

/// Returns the fields that this build does not know, in a fixed order.
fn unknown_fields(encoded_node: &[u8]) -> Vec<u8> {
    let mut unknown: Vec<_> = wire::fields(encoded_node)
        .flatten()
        .filter(|field| field.number > LAST_KNOWN_FIELD)
        .map(|field| (field.number, field.raw))
        .collect();
    unknown.sort_by_key(|(number, _)| *number);
    unknown.into_iter().flat_map(|(_, raw)| raw.iter().copied()).collect()
}

#[cfg(test)]
mod tests;
