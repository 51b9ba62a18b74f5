//! The client of a session: its identity, and the properties that change what it is sent. All clients send the node in the first request, and
//! some in every request (TRN-11, SOTW-10).

use std::sync::Arc;

use prost::Message;
use xxhash_rust::xxh3::xxh3_128;

use super::CloseReason;
use super::nack_reason::escape;
use super::options::OnRefusedType;
use crate::proto::node::node::UserAgentVersionType;
use crate::proto::node::{Node, SemanticVersion};
use crate::xds::{
    Clearance, Denied, ERRORS_FEATURE, HeaderHashes, KeyRule, MemberNode, NodeError, Peer, Permissions, Permit,
    RELAY_MARKER, Resource, SharingKey, Type,
};

/// The variant of the protocol that a stream speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// State of the world: responses of some types list everything.
    Sotw,
    /// Incremental: responses list changes and removals.
    Delta,
}

impl Variant {
    /// Returns its name in reports, metrics, logs and the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sotw => "sotw",
            Self::Delta => "delta",
        }
    }
}

/// Properties of a client that change what it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// The variant that its stream speaks.
    pub variant: Variant,
    /// The type of a per-type stream; `None` for an aggregated stream. Only an aggregated stream has all types, so that Weir can keep an order
    /// between them (ORD-13).
    pub only: Option<Type>,
    /// A gRPC library: it requests resources by name, and accepts a changed cluster without requesting its endpoints again.
    pub grpc: bool,
    /// Another relay: replies state how much of a set they have sent so far, so that the relay does not treat a partial set as complete.
    pub relay: bool,
    /// A view of this process that gets shared names from the hub. Unlike another relay, it does not judge by itself what the hub is silent about.
    pub is_view: bool,
    /// Can read resources in wrappers in SotW (SOTW-48).
    pub wrappers: bool,
    /// Runs TTLs itself, and reads heartbeats (SOTW-50).
    pub ttl: bool,
    /// Reads `resource_errors` (SOTW-52).
    pub errors: bool,
    /// The resources that the client may have (KEY-11).
    pub clearance: Clearance,
}

impl Client {
    /// Returns a client without optional features, on an aggregated stream.
    pub fn plain(variant: Variant) -> Self {
        Self {
            variant,
            only: None,
            grpc: false,
            relay: false,
            is_view: false,
            wrappers: false,
            ttl: false,
            errors: false,
            clearance: Clearance::default(),
        }
    }

    /// Returns the client that a node describes. For an unreadable node this is a client without optional features; rejecting it is left to
    /// [`Identity`].
    pub fn of_node(encoded: &[u8], variant: Variant, only: Option<Type>) -> Self {
        let node = Node::decode(encoded).unwrap_or_default();
        let has = |feature: &str| node.client_features.iter().any(|known| known == feature);
        let agent = node.user_agent_name.as_str();
        let relay = has(RELAY_MARKER);
        let grpc = (agent.starts_with("gRPC ") || agent.starts_with("grpc-")) && !relay;
        let ttl = TTL_FEATURES.into_iter().any(has);
        let wrappers = ttl || WRAPPER_FEATURES.into_iter().any(has); // in SotW only a wrapper has room for a TTL
        Self { only, grpc, relay, wrappers, ttl, errors: grpc || relay || has(ERRORS_FEATURE), ..Self::plain(variant) }
    }

    /// Whether a node is that of a relay.
    pub fn is_relay(encoded: &[u8]) -> bool {
        Self::of_node(encoded, Variant::Delta, None).relay
    }

    /// Returns the id that a client states, and its user agent with the version, for logs and reports only.
    pub fn id_and_user_agent(encoded: &[u8]) -> (String, Box<str>) {
        let node = Node::decode(encoded).unwrap_or_default();
        let version = match node.user_agent_version_type {
            Some(UserAgentVersionType::UserAgentVersion(text)) => text,
            Some(UserAgentVersionType::UserAgentBuildVersion(build)) => {
                let SemanticVersion { major_number, minor_number, patch } = build.version.unwrap_or_default();
                format!("{major_number}.{minor_number}.{patch}")
            }
            None => String::new(),
        };
        let user_agent = format!("{} {version}", node.user_agent_name);
        (node.id, escape(user_agent.trim(), USER_AGENT_BYTES).into())
    }

    /// Whether the client's stream ends because the server refuses a type. A stream for that type alone does. For an aggregated stream
    /// `of_aggregated` decides, but the stream of a relay or a view goes on: it serves many clients, and reads the error of each name.
    pub(super) fn ends_by_refusal(&self, kind: &Type, of_aggregated: OnRefusedType) -> bool {
        match &self.only {
            Some(only) => only == kind,
            None => of_aggregated == OnRefusedType::End && !self.relay && !self.is_view,
        }
    }

