//! The clients of one key whose loads are aggregated, and the task that reports them upstream.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::sync::{Notify, mpsc, watch};

use super::{Kept, LoadConnector, LoadEnd, LoadLink, Pools};
use crate::proto::code;
use crate::proto::loads::LoadStatsRequest;
use crate::proto::node::Node;
use crate::protocol::loads::{Aggregate, LoadLimits, Order, Reporter};
use crate::protocol::upstream::Backoff;
use crate::relay::{Clock, Views};
use crate::xds::SharingKey;

pub(super) struct Pool {
    pub(crate) key: SharingKey,
    views: Arc<Views>,
    clock: Clock,
    /// What all pools keep, and how much that may be.
    kept: Arc<Kept>,
    most_kept: usize,
    /// Held for one report that is added or made; nothing waits inside.
    state: Mutex<PoolState>,
    /// What upstream has ordered. The newest is all that anybody needs (LRS-3).
    order: watch::Sender<Option<Arc<Order>>>,
    /// A client has left, or the relay is going.
    look: Notify,
}

struct PoolState {
    aggregate: Aggregate,
    /// A client that connects now joins another pool.
    closed: bool,
    /// Bytes that are in `kept` for this pool.
    counted: usize,
}

/// How an opening of the stream came to its end.
enum StreamEnd {
    /// No client needs the pool any more.
    Closed,
    Lost {
        /// The server has ordered something on it.
        answered: bool,
    },
    /// Another server is active for the key.
    Moved,
}

/// A client's place in a pool, from which it goes when this is dropped.
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

    /// Takes a client on, unless the pool is closed.
    pub(crate) fn join(self: &Arc<Self>) -> Option<Member> {
        let mut state = self.lock();
        (!state.closed).then(|| Member { pool: self.clone(), id: state.aggregate.join() })
    }

    /// Buffered reports are sent at once, where there is a server to send them to.
    pub(crate) fn hasten(&self) {
        self.lock().aggregate.hasten(self.clock.now());
        self.look.notify_one();
    }

    /// Keeps a stream open upstream until the last client has gone and its counters were reported.
    pub(crate) async fn run(&self, connector: &dyn LoadConnector) {
        let mut server = self.views.active_server(&self.key);
        let mut backoff = Backoff::new(connector.backoff(server));
        loop {
            let active = self.views.active_server(&self.key);
            if active != server {
                server = active;
                backoff = Backoff::new(connector.backoff(server)); // what was tried in vain is another server's
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

    /// One opening of the stream, to the server that is active for the key.
    async fn stream_once(&self, connector: &dyn LoadConnector, server: usize) -> StreamEnd {
        let mut answered = false;
        let (reports, taken) = mpsc::channel(1);
        let (answers, mut orders) = mpsc::channel(1);
        let mut moved = std::pin::pin!(self.views.active_server_changed(&self.key, server));
        let mut carried = connector.carry(server, LoadLink { first: self.opening(), reports: taken, answers });
        loop {
            let (full, closed) = (reports.capacity() == 0, reports.is_closed());
            let moved = tokio::select! {
                end = &mut carried => {
                    while let Ok(order) = orders.try_recv() {
                        answered = true;
                        self.hear(order); // it came right before the end
                    }
                    tracing::warn!(view = %self.key, reason = %end, "upstream load report stream ended; buffering reports");
                    self.lock().aggregate.on_ended(self.clock.now());
                    return if self.settle(None) { StreamEnd::Closed } else { StreamEnd::Lost { answered } };
                }
                () = &mut moved => true,
                Some(order) = orders.recv() => {
                    answered = true;
                    self.hear(order);
                    false
                }
                _ = reports.reserve(), if full && !closed => false,
                () = self.time(), if !full && !closed => false,
                () = self.look.notified() => false,
            };
            if moved {
                drop(reports); // what was made for this server is still for it
                let _ = tokio::time::timeout(PARTING, carried).await;
                tracing::info!(view = %self.key, "load reports switch to another server");
                self.lock().aggregate.on_ended(self.clock.now());
                return if self.settle(None) { StreamEnd::Closed } else { StreamEnd::Moved };
            }
            if self.settle(Some(&reports)) {
                drop(reports); // upstream gets the last report, and ends the stream by itself
                let _ = tokio::time::timeout(PARTING, carried).await;
                return StreamEnd::Closed;
            }
        }
    }

    /// Its node is the key's, and the relay can do whatever an order may ask (LRS-12).
    fn opening(&self) -> Bytes {
        let feature = Node { client_features: vec![ALL_CLUSTERS.into()], ..Node::default() };
        // Encoded messages merge by standing behind one another.
        let node = [self.key.upstream_node().as_ref(), &feature.encode_to_vec()].concat();
        LoadStatsRequest { node: Some(node.into()), ..Default::default() }.encode_to_vec().into()
    }

    fn hear(&self, order: Bytes) {
        match Order::read(order) {
            Ok(order) => {
                self.lock().aggregate.on_order(&order, self.clock.now());
                self.order.send_replace(Some(Arc::new(order)));
            }
            Err(error) => tracing::warn!(view = %self.key, %error, "invalid LoadStatsResponse; ignored"),
        }
    }

    /// Until something is due.
    async fn time(&self) {
        let deadline = self.lock().aggregate.next_deadline();
        match deadline {
            Some(moment) => tokio::time::sleep_until(self.clock.instant(moment)).await,
            None => std::future::pending().await,
        }
    }

    /// Lets time work and reports if that is due and there is room for it. True if nobody needs the pool any more.
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

    /// Notes how much is kept, after whatever may have changed that.
    fn count(&self, state: &mut PoolState) {
        let now = state.aggregate.bytes();
        self.kept.replace(std::mem::replace(&mut state.counted, now), now);
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    /// Carries a client's reports into the pool, and to the client what is wanted of it.
    pub(crate) async fn converse(self, first: LoadStatsRequest, peer: IpAddr, mut link: LoadLink) -> LoadEnd {
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
                false => order.listing(self.pool.views.clusters(&self.pool.key, peer)),
            });
            let look_again = async {
                match &order {
                    Some(order) if !reads_all => tokio::time::sleep(order.interval()).await,
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                report = link.reports.recv() => match report.map(LoadStatsRequest::decode) {
                    Some(Ok(report)) if self.is_anothers(&first, &report) => {
                        return LoadEnd::Moved("node changed to another sharing key; reconnect");
                    }
                    Some(Ok(report)) => self.report(&report),
                    Some(Err(_)) => return LoadEnd::Unreadable,
                    None => return done(),
                },
                room = link.answers.reserve(), if due.is_some() && due != reported => {
                    let (Ok(room), Some(due)) = (room, due) else { return done() };
                    room.send(due.clone());
                    reported = Some(due);
                }
                // A sender that is gone is the pool, which a member keeps.
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

    /// The client's node changed to another key, which belongs to another pool (KEY-14).
    fn is_anothers(&self, first: &LoadStatsRequest, report: &LoadStatsRequest) -> bool {
        let node = report.node.as_ref().filter(|node| first.node.as_ref() != Some(*node));
        node.is_some() && self.pool.views.identify(node).ok().is_none_or(|identity| *identity.key() != self.pool.key)
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

/// Between 0 and 1.
fn random() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(()) as f64 / u64::MAX as f64
}

/// The feature of clients that may be asked to report every cluster (LRS-1).
const ALL_CLUSTERS: &str = "envoy.lrs.supports_send_all_clusters";
/// How long a control plane has to take the last report and to end the stream.
const PARTING: Duration = Duration::from_secs(1);
