//! The edge towards clients: accepts connections, carries requests and replies, and decides nothing.

mod body;
mod drain;
mod encode;
mod frames;
mod health;
mod loads;
mod server;
mod slot;
mod stream;

pub use drain::{Drain, DrainSwitch, DrainTimes};
pub use frames::Budget;
pub use server::{Downstream, Options};
