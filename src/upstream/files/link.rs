//! Connects the stream of one view to the server within this process that serves the files.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use weir_core::proto::{Request, Response};
use weir_core::protocol::local::{Server, SourceSnapshot, Step};
use weir_core::protocol::session::Variant;
use weir_core::xds::TypeTable;

use super::{FilesSource, Loaded, State};
use crate::relay::{Clock, Connector, Link, LinkEvent, LinkReport};

/// Opens streams to the files of one source.
#[derive(Clone)]
pub(crate) struct FilesConnector {
    source: FilesSource,
    /// No other server gets the same requests: a resource that is not in these files does not exist.
    alone: bool,
    table: Arc<TypeTable>,
    clock: Clock,
}

impl FilesConnector {
    pub(crate) fn new(source: FilesSource, alone: bool, table: Arc<TypeTable>) -> Self {
        Self { source, alone, table, clock: Clock::starting_now() }
    }

    async fn keep_open(self, link: Link) {
        let mut loaded = self.source.subscribe();
        // If either call fails, the view task or the loader has ended.
        while let Some(snapshot) = self.ready(&link, &mut loaded).await {
            if self.serve(&link, &mut loaded, snapshot).await.is_none() {
                return;
            }
        }
    }

    /// Waits until the files are loaded. Files that are being read may be ready at any moment; missing paths are reported.
    async fn ready(&self, link: &Link, loaded: &mut watch::Receiver<Loaded>) -> Option<Arc<SourceSnapshot>> {
        let mut reported = None;
        loop {
            let state = loaded.borrow_and_update().state.clone();
            match state {
                State::Ready(snapshot) => return Some(snapshot),
                State::Missing(reason) if reported.as_ref() != Some(&reason) => {
                    report(link, LinkEvent::Ended { reason: reason.clone(), answered: false }).await?;
                    reported = Some(reason);
                }
                State::Missing(_) | State::Loading => loaded.changed().await.ok()?,
            }
        }
    }

    /// Serves until the files are unreachable.
    async fn serve(
        &self,
        link: &Link,
        loaded: &mut watch::Receiver<Loaded>,
        snapshot: Arc<SourceSnapshot>,
    ) -> Option<()> {
        let (sender, mut requests) = mpsc::channel(16);
        report(link, LinkEvent::Opened { variant: Variant::Delta, requests: sender, life: Arc::default() }).await?;
        let mut server = Server::new(self.table.clone(), snapshot, self.alone);
        loop {
            // Requests that have come meanwhile are handled first: they may make the pending response unnecessary.
            while let Ok(request) = requests.try_recv() {
                self.receive(&mut server, request);
            }
            if loaded.has_changed().ok()? {
                match loaded.borrow_and_update().state.clone() {
                    State::Ready(snapshot) => server.on_snapshot(snapshot),
                    State::Missing(_) | State::Loading => return Some(()),
                }
            }
            server.on_time(self.clock.now());
            match server.step(self.clock.now()) {
                Step::Response(response) => {
                    report(link, LinkEvent::Response(Box::new(Response::Delta(*response)))).await?;
                }
                Step::Busy => tokio::task::yield_now().await,
                Step::Idle => {
                    let time = async {
                        match server.next_deadline() {
                            Some(moment) => tokio::time::sleep_until(self.clock.instant(moment)).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        request = requests.recv() => self.receive(&mut server, request?),
                        changed = loaded.changed() => {
                            changed.ok()?;
                            loaded.mark_changed();
                        }
                        () = time => {}
                    }
                }
            }
        }
    }

    fn receive(&self, server: &mut Server, request: Request) {
        match request {
            Request::Delta(request) => {
                if let Some(rejected) = &request.error_detail {
                    tracing::warn!(source = %self.source.options(), error = %rejected.message, "resources of files rejected");
                }
                server.on_request(request);
            }
            Request::Sotw(_) => {} // the stream was opened in delta, so that no SotW request comes
        }
    }
}

impl Connector for FilesConnector {
    fn start(&self, link: Link) -> JoinHandle<()> {
        tokio::spawn(self.clone().keep_open(link))
    }

    fn describe(&self) -> String {
        self.source.options().to_string()
    }

    fn variant(&self) -> Option<Variant> {
        Some(Variant::Delta)
    }

    fn is_local(&self) -> bool {
        true
    }
}

/// Returns None if the view task has ended.
async fn report(link: &Link, event: LinkEvent) -> Option<()> {
    link.reports.send(LinkReport { id: link.id, event }).await.ok()
}
