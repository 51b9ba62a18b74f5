//! The configuration file and its checked form.
//!
//! [`load`] has the steps from the file to the checked form. [`raw`] mirrors the file: it declares each key with its form, and both the accepted
//! values and [`schema`] come from these declarations. The checks turn it into types that cannot be invalid, and report every fault with its
//! place. Control planes are configured in [`upstream`], or by the bootstrap file of gRPC clients ([`bootstrap`]).
//!
//! Imports go one way: each file may use those below it in this list, and none above it.

pub(crate) mod inputs;

mod lasting_hashes;
mod reload;

mod load;

mod headers;
mod in_force;

mod keys;

mod shown;

mod addresses;

mod admin;

mod clients;
mod consistency;
mod contradictions;
mod limits;
mod listen;
mod permissions;
mod protocol;
mod rest;
mod state;
mod types;
mod upstream;
mod views;

mod presets;

mod access;
mod connection;
mod listen_tls;
mod loops;
mod memory;

mod bounds;
mod brakes;

mod checker;

mod schema;

mod bootstrap;

mod files;
mod json;
mod json_tree;
mod plain_server;
mod raw;

mod form;

mod yaml;

mod diagnostic;
mod secrets;

pub use crate::downstream::{Account, ListenAddress, ListenOptions, UnixOptions};
pub use admin::AdminOptions;
pub(crate) use admin::AdminTls;
pub use diagnostic::Diagnostic;
pub(crate) use files::hash_of;
pub(crate) use form::{Applies, size_text};
pub use form::{admin_address, listen_address, size};
pub(crate) use keys::applies;
pub(crate) use lasting_hashes::with_lasting_hashes;
pub use load::Config;
pub(crate) use load::Review;
pub(crate) use reload::{InUse, Reading, Reloaded, without_environment};
pub use schema::schema;
pub(crate) use views::may_mix_secrets;

pub(crate) use form::{ValueError, server_uri};
pub(crate) use in_force::{InForce, ShownKey};
pub(crate) use plain_server::{name_in, plain_server};

#[cfg(test)]
mod tests;
