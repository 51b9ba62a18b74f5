//! The servers that refuse what a view shows them: their status is what new streams get, in place of what is cached.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::proto::code;
use weir_core::protocol::upstream::ServerStatus;

use crate::relay::published::Published;

/// By the places of the servers in the plan. Views that show no header of their clients have none: nothing tells whom the server means.
#[derive(Default)]
pub(super) struct Refusals {
    shows_headers: bool,
    by: BTreeMap<usize, Arc<ServerStatus>>,
}

impl Refusals {
    pub(super) fn of(shows_headers: bool) -> Self {
        Self { shows_headers, by: BTreeMap::new() }
    }

    /// A server has ended the stream of the view by its status.
    pub(super) fn on_status(&mut self, server: usize, status: &ServerStatus) {
        if self.shows_headers && matches!(status.code, code::PERMISSION_DENIED | code::UNAUTHENTICATED) {
            self.by.insert(server, Arc::new(status.clone()));
        }
    }

    /// A server has responded: it takes the view.
    pub(super) fn on_response(&mut self, server: usize) {
        self.by.remove(&server);
    }

    /// Forgets servers that are not asked any more, once nothing is cached that a new client could be sent without asking.
    pub(super) fn forget(&mut self, has_cache: bool, is_asked: impl Fn(usize) -> bool) {
        if !has_cache {
            self.by.retain(|server, _| is_asked(*server));
        }
    }

    pub(super) fn is_any(&self) -> bool {
        !self.by.is_empty()
    }

    /// Publishes the status. Returns it if it is news.
    pub(super) fn publish(&self, published: &Published) -> Option<Arc<ServerStatus>> {
        let status = self.by.values().next().cloned();
        let is_news = published.note_refusal(status.clone());
        status.filter(|_| is_news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: i32) -> ServerStatus {
        ServerStatus { code, message: "no".into() }
    }

    #[test]
    fn a_server_refuses_a_view_until_it_responds_or_is_not_asked_and_nothing_is_cached() {
        let published = Published::new(Arc::default(), 1);
        let mut refusals = Refusals::of(true);
        refusals.on_status(0, &status(code::UNAVAILABLE));
        assert!(!refusals.is_any() && refusals.publish(&published).is_none());
        refusals.on_status(0, &status(code::PERMISSION_DENIED));
        assert_eq!(refusals.publish(&published).map(|status| status.code), Some(code::PERMISSION_DENIED));
        assert!(refusals.publish(&published).is_none(), "no news");
        assert!(published.refusal().is_some());
        refusals.on_response(1);
        refusals.forget(true, |_| false);
        assert!(refusals.is_any(), "another server, and a cache that is not for others");
        refusals.on_response(0);
        refusals.publish(&published);
        assert!(published.refusal().is_none());
        refusals.on_status(0, &status(code::UNAUTHENTICATED));
        refusals.forget(false, |_| true);
        assert!(refusals.is_any());
        refusals.forget(false, |_| false);
        assert!(!refusals.is_any());
    }

    #[test]
    fn a_view_without_headers_is_refused_by_nobody() {
        let mut refusals = Refusals::of(false);
        refusals.on_status(0, &status(code::PERMISSION_DENIED));
        assert!(!refusals.is_any());
    }
}