    pub(crate) fn is_aggregated(&self) -> bool {
        self.only.is_none()
    }

    /// Whether this client may have a resource, and can read it. Resources of types without names are always wrapped (XLAT-26);
    /// others are wrapped only for clients that declare that they read wrappers.
    pub(super) fn can_have(&self, kind: &Type, resource: &Resource) -> bool {
        let unreadable = resource.name_mismatch && self.variant == Variant::Sotw && !self.wrappers;
        !unreadable && self.clearance.allows(kind, &resource.name)
    }

    pub(super) fn warms_clusters(&self) -> bool {
        self.is_aggregated() && !self.grpc
    }
}

/// How many bytes of a user agent are kept.
const USER_AGENT_BYTES: usize = 64;
const WRAPPER_FEATURES: [&str; 3] =
    ["xds.config.resource-in-sotw", "xds.config.supports-resource-in-sotw", "envoy.config.resource-in-sotw"];
const TTL_FEATURES: [&str; 2] = ["xds.config.supports-resource-ttl", "envoy.config.supports-resource-ttl"];

/// The key of a stream's first node, what its client may have, and what is needed to judge a later node.
#[derive(Debug, Clone)]
pub struct Identity {
    rule: Arc<KeyRule>,
    permissions: Permissions,
    peer: Arc<Peer>,
    /// Hashes of the stream's headers that may be part of the key.
    headers: HeaderHashes,
    key: SharingKey,
    permit: Option<Arc<Permit>>,
    /// The hash of the last node. Envoy repeats 61 kB of node with each request: equal bytes are not parsed again.
    seen: u128,
    /// The hash of the last node in the form that servers are shown, if they may be shown this client. It does not depend on the order of maps.
    stated: Option<u128>,
    /// The last node with the same key, until it is taken.
    changed: Option<MemberNode>,
}

impl Identity {
    /// Judges a stream's first node and computes its key.
    pub fn of(
        rule: Arc<KeyRule>,
        permissions: Permissions,
        peer: Arc<Peer>,
        headers: HeaderHashes,
        node: &[u8],
    ) -> Result<Self, IdentityError> {
        let (key, permit) = judge(&rule, &permissions, &peer, &headers, node)?;
        let (permit, seen) = (permit.map(Arc::new), xxh3_128(node));
        Ok(Self { rule, permissions, peer, headers, key, permit, seen, stated: None, changed: None })
    }

    /// Keeps a later node of the same key until it is taken, since servers may be shown it. `node` is the present one.
    pub fn of_member(self, node: &MemberNode) -> Self {
        Self { stated: Some(node.digest()), ..self }
    }

    /// Takes the newest node, if the client has stated another one since the last call.
    pub(super) fn take_changed_node(&mut self) -> Option<MemberNode> {
        self.changed.take()
    }

    /// Returns the key by which the client shares a view.
    pub fn key(&self) -> &SharingKey {
        &self.key
    }

    /// Returns what the client may have, if there are permissions.
    pub fn permit(&self) -> Option<&Arc<Permit>> {
        self.permit.as_ref()
    }

    /// Whether a later node still has the same key (KEY-14). An unreadable node does not. Fails if permissions do not let the client be that node.
    pub fn still_is(&mut self, node: &[u8]) -> Result<bool, Denied> {
        let hash = xxh3_128(node);
        if hash == self.seen {
            return Ok(true);
        }
        self.seen = hash;
        match judge(&self.rule, &self.permissions, &self.peer, &self.headers, node) {
            Ok((key, _)) => {
                let is_same = key == self.key;
                if is_same && let Some(stated) = &mut self.stated {
                    let shown = key.member_node(node).filter(|shown| shown.digest() != *stated);
                    *stated = shown.as_ref().map_or(*stated, MemberNode::digest);
                    self.changed = shown.or(self.changed.take());
                }
                Ok(is_same)
            }
            Err(IdentityError::Node(_)) => Ok(false),
            Err(IdentityError::Denied(denied)) => Err(denied),
        }
    }

    /// Returns why a later node ends the stream, if it does.
    pub(super) fn end_by(&mut self, node: &[u8]) -> Option<CloseReason> {
        match self.still_is(node) {
            Ok(true) => None,
            Ok(false) => Some(CloseReason::KeyChanged),
            Err(denied) => Some(CloseReason::Denied(Box::new(denied))),
        }
    }
}

/// Returns the key of a node, and what its client may have. Fails if permissions do not let the client be that node.
fn judge(
    rule: &KeyRule,
    permissions: &Permissions,
    peer: &Peer,
    headers: &HeaderHashes,
    node: &[u8],
) -> Result<(SharingKey, Option<Permit>), IdentityError> {
    match permissions.judge(peer, node)? {
        None => Ok((rule.key_showing(node, headers)?, None)),
        Some(permit) => Ok((rule.key_of_tenant(node, permit.tenant.as_deref(), headers)?, Some(permit))),
    }
}

