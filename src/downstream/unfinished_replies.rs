//! Replies of several pieces on their way to clients. A client that reads nothing keeps the resources of its reply in memory, which may have been
//! replaced long ago. Above a limit Weir gives such replies up, first those that keep the most memory for the fewest clients.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::yield_now;
use weir_core::protocol::moment::Moment;
use weir_core::xds::{Resource, Type};

use super::encode::{Head, Outgoing};
use crate::compression::END;
use crate::limit::{Limit, LimitCounters};
use crate::log_pace::LogPace;
use crate::relay::SessionHandle;
use crate::shared_runtime;

/// The unfinished replies of all clients of the process.
pub(super) struct UnfinishedReplies {
    /// A reload may change it.
    limit: AtomicUsize,
    counters: Arc<LimitCounters>,
    given_up: LogPace,
    state: Mutex<ReplyList>,
}

#[derive(Default)]
struct ReplyList {
    replies: Vec<Weak<Unfinished>>,
    /// Swept when this many entries are reached, so the work for each entry is constant.
    sweep_at: usize,
    /// Whether a task watches the replies.
    watched: bool,
}

/// A reply with unsent pieces. They can be freed while the body is not polled, as happens when the client reads nothing.
pub(super) struct Unfinished {
    outgoing: Mutex<Option<Outgoing>>,
    view: Arc<dyn CurrentResources>,
    taken: AtomicUsize,
    /// How many pieces were taken at the last check, plus one. 0: not checked yet.
    looked: AtomicUsize,
}

/// A piece of a reply, and the bytes before it.
pub(super) struct NextPiece {
    pub(super) head: Head,
    pub(super) bytes: Bytes,
    pub(super) is_last: bool,
    pub(super) is_shared: bool,
    /// The bytes after a last piece.
    pub(super) end: Option<[u8; END]>,
}

/// Tells whether resources are still current in the view.
pub(super) trait CurrentResources: Send + Sync {
    /// Returns the indices of the resources that the view has removed or changed.
    fn outdated(&self, kind: &Type, resources: &[Arc<Resource>]) -> Vec<usize>;
}

impl CurrentResources for SessionHandle {
    fn outdated(&self, kind: &Type, resources: &[Arc<Resource>]) -> Vec<usize> {
        let newest = self.newest();
        (0..resources.len()).filter(|at| !newest.has_body_of(kind, &resources[*at])).collect()
    }
}

/// A message, and the clients that are being sent it.
#[derive(Default)]
struct Holder {
    clients: Vec<Arc<Unfinished>>,
    /// The outdated bodies of the message by address, with their lengths.
    bodies: Vec<(usize, usize)>,
    /// The compressed forms of the message by address, with their lengths. Mostly there is one.
    forms: Vec<(usize, usize)>,
}

impl UnfinishedReplies {
    pub(super) fn new(limit: usize, counters: Arc<LimitCounters>) -> Arc<Self> {
        Arc::new(Self { limit: limit.into(), counters, given_up: LogPace::once_a_minute(), state: Mutex::default() })
    }

    /// Sets the limit, also for replies that are on their way.
    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Tracks the unsent pieces of a reply, which may be given up if they keep too much memory. Must be called within a runtime.
    pub(super) fn enter(self: &Arc<Self>, outgoing: Outgoing, view: Arc<dyn CurrentResources>) -> Arc<Unfinished> {
        let (taken, looked) = Default::default();
        let reply = Arc::new(Unfinished { outgoing: Mutex::new(Some(outgoing)), view, taken, looked });
        let mut state = lock(&self.state);
        if state.replies.len() >= state.sweep_at.max(64) {
            state.replies.retain(|reply| reply.strong_count() > 0);
            state.sweep_at = state.replies.len() * 2;
        }
        state.replies.push(Arc::downgrade(&reply));
        if !state.watched {
            state.watched = true;
            shared_runtime::spawn(watch(Arc::downgrade(self)));
        }
        reply
    }

    /// Gives replies up while too many outdated bytes are kept. Returns whether any reply is left to check.
    async fn look(&self) -> bool {
        let replies = self.replies();
        let mut holders = HashMap::<usize, Holder>::new();
        let mut most = 0;
        for reply in &replies {
            let kept = lock(&reply.outgoing).as_ref().map(|outgoing| (outgoing.message(), outgoing.form()));
            let Some(((message, length), form)) = kept else { continue };
            let holder = holders.entry(message).or_default();
            most += if holder.clients.is_empty() { length } else { 0 };
            if let Some(form) = form.filter(|form| !holder.forms.contains(form)) {
                most += form.1;
                holder.forms.push(form);
            }
            holder.clients.push(reply.clone());
        }
        if most > self.limit.load(Ordering::Relaxed) {
            let mut holders = holders.into_values().collect::<Vec<_>>();
            for holder in &mut holders {
                holder.bodies = outdated(&holder.clients[0]).await;
                if !holder.bodies.is_empty() {
                    holder.bodies.append(&mut holder.forms); // the compressed forms are outdated too
                }
            }
            self.give_up(holders);
        }
        replies.iter().for_each(|reply| reply.note_look());
        drop(replies);
        let mut state = lock(&self.state);
        state.replies.retain(|reply| reply.strong_count() > 0);
        state.watched = !state.replies.is_empty();
        state.watched
    }

