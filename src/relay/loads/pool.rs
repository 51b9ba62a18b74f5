//! The clients of one sharing key whose load reports are summed, and the task that reports them upstream.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::sync::{Notify, SetOnce, mpsc, watch};
use weir_core::proto::loads::LoadStatsRequest;
use weir_core::proto::node::Node;
use weir_core::protocol::loads::{Aggregate, LoadLimits, Order, Reporter};
use weir_core::protocol::session::Identity;
use weir_core::protocol::upstream::Backoff;
use weir_core::xds::{Peer, SharingKey};

use super::{Kept, LoadConnector, LoadEnd, LoadLink};
use crate::random::random;
use crate::relay::server_paces::ServerEvent;
use crate::relay::{Clock, KeyHeaders, Views};

pub(super) struct Pool {
    pub(super) key: SharingKey,
    headers: KeyHeaders,
    views: Arc<Views>,
    clock: Clock,
    /// The bytes that all pools use, and their limit.
    kept: Arc<Kept>,
    most_kept: usize,
    /// Locked while one report is added or made; nothing awaits meanwhile.
    state: Mutex<PoolState>,
    /// The last order of the server. The newest is enough (LRS-3).
    order: watch::Sender<Option<Arc<Order>>>,
    /// Notified when a client has left, the pool makes room, or the relay is stopping.
    look: Notify,
    makes_room: SetOnce<MakesRoom>,
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

/// How a pool makes room for another one.
struct MakesRoom {
    /// How many pools there may be.
    limit: usize,
    /// How long the pool may take to report what it has.
    parting: Duration,
}

impl Pool {
    pub(super) fn new(
        (key, headers): (SharingKey, KeyHeaders),
        views: Arc<Views>,
        clock: Clock,
        kept: Arc<Kept>,
        limits: LoadLimits,
    ) -> Self {
        let state = PoolState { aggregate: Aggregate::new(limits), closed: false, counted: 0 };
        let (state, order, look) = (Mutex::new(state), watch::Sender::new(None), Notify::new());
        let makes_room = SetOnce::new();
        Self { key, headers, views, clock, kept, most_kept: limits.bytes_total, state, order, look, makes_room }
    }

    /// Adds a client, unless the pool is closed.
    pub(super) fn join(&self) -> Option<Reporter> {
        let mut state = self.lock();
        (!state.closed).then(|| state.aggregate.join())
    }

    pub(super) fn leave(&self, client: Reporter) {
        let mut state = self.lock();
        state.aggregate.leave(client);
        self.count(&mut state);
        drop(state);
        self.look.notify_one();
    }

    /// Counts a client's report.
    pub(super) fn report(&self, client: Reporter, report: &LoadStatsRequest) {
        let mut state = self.lock();
        let free = self.kept.free_of(self.most_kept);
        state.aggregate.on_report(client, report, free);
        self.count(&mut state);
    }

    /// Returns the orders of the server. The last one may have come before this call.
    pub(super) fn orders(&self) -> watch::Receiver<Option<Arc<Order>>> {
        self.order.subscribe()
    }

    /// Returns the names of the clusters in the view of a client that it may read.
    pub(super) fn clusters(&self, peer: &Peer, identity: &Identity) -> Vec<String> {
        self.views.clusters(peer, identity)
    }

    /// Whether a client that connects now joins a new pool.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Ends the pool and the streams of its clients. It may take this long to report what it has.
    pub(super) fn make_room(&self, limit: usize, parting: Duration) {
        self.lock().closed = true;
        let _ = self.makes_room.set(MakesRoom { limit, parting }); // once for each pool
        self.look.notify_one();
    }

    /// Waits until the pool makes room for another one, if it ever does. Returns how many pools there may be.
    pub(super) async fn has_made_room(&self) -> usize {
        self.makes_room.wait().await.limit
    }

    /// Sends buffered reports at once, if the pool is connected to a server.
    pub(super) fn hasten(&self) {
        self.lock().aggregate.hasten(self.clock.now());
        self.look.notify_one();
    }

