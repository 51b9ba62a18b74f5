//! What a stream shows of itself: for reports, logs and metrics.

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
    /// Resources whose body goes by another name than they came under (TYPE-10).
    pub(crate) misnamed: u64,
    /// What is requested of the server a second time: names, and a set as one.
    pub(crate) asked_again: usize,
    /// Names that it is known to have something under that cannot be used.
    pub(crate) rejected: usize,
    /// Why something of its last response could not be told by name.
    pub(crate) unnamed: Option<&'a Arc<str>>,
}

/// What was rejected of one type and is not reported yet.
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
            misnamed: subscription.misnamed,
            asked_again: subscription.second_request.names.len() + usize::from(subscription.second_request.set),
            rejected: subscription.rejected.names().count(),
            unnamed: subscription.rejected.unnamed.as_ref(),
        })
    }

    /// What stands rejected of a type, by name.
    pub fn rejected(&self, kind: &Type) -> impl Iterator<Item = (&Name, &Rejection)> {
        self.types.get(kind).into_iter().flat_map(|subscription| subscription.rejected.names())
    }

    /// Returns what was rejected since the last call, each version of a name once.
    pub fn take_rejected(&mut self) -> Vec<TypeRejections> {
        let news = self.types.iter_mut().map(|(kind, subscription)| (kind, subscription.rejected.take_news()));
        let any = news.filter(|(_, news)| !news.is_empty());
        any.map(|(kind, news)| TypeRejections { kind: kind.clone(), news }).collect()
    }

    /// Whether the server has answered the last call that asked on this opening if it is there; `None` if there was none.
    pub(crate) fn has_answered_call(&self) -> Option<bool> {
        if self.liveness.is_asked() { Some(false) } else { self.liveness.is_proven().then_some(true) }
    }
}
