//! Records the responses of a control plane in a file, and serves them again.

pub mod command;
mod file;
mod record;
mod replay;

pub use file::{Reader, Recorded, Writer};
pub use record::record;
pub use replay::Replay;