/// Why a client has no identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Its node cannot be read.
    #[error("{0}")]
    Node(NodeError),
    /// Permissions do not let the client be that node.
    #[error("{0}")]
    Denied(Denied),
}

impl From<NodeError> for IdentityError {
    fn from(error: NodeError) -> Self {
        Self::Node(error)
    }
}

impl From<Denied> for IdentityError {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Node(error) => Self::Node(error),
            denied => Self::Denied(denied),
        }
    }
}

#[cfg(test)]
mod client_tests {
    use super::*;
    use crate::proto::node::BuildVersion;

    fn of(agent: &str, features: &[&str]) -> Client {
        let client_features = features.iter().map(ToString::to_string).collect();
        let node = Node { user_agent_name: agent.into(), client_features, ..Node::default() };
        Client::of_node(&node.encode_to_vec(), Variant::Sotw, None)
    }

    #[test]
    fn sotw_40_and_key_13_a_grpc_library_is_known_by_its_user_agent() {
        for agent in ["gRPC Go", "gRPC C-core linux Python", "gRPC Node Pure JS", "grpc-java"] {
            assert!(of(agent, &[]).grpc && of(agent, &[]).errors, "{agent}");
        }
        for agent in ["envoy", "", "my gRPC proxy"] {
            assert!(!of(agent, &[]).grpc && !of(agent, &[]).errors, "{agent}");
        }
        let relay = of("gRPC Go", &[RELAY_MARKER]);
        assert!(!relay.grpc && relay.errors, "a relay's agent is a copied one, and its clients are many");
    }

    #[test]
    fn sotw_48_and_sotw_50_features_are_known_in_every_spelling() {
        for feature in WRAPPER_FEATURES {
            assert_eq!((of("x", &[feature]).wrappers, of("x", &[feature]).ttl), (true, false), "{feature}");
        }
        for feature in TTL_FEATURES {
            assert_eq!((of("x", &[feature]).wrappers, of("x", &[feature]).ttl), (true, true), "{feature}");
        }
        assert!(!of("x", &["another"]).wrappers);
    }

    #[test]
    fn a_user_agent_has_its_version_in_either_form_and_is_bounded() {
        let of = |version| {
            let node = Node { user_agent_name: "envoy".into(), user_agent_version_type: version, ..Node::default() };
            Client::id_and_user_agent(&node.encode_to_vec()).1
        };
        let version = Some(SemanticVersion { major_number: 1, minor_number: 31, patch: 2 });
        let build = BuildVersion { version, metadata: None };
        assert_eq!(&*of(Some(UserAgentVersionType::UserAgentBuildVersion(build))), "envoy 1.31.2");
        assert_eq!(&*of(Some(UserAgentVersionType::UserAgentVersion("dev\n".into()))), "envoy dev");
        assert_eq!(&*of(None), "envoy");
        assert_eq!(of(Some(UserAgentVersionType::UserAgentVersion("x".repeat(9000)))).len(), USER_AGENT_BYTES);
        assert_eq!(Client::id_and_user_agent(&[0x0a, 9]), Default::default());
    }

    #[test]
    fn a_refused_type_ends_a_stream_for_it_alone_and_an_aggregated_one_by_choice_but_none_of_a_relay() {
        use OnRefusedType::{End, Ignore};
        let table = crate::xds::TypeTable::new();
        let (refused, other) = (table.resolve("own.Debug"), table.resolve("own.Other"));
        let of = |only: Option<&Type>| Client { only: only.cloned(), ..Client::plain(Variant::Delta) };
        let (relay, view) = (Client { relay: true, ..of(None) }, Client { is_view: true, ..of(None) });
        let ends = |client: Client| [Ignore, End].map(|by| client.ends_by_refusal(&refused, by));
        assert_eq!(ends(of(Some(&refused))), [true, true]);
        assert_eq!(ends(of(Some(&other))), [false, false]);
        assert_eq!(ends(of(None)), [false, true]);
        assert_eq!((ends(relay), ends(view)), ([false, false], [false, false]));
    }

    #[test]
    fn a_node_that_cannot_be_read_is_a_client_of_no_special_ability() {
        assert_eq!(Client::of_node(&[0x0a, 9], Variant::Delta, None), Client::plain(Variant::Delta));
    }
}

#[cfg(test)]
mod identity_tests {
    use prost::Message;

    use super::*;
    use crate::proto::node::Node;
    use crate::xds::{IdentityPattern, KeyField, Network, NodeField, PermissionRule, Template};

    fn node(id: &str, cluster: &str) -> Vec<u8> {
        Node { id: id.into(), cluster: cluster.into(), ..Node::default() }.encode_to_vec()
    }

