//! What is known of the peer of a session, as far as it changes how the peer is spoken to.

use prost::Message;

use crate::proto::node::Node;
use crate::xds::RELAY_MARKER;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    Sotw,
    Delta,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    pub variant: Variant,
    /// One stream for all types, which is what makes an order between types possible (ORD-13).
    pub aggregated: bool,
    /// A gRPC library: it names what it wants, and takes a changed cluster without asking for its endpoints again.
    pub grpc: bool,
    /// Can read resources in wrappers in SotW (SOTW-48).
    pub wrappers: bool,
}

impl Client {
    /// Unreadable nodes are somebody else's to refuse; here they are a client of no special ability.
    pub fn of_node(encoded: &[u8], variant: Variant, aggregated: bool) -> Self {
        let node = Node::decode(encoded).unwrap_or_default();
        let has = |feature: &str| node.client_features.iter().any(|known| known == feature);
        let agent = node.user_agent_name.as_str();
        let grpc = (agent.starts_with("gRPC ") || agent.starts_with("grpc-")) && !has(RELAY_MARKER);
        Self { variant, aggregated, grpc, wrappers: WRAPPER_FEATURES.into_iter().any(has) }
    }

    /// The id that a client gives itself: for logs and reports, and for nothing else.
    pub fn node_id(encoded: &[u8]) -> String {
        Node::decode(encoded).map(|node| node.id).unwrap_or_default()
    }

    pub(super) fn warms_clusters(&self) -> bool {
        self.aggregated && !self.grpc
    }
}

const WRAPPER_FEATURES: [&str; 3] =
    ["xds.config.resource-in-sotw", "xds.config.supports-resource-in-sotw", "envoy.config.resource-in-sotw"];
