//! Generated messages of the discovery protocol, and enums for the two variants of a message.

/// `google.protobuf.Any` whose value is a slice of the received buffer instead of a copy.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Any {
    /// The type of the message.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The encoded message.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: bytes::Bytes,
}

/// A request of either variant. The method of the stream decides which one (TRN-24).
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// A request of the state-of-the-world variant.
    Sotw(discovery::DiscoveryRequest),
    /// A request of the delta variant.
    Delta(discovery::DeltaDiscoveryRequest),
}

impl Request {
    /// Returns the encoded node, if the request has one.
    pub fn node(&self) -> Option<&bytes::Bytes> {
        match self {
            Self::Sotw(request) => request.node.as_ref(),
            Self::Delta(request) => request.node.as_ref(),
        }
    }

    /// Sets the encoded node of the request.
    pub fn set_node(&mut self, node: bytes::Bytes) {
        match self {
            Self::Sotw(request) => request.node = Some(node),
            Self::Delta(request) => request.node = Some(node),
        }
    }

    /// Returns the type URL as the peer spelled it; empty if the request has none.
    pub fn type_url(&self) -> &str {
        match self {
            Self::Sotw(request) => &request.type_url,
            Self::Delta(request) => &request.type_url,
        }
    }

    /// Returns how many names the request has, including those that it unsubscribes from and those whose versions it states.
    pub fn entries(&self) -> usize {
        match self {
            Self::Sotw(request) => request.resource_names.len() + request.resource_locators.len(),
            Self::Delta(request) => {
                let names = request.resource_names_subscribe.len() + request.resource_names_unsubscribe.len();
                let locators = request.resource_locators_subscribe.len() + request.resource_locators_unsubscribe.len();
                names + locators + request.initial_resource_versions.len()
            }
        }
    }

    /// Whether the request rejects a response.
    pub fn is_nack(&self) -> bool {
        match self {
            Self::Sotw(request) => request.error_detail.is_some(),
            Self::Delta(request) => request.error_detail.is_some(),
        }
    }
}

/// A response of either variant.
#[derive(Debug, Clone, PartialEq)]
pub enum Response {
    /// A response of the state-of-the-world variant.
    Sotw(discovery::DiscoveryResponse),
    /// A response of the delta variant.
    Delta(discovery::DeltaDiscoveryResponse),
}

impl Response {
    /// Returns the type URL as the server wrote it.
    pub fn type_url(&self) -> &str {
        match self {
            Self::Sotw(response) => &response.type_url,
            Self::Delta(response) => &response.type_url,
        }
    }

    /// Returns the errors that the server reports for single resources.
    pub fn resource_errors_mut(&mut self) -> &mut Vec<discovery::ResourceError> {
        match self {
            Self::Sotw(response) => &mut response.resource_errors,
            Self::Delta(response) => &mut response.resource_errors,
        }
    }
}

#[allow(missing_docs)] // generated
pub mod discovery {
    include!(concat!(env!("OUT_DIR"), "/envoy.service.discovery.v3.rs"));
}

#[allow(missing_docs)] // generated
pub mod loads {
    include!(concat!(env!("OUT_DIR"), "/envoy.service.load_stats.v3.rs"));
}

#[allow(missing_docs, clippy::module_inception)] // generated; oneofs are named after their messages
pub mod node {
    include!(concat!(env!("OUT_DIR"), "/envoy.config.core.v3.rs"));
}

/// The gRPC status codes in use.
#[allow(missing_docs)] // the names are those of gRPC
pub mod code {
    pub const OK: i32 = 0;
    pub const UNKNOWN: i32 = 2;
    pub const INVALID_ARGUMENT: i32 = 3;
    pub const NOT_FOUND: i32 = 5;
    pub const PERMISSION_DENIED: i32 = 7;
    pub const RESOURCE_EXHAUSTED: i32 = 8;
    pub const UNIMPLEMENTED: i32 = 12;
    pub const INTERNAL: i32 = 13;
    pub const UNAVAILABLE: i32 = 14;
    pub const UNAUTHENTICATED: i32 = 16;
}
