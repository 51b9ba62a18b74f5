#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_docs, unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))] // no input of a peer may reach an `unwrap`
#![cfg_attr(not(test), warn(clippy::disallowed_types, clippy::disallowed_methods, clippy::disallowed_macros))] // `clippy.toml`

pub mod proto;
pub mod protocol;
pub mod xds;
