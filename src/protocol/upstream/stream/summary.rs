//! Summaries of a stream for reports, logs and metrics.

use std::sync::Arc;

use super::Stream;
use crate::protocol::upstream::rejected::{NewRejections, Rejection};
use crate::xds::{Name, Type};

/// One type on a stream, for reports.
#[derive(Debug)]
pub struct TypeSummary<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) wildcard: bool,
    pub(crate) names: usize,
    /// Wanted names that are not requested, since a request has no room for them.
    pub(crate) left_out: usize,
    /// Resources whose name in the body differs from the one in the wrapper (TYPE-10).
    pub(crate) misnamed: u64,
    /// Names that are requested a second time. A set counts as one.
    pub(crate) asked_again: usize,
    /// Names of which the server has a resource that cannot be used.
    pub(crate) rejected: usize,
    /// Why an entry of the last response could not be matched to a name.
    pub(crate) unnamed: Option<&'a Arc<str>>,
}

/// Rejections of one type that are not reported yet.
#[derive(Debug, PartialEq, Eq)]
pub struct TypeRejections {
    pub(crate) kind: Type,
    pub news: NewRejections,
}

impl Stream {
    pub fn types(&self) -> impl Iterator<Item = TypeSummary<'_>> {
        self.types.iter().map(|(kind, subscription)| TypeSummary {
            kind,
            wildcard: subscription.wildcard,
            names: subscription.names.len(),
            left_out: subscription.left_out.len(),
            misnamed: subscription.misnamed,
            asked_again: subscription.second_request.names.len() + usize::from(subscription.second_request.set),
            rejected: subscription.rejected.len(),
            unnamed: subscription.rejected.unnamed.as_ref(),
        })
    }

    /// Returns the current rejections of a type, by name.
    pub fn rejected(&self, kind: &Type) -> impl Iterator<Item = (&Name, &Rejection)> {
        self.types.get(kind).into_iter().flat_map(|subscription| subscription.rejected.names())
    }

    /// Returns what was rejected since the last call, each version of a name once.
    pub fn take_rejected(&mut self) -> Vec<TypeRejections> {
        let news = self.types.iter_mut().map(|(kind, subscription)| (kind, subscription.rejected.take_news()));
        let any = news.filter(|(_, news)| !news.is_empty());
        any.map(|(kind, news)| TypeRejections { kind: kind.clone(), news }).collect()
    }

    /// Returns how many names were left out of requests since the last call, by type.
    pub fn take_left_out(&mut self) -> Vec<(Type, usize)> {
        let counts = self.types.iter_mut().map(|(kind, subscription)| (kind, subscription.left_out.take_count()));
        counts.filter(|(_, count)| *count > 0).map(|(kind, count)| (kind.clone(), count)).collect()
    }

    /// Whether the server has answered the last liveness call on this opening; `None` if there was none.
    pub(crate) fn has_answered_call(&self) -> Option<bool> {
        if self.liveness.is_asked() { Some(false) } else { self.liveness.is_proven().then_some(true) }
    }
}
