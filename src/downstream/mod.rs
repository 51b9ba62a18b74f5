//! The edge towards clients: accepts connections, passes on requests and replies, and decides nothing.

mod accept;
mod body;
mod buffered_body;
mod client_stream;
mod coalesce;
mod connection;
mod connections;
mod counted;
mod drain;
mod encode;
mod frames;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod handshake;
mod handshakes;
mod health;
mod incomplete;
mod judged_clients;
mod listen;
mod listener;
mod loads;
mod pace;
mod paced_reads;
mod refusal;
mod report_limits;
mod request_limits;
mod rest;
mod server;
mod slot;
mod sniff;
mod socket;
mod stream;
mod turns;
mod unfinished_replies;
mod write_timeout;

pub(crate) use connections::{ConnectionLimits, Connections};
pub(crate) use drain::{Drain, DrainTimes, DrainTrigger};
pub(crate) use handshakes::HandshakeLimits;
pub(crate) use listen::{listen, short_queue};
pub use listener::ListenOptions;
pub(crate) use listener::Listener;
pub(crate) use request_limits::RequestLimits;
pub(crate) use rest::{Rest, RestOptions};
pub(crate) use server::{Downstream, Options};
pub(crate) use write_timeout::WriteTimeout;
