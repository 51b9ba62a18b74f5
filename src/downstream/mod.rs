//! The edge towards clients: accepts connections, passes on requests and replies, and decides nothing.

mod body;
mod buffered_body;
mod coalesce;
mod connection;
mod drain;
mod encode;
mod frames;
mod health;
mod incomplete;
mod listen;
mod loads;
mod request_limits;
mod rest;
mod server;
mod slot;
mod sniff;
mod stream;
mod turns;
mod write_timeout;

pub(crate) use drain::{Drain, DrainTimes, DrainTrigger};
pub(crate) use listen::listen;
pub(crate) use request_limits::RequestLimits;
pub(crate) use rest::{Rest, RestOptions};
pub(crate) use server::{Downstream, Options};
