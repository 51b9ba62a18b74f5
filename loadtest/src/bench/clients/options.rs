//! The options of clients, and their first requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};

use super::super::Kind;
use crate::link::{ADS_DELTA, ADS_SOTW, Target, Tls, scan};
use crate::wire::Variant;

/// Where clients connect, and what they subscribe to.
#[derive(Clone)]
pub struct ClientOptions {
    pub target: Target,
    pub tls: Option<Tls>,
    pub variant: Variant,
    pub kind: Kind,
    pub connections: usize,
    /// The number of streams on each connection.
    pub streams: usize,
    /// Returns the names that a stream subscribes to, by the stream's number; none means `*`.
    pub names: Names,
    /// The node's cluster, which is the sharing key.
    pub cluster: String,
    /// How many clients may connect at a time.
    pub connecting: usize,
    /// How many clients may connect and wait for their first set at a time. Only for [`Clients::storm`].
    pub syncing: usize,
    /// Connections with lower numbers have small receive buffers.
    pub small: usize,
    /// The versions that the clients have from an earlier stream.
    pub held: Arc<CachedVersions>,
}

pub type Names = Arc<dyn Fn(usize) -> Vec<String> + Send + Sync>;

/// The versions that a client states from an earlier stream.
#[derive(Debug, Default)]
pub struct CachedVersions {
    /// The version of each resource by name, in delta.
    pub versions: BTreeMap<String, String>,
    /// The version of the set, in SotW.
    pub version: String,
}

/// Returns names that mean a subscription to all resources of the type.
pub fn wildcard() -> Names {
    Arc::new(|_| Vec::new())
}

impl ClientOptions {
    /// Returns the method of a stream, and its first request.
    pub fn first_request(&self, stream: usize, names: &[String]) -> (&'static str, Vec<u8>) {
        let node = scan::node(&format!("client-{stream}"), &self.cluster);
        let (type_url, held) = (self.kind.type_url().to_owned(), &self.held);
        match self.variant {
            Variant::Sotw => {
                let version_info = held.version.clone();
                let node = Some(node.into());
                let resource_names = names.to_vec();
                let request = DiscoveryRequest { type_url, version_info, node, resource_names, ..Default::default() };
                (ADS_SOTW, request.encode_to_vec())
            }
            Variant::Delta => {
                let names = if names.is_empty() { vec!["*".to_owned()] } else { names.to_vec() };
                let request = DeltaDiscoveryRequest {
                    type_url,
                    node: Some(node.into()),
                    resource_names_subscribe: names,
                    initial_resource_versions: held.versions.clone(),
                    ..Default::default()
                };
                (ADS_DELTA, request.encode_to_vec())
            }
        }
    }
}
