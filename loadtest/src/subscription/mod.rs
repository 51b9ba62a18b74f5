//! One type of a client's stream: its subscriptions, its resources, and the requests that follow from them. No sockets.

mod names;
mod response;
mod topic;

pub use names::{Name, Names};
pub use response::{Entry, Response};
pub use topic::{ReceivedVersion, Topic};
