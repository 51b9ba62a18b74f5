//! Compressed forms of messages, shared by all clients that accept them: decides which are worth making, and makes them off the serving threads.
//!
//! A form exists as long as its message, and its memory is charged. Whether it is worth its cost depends on how many clients take it: those that
//! have taken the message so far, or, as a forecast, those that took the last message of the same kind. So the first replies of a kind are plain
//! until enough clients have taken them, and later ones are compressed at once.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::Outgoing;
use super::form::{CompressedForm, FormState, Making};
use super::message::PIECE;
use super::shared::SharedMessage;
use crate::compression::{Compression, SharedGzip};
use crate::memory::Memory;
use crate::relay::CompressionCounters;
use crate::relay::heavy::HeavyTurns;
use crate::shared_runtime;

/// The compressed forms that are being made, and statistics of earlier ones.
pub(in super::super) struct CompressedForms {
    memory: Arc<Memory>,
    turns: HeavyTurns,
    kinds: Mutex<HashMap<u64, Kind>>,
    /// How many forms are being made or are queued.
    begun: Arc<AtomicUsize>,
    counters: Arc<CompressionCounters>,
}

/// A client that accepts compressed replies.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct CompressionClient {
    compression: Compression,
    view: u64,
}

/// A reply that waits for its compressed form.
pub(in super::super) struct FormToCome {
    outgoing: Outgoing,
    making: Making,
    form: Option<Arc<CompressedForm>>,
    limit: Pin<Box<Sleep>>,
}

/// Messages that are likely to have equally many takers: of one type and about one size, for the clients of one view.
struct Kind {
    /// The number of takers of the newest message.
    newest: Arc<AtomicUsize>,
    /// The expected number of takers, from the messages before the newest.
    before: usize,
    /// The thousandths of the bytes that the last form saved.
    saved: usize,
}

/// Counts a form that is begun, until it is made or given up.
struct Begun(Arc<AtomicUsize>);

impl CompressedForms {
    pub(in super::super) fn new(memory: Arc<Memory>, counters: Arc<CompressionCounters>) -> Arc<Self> {
        let (kinds, begun) = Default::default();
        Arc::new(Self { memory, turns: HeavyTurns::new(), kinds, begun, counters })
    }

    /// Compresses a reply for its taker if its form exists, is being made, or is worth making. `Err`: the form is not ready yet.
    pub(in super::super) fn compress(
        self: &Arc<Self>,
        outgoing: Outgoing,
        taker: CompressionClient,
    ) -> Result<Outgoing, Box<FormToCome>> {
        let message = outgoing.message.clone();
        if taker.compression == Compression::Off || message.length < LEAST || message.message.is_secret() {
            return Ok(outgoing);
        }
        let kind = kind_of(&message, taker.view);
        let is_worth_it = self.is_worth_it(&message, kind, taker.compression);
        let mut state = lock(&message.form);
        let making = match &*state {
            FormState::Useless => return Ok(outgoing),
            FormState::Made(form) => {
                let form = form.clone();
                drop(state);
                return Ok(self.compressed(outgoing, form));
            }
            FormState::Begun(making) => making.clone(),
            FormState::NotBegun if is_worth_it && self.has_room_for(message.length) => {
                let making = self.begin(&message, kind);
                *state = FormState::Begun(making.clone());
                making
            }
            FormState::NotBegun => return Ok(outgoing),
        };
        drop(state);
        let limit = Box::pin(sleep(PATIENCE));
        Err(Box::new(FormToCome { outgoing, making, form: None, limit }))
    }

    fn compressed(&self, mut outgoing: Outgoing, form: Arc<CompressedForm>) -> Outgoing {
        self.counters.saved(outgoing.message.length.saturating_sub(form.len()));
        outgoing.compress(form);
        outgoing
    }