    /// Keeps a stream open upstream until the last client has left and its counters were reported.
    pub(super) async fn run(&self, connector: &dyn LoadConnector) {
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
        let mut carried = connector.carry(
            server,
            LoadLink {
                tenant: self.key.tenant(),
                headers: self.headers.clone(),
                first: self.opening(),
                reports: taken,
                answers,
            },
        );
        loop {
            let (full, closed) = (reports.capacity() == 0, reports.is_closed());
            let moved = tokio::select! {
                end = &mut carried => {
                    while let Ok(order) = orders.try_recv() {
                        answered = true;
                        self.receive(order); // sent right before the end
                    }
                    if let Some(unlogged) = self.line(ServerEvent::LoadsEnded) {
                        tracing::warn!(view = %self.key, reason = %end, unlogged, "upstream load report stream ended; buffering reports");
                    }
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
                if let Some(unlogged) = self.line(ServerEvent::LoadsMoved) {
                    tracing::info!(view = %self.key, unlogged, "load reports switch to another server");
                }
                self.lock().aggregate.on_ended(self.clock.now());
                return if self.settle(None) { StreamEnd::Closed } else { StreamEnd::Moved };
            }
            if self.settle(Some(&reports)) {
                self.part(reports, carried).await;
                return StreamEnd::Closed;
            }
        }
    }

    /// Waits until the server has received the last report, and has ended the stream.
    async fn part(&self, reports: mpsc::Sender<Bytes>, carried: impl Future<Output = LoadEnd>) {
        let parting = self.makes_room.get().map_or(PARTING, |room| room.parting);
        if parting.is_zero() {
            return;
        }
        let last = async {
            if let Ok(room) = reports.reserve().await
                && let Some(report) = self.last_report()
            {
                room.send(report);
            }
            drop(reports);
            std::future::pending::<()>().await;
        };
        let _ = tokio::time::timeout(parting, async {
            tokio::select! {
                _ = carried => {}
                () = last => {}
            }
        })
        .await;
    }

    /// Returns the last report of a pool that makes room. Other pools close when nothing is left to report.
    fn last_report(&self) -> Option<Bytes> {
        self.makes_room.get()?;
        let (mut state, now) = (self.lock(), self.clock.now());
        state.aggregate.hasten(now);
        let report = state.aggregate.is_due(now).then(|| state.aggregate.report(now));
        self.count(&mut state);
        report.map(|report| report.encode_to_vec().into())
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
            Err(error) => {
                if let Some(unlogged) = self.line(ServerEvent::UnreadableOrder) {
                    tracing::warn!(view = %self.key, %error, unlogged, "invalid LoadStatsResponse; ignored");
                }
            }
        }
    }

    /// Decides whether a repeatable event of the server is logged. Returns how many were not logged since the last line.
    fn line(&self, event: ServerEvent) -> Option<u64> {
        self.views.shared().server_paces.line(event)
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
        self.count_lost(&mut state);
        state.closed |= state.aggregate.is_over();
        state.closed
    }

    fn count_lost(&self, state: &mut PoolState) {
        let lost = state.aggregate.take_lost();
        if lost > 0 {
            self.views.counters().load_reports_dropped(lost);
            if let Some(unlogged) = self.line(ServerEvent::LoadsLost) {
                tracing::warn!(view = %self.key, count = lost, unlogged, "load reports dropped, in whole or in part");
            }
        }
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

/// Drops what a pool could not report before its end.
impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.lock();
        state.aggregate.discard();
        self.count(&mut state);
        self.count_lost(&mut state);
    }
}

/// The feature of clients that may be sent an order for every cluster (LRS-1).
pub(super) const ALL_CLUSTERS: &str = "envoy.lrs.supports_send_all_clusters";
/// How long a control plane may take to read the last report and end the stream.
pub(super) const PARTING: Duration = Duration::from_secs(1);