    fn replies(&self) -> Vec<Arc<Unfinished>> {
        lock(&self.state).replies.iter().filter_map(Weak::upgrade).collect()
    }

    /// A body is freed when no message has it any more, and a message when none of its clients has it any more.
    fn give_up(&self, mut holders: Vec<Holder>) {
        let mut users = HashMap::<usize, usize>::new();
        let mut kept = 0;
        for (body, length) in holders.iter().flat_map(|holder| &holder.bodies) {
            let users = users.entry(*body).or_default();
            kept += if *users == 0 { *length } else { 0 };
            *users += 1;
        }
        let (before, limit, mut ended) = (kept, self.limit.load(Ordering::Relaxed), 0);
        holders.sort_by_key(|holder| holder.bytes_per_client());
        while kept > limit
            && let Some(holder) = holders.pop()
        {
            if holder.bodies.is_empty() || !holder.clients.iter().all(|client| client.is_stuck()) {
                continue;
            }
            for client in &holder.clients {
                let freed = lock(&client.outgoing).take();
                self.counters.reached(Limit::OutdatedReplyBytes);
                drop(freed); // after the lock is released
            }
            ended += holder.clients.len();
            for (body, length) in &holder.bodies {
                let users = users.entry(*body).or_default();
                *users -= 1;
                kept -= if *users == 0 { *length } else { 0 };
            }
        }
        if ended > 0
            && let Some(unlogged) = self.given_up.line(std::time::Instant::now())
        {
            tracing::warn!(
                streams = ended,
                unlogged,
                bytes = before,
                limit,
                "clients take nothing of replies that are outdated; their streams end ({})",
                Limit::OutdatedReplyBytes.key()
            );
        }
    }
}

impl Holder {
    fn bytes_per_client(&self) -> usize {
        self.bodies.iter().map(|(_, length)| length).sum::<usize>() / self.clients.len().max(1)
    }
}

impl Unfinished {
    /// Returns the next piece, or `None` if the reply was given up.
    pub(super) fn next_piece(&self, now: Moment) -> Option<NextPiece> {
        let mut outgoing = lock(&self.outgoing);
        self.taken.fetch_add(1, Ordering::Relaxed);
        Some(NextPiece::of(outgoing.as_mut()?, now))
    }

    /// Gives the reply up if its connection is charged for it, and returns whether it is. Others have the bodies of any other reply.
    pub(super) fn give_way(&self) -> bool {
        let freed = lock(&self.outgoing).take_if(|outgoing| outgoing.is_charged());
        freed.is_some() // dropped after the lock is released
    }

