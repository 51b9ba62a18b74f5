//! A server name that resolves to ten replicas: how streams are spread over them, and where they go when replicas leave.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use weir::relay::LinkEvent;
use weir::upstream::AdsConnector;

use super::life::{View, response};
use super::plane::Answers;
use super::*;

const VIEWS: usize = 200;
const CONNECTIONS: usize = VIEWS / 5;
/// How often the name is resolved, and how often streams move.
const PACE: Duration = Duration::from_millis(20);

/// A replica that responds on each stream at once, and ends the stream when the relay does.
struct Replica {
    server: Plane,
    /// The streams that it serves.
    streams: Arc<Mutex<JoinSet<()>>>,
    responds: JoinHandle<()>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.responds.abort();
        self.server.abort();
    }
}

impl Replica {
    async fn start_at(address: SocketAddr) -> Self {
        let mut server = Plane::answering_at(address, Answers::Status(12)).await;
        let mut arriving = std::mem::replace(&mut server.streams, mpsc::unbounded_channel().1);
        let streams = Arc::<Mutex<JoinSet<()>>>::default();
        let kept = streams.clone();
        let responds = tokio::spawn(async move {
            while let Some(mut stream) = arriving.recv().await {
                stream.send(response("a"));
                kept.lock().unwrap().spawn(async move { stream.requests_end().await });
            }
        });
        Self { server, streams, responds }
    }

    fn connections(&self) -> usize {
        self.server.connections()
    }

    /// Announces the end of its connections, and ends its streams a little later.
    async fn leave(&self) {
        self.server.leave();
        tokio::time::sleep(PACE).await;
        self.streams.lock().unwrap().abort_all();
    }

    /// Ends like a process that is killed.
    fn kill(self) {
        drop(self);
    }
}

/// Ten replicas on one port, and a name that resolves to their addresses.
struct Replicas {
    all: Vec<Replica>,
    named: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Replicas {
    async fn start(count: usize) -> Self {
        let first = Replica::start_at(plane::own_address()).await;
        let port = first.server.address.port();
        let mut replicas = Self { named: Arc::new(Mutex::new(vec![first.server.address])), all: vec![first] };
        replicas.add(count - 1, port).await;
        replicas
    }

    async fn add(&mut self, count: usize, port: u16) {
        for _ in 0..count {
            let address = SocketAddr::new(plane::own_address().ip(), port);
            self.all.push(Replica::start_at(address).await);
            self.named.lock().unwrap().push(address);
        }
    }

    fn connector(&self, more: &str) -> AdsConnector {
        let text = format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nupstream: {{servers: [{{uri: 'http://replicas.example:{}', variant: delta, \
             max_streams_per_connection: 5, backoff: {{initial: 200ms, reset_after: 0s}}, {more}}}]}}\n\
             limits: {{resource_timer: 10ms, second_silence: 10ms}}\n",
            self.all[0].server.address.port()
        );
        let config = Config::parse(Path::new("test.yaml"), &text).unwrap();
        let named = self.named.clone();
        let addresses = move || named.lock().unwrap().clone();
        AdsConnector::resolving(config.upstream.servers[0].ads().unwrap().clone(), addresses, PACE)
    }

    fn connections(&self) -> Vec<usize> {
        self.all.iter().map(Replica::connections).collect()
    }

    async fn have_each(&self, what: &str, few: usize, many: usize) {
        let are_spread = async || {
            let all = self.connections();
            all.iter().all(|count| (few..=many).contains(count)) && all.iter().sum::<usize>() == CONNECTIONS
        };
        until(what, are_spread).await;
    }
}

