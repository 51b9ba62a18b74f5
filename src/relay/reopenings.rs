//! Permits to reopen streams. At each server, only so many streams of all views may be between two openings at a time.
//!
//! After a restart of the relay, many views may want to ask their control plane where a set ends.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use tokio::sync::OwnedSemaphorePermit;

use super::link::SharedConnector;

/// Kept while a stream is between two openings.
pub(super) type ReopenPermit = OwnedSemaphorePermit;

/// The permits that one view has requested, by the server's place in the plan.
#[derive(Default)]
pub(super) struct Reopenings {
    requested: BTreeMap<usize, Pin<Box<dyn Future<Output = Option<ReopenPermit>> + Send>>>,
    granted: BTreeMap<usize, Option<ReopenPermit>>,
}

impl Reopenings {
    /// Requests permits where they are due, and returns those that are not needed any more.
    pub(crate) fn follow(&mut self, due: &BTreeSet<usize>, connectors: &[SharedConnector]) {
        self.requested.retain(|server, _| due.contains(server));
        self.granted.retain(|server, _| due.contains(server));
        for server in due {
            if self.granted.contains_key(server) || self.requested.contains_key(server) {
                continue;
            }
            let leaves = connectors[*server].reopenings();
            let leave = async move {
                match leaves {
                    Some(leaves) => leaves.acquire_owned().await.ok(),
                    None => None, // a source within the process
                }
            };
            self.requested.insert(*server, Box::pin(leave));
        }
    }

    pub(crate) fn may_reopen(&self, server: usize) -> bool {
        self.granted.contains_key(&server)
    }

    /// Takes the permit for one stream.
    pub(crate) fn take(&mut self, server: usize) -> Option<ReopenPermit> {
        self.granted.remove(&server).flatten()
    }

    /// Waits until a permit is granted, and keeps it. Cancel-safe.
    pub(crate) async fn granted(&mut self) {
        poll_fn(|context| {
            let mut any = Poll::Pending;
            let granted = &mut self.granted;
            self.requested.retain(|server, request| match request.as_mut().poll(context) {
                Poll::Ready(leave) => {
                    granted.insert(*server, leave);
                    any = Poll::Ready(());
                    false
                }
                Poll::Pending => true,
            });
            any
        })
        .await;
    }
}

/// How many streams to one server may be between two openings at a time.
pub const REOPENINGS: usize = 16;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;
    use tokio::sync::Semaphore;
    use tokio::task::JoinHandle;
    use weir_core::protocol::session::Variant;

    use super::*;
    use crate::relay::link::{Connector, Link};

    struct Server(Arc<Semaphore>);

    impl Connector for Server {
        fn start(&self, _: Link) -> JoinHandle<()> {
            tokio::spawn(async {})
        }

        fn describe(&self) -> String {
            "server".into()
        }

        fn variant(&self) -> Option<Variant> {
            None
        }

        fn reopenings(&self) -> Option<Arc<Semaphore>> {
            Some(self.0.clone())
        }
    }

    #[test]
    fn i8_a_view_waits_for_its_leave_and_gives_back_what_it_does_not_need() {
        let leaves = Arc::new(Semaphore::new(1));
        let connectors: [SharedConnector; 1] = [Arc::new(Server(leaves.clone()))];
        let (due, none) = (BTreeSet::from([0]), BTreeSet::new());
        let [mut first, mut second] = [Reopenings::default(), Reopenings::default()];
        first.follow(&due, &connectors);
        assert!(first.granted().now_or_never().is_some() && first.may_reopen(0));
        second.follow(&due, &connectors);
        assert!(second.granted().now_or_never().is_none() && !second.may_reopen(0));
        drop(first.take(0));
        assert!(second.granted().now_or_never().is_some() && second.may_reopen(0));
        second.follow(&none, &connectors);
        assert_eq!(leaves.available_permits(), 1, "its stream has ended by itself");
    }
}
