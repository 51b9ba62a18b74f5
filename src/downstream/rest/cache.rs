//! JSON responses, shared by all clients that poll for the same resources. The cache is bounded in bytes, and makes each entry only once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::Instant;

use bytes::Bytes;
use http::StatusCode;
use moka::future::Cache;
use serde_json::Value;
use tokio::sync::Semaphore;
use weir_core::protocol::session::{Reply, Variant};

use super::budget::Budget;
use super::rejection::Rejection;
use crate::compression::{Compression, SharedGzip};
use crate::downstream::encode::{LEAST, LIKELY_SAVED, Message, PATIENCE, PIECE, is_useful, pays};
use crate::log_pace::LogPace;
use crate::relay::CompressionCounters;
use crate::shared_runtime;
use crate::transcode::{Descriptors, TranscodeError, UnknownAny};

/// The key of a response. The version covers the resources and the requested names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CacheKey {
    /// Versions depend only on content, but views share no entry: what a server sent for one view must not be served to
    /// another.
    pub(crate) view: Arc<str>,
    /// The type as the client spells it.
    pub(crate) spelling: Arc<str>,
    pub(crate) version: String,
    /// Whether the client reads resources in wrappers.
    pub(crate) wrappers: bool,
}

/// Errors are cached too, so that polls do not retry a resource without a JSON form.
type CachedResponse = Result<Bytes, Arc<Rejection>>;

/// There is no room for the response now. This result is not cached.
type NoRoom = Arc<Rejection>;

pub(super) struct ResponseCache {
    made: Cache<CacheKey, CachedResponse>,
    /// The compressed responses. An empty one: compression saves hardly anything.
    gzip: Cache<CacheKey, Bytes>,
    /// For each response without a compressed form, how many polls would have accepted one.
    takers: Cache<CacheKey, Arc<AtomicUsize>>,
    maker: Arc<Renderer>,
}

struct Renderer {
    transcoder: Descriptors,
    control_plane: Arc<str>,
    /// Counts every response until its last byte is freed.
    room: Arc<Budget>,
    /// Limits how many large responses are made at a time, to the number of processors. They are made off the serving threads.
    places: Semaphore,
    transcoded: AtomicU64,
    faults: LogPace,
}

impl ResponseCache {
    /// `bytes`: for plain and compressed responses together. Without compression, plain ones may use all of it.
    pub(crate) fn new(
        bytes: u64,
        compression: Compression,
        room: Arc<Budget>,
        transcoder: Descriptors,
        control_plane: Arc<str>,
    ) -> Self {
        let of_gzip = if compression == Compression::Off { 0 } else { bytes / 4 };
        let weight = |wanted: &CacheKey, made: &CachedResponse| {
            let body = made.as_ref().map_or_else(|nack| nack.message.len(), Bytes::len);
            u32::try_from(body + wanted.len()).unwrap_or(u32::MAX)
        };
        let places = Semaphore::new(available_parallelism().map_or(1, usize::from));
        let made = Cache::builder().max_capacity(bytes - of_gzip).weigher(weight).build();
        let weight = |wanted: &CacheKey, made: &Bytes| u32::try_from(made.len() + wanted.len()).unwrap_or(u32::MAX);
        let gzip = Cache::builder().max_capacity(of_gzip).weigher(weight).build();
        let takers = Cache::new(COUNTED);
        let maker = Renderer {
            transcoder,
            control_plane,
            room,
            places,
            transcoded: AtomicU64::new(0),
            faults: LogPace::of_process(),
        };
        Self { made, gzip, takers, maker: Arc::new(maker) }
    }

    /// Returns the response: from the cache, from a concurrent poll that makes it, or newly made.
    pub(crate) async fn body(&self, wanted: CacheKey, reply: Reply) -> Result<CachedResponse, Rejection> {
        if !is_for_all(&reply) {
            return self.maker.make(reply, &wanted.version).await.map_err(|none| (*none).clone()); // only for this client, or only now
        }
        if let Some(made) = self.made.get(&wanted).await {
            return Ok(made);
        }
        // Runs in a task of its own, so that a client that disconnects does not cancel it for others.
        let (made, maker) = (self.made.clone(), self.maker.clone());
        let version = wanted.version.clone();
        let making = shared_runtime::spawn(async move {
            made.try_get_with(wanted, async move { maker.make(reply, &version).await }).await
        });
        match making.await {
            Ok(made) => made.map_err(|none| (**none).clone()),
            Err(_) => Err(Rejection::unavailable("the relay is shutting down")),
        }
    }

