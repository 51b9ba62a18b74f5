//! Why a stream is not accepted.

use super::limit::Limit;
use super::views::Split;
use crate::xds::Denied;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdmissionError {
    #[error("the first request of a stream has no node")]
    NoNode,
    #[error("invalid node: expected an encoded envoy.config.core.v3.Node")]
    BadNode,
    #[error("too many views: the limit is {limit} (views.max){}", beside(.split))]
    TooManyViews { limit: usize, split: Option<Split> },
    #[error("too many views of one connection: the limit is {limit} (limits.views_per_connection){}", beside(.split))]
    TooManyViewsOfConnection { limit: usize, split: Option<Split> },
    #[error("too many views of one identity: the limit is {limit} (limits.views_per_identity){}", beside(.split))]
    TooManyViewsOfIdentity { limit: usize, split: Option<Split> },
    #[error("{0}")]
    Denied(Box<Denied>),
    #[error("the relay is shutting down")]
    Stopping,
}

impl AdmissionError {
    /// Metric labels, in the order of `place`.
    pub(crate) const REASONS: [&str; 7] = [
        "no_node",
        "bad_node",
        "too_many_views",
        "too_many_views_of_connection",
        "stopping",
        "denied",
        "too_many_views_of_identity",
    ];

    pub(in crate::relay) fn place(&self) -> usize {
        match self {
            Self::NoNode => 0,
            Self::BadNode => 1,
            Self::TooManyViews { .. } => 2,
            Self::TooManyViewsOfConnection { .. } => 3,
            Self::Stopping => 4,
            Self::Denied(_) => 5,
            Self::TooManyViewsOfIdentity { .. } => 6,
        }
    }

    pub(in crate::relay) fn limit(&self) -> Option<Limit> {
        match self {
            Self::TooManyViews { .. } => Some(Limit::Views),
            Self::TooManyViewsOfConnection { .. } => Some(Limit::ViewsPerConnection),
            Self::TooManyViewsOfIdentity { .. } => Some(Limit::ViewsPerIdentity),
            Self::NoNode | Self::BadNode | Self::Denied(_) | Self::Stopping => None,
        }
    }
}

fn beside(split: &Option<Split>) -> String {
    split.as_ref().map(|split| format!("; {split}")).unwrap_or_default()
}
