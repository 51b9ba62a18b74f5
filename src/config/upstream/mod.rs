//! Control planes: server lists, first choice first, and the rules for fallback.

mod descriptors;
mod headers;
mod limits;
mod lists;
mod proxy;
mod server;
mod tls;

pub(super) use descriptors::transcoder;
pub(super) use limits::SourceLimits;
pub(super) use lists::check;

#[cfg(test)]
mod tests;