    /// Returns the compressed form of a response if enough polls accept it to be worth its cost. It is made once for all of them.
    pub(crate) async fn gzip(
        &self,
        wanted: CacheKey,
        plain: &Bytes,
        compression: Compression,
        counters: &Arc<CompressionCounters>,
    ) -> Option<Bytes> {
        if compression == Compression::Off || plain.len() < LEAST {
            return None;
        }
        let found = match self.gzip.get(&wanted).await {
            Some(made) => Some(made),
            None if compression == Compression::Always || self.has_takers(&wanted).await => {
                self.compress(wanted, plain.clone(), counters.clone()).await
            }
            None => None,
        };
        let gzip = found.filter(|gzip| !gzip.is_empty())?;
        counters.saved(plain.len() - gzip.len());
        Some(gzip)
    }

    async fn has_takers(&self, wanted: &CacheKey) -> bool {
        let takers = self.takers.get_with_by_ref(wanted, async { Arc::default() }).await;
        pays(takers.fetch_add(1, Ordering::Relaxed) + 1, LIKELY_SAVED)
    }

    /// `None`: compression took too long, or there is no room.
    async fn compress(&self, wanted: CacheKey, plain: Bytes, counters: Arc<CompressionCounters>) -> Option<Bytes> {
        let (gzip, maker) = (self.gzip.clone(), self.maker.clone());
        let making = shared_runtime::spawn(async move {
            gzip.try_get_with(wanted, async move { maker.compress(plain, &counters).await.ok_or(()) }).await
        });
        tokio::time::timeout(PATIENCE, making).await.ok()?.ok()?.ok()
    }

    /// Returns how many responses were made, without those from the cache.
    pub(crate) fn transcoded(&self) -> u64 {
        self.maker.transcoded.load(Ordering::Relaxed)
    }

    /// Returns how many responses are cached, plain and compressed, and their bytes.
    pub(crate) fn kept(&self) -> (u64, u64) {
        let (plain, gzip) = (&self.made, &self.gzip);
        (plain.entry_count() + gzip.entry_count(), plain.weighted_size() + gzip.weighted_size())
    }
}

impl Renderer {
    async fn make(self: &Arc<Self>, reply: Reply, version: &str) -> Result<CachedResponse, NoRoom> {
        self.transcoded.fetch_add(1, Ordering::Relaxed);
        let size: usize = reply.resources.iter().map(|resource| resource.body.bytes().len()).sum();
        if size <= LARGE {
            return self.transcode(reply, version);
        }
        let _place = self.places.acquire().await;
        let (this, version) = (self.clone(), version.to_owned());
        let making = shared_runtime::spawn_blocking(move || this.transcode(reply, &version));
        making.await.unwrap_or_else(|_| Err(Arc::new(Rejection::unavailable("the relay is shutting down"))))
    }

    async fn compress(self: &Arc<Self>, plain: Bytes, counters: &CompressionCounters) -> Option<Bytes> {
        let _place = self.places.acquire().await;
        if !self.room.has(plain.len()) {
            return None; // otherwise each poll would compress and drop it again
        }
        let this = self.clone();
        let making = shared_runtime::spawn_blocking(move || {
            let gzip = SharedGzip::of([&plain], PIECE).ok()?.into_bytes();
            let is_useful = is_useful(plain.len(), gzip.len());
            if is_useful { BudgetedBytes::of(gzip.into(), &this.room) } else { Some(Bytes::new()) }
        });
        let gzip = making.await.ok().flatten();
        counters.made();
        gzip
    }

    fn transcode(&self, reply: Reply, version: &str) -> Result<CachedResponse, NoRoom> {
        let kind = reply.kind.name().to_owned();
        match self.json(reply, version) {
            Ok(body) => {
                let bytes = body.len();
                BudgetedBytes::of(body, &self.room).map(Ok).ok_or_else(|| {
                    if let Some(unlogged) = self.faults.line(Instant::now()) {
                        tracing::warn!(bytes, unlogged, "response to a poll dropped: rest.response_bytes is used up");
                    }
                    Arc::new(Rejection::unavailable("too many responses in flight; retry"))
                })
            }
            Err(error) => {
                let message = format!("resources of {kind} cannot be said in JSON: {error}");
                if let Some(unlogged) = self.faults.line(Instant::now()) {
                    tracing::warn!(type_url = kind, %error, unlogged, "cannot render a response for polls");
                }
                Ok(Err(Arc::new(Rejection::new(StatusCode::NOT_IMPLEMENTED, message))))
            }
        }
    }

