//! What a client knows of one type on one stream: what it subscribes to, what it holds, and the requests that follow. No sockets.

mod names;
mod response;
mod topic;

pub use names::{Name, Names};
pub use response::{Entry, Response};
pub use topic::{Held, Topic};
