//! The clients of one sharing key whose load reports are summed, and the task that reports them upstream.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::sync::{Notify, mpsc, watch};
use weir_core::proto::code;
use weir_core::proto::loads::LoadStatsRequest;
use weir_core::proto::node::Node;
use weir_core::protocol::loads::{Aggregate, LoadLimits, Order, Reporter};
use weir_core::protocol::session::Identity;
use weir_core::protocol::upstream::Backoff;
use weir_core::xds::{Peer, SharingKey};

use super::{Kept, LoadConnector, LoadEnd, LoadLink, Pools};
use crate::relay::admission::AdmissionError;
use crate::relay::{Clock, Views};

pub(super) struct Pool {
    pub(crate) key: SharingKey,
    views: Arc<Views>,
    clock: Clock,
    /// The bytes that all pools use, and their limit.
    kept: Arc<Kept>,
    most_kept: usize,
    /// Locked while one report is added or made; nothing awaits meanwhile.
    state: Mutex<PoolState>,
    /// The last order of the server. The newest is enough (LRS-3).
    order: watch::Sender<Option<Arc<Order>>>,
    /// A client has left, or the relay is stopping.
    look: Notify,
}

struct PoolState {
    aggregate: Aggregate,
    /// A client that connects now joins a new pool.
    closed: bool,
    /// This pool's bytes in `kept`.
    counted: usize,
}

/// How a stream to the server ended.
enum StreamEnd {
    /// The last client has left and everything is reported.
    Closed,
    Lost {
        /// Whether the server has sent an order on it.
        answered: bool,
    },
    /// Another server is active for the key.
    Moved,
}

/// A client's membership in a pool. Dropping it leaves the pool.
pub(super) struct Member {
    pool: Arc<Pool>,
    id: Reporter,
}

impl Pool {
    pub(crate) fn new(key: SharingKey, views: Arc<Views>, pools: &Pools, limits: LoadLimits) -> Self {
        let state = PoolState { aggregate: Aggregate::new(limits), closed: false, counted: 0 };
        let (clock, kept, most_kept) = (pools.clock, pools.kept.clone(), limits.bytes_total);
        let (state, order, look) = (Mutex::new(state), watch::Sender::new(None), Notify::new());
        Self { key, views, clock, kept, most_kept, state, order, look }
    }

    /// Adds a client, unless the pool is closed.
    pub(crate) fn join(self: &Arc<Self>) -> Option<Member> {
        let mut state = self.lock();
        (!state.closed).then(|| Member { pool: self.clone(), id: state.aggregate.join() })
    }

    /// Sends buffered reports at once, if a server is connected.
    pub(crate) fn hasten(&self) {
        self.lock().aggregate.hasten(self.clock.now());
        self.look.notify_one();
    }

    /// Keeps a stream open upstream until the last client has left and its counters were reported.
    pub(crate) async fn run(&self, connector: &dyn LoadConnector) {
        let mut server = self.views.active_server(&self.key);
        let mut backoff = Backoff::new(connector.backoff(server));
        loop {
            let active = self.views.active_server(&self.key);
            if active != server {
                server = active;
                backoff = Backoff::new(connector.backoff(server)); // failed attempts were to another server
            }
            let start = tokio::time::Instant::now();
            match self.stream_once(connector, server).await {
                StreamEnd::Closed => return,
                StreamEnd::Moved => continue,
                StreamEnd::Lost { answered } => backoff.ended(answered, start.elapsed()),
            }
            let mut moved = std::pin::pin!(self.views.active_server_changed(&self.key, server));
            let mut retry = tokio::time::Instant::now() + backoff.next(random());
            while tokio::time::Instant::now() < retry {
                tokio::select! {
                    () = tokio::time::sleep_until(retry) => {}
                    () = &mut moved => retry = tokio::time::Instant::now(),
                    () = self.time() => {}
                    () = self.look.notified() => {}
                }
                if self.settle(None) {
                    return;
                }
            }
        }
    }

    /// Opens the stream once, to the active server of the key.
    async fn stream_once(&self, connector: &dyn LoadConnector, server: usize) -> StreamEnd {
        let mut answered = false;
        let (reports, taken) = mpsc::channel(1);
        let (answers, mut orders) = mpsc::channel(1);
        let mut moved = std::pin::pin!(self.views.active_server_changed(&self.key, server));
        let mut carried = connector
            .carry(server, LoadLink { tenant: self.key.tenant(), first: self.opening(), reports: taken, answers });
        loop {
            let (full, closed) = (reports.capacity() == 0, reports.is_closed());
            let moved = tokio::select! {
                end = &mut carried => {
                    while let Ok(order) = orders.try_recv() {
                        answered = true;
                        self.receive(order); // sent right before the end
                    }
                    tracing::warn!(view = %self.key, reason = %end, "upstream load report stream ended; buffering reports");
                    self.lock().aggregate.on_ended(self.clock.now());
                    return if self.settle(None) { StreamEnd::Closed } else { StreamEnd::Lost { answered } };
                }
                () = &mut moved => true,
                Some(order) = orders.recv() => {
                    answered = true;
                    self.receive(order);
                    false
                }
                _ = reports.reserve(), if full && !closed => false,
                () = self.time(), if !full && !closed => false,
                () = self.look.notified() => false,
            };
            if moved {
                drop(reports); // the reports so far still go to this server
                let _ = tokio::time::timeout(PARTING, carried).await;
                tracing::info!(view = %self.key, "load reports switch to another server");
                self.lock().aggregate.on_ended(self.clock.now());
                return if self.settle(None) { StreamEnd::Closed } else { StreamEnd::Moved };
            }
            if self.settle(Some(&reports)) {
                drop(reports); // the server gets the last report, and ends the stream itself
                let _ = tokio::time::timeout(PARTING, carried).await;
                return StreamEnd::Closed;
            }
        }
    }