/// Several views, and the longest time that each was without a server.
struct Views {
    served: Arc<Mutex<BTreeSet<usize>>>,
    longest: Arc<Mutex<Duration>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Views {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Views {
    async fn start(connector: &AdsConnector) -> Self {
        let (served, longest) = (Arc::<Mutex<BTreeSet<usize>>>::default(), Arc::<Mutex<Duration>>::default());
        let one = |number: usize| {
            let (mut view, served, longest) = (View::of(connector), served.clone(), longest.clone());
            tokio::spawn(async move {
                let mut without_since = None;
                loop {
                    match view.event_whenever().await {
                        LinkEvent::Ended { .. } => {
                            without_since.get_or_insert_with(Instant::now);
                            served.lock().unwrap().remove(&number);
                        }
                        LinkEvent::Response(_) => {
                            if let Some(since) = without_since.take() {
                                let mut longest = longest.lock().unwrap();
                                *longest = longest.max(since.elapsed());
                            }
                            served.lock().unwrap().insert(number);
                        }
                        _ => {}
                    }
                }
            })
        };
        let tasks = (0..VIEWS).map(one).collect();
        let views = Self { served, longest, tasks };
        views.are_served().await;
        views
    }

    async fn are_served(&self) {
        until("all views are served", async || self.are_all_served()).await;
    }

    fn are_all_served(&self) -> bool {
        self.served.lock().unwrap().len() == VIEWS
    }

    /// Returns the longest time for which a view was without a server since the last call.
    fn longest(&self) -> Duration {
        std::mem::take(&mut *self.longest.lock().unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_views_stay_with_ten_replicas_that_are_replaced_in_turn_gracefully_or_not() {
    let mut replicas = Replicas::start(10).await;
    let connector = replicas.connector("");
    let views = Views::start(&connector).await;
    replicas.have_each("each has its share", 3, 5).await;
    for number in 0..10 {
        let address = replicas.all[number].server.address;
        replicas.named.lock().unwrap().retain(|named| *named != address);
        replicas.all[number].leave().await;
        let old = &replicas.all[number];
        until("its streams have moved", async || old.connections() == 0).await;
        views.are_served().await;
        let port = address.port();
        drop(replicas.all.remove(number));
        let other = Replica::start_at(SocketAddr::new(plane::own_address().ip(), port)).await;
        replicas.named.lock().unwrap().push(other.server.address);
        replicas.all.insert(number, other);
        tokio::time::sleep(2 * PACE).await; // so that the name is resolved meanwhile
    }
    let longest = views.longest();
    // Streams are opened again within 1 s, and the machine may pause.
    assert!(longest < Duration::from_secs(4), "a view was without a server for {longest:?}");

    for number in 0..10 {
        let killed = replicas.all.remove(number);
        let (address, has_any) = (killed.server.address, killed.connections() > 0);
        killed.kill();
        if has_any {
            until("its views notice", async || !views.are_all_served()).await;
        }
        views.are_served().await;
        replicas.all.insert(number, Replica::start_at(address).await);
    }
    let longest = views.longest();
    assert!(longest < Duration::from_secs(5), "a view was without a server for {longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_are_added_get_their_share_by_the_age_of_connections_and_those_that_have_left_the_name_lose_theirs()
 {
    let mut replicas = Replicas::start(10).await;
    let connector = replicas.connector("max_connection_age: 2s, drain: 100ms");
    let views = Views::start(&connector).await;
    replicas.have_each("each has its share", 3, 5).await;
    let port = replicas.all[0].server.address.port();
    replicas.add(2, port).await;
    replicas.have_each("two more have theirs", 3, 4).await;
    let longest = views.longest();
    assert!(longest < Duration::from_secs(3), "a view was without a server for {longest:?}");

    // These replicas still serve, but the name does not resolve to them any more.
    let leaving = replicas.all.split_off(7);
    let stay: Vec<_> = replicas.all.iter().map(|replica| replica.server.address).collect();
    *replicas.named.lock().unwrap() = stay;
    until("their streams have moved", async || leaving.iter().all(|replica| replica.connections() == 0)).await;
    views.are_served().await;
    let longest = views.longest();
    assert!(longest < Duration::from_secs(3), "a view was without a server for {longest:?}");
}
