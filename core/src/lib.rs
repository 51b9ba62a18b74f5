//! The core of Weir: the protocol of an xDS relay as plain data structures. Requests, responses and the time go in, messages come out.
//! Nothing here waits, reads a clock, opens a socket or has globals.
#![forbid(unsafe_code)]
#![warn(missing_docs, unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))] // no input of a peer may reach one

pub mod proto;
pub mod protocol;
pub mod xds;