    /// The first message: the node of the key, with the feature for all kinds of orders (LRS-12).
    fn opening(&self) -> Bytes {
        let feature = Node { client_features: vec![ALL_CLUSTERS.into()], ..Node::default() };
        // Concatenated encodings merge into one message.
        let node = [self.key.upstream_node().as_ref(), &feature.encode_to_vec()].concat();
        LoadStatsRequest { node: Some(node.into()), ..Default::default() }.encode_to_vec().into()
    }

    fn receive(&self, order: Bytes) {
        match Order::read(order) {
            Ok(order) => {
                self.lock().aggregate.on_order(&order, self.clock.now());
                self.order.send_replace(Some(Arc::new(order)));
            }
            Err(error) => tracing::warn!(view = %self.key, %error, "invalid LoadStatsResponse; ignored"),
        }
    }

    /// Waits for the next deadline.
    async fn time(&self) {
        let deadline = self.lock().aggregate.next_deadline();
        match deadline {
            Some(moment) => tokio::time::sleep_until(self.clock.instant(moment)).await,
            None => std::future::pending().await,
        }
    }

    /// Runs due timers, and sends a report if one is due and there is room. Returns true if the pool is no longer needed.
    fn settle(&self, reports: Option<&mpsc::Sender<Bytes>>) -> bool {
        let now = self.clock.now();
        let mut state = self.lock();
        state.aggregate.on_time(now);
        if state.aggregate.is_due(now)
            && let Some(Ok(room)) = reports.map(mpsc::Sender::try_reserve)
        {
            room.send(state.aggregate.report(now).encode_to_vec().into());
        }
        self.count(&mut state);
        let lost = state.aggregate.take_lost();
        if lost > 0 {
            self.views.counters().load_reports_dropped(lost);
            tracing::warn!(view = %self.key, count = lost, "load reports dropped, in whole or in part");
        }
        state.closed |= state.aggregate.is_over();
        state.closed
    }

    /// Updates the byte count after a change.
    fn count(&self, state: &mut PoolState) {
        let now = state.aggregate.bytes();
        self.kept.replace(std::mem::replace(&mut state.counted, now), now);
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    /// Passes a client's reports to the pool, and orders to the client.
    pub(crate) async fn converse(
        self,
        first: LoadStatsRequest,
        peer: &Peer,
        mut identity: Identity,
        mut link: LoadLink,
    ) -> LoadEnd {
        let done = || LoadEnd::Said { code: code::OK, message: String::new() };
        let node = Node::decode(first.node.clone().unwrap_or_default()).unwrap_or_default();
        let reads_all = node.client_features.iter().any(|feature| feature == ALL_CLUSTERS);
        if !first.cluster_stats.is_empty() {
            self.report(&first);
        }
        let mut orders = self.pool.order.subscribe();
        let mut reported = None;
        loop {
            let order = orders.borrow_and_update().clone();
            let due = order.as_ref().map(|order| match reads_all || !order.is_for_all_clusters() {
                true => order.encoded().clone(),
                false => order.listing(self.pool.views.clusters(peer, &identity)),
            });
            let look_again = async {
                match &order {
                    Some(order) if !reads_all => tokio::time::sleep(order.interval()).await,
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                report = link.reports.recv() => match report.map(LoadStatsRequest::decode) {
                    Some(Ok(report)) => match report.node.as_ref().map_or(Ok(true), |node| identity.still_is(node)) {
                        Ok(true) => self.report(&report),
                        Ok(false) => return LoadEnd::Moved("node changed to another sharing key; reconnect"),
                        Err(denied) => return LoadEnd::Refused(AdmissionError::Denied(Box::new(denied))),
                    },
                    Some(Err(_)) => return LoadEnd::Unreadable,
                    None => return done(),
                },
                room = link.answers.reserve(), if due.is_some() && due != reported => {
                    let (Ok(room), Some(due)) = (room, due) else { return done() };
                    room.send(due.clone());
                    reported = Some(due);
                }
                // A member keeps its pool, and so the sender.
                _ = orders.changed() => {}
                () = look_again => {} // the clusters of the view may have changed
            }
        }
    }

    fn report(&self, report: &LoadStatsRequest) {
        let mut state = self.pool.lock();
        let free = self.pool.kept.free_of(self.pool.most_kept);
        state.aggregate.on_report(self.id, report, free);
        self.pool.count(&mut state);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.aggregate.leave(self.id);
        self.pool.count(&mut state);
        drop(state);
        self.pool.look.notify_one();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let counted = self.lock().counted;
        self.kept.replace(counted, 0);
    }
}

/// Returns a number between 0 and 1.
fn random() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(()) as f64 / u64::MAX as f64
}

/// The feature of clients that may be sent an order for every cluster (LRS-1).
const ALL_CLUSTERS: &str = "envoy.lrs.supports_send_all_clusters";
/// How long a control plane may take to read the last report and end the stream.
const PARTING: Duration = Duration::from_secs(1);