    fn json(&self, reply: Reply, version: &str) -> Result<Vec<u8>, RenderError> {
        let message = Message::of(reply, Variant::Sotw, &self.control_plane).to_vec();
        let mut json = (self.transcoder)().to_json(RESPONSE, &message, UnknownAny::Refuse)?;
        if let Some(fields) = json.as_object_mut() {
            fields.insert("versionInfo".into(), Value::from(version));
            fields.remove("nonce"); // has no meaning without a stream
        }
        Ok(serde_json::to_vec(&json)?)
    }
}

impl CacheKey {
    /// About the size of the key beside its response.
    fn len(&self) -> usize {
        self.view.len() + self.spelling.len() + self.version.len() + PER_ENTRY
    }
}

/// Whether the same response may be sent to other clients, also later.
pub(super) fn is_for_all(reply: &Reply) -> bool {
    reply.ttls.is_empty() && reply.spellings.is_empty() && reply.errors.is_empty() && reply.heartbeats.is_empty()
}

/// Why a response has no JSON form.
#[derive(Debug, thiserror::Error)]
enum RenderError {
    #[error(transparent)]
    Transcode(#[from] TranscodeError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// A response that counts towards the budget while it exists: in the cache, or on its way to a slow client.
struct BudgetedBytes {
    body: Vec<u8>,
    room: Arc<Budget>,
}

impl BudgetedBytes {
    /// Returns `None` if there is no room.
    fn of(body: Vec<u8>, room: &Arc<Budget>) -> Option<Bytes> {
        room.take(body.len()).then(|| Bytes::from_owner(Self { body, room: room.clone() }))
    }
}

impl AsRef<[u8]> for BudgetedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Drop for BudgetedBytes {
    fn drop(&mut self) {
        self.room.give_back(self.body.len());
    }
}

const RESPONSE: &str = "envoy.service.discovery.v3.DiscoveryResponse";
/// Larger responses are made off the serving threads, which they would block for too long.
const LARGE: usize = 64 << 10;
/// How many responses have their takers counted.
const COUNTED: u64 = 1000;
/// About the size of an entry without its texts.
const PER_ENTRY: usize = 128;

#[cfg(test)]
mod tests {
    use weir_core::protocol::view::NamedError;
    use weir_core::xds::TypeTable;

    use super::*;
    use crate::transcode::Transcoder;

    fn cache_of(bytes: u64, compression: Compression, room: Arc<Budget>) -> ResponseCache {
        ResponseCache::new(bytes, compression, room, Arc::new(Transcoder::envoy), "weir".into())
    }

    #[tokio::test]
    async fn both_forms_of_responses_are_counted_and_share_the_bytes_of_the_cache() {
        const BYTES: u64 = 256 << 10;
        let counters = Arc::<CompressionCounters>::default();
        let cache = cache_of(BYTES, Compression::Always, Budget::of(64 << 20));
        let words = |seed: u32| (0..4000_u32).map(move |number| format!("{:08x}", number.wrapping_mul(seed | 1)));
        for version in 0..100_u32 {
            let (view, spelling) = ("view".into(), "type".into());
            let wanted = CacheKey { view, spelling, version: version.to_string(), wrappers: false };
            let plain = Bytes::from(words(version * 7919).collect::<String>());
            cache.made.insert(wanted.clone(), Ok(plain.clone())).await;
            let gzip = cache.gzip(wanted, &plain, Compression::Always, &counters).await;
            assert!(gzip.is_none_or(|gzip| is_useful(plain.len(), gzip.len())));
        }
        cache.made.run_pending_tasks().await;
        cache.gzip.run_pending_tasks().await;
        let (count, bytes) = cache.kept();
        assert!(cache.gzip.entry_count() > 0 && count > cache.made.entry_count());
        assert!(bytes > BYTES / 2 && bytes <= BYTES, "{bytes} bytes in {count} responses");
        let off = cache_of(BYTES, Compression::Off, Budget::of(64 << 20));
        let capacities = [&off, &cache].map(|of| of.made.policy().max_capacity());
        assert_eq!(capacities, [Some(BYTES), Some(BYTES / 4 * 3)]);
    }

    #[tokio::test]
    async fn a_response_that_is_hardly_smaller_when_it_is_compressed_is_sent_as_it_is() {
        let (counters, mut state) = (Arc::<CompressionCounters>::default(), 1_u64);
        let cache = cache_of(1 << 20, Compression::Always, Budget::of(1 << 20));
        let mut noise = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % 160) as u8 // a little smaller
        };
        let plain = Bytes::from((0..20_000).map(|_| noise()).collect::<Vec<_>>());
        let compressed = SharedGzip::of([&plain], PIECE).unwrap().into_bytes().len();
        assert!(compressed < plain.len() && !is_useful(plain.len(), compressed), "{compressed} bytes");
        for _ in 0..2 {
            let (view, spelling) = ("view".into(), "type".into());
            let wanted = CacheKey { view, spelling, version: "1".into(), wrappers: false };
            assert!(cache.gzip(wanted, &plain, Compression::Always, &counters).await.is_none());
        }
        assert_eq!(counters.counts().0, 1, "it is not tried again");
    }

