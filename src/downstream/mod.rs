//! The edge towards clients: accepts connections, carries requests and replies, and decides nothing.

mod body;
mod encode;
mod frames;
mod server;
mod slot;
mod stream;

pub use frames::Budget;
pub use server::{Downstream, Options};
