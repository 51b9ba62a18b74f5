//! A server name that resolves to ten replicas: how streams are spread over them, and where they go when replicas leave.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use weir::relay::LinkEvent;
use weir::upstream::AdsConnector;

use super::life::{View, connector, response};
use super::plane::Answers;
use super::*;

const VIEWS: usize = 200;
const CONNECTIONS: usize = VIEWS / 5;
/// How often the name is resolved, and how often streams move.
const PACE: Duration = Duration::from_millis(20);
/// How often to start: a busy machine may be late now and then.
const TRIES: usize = 6;

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

    /// Returns how many streams it serves.
    fn streams(&self) -> usize {
        let mut streams = self.streams.lock().unwrap();
        while streams.try_join_next().is_some() {}
        streams.len()
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
        until(what, async || self.have_connections(CONNECTIONS) && self.has_each(few, many)).await;
    }

    fn have_connections(&self, count: usize) -> bool {
        self.connections().iter().sum::<usize>() == count
    }

    fn has_each(&self, few: usize, many: usize) -> bool {
        self.connections().iter().all(|count| (few..=many).contains(count))
    }

    /// Starts views until the connections of all are spread over the replicas. One whose answer is late is avoided, and others get its share.
    async fn spread(&self) -> Views {
        for _ in 0..TRIES {
            let views = Views::start(&self.connector("")).await;
            until("no attempts are left over", async || self.have_connections(CONNECTIONS)).await;
            if self.has_each(3, 5) {
                return views;
            }
            drop(views);
            until("no connection is left over", async || self.have_connections(0)).await;
        }
        panic!("replicas do not get their share");
    }
}

/// Several views, and the longest time that each was without a server.
struct Views {
    served: Arc<Mutex<BTreeSet<usize>>>,
    /// How often a stream of theirs has ended.
    ended: Arc<AtomicUsize>,
    longest: Arc<Mutex<Duration>>,
    beside: Arc<Mutex<Beside>>,
    tasks: Vec<JoinHandle<()>>,
}

/// How long the machine takes to open streams to a server that stays.
struct Beside {
    /// When the present one was begun.
    begun: Instant,
    longest: Duration,
}

impl Beside {
    /// Opens one stream after the other.
    async fn open(beside: Arc<Mutex<Self>>) {
        let replica = Replica::start_at(plane::own_address()).await;
        let connector = connector(replica.server.address, "");
        loop {
            let mut view = View::of(&connector);
            while !matches!(view.event_whenever().await, LinkEvent::Response(_)) {}
            drop(view);
            tokio::time::sleep(PACE).await;
            let mut beside = beside.lock().unwrap();
            *beside = Self { begun: Instant::now(), longest: beside.longest() };
        }
    }

    fn longest(&self) -> Duration {
        self.longest.max(self.begun.elapsed())
    }
}

impl Drop for Views {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Views {
    async fn start(connector: &AdsConnector) -> Self {
        let (served, longest) = (Arc::<Mutex<BTreeSet<usize>>>::default(), Arc::<Mutex<Duration>>::default());
        let ended = Arc::<AtomicUsize>::default();
        let beside = Arc::new(Mutex::new(Beside { begun: Instant::now(), longest: Duration::ZERO }));
        let one = |number: usize| {
            let (mut view, served, longest) = (View::of(connector), served.clone(), longest.clone());
            let ended = ended.clone();
            tokio::spawn(async move {
                let mut without_since = None;
                loop {
                    match view.event_whenever().await {
                        LinkEvent::Ended { .. } => {
                            without_since.get_or_insert_with(Instant::now);
                            served.lock().unwrap().remove(&number);
                            ended.fetch_add(1, Ordering::Relaxed);
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
        let mut tasks: Vec<_> = (0..VIEWS).map(one).collect();
        tasks.push(tokio::spawn(Beside::open(beside.clone())));
        let views = Self { served, ended, longest, beside, tasks };
        views.are_served().await;
        views
    }

    async fn are_served(&self) {
        until("all views are served", async || self.are_all_served()).await;
    }

    fn are_all_served(&self) -> bool {
        self.served.lock().unwrap().len() == VIEWS
    }

    fn ended(&self) -> usize {
        self.ended.load(Ordering::Relaxed)
    }

    /// Checks the longest time for which a view was without a server since the last call. A view may need two attempts, and the machine time for both.
    fn were_served_within(&self, limit: Duration) {
        let longest = std::mem::take(&mut *self.longest.lock().unwrap());
        let mut beside = self.beside.lock().unwrap();
        let of_machine = beside.longest().min(Duration::from_secs(2)); // what takes longer is the program's
        beside.longest = Duration::ZERO;
        drop(beside);
        assert!(
            longest < limit + 2 * of_machine,
            "a view was without a server for {longest:?}, and the machine took {of_machine:?} for a stream"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "keeps the processors busy, and measures how long views are not served"]
async fn night_two_hundred_views_stay_with_ten_replicas_that_are_replaced_in_turn_gracefully_or_not() {
    let _turn = HEAVY.lock().await;
    let mut replicas = Replicas::start(10).await;
    let views = replicas.spread().await;
    for number in 0..10 {
        let old = &replicas.all[number];
        let address = old.server.address;
        replicas.named.lock().unwrap().retain(|named| *named != address);
        let (ended, has_any) = (views.ended(), old.streams() > 0);
        // Connections that were on their way to it come after it has begun to leave.
        until("its streams have moved", async || {
            old.leave().await;
            old.connections() == 0
        })
        .await;
        if has_any {
            until("its views notice", async || views.ended() > ended).await;
        }
        views.are_served().await;
        let port = address.port();
        drop(replicas.all.remove(number));
        let other = Replica::start_at(SocketAddr::new(plane::own_address().ip(), port)).await;
        replicas.named.lock().unwrap().push(other.server.address);
        replicas.all.insert(number, other);
        tokio::time::sleep(2 * PACE).await; // so that the name is resolved meanwhile
    }
    views.were_served_within(Duration::from_secs(4)); // streams are opened again within 1 s

    for number in 0..10 {
        let killed = replicas.all.remove(number);
        let (address, ended, has_any) = (killed.server.address, views.ended(), killed.streams() > 0);
        killed.kill();
        if has_any {
            until("its views notice", async || views.ended() > ended).await;
        }
        views.are_served().await;
        replicas.all.insert(number, Replica::start_at(address).await);
    }
    views.were_served_within(Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "keeps the processors busy, and measures how long views are not served"]
async fn night_replicas_that_are_added_get_their_share_by_the_age_of_connections_and_those_that_have_left_the_name_lose_theirs()
 {
    let _turn = HEAVY.lock().await;
    let mut replicas = Replicas::start(10).await;
    let connector = replicas.connector("max_connection_age: 2s, drain: 100ms");
    let views = Views::start(&connector).await;
    replicas.have_each("each has its share", 3, 5).await;
    let port = replicas.all[0].server.address.port();
    replicas.add(2, port).await;
    replicas.have_each("two more have theirs", 3, 4).await;
    views.were_served_within(Duration::from_secs(3));

    // These replicas still serve, but the name does not resolve to them any more.
    let leaving = replicas.all.split_off(7);
    let stay: Vec<_> = replicas.all.iter().map(|replica| replica.server.address).collect();
    *replicas.named.lock().unwrap() = stay;
    until("their streams have moved", async || leaving.iter().all(|replica| replica.connections() == 0)).await;
    views.are_served().await;
    views.were_served_within(Duration::from_secs(3));
}
