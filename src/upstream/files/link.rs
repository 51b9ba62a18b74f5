//! Carries the stream of one view to the server within this process that serves the files.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::{FilesSource, Loaded, State};
use crate::proto::{Request, Response};
use crate::protocol::local::{Server, SourceSnapshot, Step};
use crate::protocol::session::Variant;
use crate::relay::{Clock, Connector, Link, LinkEvent, LinkReport};
use crate::xds::TypeTable;

/// Opens streams to the files of one source.
#[derive(Clone)]
pub(crate) struct FilesConnector {
    source: FilesSource,
    /// Nobody but these files is asked: what is not in them is nowhere.
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
        // Whoever listens, or whoever reads the files, is gone when either of the two fails.
        while let Some(snapshot) = self.ready(&link, &mut loaded).await {
            if self.serve(&link, &mut loaded, snapshot).await.is_none() {
                return;
            }
        }
    }

    /// Waits until there are files. Those that are being read may be there any moment; those that are not there are told.
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

    /// Until the files are unreachable.
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
            // What has come meanwhile is heard first: the answer to an older question may not be needed any more.
            while let Ok(request) = requests.try_recv() {
                self.hear(&mut server, request);
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
                        request = requests.recv() => self.hear(&mut server, request?),
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

    fn hear(&self, server: &mut Server, request: Request) {
        match request {
            Request::Delta(request) => {
                if let Some(rejected) = &request.error_detail {
                    tracing::warn!(source = %self.source.options(), error = %rejected.message, "resources of files rejected");
                }
                server.on_request(request);
            }
            Request::Sotw(_) => {} // nobody asks so where the stream was opened in the other variant
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
}

/// None if nobody takes it.
async fn report(link: &Link, event: LinkEvent) -> Option<()> {
    link.reports.send(LinkReport { id: link.id, event }).await.ok()
}
