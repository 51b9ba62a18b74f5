//! The protocol as plain data structures: updates go in, messages come out, and the time is an argument.
//!
//! This code never waits, reads a clock, opens a socket or has globals. [`upstream`] turns the responses of a control plane into updates,
//! [`view`] stores and publishes them, [`session`] serves one client.

pub mod audit;
mod keys;
pub mod ladder;
pub mod loads;
pub mod local_set;
pub mod members;
pub mod moment;
pub mod options;
mod reply_names;
mod server_status;
pub mod session;
pub mod set_mark;
pub mod sources;
pub mod upstream;
pub mod view;
pub mod visits;
pub mod wait;
