//! What the tests over real sockets share. Fakes are at the edge of the network, real parts inside: a test has the relay between a scripted
//! control plane ([`plane`], [`server`], [`load_plane`], [`rest_plane`]) and scripted clients ([`client`]), in its own process or as a [`program`].
//!
//! A habit of a control plane is a value. Each has a test in `testkit/tests`, by a client without a relay, in both variants.
#![forbid(unsafe_code)]

pub mod address;
pub mod admin;
pub mod certificates;
pub mod client;
pub mod collector;
mod conversation;
pub mod folder;
pub mod gzip;
pub mod last_errors;
pub mod load_plane;
pub mod one_cluster;
pub mod outage;
pub mod plane;
pub mod program;
pub mod raw;
pub mod raw_http;
pub mod resources;
pub mod rest_plane;
pub mod running;
pub mod script;
pub mod server;
pub mod speaker;
pub mod wait;
