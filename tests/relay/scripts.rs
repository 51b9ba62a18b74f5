//! A control plane that follows a script, which the test can change at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use weir_core::proto::discovery::{DeltaDiscoveryResponse, DiscoveryResponse, Resource};
use weir_core::proto::{Any, Request, Response};
use weir_core::protocol::session::Variant;

use crate::client::PATIENCE;
use crate::load_plane::LoadStream;
use crate::plane::{Plane, Stream, listen_at, own_address};
use crate::{BOTH, CDS, cluster, nonce_of};

/// How the server treats open and new streams.
#[derive(Clone, PartialEq)]
pub enum Way {
    /// Sends all names that are requested, each with this content.
    Gives(&'static str),
    /// Sends only these names, and all of them for a wildcard.
    GivesOnly(&'static [(&'static str, &'static str)]),
    /// Reads requests, and answers only liveness calls.
    Mute,
    /// Ends a stream at its first request.
    EndsUnheard,
    /// Sends these names, and ends the stream after its first response.
    EndsAfterOne(&'static [(&'static str, &'static str)]),
}

/// How a server can be unreachable.
#[derive(Debug, Clone, Copy)]
pub enum Outage {
    Refuses,
    /// The kernel accepts connections, and no process reads them.
    Hangs,
    /// Sends something other than HTTP/2, and closes.
    Babbles,
    Rejects(u16),
    EndsUnheard,
}

pub struct Server {
    pub address: SocketAddr,
    /// Streams of load reports, which are accepted in every script.
    pub loads: mpsc::UnboundedReceiver<LoadStream>,
    way: watch::Sender<Way>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    seen: Arc<Mutex<Seen>>,
}

/// What the server has seen of the relay.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// The number of streams that were opened so far, and of those open now.
    pub opened: usize,
    pub open: usize,
    /// The names that were requested on the newest stream.
    pub requested: BTreeSet<String>,
}

/// Returns an address at which no server listens, until the test starts one there.
pub async fn any_address() -> SocketAddr {
    TcpListener::bind(own_address()).await.unwrap().local_addr().unwrap()
}

impl Server {
    pub async fn start(way: Way) -> Self {
        Self::start_at(own_address(), way).await
    }

    pub async fn start_at(address: SocketAddr, way: Way) -> Self {
        let mut plane = Plane::start_at(address, &BOTH).await;
        let address = plane.address;
        let loads = std::mem::replace(&mut plane.loads, mpsc::unbounded_channel().1);
        let (way, ways) = watch::channel(way);
        let (stop, mut stopped) = oneshot::channel();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let log = seen.clone();
        let task = tokio::spawn(async move {
            let mut streams = JoinSet::new();
            loop {
                tokio::select! {
                    stream = plane.streams.recv() => drop(streams.spawn(serve(stream.unwrap(), ways.clone(), log.clone()))),
                    _ = &mut stopped => break,
                }
            }
            plane.kill().await;
        });
        Self { address, loads, way, stop, task, seen }
    }

    /// Changes the script, also for open streams.
    pub fn turn(&self, way: Way) {
        self.way.send_replace(way);
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    pub async fn sees(&self, what: &str, holds: impl Fn(&Seen) -> bool) {
        let wait = async {
            while !holds(&self.seen()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "{what}: {:?}", self.seen());
    }

    /// Closes the listener and every connection.
    pub async fn kill(self) -> SocketAddr {
        drop(self.stop);
        self.task.await.unwrap();
        self.address
    }
}

/// An address that cannot be used as a server, until this is dropped.
pub struct Nobody {
    task: Option<JoinHandle<()>>,
    _listener: Option<TcpListener>,
    plane: Option<Plane>,
    server: Option<Server>,
}

impl Nobody {
    pub async fn at(address: SocketAddr, outage: Outage) -> Self {
        let mut nobody = Self { task: None, _listener: None, plane: None, server: None };
        match outage {
            Outage::Refuses => {}
            Outage::Hangs => nobody._listener = Some(listen_at(address).await),
            Outage::Babbles => {
                let listener = listen_at(address).await;
                nobody.task = Some(tokio::spawn(async move {
                    loop {
                        let (mut socket, _) = listener.accept().await.unwrap();
                        let words = b"SSH-2.0-nobody\r\n";
                        let _ = tokio::io::AsyncWriteExt::write_all(&mut socket, words).await; // the relay may have disconnected
                    }
                }));
            }
            Outage::Rejects(status) => nobody.plane = Some(Plane::refusing_at(address, status).await),
            Outage::EndsUnheard => nobody.server = Some(Server::start_at(address, Way::EndsUnheard).await),
        }
        nobody
    }

    pub async fn go(mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
        if let Some(plane) = self.plane.take() {
            plane.kill().await;
        }
        if let Some(server) = self.server.take() {
            server.kill().await;
        }
    }
}

async fn serve(mut stream: Stream, mut ways: watch::Receiver<Way>, seen: Arc<Mutex<Seen>>) {
    let mut requested: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    {
        let mut seen = seen.lock().unwrap();
        seen.opened += 1;
        seen.open += 1;
        seen.requested.clear();
    }
    let (mut nonce, mut stated) = (0, BTreeSet::new());
    loop {
        let way = ways.borrow_and_update().clone();
        let (url, fresh) = tokio::select! {
            request = stream.requests.recv() => match request {
                Some(request) => {
                    stated.extend(stated_in(&request));
                    (request.type_url().to_owned(), names_of(&request))
                }
                None => break,
            },
            changed = ways.changed() => {
                if changed.is_err() {
                    break;
                }
                let way = ways.borrow().clone();
                if way == Way::EndsUnheard {
                    break;
                }
                for (url, names) in &requested {
                    nonce += 1;
                    answer(&stream, &way, url, names, &BTreeSet::new(), nonce);
                }
                continue;
            }
        };
        let known = requested.entry(url.clone()).or_default();
        let Some(fresh) = fresh.filter(|names| stream.variant == Variant::Delta || !names.is_subset(known)) else {
            continue; // an ACK or NACK
        };
        seen.lock().unwrap().requested.extend(fresh.iter().cloned());
        known.extend(fresh.iter().cloned());
        nonce += 1;
        match &way {
            Way::EndsUnheard => break,
            Way::EndsAfterOne(content) => {
                answer(&stream, &Way::GivesOnly(content), &url, &fresh, &stated, nonce);
                // Waits for the ACK or NACK first, so that the end does not overtake the response.
                while stream.requests.recv().await.is_some_and(|request| nonce_of(&request).is_empty()) {}
                break;
            }
            way => {
                let names = if stream.variant == Variant::Sotw { &*known } else { &fresh };
                answer(&stream, way, &url, names, &std::mem::take(&mut stated), nonce);
            }
        }
    }
    seen.lock().unwrap().open -= 1;
}

/// Returns the names of a request, `*` for everything; `None` if it is only an ACK or NACK.
fn names_of(request: &Request) -> Option<BTreeSet<String>> {
    let names = |names: &[String], first: bool| match names {
        [] if first => Some(BTreeSet::from(["*".to_owned()])),
        [] => None,
        names => Some(names.iter().cloned().collect()),
    };
    match request {
        Request::Sotw(request) => names(&request.resource_names, request.response_nonce.is_empty()),
        Request::Delta(request) => {
            let none = request.resource_names_unsubscribe.is_empty() && request.response_nonce.is_empty();
            names(&request.resource_names_subscribe, none)
        }
    }
}

/// Returns the names whose versions the client states.
fn stated_in(request: &Request) -> Vec<String> {
    match request {
        Request::Sotw(_) => Vec::new(),
        Request::Delta(request) => request.initial_resource_versions.keys().cloned().collect(),
    }
}

/// Sends what the script has of these names. In delta it removes stated names that a wildcard does not contain, as go-control-plane does.
fn answer(stream: &Stream, way: &Way, url: &str, names: &BTreeSet<String>, stated: &BTreeSet<String>, nonce: usize) {
    let content: Vec<(String, &str)> = match way {
        Way::Gives(content) => names.iter().filter(|name| *name != "*").map(|name| (name.clone(), *content)).collect(),
        Way::GivesOnly(content) => {
            let requested = content.iter().filter(|(name, _)| names.contains("*") || names.contains(*name));
            requested.map(|(name, content)| (name.to_string(), *content)).collect()
        }
        _ => return,
    };
    if content.is_empty() && url != CDS {
        return;
    }
    let any = |name: &str, content: &str| Any { type_url: url.to_owned(), ..cluster(name, content) };
    let (type_url, nonce) = (url.to_owned(), nonce.to_string());
    stream.respond(&match stream.variant {
        Variant::Sotw => Response::Sotw(DiscoveryResponse {
            version_info: nonce.clone(),
            resources: content.iter().map(|(name, content)| any(name, content)).collect(),
            type_url,
            nonce,
            ..Default::default()
        }),
        Variant::Delta => {
            let wrapped = content.iter().map(|(name, content)| Resource {
                name: name.clone(),
                version: content.to_string(),
                resource: Some(any(name, content)),
                ..Default::default()
            });
            let resources = wrapped.collect();
            let there = |name: &String| content.iter().any(|(known, _)| known == name);
            let gives_only = matches!(way, Way::GivesOnly(_)) && names.contains("*");
            let removed_resources = stated.iter().filter(|name| gives_only && !there(name)).cloned().collect();
            Response::Delta(DeltaDiscoveryResponse {
                type_url,
                nonce,
                resources,
                removed_resources,
                ..Default::default()
            })
        }
    });
}
