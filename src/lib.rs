//! Weir: an xDS aggregating relay. ARCHITECTURE.md has the layers and who owns what.
#![forbid(unsafe_code)]

pub mod protocol;

pub mod proto;
pub mod xds;
