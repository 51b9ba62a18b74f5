//! A TCP balancer. It passes each connection to the next ready relay, as a Service of Kubernetes does, and knows nothing of HTTP.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// A running balancer. It ends when it is dropped.
pub struct Balancer {
    pub address: SocketAddr,
    relays: Arc<[Backend]>,
    running: JoinHandle<()>,
}

/// A relay behind the balancer.
struct Backend {
    address: SocketAddr,
    probes: SocketAddr,
    is_ready: AtomicBool,
}

impl Balancer {
    /// Starts a balancer, given each relay's addresses for clients and for probes, and waits until all relays are ready.
    pub async fn start(relays: impl IntoIterator<Item = (SocketAddr, SocketAddr)>) -> anyhow::Result<Self> {
        let of = |(address, probes)| Backend { address, probes, is_ready: AtomicBool::new(false) };
        let relays: Arc<[Backend]> = relays.into_iter().map(of).collect();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no address for the balancer")?;
        let address = listener.local_addr()?;
        let running = tokio::spawn(run(listener, relays.clone()));
        let balancer = Self { address, relays, running };
        balancer.all_are_ready(START).await.context("the relays are not ready")?;
        Ok(balancer)
    }

    /// Waits until all relays are ready, so that each gets connections.
    pub async fn all_are_ready(&self, limit: Duration) -> anyhow::Result<()> {
        let all = async {
            while !self.relays.iter().all(|relay| relay.is_ready.load(Ordering::Relaxed)) {
                sleep(LOOK).await;
            }
        };
        timeout(limit, all).await.context("a relay does not become ready")
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn run(listener: TcpListener, relays: Arc<[Backend]>) {
    let mut tasks = JoinSet::new();
    for place in 0..relays.len() {
        let relays = relays.clone();
        tasks.spawn(async move { relays[place].probe().await });
    }
    for next in 0.. {
        let Ok((client, _)) = listener.accept().await else {
            sleep(LOOK).await; // there may be too many open files for now
            continue;
        };
        let ready = (0..relays.len()).map(|more| &relays[(next + more) % relays.len()]);
        let relay = ready.into_iter().find(|relay| relay.is_ready.load(Ordering::Relaxed));
        // If no relay is ready the connection is closed, like one to an address without endpoints.
        if let Some(Backend { address, .. }) = relay {
            tasks.spawn(pass_on(client, *address));
        }
        while tasks.try_join_next().is_some() {}
    }
}

async fn pass_on(mut client: TcpStream, relay: SocketAddr) {
    if let Ok(mut relay) = TcpStream::connect(relay).await {
        let _ = copy_bidirectional(&mut client, &mut relay).await; // either side may end it
    }
}

impl Backend {
    /// Checks again and again whether the relay is ready.
    async fn probe(&self) {
        loop {
            let is_ready = matches!(timeout(PATIENCE, is_ready(self.probes)).await, Ok(Ok(true)));
            self.is_ready.store(is_ready, Ordering::Relaxed);
            sleep(PERIOD).await;
        }
    }
}

async fn is_ready(probes: SocketAddr) -> std::io::Result<bool> {
    let mut socket = TcpStream::connect(probes).await?;
    socket.write_all(b"GET /ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await?;
    Ok(answer.starts_with("HTTP/1.1 200"))
}

const PERIOD: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(1);
const START: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(10);