    #[tokio::test]
    async fn what_was_made_for_all_is_shared_and_the_errors_of_one_client_are_its_own() {
        let cache = cache_of(1 << 20, Compression::Off, Budget::of(1 << 20));
        let kind = TypeTable::new().resolve("type.googleapis.com/envoy.config.cluster.v3.Cluster");
        let body = async |has_error: bool| {
            let mut reply = Reply::sample(kind.clone(), Vec::new());
            let error = NamedError { code: 5, message: "its own".into() };
            reply.errors = has_error.then(|| ("a".into(), Arc::new(error))).into_iter().collect();
            let (view, spelling) = ("view".into(), reply.spelling.clone());
            let wanted = CacheKey { view, spelling, version: "1".into(), wrappers: false };
            let body = cache.body(wanted, reply).await.unwrap().unwrap();
            (String::from_utf8(body.to_vec()).unwrap().contains("its own"), cache.transcoded())
        };
        assert_eq!(body(true).await, (true, 1));
        assert_eq!(body(false).await, (false, 2));
        assert_eq!(body(false).await, (false, 2), "the same bytes again");
        assert_eq!(body(true).await, (true, 3));
    }

    #[tokio::test]
    async fn i2_a_response_is_compressed_once_for_all_polls_that_make_it_worth_its_cost() {
        let room = Budget::of(1 << 20);
        let cache = cache_of(1 << 20, Compression::Auto, room);
        let counters = Arc::<CompressionCounters>::default();
        let wanted = |version: &str| {
            let (view, spelling) = ("view".into(), "type".into());
            CacheKey { view, spelling, version: version.into(), wrappers: false }
        };
        let text = Bytes::from("{\"name\":\"cluster\"}".repeat(1000));
        let gzip = async |version, compression| cache.gzip(wanted(version), &text, compression, &counters).await;
        for _ in 0..20 {
            assert!(gzip("1", Compression::Off).await.is_none());
        }
        for _ in 0..8 {
            assert!(gzip("1", Compression::Auto).await.is_none());
        }
        let made = gzip("1", Compression::Auto).await.unwrap();
        assert_eq!(crate::compression::Inflater::new(made.clone(), text.len()).finish().await.unwrap(), text);
        assert_eq!(gzip("1", Compression::Auto).await.unwrap().as_ptr(), made.as_ptr(), "the same bytes");
        assert!(gzip("2", Compression::Auto).await.is_none(), "another response");
        assert!(gzip("2", Compression::Always).await.is_some());
        assert_eq!(counters.counts().0, 2);
        let without_room = cache_of(1 << 20, Compression::Always, Budget::of(text.len() - 1));
        assert!(without_room.gzip(wanted("1"), &text, Compression::Always, &counters).await.is_none());
        assert_eq!(counters.counts().0, 2, "no pass whose result has no room");
        assert!(cache.gzip(wanted("3"), &text.slice(..LEAST - 1), Compression::Always, &counters).await.is_none());
    }

    #[test]
    fn i10_a_response_counts_until_the_last_part_of_it_is_dropped() {
        let room = Budget::of(100);
        let response = |bytes| BudgetedBytes::of(vec![7; bytes], &room);
        for _ in 0..3 {
            let whole = response(60).unwrap();
            assert!(response(60).is_none());
            let part = whole.slice(10..20);
            drop(whole);
            assert!(response(60).is_none(), "a client is still being sent it");
            drop(part);
            drop(response(100).unwrap());
        }
    }
}
