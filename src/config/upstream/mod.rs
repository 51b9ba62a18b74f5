//! Control planes: lists of servers, the first choice first, and when the next one takes over.

mod descriptors;
mod limits;
mod lists;
mod server;
mod tls;

pub(super) use limits::SourceLimits;

#[cfg(test)]
mod tests;
