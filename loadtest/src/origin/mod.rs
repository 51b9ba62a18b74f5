//! A control plane with any number of resources. It changes them, and can violate single rules on purpose.

mod burst;
pub mod command;
mod control;
mod faults;
mod layout;
mod loads;
mod serve;
mod session;
mod stream;
mod world;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use control::control;
pub use faults::{Fault, Faults};
pub use layout::{Churn, Counts, Layout, Pattern, listener_name};
pub use loads::LOADS;
pub use serve::{Call, serve};
pub use world::{Change, Item, Name, World};

use crate::bodies::Stamp;
use crate::kind::Kind;

/// A running origin. It serves until it is dropped.
pub struct Origin {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    server: Mutex<Option<JoinHandle<()>>>,
}

/// What all streams of an origin share.
pub struct Shared {
    world: Mutex<World>,
    layout: Mutex<Layout>,
    /// The number of the last update.
    updated: watch::Sender<u64>,
    faults: Faults,
    streams: AtomicU64,
    open_streams: AtomicUsize,
}

impl Shared {
    /// Returns the locked world. Lock it for one burst of one stream, or for one update.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_stream(&self) -> u64 {
        self.streams.fetch_add(1, Ordering::Relaxed)
    }
}

impl Origin {
    pub async fn start(listen: SocketAddr, counts: Counts, fault: Option<Fault>) -> anyhow::Result<Self> {
        let layout = Layout::new(counts);
        let mut world = World::new(counts.size, fault == Some(Fault::OlderVersion));
        world.apply(layout.initial());
        let shared = Arc::new(Shared {
            updated: watch::Sender::new(world.update()),
            world: Mutex::new(world),
            layout: Mutex::new(layout),
            faults: Faults::new(fault),
            streams: AtomicU64::new(1),
            open_streams: AtomicUsize::new(0),
        });
        let mut origin = Self { address: listen, shared, server: Mutex::new(None) };
        origin.address = origin.listen().await?;
        Ok(origin)
    }

    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Begins to accept connections, at the start or after an outage.
    pub async fn listen(&self) -> anyhow::Result<SocketAddr> {
        let listener = TcpListener::bind(self.address).await;
        let listener = listener.with_context(|| format!("cannot listen on {}", self.address))?;
        let address = listener.local_addr()?;
        let shared = self.shared.clone();
        let server = tokio::spawn(serve(listener, move |call| stream::run(call, shared.clone())));
        if let Some(other) = self.server().replace(server) {
            other.abort();
        }
        Ok(address)
    }

    /// Closes all connections. New ones are rejected until [`Self::listen`] is called.
    pub async fn stop_listening(&self) {
        let server = self.server().take();
        if let Some(server) = server {
            server.abort();
            let _ = server.await; // it was aborted
        }
    }

    /// Returns how many streams clients have open.
    pub fn open_streams(&self) -> usize {
        self.shared.open_streams.load(Ordering::Relaxed)
    }

    /// Applies one update, and returns its number and its time.
    pub fn update(&self, changes: impl FnOnce(&mut Layout) -> Vec<Change>) -> Stamp {
        let changes = changes(&mut self.shared.layout.lock().unwrap_or_else(PoisonError::into_inner));
        let stamp = self.shared.world().apply(changes);
        self.shared.updated.send_replace(stamp.update);
        stamp
    }

    pub fn touch(&self, kind: Kind, count: usize) -> Stamp {
        self.update(|layout| layout.touch(kind, count))
    }

    /// Applies one step of a pattern.
    pub fn step(&self, pattern: Pattern, count: usize) {
        let updates = self.shared.layout.lock().unwrap_or_else(PoisonError::into_inner).step(pattern, count);
        for changes in updates {
            self.update(|_| changes);
        }
    }

    /// Changes resources by a pattern, until the future is dropped.
    pub async fn churn(&self, churn: &Churn) {
        let mut ticks = tokio::time::interval(churn.every);
        ticks.tick().await; // the first tick is immediate
        loop {
            ticks.tick().await;
            self.step(churn.pattern, churn.count);
        }
    }

    fn server(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        if let Some(server) = self.server().take() {
            server.abort();
        }
    }
}
