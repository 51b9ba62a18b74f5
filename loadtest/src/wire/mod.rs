//! The two scripted peers of a relay, over real gRPC.

mod client;
mod plane;
mod received;
mod server;
mod world;

pub use client::{Client, Opening, fetch};
pub use plane::Plane;
pub use received::{ClientCache, Received};
pub use world::{SeenRequest, World};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    Sotw,
    Delta,
}

impl std::fmt::Display for Variant {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        out.write_str(match self {
            Self::Sotw => "sotw",
            Self::Delta => "delta",
        })
    }
}
