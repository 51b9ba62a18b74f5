//! What the program does beside relaying.

pub mod key;
mod node_json;
