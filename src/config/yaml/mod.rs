//! YAML as a tree of values with their places, and messages for its syntax errors.

mod error;
mod node;
mod read;
mod variables;

pub(super) use node::{Node, Scalar, Value, YamlEntry};
pub(super) use read::read;
pub(super) use variables::expand;
