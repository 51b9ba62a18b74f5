//! Generated messages of the client status service.

#[allow(missing_docs)] // generated
pub mod status {
    include!(concat!(env!("OUT_DIR"), "/envoy.service.status.v3.rs"));
}
