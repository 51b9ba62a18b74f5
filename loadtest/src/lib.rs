//! Simulates the clients of an xDS relay, and the control plane behind it, over real gRPC.
//!
//! [`conformance`] checks single rules of the protocol. [`wire`] has the two scripted peers, [`content`] their resources. Only the
//! generated messages of the relay's crate are used, so that the two do not share errors.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))] // `clippy.toml`

pub mod address;
pub mod baseline;
pub mod bench;
pub mod bodies;
pub mod checks;
pub mod conformance;
pub mod content;
pub mod fleet;
pub mod hostile;
pub mod kind;
pub mod link;
pub mod measure;
pub mod observe;
pub mod origin;
pub mod output;
pub mod recording;
pub mod report;
pub mod reserved;
pub mod scenario;
pub mod subscription;
pub mod wire;
