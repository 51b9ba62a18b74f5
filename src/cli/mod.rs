//! What the program does beside relaying.

pub mod check;
pub mod key;
mod node_json;