    fn note_look(&self) {
        self.looked.store(self.taken.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Whether no piece was taken since the last check.
    fn is_stuck(&self) -> bool {
        self.looked.load(Ordering::Relaxed) == self.taken.load(Ordering::Relaxed) + 1
    }
}

impl NextPiece {
    pub(super) fn of(outgoing: &mut Outgoing, now: Moment) -> Self {
        let (head, bytes) = outgoing.next_piece();
        outgoing.note_progress(now);
        Self { head, bytes, is_last: !outgoing.has_more(), is_shared: outgoing.is_shared(), end: outgoing.end() }
    }
}

/// Returns the outdated bodies of a reply. Takes no lock during the lookup, and yields to other tasks.
async fn outdated(reply: &Unfinished) -> Vec<(usize, usize)> {
    let mut bodies = Vec::new();
    let Some((kind, resources)) = lock(&reply.outgoing).as_ref().map(Outgoing::resources) else { return bodies };
    for resources in resources.chunks(LOOKED_UP_AT_ONCE) {
        let found = reply.view.outdated(&kind, resources).into_iter().map(|at| &resources[at].body);
        bodies.extend(found.map(|body| (Arc::as_ptr(body).addr(), body.bytes().len())));
        yield_now().await;
    }
    bodies
}

async fn watch(replies: Weak<UnfinishedReplies>) {
    loop {
        tokio::time::sleep(BETWEEN_LOOKS).await;
        let Some(replies) = replies.upgrade() else { return };
        if !replies.look().await {
            return;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time between checks. A client that takes no piece within it may lose an outdated reply.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);
const LOOKED_UP_AT_ONCE: usize = 1000;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use weir_core::proto::{Any, discovery};
    use weir_core::protocol::session::{Reply, Variant};
    use weir_core::xds::{Body, BodyStore, TypeTable};

    use super::*;
    use crate::compression::Compression;
    use crate::downstream::encode::{CompressedForms, CompressionClient, PIECE, SharedMessages};
    use crate::memory::{Budget, Memory};

    const MIB: usize = 1 << 20;

    /// A view that has replaced some of its resources.
    #[derive(Default)]
    struct Replaced(HashSet<&'static str>);

    impl CurrentResources for Replaced {
        fn outdated(&self, _: &Type, resources: &[Arc<Resource>]) -> Vec<usize> {
            (0..resources.len()).filter(|at| self.0.contains(resources[*at].name.as_str())).collect()
        }
    }

    fn resource(name: &str, bytes: usize) -> Arc<Resource> {
        resource_of(name, vec![7; bytes])
    }

    fn resource_of(name: &str, value: Vec<u8>) -> Arc<Resource> {
        let url = "type.googleapis.com/own.Type";
        let resource = Some(Any { type_url: url.into(), value: value.into() });
        let wrapper = discovery::Resource { name: name.into(), resource, ..Default::default() };
        Arc::new(Resource::from_wrapper(0, wrapper, &TypeTable::new().resolve(url), &BodyStore::default()).unwrap())
    }

    struct Fleet {
        replies: Arc<UnfinishedReplies>,
        messages: Arc<SharedMessages>,
        view: Arc<Replaced>,
    }

    impl Fleet {
        fn new(limit: usize, replaced: &[&'static str]) -> Self {
            let view = Arc::new(Replaced(replaced.iter().copied().collect()));
            let replies = UnfinishedReplies::new(limit, Arc::default());
            Self { replies, messages: SharedMessages::new("weir"), view }
        }

        fn client(&self, resources: &[&Arc<Resource>]) -> Arc<Unfinished> {
            let kind = TypeTable::new().resolve("type.googleapis.com/own.Type");
            let reply = Reply::sample(kind, resources.iter().map(|resource| (*resource).clone()).collect());
            let outgoing = Outgoing::new(reply, Variant::Delta, &self.messages);
            self.replies.enter(outgoing, self.view.clone())
        }

        /// Checks twice. No client takes anything in between.
        async fn stand_still(&self) {
            assert!(self.replies.look().await);
            self.replies.look().await;
        }

        fn given_up(&self) -> u64 {
            self.replies.counters.counts().find(|(key, _)| *key == Limit::OutdatedReplyBytes.key()).unwrap().1
        }
    }

    fn is_given_up(reply: &Unfinished) -> bool {
        reply.next_piece(Moment::START).is_none()
    }

    fn body_of(resource: Arc<Resource>) -> Weak<Body> {
        Arc::downgrade(&resource.body)
    }

    #[tokio::test(start_paused = true)]
    async fn what_keeps_most_outdated_bytes_for_the_fewest_clients_is_given_up_and_freed() {
        let [large, small, wide] =
            [("large", 4), ("small", 1), ("wide", 6)].map(|(name, mib)| resource(name, mib * MIB));
        let fleet = Fleet::new(7 * MIB, &["large", "small", "wide"]);
        let (one, other) = (fleet.client(&[&large]), fleet.client(&[&small]));
        let many = [(); 3].map(|()| fleet.client(&[&wide]));
        let (large, small) = (body_of(large), body_of(small));
        fleet.stand_still().await;
        assert!(is_given_up(&one) && large.upgrade().is_none());
        assert!(!is_given_up(&other) && small.upgrade().is_some());
        assert!(many.iter().all(|client| !is_given_up(client)), "6 MiB for three clients");
        assert_eq!(fleet.given_up(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_view_still_has_costs_nothing() {
        let resources = [1, 2, 3].map(|number| resource(&format!("current-{number}"), 4 * MIB));
        let fleet = Fleet::new(MIB, &["outdated"]);
        let clients = resources.each_ref().map(|resource| fleet.client(&[resource]));
        fleet.stand_still().await;
        assert!(clients.iter().all(|client| !is_given_up(client)));
        assert_eq!(fleet.given_up(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_that_a_reload_lowers_counts_for_replies_that_are_on_their_way() {
        let large = resource("large", 4 * MIB);
        let fleet = Fleet::new(5 * MIB, &["large"]);
        let stuck = fleet.client(&[&large]);
        fleet.stand_still().await;
        assert!(!is_given_up(&stuck));
        fleet.replies.set_limit(MIB);
        fleet.stand_still().await;
        assert!(is_given_up(&stuck));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_pieces_keeps_its_reply_and_all_who_share_it() {
        let [fast, stuck] = ["fast", "stuck"].map(|name| resource(name, 4 * MIB));
        let fleet = Fleet::new(MIB, &["fast", "stuck"]);
        let clients = [&fast, &fast, &stuck].map(|resource| fleet.client(&[resource]));
        fleet.replies.look().await;
        assert!(!is_given_up(&clients[0]), "takes a piece");
        fleet.replies.look().await;
        assert_eq!(clients.each_ref().map(|client| is_given_up(client)), [false, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_several_replies_have_is_freed_with_the_last() {
        let [both, own] = ["both", "own"].map(|name| resource(name, 4 * MIB));
        let fleet = Fleet::new(MIB, &["both", "own"]);
        let clients = [fleet.client(&[&both, &own]), fleet.client(&[&both])];
        let (both, own) = (body_of(both), body_of(own));
        fleet.stand_still().await;
        assert!(clients.iter().all(|client| is_given_up(client)));
        assert!(both.upgrade().is_none() && own.upgrade().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_compressed_of_an_outdated_reply_counts_too() {
        let text = (0..MIB / 2).flat_map(|number| format!("{:08x}", number * number % 99_991).into_bytes());
        let large = resource_of("large", text.collect());
        for is_compressed in [false, true] {
            let fleet = Fleet::new(4 * MIB + 1000, &["large"]);
            let memory = Memory::new(Budget::unlimited(), Arc::default(), Arc::default());
            let forms = CompressedForms::new(memory, Arc::default());
            let kind = TypeTable::new().resolve("type.googleapis.com/own.Type");
            let reply = Reply::sample(kind, vec![large.clone()]);
            let mut outgoing = Outgoing::new(reply, Variant::Delta, &fleet.messages);
            if is_compressed {
                outgoing = match forms.compress(outgoing, CompressionClient::new(Compression::Always, "view")) {
                    Ok(outgoing) => outgoing,
                    Err(to_come) => to_come.made(&forms).await,
                };
                assert!(outgoing.form().is_some());
            }
            let stuck = fleet.replies.enter(outgoing, fleet.view.clone());
            fleet.stand_still().await;
            assert_eq!(is_given_up(&stuck), is_compressed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn i8_of_a_compressed_reply_that_is_given_up_the_piece_in_flight_stays_and_no_more() {
        let text = (0..MIB / 2).flat_map(|number| format!("{:08x}", number * number % 99_991).into_bytes());
        let large = resource_of("large", text.collect());
        let fleet = Fleet::new(MIB, &["large"]);
        let memory = Memory::new(Budget::unlimited(), Arc::default(), Arc::default());
        let forms = CompressedForms::new(memory.clone(), Arc::default());
        let before = memory.book().common;
        let kind = TypeTable::new().resolve("type.googleapis.com/own.Type");
        let reply = Reply::sample(kind, vec![large]);
        let outgoing = Outgoing::new(reply, Variant::Delta, &fleet.messages);
        let outgoing = match forms.compress(outgoing, CompressionClient::new(Compression::Always, "view")) {
            Ok(outgoing) => outgoing,
            Err(to_come) => to_come.made(&forms).await,
        };
        let (_, whole) = outgoing.form().unwrap();
        let charged = memory.book().common - before;
        assert!(whole > 4 * PIECE && charged >= whole, "{whole} bytes are charged with {charged}");
        let stuck = fleet.replies.enter(outgoing, fleet.view.clone());
        let in_flight = stuck.next_piece(Moment::START).unwrap();
        fleet.stand_still().await;
        assert!(is_given_up(&stuck));
        let kept = memory.book().common - before;
        assert!((PIECE..PIECE * 5 / 4).contains(&kept), "{kept} bytes are charged");
        drop(in_flight);
        assert_eq!(memory.book().common, before);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_watched_when_no_reply_is_left() {
        let fleet = Fleet::new(MIB, &[]);
        let client = fleet.client(&[&resource("one", MIB)]);
        assert!(fleet.replies.look().await);
        drop(client);
        assert!(!fleet.replies.look().await);
        assert!(!lock(&fleet.replies.state).watched);
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_replies_those_that_are_over_are_forgotten_and_the_others_stay_within_the_limit() {
        let fleet = Fleet::new(MIB, &["first", "later"]);
        let (first, later) = (resource("first", 4 * MIB), resource("later", 1));
        let stuck = fleet.client(&[&first]);
        for _ in 0..1000 {
            drop(fleet.client(&[&later]));
        }
        assert!(lock(&fleet.replies.state).replies.len() <= 64, "what is over keeps no room");
        fleet.stand_still().await;
        assert!(is_given_up(&stuck), "it came before the others");
    }
}
