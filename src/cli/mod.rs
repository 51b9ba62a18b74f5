//! What the program does beside relaying.

mod asking;
pub mod check;
mod diff;
pub mod get;
pub mod key;
mod kinds;
mod node_json;
mod picture;
mod show;
pub mod watch;
mod xds_client;