    /// Counts a taker of a message. Returns whether the message is worth compressing.
    fn is_worth_it(&self, message: &SharedMessage, kind: u64, compression: Compression) -> bool {
        if compression == Compression::Always {
            return true;
        }
        if !message.is_for_all {
            return pays(1, LIKELY_SAVED);
        }
        let takers = message.takers.fetch_add(1, Ordering::Relaxed) + 1;
        let mut kinds = lock(&self.kinds);
        if kinds.len() >= MOST_KINDS && !kinds.contains_key(&kind) {
            make_room(&mut kinds);
        }
        let kind = kinds.entry(kind).or_insert_with(|| Kind::new(message));
        if takers == 1 && !Arc::ptr_eq(&kind.newest, &message.takers) {
            kind.before = kind.newest.load(Ordering::Relaxed).max(kind.before / 2);
            kind.newest = message.takers.clone();
            kind.saved += LIKELY_SAVED.saturating_sub(kind.saved) / 16; // so that a useless kind is tried again some time
        }
        pays(takers.max(kind.before), kind.saved)
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        self.begun.load(Ordering::Relaxed) < MOST_BEGUN && self.memory.has_room_for_resources(bytes)
    }

    fn begin(self: &Arc<Self>, message: &Arc<SharedMessage>, kind: u64) -> Making {
        let (done, making) = oneshot::channel();
        self.begun.fetch_add(1, Ordering::Relaxed);
        let place = Begun(self.begun.clone());
        let (this, message) = (self.clone(), Arc::downgrade(message));
        shared_runtime::spawn(async move {
            let form = this.make(&message, kind).await;
            drop(place);
            let _ = done.send(form); // nobody may be waiting any more
        });
        making.shared()
    }

