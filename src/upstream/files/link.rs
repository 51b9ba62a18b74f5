//! Passes the contents of the files to one view, as often as they change.

use std::sync::Arc;

use tokio::task::JoinHandle;
use weir_core::protocol::session::Variant;

use super::{FilesSource, SourceState};
use crate::relay::{Connector, Link, LinkEvent, LinkReport};

/// Lets views follow the files of one source.
#[derive(Clone)]
pub(crate) struct FilesConnector {
    source: FilesSource,
}

impl FilesConnector {
    pub(crate) fn new(source: FilesSource) -> Self {
        Self { source }
    }

    /// Reports each new snapshot and the missing paths. During the first look, any file may still appear. Returns if the view task or the loader
    /// has ended.
    async fn follow(self, link: Link) -> Option<()> {
        let (mut loaded, mut reported) = (self.source.subscribe(), SourceState::Loading);
        loop {
            let state = loaded.borrow_and_update().state.clone();
            let event = match (&state, &reported) {
                (SourceState::Ready(snapshot), SourceState::Ready(before)) if Arc::ptr_eq(snapshot, before) => None,
                (SourceState::Missing(reason), SourceState::Missing(before)) if reason == before => None,
                (SourceState::Ready(snapshot), _) => Some(LinkEvent::Snapshot(snapshot.clone())),
                (SourceState::Missing(reason), _) => {
                    Some(LinkEvent::Ended { reason: reason.clone(), answered: false, is_lost: true, status: None })
                }
                (SourceState::Loading, _) => None,
            };
            if let Some(event) = event {
                link.reports.send(LinkReport { id: link.id, event }).await.ok()?;
                reported = state;
            }
            loaded.changed().await.ok()?;
        }
    }
}

impl Connector for FilesConnector {
    fn start(&self, link: Link) -> JoinHandle<()> {
        let following = self.clone().follow(link);
        tokio::spawn(async { following.await.unwrap_or_default() })
    }

    fn describe(&self) -> String {
        self.source.options().to_string()
    }

    fn variant(&self) -> Option<Variant> {
        None
    }

    fn is_local(&self) -> bool {
        true
    }
}
