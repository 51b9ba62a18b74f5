//! The thread that answers at `probes.address`. It has a runtime of its own, so it answers even while all worker threads are busy.

use std::io;
use std::sync::Arc;
use std::thread;

use axum::Router;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::connection::Serving;
use super::listener::{DetachedSocket, Listener};
use crate::open_files::SpareFiles;

/// Dropping this ends the thread and its connections.
#[derive(Debug)]
pub(super) struct ProbeThread {
    _until_dropped: oneshot::Sender<()>,
}

impl ProbeThread {
    /// Starts serving.
    pub(super) fn start(
        socket: DetachedSocket,
        pages: Router,
        spare: Arc<SpareFiles>,
        connections: usize,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (until_dropped, dropped) = oneshot::channel::<()>();
        let serve = move || {
            runtime.block_on(async move {
                let socket = match socket.attach() {
                    Ok(socket) => socket,
                    Err(error) => return tracing::error!(%error, "cannot answer probes"),
                };
                let serving = Serving::new(&socket, pages, connections).serve(Listener::new(socket, spare));
                tokio::select! {
                    () = serving => {}
                    _ = dropped => {} // nothing is ever sent on the channel
                }
            });
        };
        thread::Builder::new().name(NAME.into()).spawn(serve)?;
        Ok(Self { _until_dropped: until_dropped })
    }
}

/// The name that tools such as `top` show.
const NAME: &str = "weir-probes";
