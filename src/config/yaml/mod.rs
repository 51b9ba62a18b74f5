//! YAML as a tree in which each value has its place, with what is wrong with the syntax in words of this program's own.

mod error;
mod node;
mod read;
mod variables;

pub(super) use node::{Entry, Node, Scalar, Value};
pub(super) use read::read;
pub(super) use variables::expand;