    /// Makes the form of a message, unless nobody needs it any more.
    async fn make(&self, message: &Weak<SharedMessage>, kind: u64) -> Option<Arc<CompressedForm>> {
        let _turn = self.turns.next().await;
        let message = message.upgrade()?;
        let charge = self.memory.common();
        charge.set(message.length);
        let compressed = message.clone();
        let form = shared_runtime::spawn_blocking(move || {
            let gzip = SharedGzip::of(compressed.bytes(), PIECE).ok()?;
            Some(Arc::new(CompressedForm::new(gzip, charge)))
        });
        let form = form.await.ok().flatten();
        self.counters.made();
        let saved = form.as_ref().map_or(0, |form| saved(message.length, form.len()));
        if let Some(kind) = lock(&self.kinds).get_mut(&kind) {
            kind.saved = saved;
        }
        let form = form.filter(|_| saved >= LEAST_SAVED);
        *lock(&message.form) = form.clone().map_or(FormState::Useless, FormState::Made);
        form
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Kind {
    fn new(first: &SharedMessage) -> Self {
        Self { newest: first.takers.clone(), before: 0, saved: LIKELY_SAVED }
    }
}

impl CompressionClient {
    /// A taker whose view has this key.
    pub(in super::super) fn new(compression: Compression, key: &str) -> Self {
        Self { compression, view: xxh3_64(key.as_bytes()) }
    }
}

impl FormToCome {
    /// Waits for the form, at most until the time limit.
    pub(in super::super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.making.poll_unpin(cx) {
            Poll::Ready(made) => {
                self.form = made.ok().flatten();
                Poll::Ready(())
            }
            Poll::Pending => self.limit.as_mut().poll(cx),
        }
    }

    /// Waits for the form without a time limit.
    #[cfg(test)]
    pub(in super::super) async fn made(mut self, forms: &CompressedForms) -> Outgoing {
        self.form = self.making.clone().await.ok().flatten();
        self.reply(forms)
    }

    /// Returns the reply: plain if there is no form.
    pub(in super::super) fn reply(self, forms: &CompressedForms) -> Outgoing {
        match self.form {
            Some(form) => forms.compressed(self.outgoing, form),
            None => self.outgoing,
        }
    }
}

/// Returns a hash that is equal for messages that are likely to have equally many takers.
fn kind_of(message: &SharedMessage, view: u64) -> u64 {
    let (kind, variant) = message.message.likeness();
    let mut hasher = Xxh3::new();
    hasher.update(&view.to_le_bytes());
    hasher.update(kind.name().as_bytes());
    hasher.update(&[variant as u8, (message.length.ilog2() / 2) as u8]);
    hasher.digest()
}

/// Returns how many thousandths of a message its form saves.
fn saved(plain: usize, compressed: usize) -> usize {
    plain.saturating_sub(compressed).saturating_mul(1000) / plain.max(1)
}

/// Whether what so many takers save is worth compressing the message. `saved`: thousandths of the message that each taker saves.
pub(in super::super) fn pays(takers: usize, saved: usize) -> bool {
    saved >= LEAST_SAVED && takers.saturating_mul(saved) * WORTH >= 1000 * COST
}

/// Whether the compressed form is small enough to be useful.
pub(in super::super) fn is_useful(plain: usize, compressed: usize) -> bool {
    saved(plain, compressed) >= LEAST_SAVED
}

/// Forgets first the kinds whose messages had one taker each, which tells nothing of the next message; then kinds of which no message exists; then
/// any others. Their numbers are learnt again.
fn make_room(kinds: &mut HashMap<u64, Kind>) {
    kinds.retain(|_, kind| kind.before.max(kind.newest.load(Ordering::Relaxed)) > 1);
    if kinds.len() > MOST_KINDS / 4 * 3 {
        kinds.retain(|_, kind| Arc::strong_count(&kind.newest) > 1);
    }
    if kinds.len() > MOST_KINDS / 4 * 3 {
        let mut kept = 0;
        kinds.retain(|_, _| {
            kept += 1;
            kept <= MOST_KINDS / 2
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The least size of a message that is compressed. A shorter one fits into a packet.
pub(in super::super) const LEAST: usize = 1 << 10;
/// Saving one MiB is worth so many CPU milliseconds.
const WORTH: usize = 1;
/// Compressing one MiB is assumed to cost so many CPU milliseconds.
const COST: usize = 6;
/// The thousandths of a message that a form is assumed to save before the first was made.
pub(in super::super) const LIKELY_SAVED: usize = 700;
/// A form that saves fewer thousandths is not sent: the client would do more work for the same bytes.
const LEAST_SAVED: usize = 100;
/// How long a reply waits for its form, whatever its size. Later replies to the client wait too.
pub(in super::super) const PATIENCE: Duration = Duration::from_millis(200);
/// How many forms may be begun at a time. Further messages are sent plain meanwhile.
const MOST_BEGUN: usize = 64;
const MOST_KINDS: usize = 1024;

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::bufread::GzDecoder;
    use weir_core::proto::{Any, discovery};
    use weir_core::protocol::session::{Reply, Variant};
    use weir_core::xds::{BodyStore, Resource, TypeTable};

    use super::*;
    use crate::downstream::encode::SharedMessages;
    use crate::memory::{Budget, MemorySetting};

    const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    const SECRETS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
    /// Larger than the cache of messages that no client is being sent.
    const LARGE: usize = 1 << 20;
    const AUTO: CompressionClient = CompressionClient { compression: Compression::Auto, view: 1 };
    const ALWAYS: CompressionClient = CompressionClient { compression: Compression::Always, view: 1 };

    struct World {
        forms: Arc<CompressedForms>,
        messages: Arc<SharedMessages>,
        memory: Arc<Memory>,
        counters: Arc<CompressionCounters>,
    }

    impl World {
        fn new() -> Self {
            Self::with(Budget::unlimited())
        }

        fn with(budget: Budget) -> Self {
            let memory = Memory::new(budget, Arc::default(), Arc::default());
            let counters = Arc::<CompressionCounters>::default();
            let forms = CompressedForms::new(memory.clone(), counters.clone());
            Self { forms, messages: SharedMessages::new("weir"), memory, counters }
        }

        fn outgoing(&self, reply: &Reply, nonce: u64, variant: Variant) -> Outgoing {
            Outgoing::new(Reply { nonce, ..reply.clone() }, variant, &self.messages)
        }

        /// Compresses a reply for a client if that is worth its cost, and waits for the form.
        async fn sent(&self, reply: &Reply, nonce: u64, taker: CompressionClient) -> Outgoing {
            match self.forms.compress(self.outgoing(reply, nonce, Variant::Delta), taker) {
                Ok(outgoing) => outgoing,
                Err(to_come) => to_come.made(&self.forms).await,
            }
        }

        fn made(&self) -> u64 {
            self.counters.counts().0
        }
    }

    /// Returns text that compression makes two thirds smaller. It differs for each seed.
    fn text(bytes: usize, seed: u32) -> Vec<u8> {
        let mut state = seed;
        let mut word = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            format!("cluster-{:08x} ", state)
        };
        std::iter::from_fn(|| Some(word())).flat_map(String::into_bytes).take(bytes).collect()
    }

    fn reply_of(url: &str, value: Vec<u8>) -> Reply {
        let kind = TypeTable::new().resolve(url);
        let resource = Some(Any { type_url: url.into(), value: value.into() });
        let wrapper = discovery::Resource { name: "a".into(), resource, ..Default::default() };
        let resource = Resource::from_wrapper(0, wrapper, &kind, &BodyStore::default()).unwrap();
        Reply::sample(kind, vec![Arc::new(resource)])
    }

    /// Returns all bytes that the client of a reply gets.
    fn taken(outgoing: &mut Outgoing) -> Vec<u8> {
        let counted = outgoing.bytes();
        let mut all = Vec::new();
        while outgoing.has_more() {
            assert!(outgoing.end().is_none());
            let (head, piece) = outgoing.next_piece();
            assert!(piece.len() <= PIECE);
            all.extend_from_slice(head.bytes());
            all.extend_from_slice(&piece);
        }
        all.extend(outgoing.end().into_iter().flatten());
        assert_eq!(counted, all.len());
        assert_eq!(u32::from_be_bytes(all[1..5].try_into().unwrap()) as usize, all.len() - 5, "the prefix");
        all
    }

    fn inflated(message: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        GzDecoder::new(message).read_to_end(&mut plain).unwrap();
        plain
    }

    fn is_compressed(outgoing: &Outgoing) -> bool {
        outgoing.form().is_some()
    }

    #[test]
    fn a_pass_over_a_message_is_worth_what_all_who_take_it_save() {
        assert!(!pays(1, 1000) && !pays(5, 1000) && pays(6, 1000));
        assert!(!pays(8, LIKELY_SAVED) && pays(9, LIKELY_SAVED));
        assert!(!pays(59, LEAST_SAVED) && pays(60, LEAST_SAVED));
        assert!(!pays(usize::MAX, LEAST_SAVED - 1), "it saves next to nothing");
        assert_eq!((saved(1000, 300), saved(10, 20), saved(0, 10)), (700, 0, 0));
    }

    /// The statistics of a whole fleet must not be evicted for messages of single clients.
    #[tokio::test]
    async fn of_too_many_kinds_those_are_forgotten_first_that_one_client_takes() {
        let world = World::new();
        let reply = reply_of(CDS, text(LARGE, 1));
        let mut sent = Vec::new();
        for nonce in 0..20 {
            sent.push(world.sent(&reply, nonce, AUTO).await);
        }
        drop(sent);
        for view in 2..3 * MOST_KINDS as u64 {
            let other = reply_of(CDS, text(2000, view as u32));
            assert!(!is_compressed(&world.sent(&other, 1, CompressionClient { view, ..AUTO }).await));
            assert!(lock(&world.forms.kinds).len() <= MOST_KINDS);
        }
        let changed = reply_of(CDS, text(LARGE, 2));
        assert!(is_compressed(&world.sent(&changed, 1, AUTO).await), "as many are expected to take the next one");
    }

    #[tokio::test]
    async fn kinds_that_are_all_being_sent_stay_within_their_number_too() {
        let world = World::new();
        let mut sent = Vec::new();
        for view in 1..=2 * MOST_KINDS as u64 {
            let reply = reply_of(CDS, text(2000, view as u32));
            for nonce in 0..2 {
                sent.push(world.sent(&reply, nonce, CompressionClient { view, ..AUTO }).await);
            }
            let kinds = lock(&world.forms.kinds).len();
            assert!(kinds <= MOST_KINDS && kinds >= (view as usize).min(MOST_KINDS / 2), "{kinds} of {view}");
        }
    }

    #[test]
    fn room_is_made_by_what_tells_nothing_and_by_half_only_if_that_is_not_enough() {
        let kinds = |most: usize, one: &dyn Fn(u64) -> Kind| (0..most as u64).map(|at| (at, one(at))).collect();
        let mut half = kinds(MOST_KINDS, &|at| Kind { newest: Arc::default(), before: 1 + at as usize % 2, saved: 0 });
        make_room(&mut half);
        assert!(half.len() == MOST_KINDS / 2 && half.values().all(|kind| kind.before == 2));
        let messages: Vec<_> = (0..MOST_KINDS).map(|_| Arc::default()).collect();
        let mut all = kinds(MOST_KINDS, &|at| Kind { newest: Arc::clone(&messages[at as usize]), before: 2, saved: 0 });
        make_room(&mut all);
        assert_eq!(all.len(), MOST_KINDS / 2);
    }

    #[tokio::test]
    async fn each_client_reads_its_own_nonce_and_version_before_what_all_share() {
        for variant in [Variant::Sotw, Variant::Delta] {
            for bytes in [2000, 3 * PIECE, LARGE] {
                let (world, reply) = (World::new(), reply_of(CDS, text(bytes, 7)));
                let _kept = world.outgoing(&reply, 0, variant);
                for nonce in [1, 2, u64::MAX] {
                    let outgoing = world.outgoing(&reply, nonce, variant);
                    let mut compressed = match world.forms.compress(outgoing, ALWAYS) {
                        Ok(outgoing) => outgoing,
                        Err(to_come) => to_come.made(&world.forms).await,
                    };
                    assert!(is_compressed(&compressed));
                    let (plain, compressed) =
                        (taken(&mut world.outgoing(&reply, nonce, variant)), taken(&mut compressed));
                    assert_eq!((plain[0], compressed[0]), (0, 1));
                    assert_eq!(inflated(&compressed[5..]), plain[5..], "{variant:?}, {bytes} bytes, nonce {nonce}");
                    assert!(compressed.len() < plain.len() * 2 / 3);
                }
                assert_eq!(world.made(), 1);
            }
        }
    }

    #[tokio::test]
    async fn i2_a_form_is_made_once_for_all_and_not_before_enough_clients_have_come() {
        let world = World::new();
        let mut clients = Vec::new();
        let reply = reply_of(CDS, text(LARGE, 1));
        for nonce in 0..50 {
            clients.push(world.sent(&reply, nonce, AUTO).await);
        }
        let compressed = clients.iter().map(is_compressed).collect::<Vec<_>>();
        assert_eq!(compressed.iter().position(|is| *is), Some(8), "so many were worth nothing yet");
        assert!(compressed[8..].iter().all(|is| *is));
        assert_eq!(world.made(), 1);
        clients.clear();
        let changed = reply_of(CDS, text(LARGE, 2));
        assert!(is_compressed(&world.sent(&changed, 1, AUTO).await), "as many are expected to take the next one");
        assert_eq!(world.made(), 2);
        let other = reply_of(CDS, text(LARGE, 3));
        assert!(!is_compressed(&world.sent(&other, 1, CompressionClient { view: 2, ..AUTO }).await), "in another view");
        let small = reply_of(CDS, text(LARGE / 100, 3));
        assert!(!is_compressed(&world.sent(&small, 1, AUTO).await), "of another size");
    }

    #[tokio::test]
    async fn i2_where_each_client_has_a_reply_of_its_own_none_is_compressed() {
        let world = World::new();
        let replies: Vec<_> = (0..50).map(|seed| reply_of(CDS, text(5000, seed))).collect();
        for reply in &replies {
            assert!(!is_compressed(&world.sent(reply, 1, AUTO).await));
        }
        let mut with_ttl = reply_of(CDS, text(5000, 99));
        with_ttl.ttls.push((0, Duration::from_secs(9)));
        for _ in 0..50 {
            assert!(!is_compressed(&world.sent(&with_ttl, 1, AUTO).await), "others cannot be sent a running TTL");
        }
        assert_eq!(world.made(), 0);
    }

    #[tokio::test]
    async fn secrets_and_what_is_small_or_becomes_no_smaller_are_sent_as_they_are() {
        let world = World::new();
        for reply in [
            reply_of(SECRETS, text(LARGE, 1)),
            reply_of("type.googleapis.com/envoy.api.v2.auth.Secret", text(LARGE, 2)),
            reply_of(CDS, text(LEAST - 200, 3)),
        ] {
            assert!(!is_compressed(&world.sent(&reply, 1, ALWAYS).await), "{}", reply.spelling);
        }
        let off = CompressionClient { compression: Compression::Off, view: 1 };
        assert!(!is_compressed(&world.sent(&reply_of(CDS, text(LARGE, 4)), 1, off).await));
        assert_eq!(world.made(), 0);
        let mut noise = 1_u64;
        let mut random = || {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            noise as u8
        };
        let noise = reply_of(CDS, (0..LARGE).map(|_| random()).collect());
        let first = world.sent(&noise, 1, ALWAYS).await;
        assert!(!is_compressed(&first) && !is_compressed(&world.sent(&noise, 2, ALWAYS).await));
        assert_eq!(world.made(), 1, "it is not tried again");
    }

    #[tokio::test]
    async fn a_form_is_charged_as_long_as_a_client_is_sent_its_message_and_not_made_without_room() {
        let world = World::new();
        let before = world.memory.book().common;
        let sent = world.sent(&reply_of(CDS, text(LARGE, 1)), 1, ALWAYS).await;
        let (_, length) = sent.form().unwrap();
        let charged = world.memory.book().common - before;
        assert!((length..length + 4096).contains(&charged), "{length} bytes are charged with {charged}");
        let mut last = sent;
        assert!(length > 3 * PIECE);
        let (_, piece) = last.next_piece();
        drop(last);
        let charged = world.memory.book().common - before;
        assert!((PIECE..PIECE * 5 / 4).contains(&charged), "one piece is in flight, {charged} bytes are charged");
        drop(piece);
        assert_eq!(world.memory.book().common, before);

        let full = World::with(Budget::on(MemorySetting::Bytes(1 << 20), None));
        assert!(!is_compressed(&full.sent(&reply_of(CDS, text(LARGE, 1)), 1, ALWAYS).await));
        assert_eq!(full.made(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_form_that_takes_too_long_is_not_waited_for_and_later_clients_get_it() {
        let world = World::new();
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let mut busy = Vec::new();
        for _ in 0..(workers / 2).max(1) {
            busy.push(world.forms.turns.next().await);
        }
        let reply = reply_of(CDS, text(LARGE, 1));
        let since = tokio::time::Instant::now();
        let mut waited = Vec::new();
        for nonce in 0..3 {
            let to_come = world.forms.compress(world.outgoing(&reply, nonce, Variant::Delta), ALWAYS);
            let mut to_come = to_come.expect_err("there is no form");
            std::future::poll_fn(|cx| to_come.poll(cx)).await;
            waited.push(to_come.reply(&world.forms));
        }
        assert!(!waited.iter().any(is_compressed));
        let passed = since.elapsed();
        assert!(passed >= PATIENCE * 3 && passed < PATIENCE * 4, "{passed:?}");
        assert_eq!(world.forms.begun.load(Ordering::Relaxed), 1, "one pass for all of them");
        drop(busy);
        tokio::time::resume();
        while world.made() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(is_compressed(&world.sent(&reply, 9, ALWAYS).await));
        assert_eq!((world.made(), world.forms.begun.load(Ordering::Relaxed)), (1, 0));
    }

    #[tokio::test]
    async fn what_all_clients_have_left_is_not_compressed_and_too_much_at_a_time_is_not_begun() {
        let world = World::new();
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let mut busy = Vec::new();
        for _ in 0..(workers / 2).max(1) {
            busy.push(world.forms.turns.next().await);
        }
        let replies: Vec<_> = (0..=MOST_BEGUN as u32).map(|seed| reply_of(CDS, text(LARGE / 2, seed))).collect();
        let mut waiting: Vec<_> = replies
            .iter()
            .map(|reply| world.forms.compress(world.outgoing(reply, 1, Variant::Delta), ALWAYS))
            .collect();
        assert!(waiting.pop().unwrap().is_ok(), "one too many");
        assert!(waiting.iter().all(Result::is_err));
        drop(waiting);
        drop(busy);
        while world.forms.begun.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(world.made(), 0);
    }
}
