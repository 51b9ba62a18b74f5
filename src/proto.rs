//! Generated messages of the discovery protocol, and the one message we write ourselves.

/// `google.protobuf.Any` whose value is a slice of the received buffer, where the usual one copies.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: bytes::Bytes,
}

pub mod discovery {
    include!(concat!(env!("OUT_DIR"), "/envoy.service.discovery.v3.rs"));
}

pub mod node {
    include!(concat!(env!("OUT_DIR"), "/envoy.config.core.v3.rs"));
}
