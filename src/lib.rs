//! Weir: an xDS aggregating relay. ARCHITECTURE.md describes the layers and what each of them owns.
#![cfg_attr(not(test), forbid(unsafe_code))] // in tests `sixteen_threads.rs` alone has some
#![warn(missing_docs, unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))] // no input of a peer may reach one
#![cfg_attr(not(test), warn(clippy::disallowed_methods))] // `clippy.toml`

pub mod app;
pub mod build_facts;
pub mod cli;
pub(crate) mod compression;
pub mod config;
pub(crate) mod config_status;
pub(crate) mod config_watch;
pub mod demo;
pub(crate) mod file_access;
pub(crate) mod generation;
pub(crate) mod grpc_message;
pub mod inputs;
pub(crate) mod known_files;
pub(crate) mod limit;
pub(crate) mod log_pace;
pub(crate) mod memory;
pub mod open_files;
pub(crate) mod plural;
pub(crate) mod problems;
pub(crate) mod random;
pub mod reload;
pub(crate) mod shared_runtime;
pub mod telemetry;
pub(crate) mod view_words;

pub(crate) mod admin;
pub(crate) mod client_status;
pub(crate) mod downstream;
pub(crate) mod state;
pub(crate) mod tls;
pub mod upstream;

pub mod relay;

pub mod transcode;

pub mod proto;

#[cfg(test)]
#[path = "../tests/support/sixteen_threads.rs"]
mod sixteen_threads;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod written;
