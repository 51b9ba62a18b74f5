//! Why a stream is not accepted.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdmissionError {
    #[error("the first request of a stream has no node")]
    NoNode,
    #[error("invalid node: expected an encoded envoy.config.core.v3.Node")]
    BadNode,
    #[error("too many views: the limit is {0} (views.max)")]
    TooManyViews(usize),
    #[error("the relay is shutting down")]
    Stopping,
}

impl AdmissionError {
    /// Metric labels, in the order of `place`.
    pub(crate) const REASONS: [&str; 4] = ["no_node", "bad_node", "too_many_views", "stopping"];

    pub(in crate::relay) fn place(&self) -> usize {
        match self {
            Self::NoNode => 0,
            Self::BadNode => 1,
            Self::TooManyViews(_) => 2,
            Self::Stopping => 3,
        }
    }
}