    #[test]
    fn key_14_another_key_is_another_client_and_another_id_is_not() {
        let peer = Arc::new(Peer::at("127.0.0.1:1".parse().unwrap()));
        let mut identity =
            Identity::of(Arc::default(), Permissions::default(), peer, HeaderHashes::default(), &node("1", "web"))
                .unwrap();
        assert_eq!(identity.still_is(&node("1", "web")), Ok(true));
        assert_eq!(identity.still_is(&node("2", "web")), Ok(true), "the id is not in the key");
        assert_eq!(identity.still_is(&node("2", "other")), Ok(false));
        assert_eq!(identity.still_is(&[0x0a, 9]), Ok(false));
    }

    #[test]
    fn sotw_11_a_later_node_of_the_same_key_is_kept_for_servers_that_are_shown_it() {
        let peer = Arc::new(Peer::at("127.0.0.1:1".parse().unwrap()));
        let of = |node: &[u8]| {
            let (rule, headers) = (Arc::default(), HeaderHashes::default());
            Identity::of(rule, Permissions::default(), peer.clone(), headers, node).unwrap()
        };
        let mut unshown = of(&node("1", "web"));
        assert_eq!((unshown.still_is(&node("2", "web")), unshown.take_changed_node()), (Ok(true), None));
        let first = of(&node("1", "web"));
        let own = first.key().member_node(&node("1", "web")).unwrap();
        let mut shown = first.of_member(&own);
        assert_eq!((shown.still_is(&node("1", "web")), shown.take_changed_node()), (Ok(true), None));
        assert_eq!(shown.still_is(&node("2", "web")), Ok(true));
        let changed = shown.take_changed_node().unwrap();
        assert_eq!(Node::decode(changed.encoded()).unwrap().id, "2");
        assert_eq!((shown.still_is(&node("2", "web")), shown.take_changed_node()), (Ok(true), None), "it repeats it");
        assert_eq!((shown.still_is(&node("3", "other")), shown.take_changed_node()), (Ok(false), None));
    }

    /// Some clients write the maps of their node in a different order in each request.
    #[test]
    fn key_4_a_node_with_its_maps_in_another_order_is_not_another_one() {
        let with = |order: [&str; 2]| {
            let fields = order.map(|name| Node {
                metadata: Some(prost_types::Struct { fields: [(name.into(), Default::default())].into() }),
                ..Node::default()
            });
            [node("1", "web"), fields.map(|field| field.encode_to_vec()).concat()].concat()
        };
        let peer = Arc::new(Peer::at("127.0.0.1:1".parse().unwrap()));
        let (rule, headers, first) = (Arc::default(), HeaderHashes::default(), with(["a", "b"]));
        let identity = Identity::of(rule, Permissions::default(), peer, headers, &first).unwrap();
        let own = identity.key().member_node(&first).unwrap();
        let mut identity = identity.of_member(&own);
        assert_eq!((identity.still_is(&with(["b", "a"])), identity.take_changed_node()), (Ok(true), None));
        let renamed = [with(["a", "b"]), node("2", "web")].concat();
        assert_eq!(identity.still_is(&renamed), Ok(true));
        assert_eq!(identity.still_is(&[with(["b", "a"]), node("2", "web")].concat()), Ok(true));
        let changed = identity.take_changed_node().map(|changed| Node::decode(changed.encoded()).unwrap().id);
        assert_eq!(changed.as_deref(), Some("2"), "it stays until it is taken");
    }

    #[test]
    fn a_later_node_is_judged_before_its_key_is_compared() {
        let peer = Arc::new(Peer::at("127.0.0.1:1".parse().unwrap()));
        let rule = PermissionRule {
            share: 1,
            name: "local".into(),
            identities: vec![IdentityPattern::Network(Network::parse("127.0.0.0/8").unwrap())],
            node: vec![NodeField { field: KeyField::Id, values: vec![Template::parse("own-*").unwrap()] }],
            types: None,
            names: Vec::new(),
            secrets: Vec::new(),
            tenant: None,
            relays_for: Vec::new(),
            client_status: false,
        };
        let permissions = Permissions::of(vec![rule]);
        let judged = Identity::of(
            Arc::default(),
            permissions.clone(),
            peer.clone(),
            HeaderHashes::default(),
            &node("other", "web"),
        );
        assert!(matches!(judged, Err(IdentityError::Denied(_))));
        let mut identity =
            Identity::of(Arc::default(), permissions, peer, HeaderHashes::default(), &node("own-1", "web")).unwrap();
        assert_eq!(identity.still_is(&node("own-2", "web")), Ok(true));
        let lie = identity.still_is(&node("other", "web")).unwrap_err();
        assert!(lie.to_string().starts_with("node.id is \"other\""), "its key is the same, and it is a lie: {lie}");
    }
}
