//! How a stream to a server has ended.

/// What the edge knows of the end of a stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamEnd {
    /// The server is there: it has responded, or has said that it does not support the variant.
    pub answered: bool,
    /// The server, or the way to it, was lost: it did not drain the connection, and does not lack the variant.
    pub is_lost: bool,
}

impl From<bool> for StreamEnd {
    fn from(answered: bool) -> Self {
        Self { answered, is_lost: false }
    }
}
