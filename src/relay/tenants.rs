//! Limits on what the clients of one tenant have together. The key of a client's view names its tenant.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use weir_core::xds::SharingKey;

use super::admission::AdmissionError;
use crate::limit::{Limit, LimitCounters};

/// The limits for each tenant; 0: no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TenantLimits {
    /// Open streams and polls.
    pub(crate) streams: usize,
    /// Names of all their streams.
    pub(crate) names: usize,
    /// Requests in a second, of all their streams.
    pub(crate) requests_per_second: usize,
}

/// The tenants that have a stream.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    limits: LimitsInForce,
    tenants: Mutex<HashMap<Arc<str>, Weak<Tenant>>>,
    counters: Arc<LimitCounters>,
    /// Wakes the streams that wait for their turns.
    rate_changed: Notify,
}

#[derive(Debug, Default)]
struct LimitsInForce {
    streams: AtomicUsize,
    names: AtomicUsize,
    requests_per_second: AtomicUsize,
}

#[derive(Debug)]
struct Tenant {
    name: Arc<str>,
    all: Arc<Tenants>,
    streams: AtomicUsize,
    names: AtomicUsize,
    /// When the next request may be read.
    next_request: Mutex<Option<TurnTime>>,
}

/// The time of a turn among the requests of a tenant.
#[derive(Debug, Clone, Copy)]
struct TurnTime {
    at: Instant,
    /// The time from one turn to the next, on which `at` is based.
    interval: Duration,
}

/// A stream of a tenant, with its names, until this is dropped.
#[derive(Debug)]
pub(crate) struct TenantStream {
    tenant: Arc<Tenant>,
    /// It is counted among the streams, and was not passed on.
    has_place: AtomicBool,
    /// The number of names that was last reported to the tenant.
    reported: AtomicUsize,
    /// The stream's names exceeded the tenant's limit when they last grew.
    has_exceeded: AtomicBool,
}

impl Tenants {
    pub(super) fn without_limits(counters: Arc<LimitCounters>) -> Arc<Self> {
        Arc::new(Self { counters, ..Self::default() })
    }

    /// Sets other limits. A tenant above them keeps what it has and gets nothing new. Use is always counted, even without limits.
    pub(crate) fn set_limits(&self, limits: TenantLimits) {
        let TenantLimits { streams, names, requests_per_second } = limits;
        self.limits.streams.store(streams, Ordering::Relaxed);
        self.limits.names.store(names, Ordering::Relaxed);
        if self.limits.requests_per_second.swap(requests_per_second, Ordering::Relaxed) != requests_per_second {
            self.rate_changed.notify_waiters();
        }
    }

    /// Returns how many requests may be read in a second, and the time from one to the next; `None`: no limit.
    fn rate(&self) -> Option<(u32, Duration)> {
        let rate = self.limits.requests_per_second.load(Ordering::Relaxed);
        let rate = u32::try_from(rate).unwrap_or(u32::MAX).min(NANOSECONDS); // no interval is zero
        Some((rate, Duration::from_secs(1).checked_div(rate)?))
    }

    pub(super) fn limits(&self) -> TenantLimits {
        let LimitsInForce { streams, names, requests_per_second } = &self.limits;
        let [streams, names, requests_per_second] =
            [streams, names, requests_per_second].map(|limit| limit.load(Ordering::Relaxed));
        TenantLimits { streams, names, requests_per_second }
    }

    /// Counts a stream, unless its tenant has reached the limit. Keys without a tenant are not counted.
    pub(super) fn open_stream(self: &Arc<Self>, key: &SharingKey) -> Result<Option<TenantStream>, AdmissionError> {
        let Some(tenant) = self.tenant_of(key) else { return Ok(None) };
        let limit = self.limits().streams;
        let one_more = |open: usize| (limit == 0 || open < limit).then_some(open + 1);
        let opened = tenant.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        opened.map_err(|_| AdmissionError::TooManyStreamsOfTenant { limit })?;
        Ok(Some(TenantStream::new(tenant, 0)))
    }

    fn tenant_of(self: &Arc<Self>, key: &SharingKey) -> Option<Arc<Tenant>> {
        let name = key.tenant()?;
        let mut tenants = self.lock();
        if let Some(tenant) = tenants.get(&name).and_then(Weak::upgrade) {
            return Some(tenant);
        }
        let (streams, names, next_request) = Default::default();
        let tenant = Arc::new(Tenant { name: name.clone(), all: self.clone(), streams, names, next_request });
        tenants.insert(name, Arc::downgrade(&tenant));
        Some(tenant)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Weak<Tenant>>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn of a request among those of its tenant.
pub(crate) struct RequestTurn<'t> {
    tenant: &'t Tenant,
    /// The time that it has reserved; `None`: the request may be read at once.
    reserved: Option<TurnTime>,
}

impl TenantStream {
    /// The stream and so many of its names are counted already.
    fn new(tenant: Arc<Tenant>, reported: usize) -> Self {
        Self { tenant, has_place: true.into(), reported: reported.into(), has_exceeded: false.into() }
    }

    /// Passes what is counted on to the next session of the same client, which is about to have the same names. `None`: that session is of another
    /// tenant, or there is nothing to pass on any more.
    pub(super) fn pass_on(&self, key: &SharingKey) -> Option<Self> {
        let is_of_tenant = key.tenant().is_some_and(|name| name == self.tenant.name);
        let is_passed_on = is_of_tenant && self.has_place.swap(false, Ordering::Relaxed);
        is_passed_on.then(|| Self::new(self.tenant.clone(), self.reported.swap(0, Ordering::Relaxed)))
    }

    /// Returns the tenant's limit of names, if the last request of this stream has exceeded it.
    pub(crate) fn take_exceeded(&self) -> Option<usize> {
        self.has_exceeded.swap(false, Ordering::Relaxed).then(|| {
            self.tenant.all.counters.reached(Limit::NamesPerTenant);
            self.tenant.all.limits.names.load(Ordering::Relaxed)
        })
    }

    /// Sets how many names the stream has. If the tenant's names are limited, the change is counted at once. Otherwise changes are counted in
    /// batches, since a count that all threads share is costly.
    pub(super) fn set_names(&self, now: usize) {
        let reported = self.reported.load(Ordering::Relaxed);
        let limit = self.tenant.all.limits.names.load(Ordering::Relaxed);
        if now.abs_diff(reported) >= if limit > 0 { 1 } else { STEP } {
            let names = self.report_names(now);
            if now > reported && limit > 0 && names > limit {
                self.has_exceeded.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Reports the names to the tenant. Returns how many the tenant has then.
    fn report_names(&self, now: usize) -> usize {
        let before = self.reported.swap(now, Ordering::Relaxed);
        match now >= before {
            true => self.tenant.names.fetch_add(now - before, Ordering::Relaxed) + (now - before),
            false => self.tenant.names.fetch_sub(before - now, Ordering::Relaxed) - (before - now),
        }
    }

    /// Returns the turn of a request. The requests of one second may come at once.
    pub(crate) fn request_turn(&self, now: Instant) -> RequestTurn<'_> {
        let tenant = &*self.tenant;
        let Some((rate, interval)) = tenant.all.rate() else { return RequestTurn { tenant, reserved: None } };
        let mut next = tenant.next_request();
        let earliest = now.checked_sub(interval * (rate - 1)).unwrap_or(now);
        let at = next.map_or(earliest, |next| next.with_interval(interval, now).at.max(earliest));
        *next = Some(TurnTime { at: at + interval, interval });
        RequestTurn { tenant, reserved: Some(TurnTime { at, interval }) }
    }
}

impl TurnTime {
    /// Returns the time of the same turn at another rate: as many turns come before it.
    fn with_interval(self, interval: Duration, now: Instant) -> Self {
        let left = self.at.saturating_duration_since(now);
        if left.is_zero() || interval == self.interval {
            return Self { interval, ..self };
        }
        Self { at: now + interval.mul_f64(left.div_duration_f64(self.interval)), interval }
    }
}

impl Tenant {
    fn next_request(&self) -> MutexGuard<'_, Option<TurnTime>> {
        self.next_request.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestTurn<'_> {
    pub(crate) fn delay(&self, now: Instant) -> Duration {
        self.reserved.map_or(Duration::ZERO, |turn| turn.at.saturating_duration_since(now))
    }

    /// Waits for the turn. It comes sooner or later if the rate changes meanwhile.
    pub(crate) async fn comes(&mut self) {
        let tenant = self.tenant;
        loop {
            let rate_changes = tenant.all.rate_changed.notified(); // before the rate is read, so that no change is missed
            let now = Instant::now();
            self.follow_rate(now);
            let delay = self.delay(now);
            if delay.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(delay) => return,
                () = rate_changes => {}
            }
        }
    }

    /// Moves the turn, and those that others will get, if the rate has changed.
    fn follow_rate(&mut self, now: Instant) {
        let Some(turn) = self.reserved else { return };
        let Some((_, interval)) = self.tenant.all.rate() else { return self.give_back() };
        if interval != turn.interval {
            let mut next = self.tenant.next_request();
            *next = next.map(|next| next.with_interval(interval, now));
            self.reserved = Some(turn.with_interval(interval, now));
        }
    }

    fn give_back(&mut self) {
        if self.reserved.take().is_some() {
            let mut next = self.tenant.next_request();
            *next = next.and_then(|next| Some(TurnTime { at: next.at.checked_sub(next.interval)?, ..next }));
        }
    }

    /// The request is read.
    pub(crate) fn take(mut self) {
        self.reserved = None;
    }
}

/// A client that leaves before its turn gives its place to others.
impl Drop for RequestTurn<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Drop for TenantStream {
    fn drop(&mut self) {
        self.report_names(0);
        if *self.has_place.get_mut() {
            self.tenant.streams.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        let mut tenants = self.all.lock();
        // A client that came meanwhile has made another one.
        if tenants.get(&self.name).is_some_and(|tenant| tenant.strong_count() == 0) {
            tenants.remove(&self.name);
        }
    }
}

const STEP: usize = 256;
/// Those of a second.
const NANOSECONDS: u32 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost_types::value::Kind;
    use prost_types::{Struct, Value};
    use weir_core::proto::node::Node;
    use weir_core::xds::{KeyField, KeyRule};

    use super::*;

    fn key(tenant: Option<&str>) -> SharingKey {
        let stated = tenant.map(|tenant| Value { kind: Some(Kind::StringValue(tenant.into())) });
        let fields = stated.map(|value| ("weir.tenant".to_owned(), value)).into_iter().collect();
        let node = Node { metadata: Some(Struct { fields }), ..Node::default() };
        KeyRule::of(vec![KeyField::Tenant]).key(&node.encode_to_vec()).unwrap()
    }

    fn tenants(limits: TenantLimits) -> Arc<Tenants> {
        let all = Tenants::without_limits(Arc::default());
        all.set_limits(limits);
        all
    }

    #[test]
    fn a_tenant_has_so_many_streams_and_others_have_their_own() {
        let all = tenants(TenantLimits { streams: 2, ..TenantLimits::default() });
        let open = |tenant| all.open_stream(&key(Some(tenant)));
        let mut streams: Vec<_> = (0..2).map(|_| open("a").unwrap().unwrap()).collect();
        let refused = open("a").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "too many streams of one tenant: the limit is 2 (limits.streams_per_tenant); close some"
        );
        assert!(open("b").unwrap().is_some());
        assert!(all.open_stream(&key(None)).unwrap().is_none(), "it is nobody's");
        all.set_limits(TenantLimits { streams: 1, ..TenantLimits::default() });
        streams.pop();
        assert!(open("a").is_err(), "those that are there count");
        streams.clear();
        assert!(open("a").is_ok());
        assert!(all.lock().is_empty(), "nothing is kept of who is gone");
    }

    #[test]
    fn names_of_all_streams_of_a_tenant_count_also_those_from_before_there_was_a_limit() {
        let all = tenants(TenantLimits::default());
        let [one, two, other] = ["a", "a", "b"].map(|tenant| all.open_stream(&key(Some(tenant))).unwrap().unwrap());
        one.set_names(1000);
        two.set_names(STEP - 1);
        assert_eq!((one.take_exceeded(), two.take_exceeded()), (None, None));
        all.set_limits(TenantLimits { names: 1500, ..TenantLimits::default() });
        two.set_names(500);
        assert_eq!(two.take_exceeded(), None, "as many as it may have");
        one.set_names(1000);
        two.set_names(501);
        assert_eq!((one.take_exceeded(), two.take_exceeded()), (None, Some(1500)), "the one that wanted more");
        two.set_names(501);
        one.set_names(999);
        assert_eq!((one.take_exceeded(), two.take_exceeded()), (None, None), "what it has already is nothing new");
        other.set_names(1500);
        assert_eq!(other.take_exceeded(), None);
        drop(one);
        two.set_names(1500);
        assert_eq!(two.take_exceeded(), None);
        drop((two, other));
        assert!(all.lock().is_empty());
    }

    #[test]
    fn requests_of_all_streams_of_a_tenant_have_one_rate() {
        let all = tenants(TenantLimits { requests_per_second: 2, ..TenantLimits::default() });
        let [one, two, other] = ["a", "a", "b"].map(|tenant| all.open_stream(&key(Some(tenant))).unwrap().unwrap());
        let now = Instant::now();
        let wait = |stream: &TenantStream, now| {
            let turn = stream.request_turn(now);
            let delay = turn.delay(now).as_millis();
            turn.take();
            delay
        };
        assert_eq!([&one, &two, &one, &two, &other].map(|stream| wait(stream, now)), [0, 0, 500, 1000, 0]);
        for _ in 0..100 {
            assert_eq!(one.request_turn(now).delay(now).as_millis(), 1500, "who left before its turn makes none wait");
        }
        assert_eq!(wait(&one, now + Duration::from_secs(10)), 0);
        all.set_limits(TenantLimits::default());
        assert_eq!(wait(&two, now), 0);
    }

    #[test]
    fn another_rate_counts_at_once_and_turns_keep_their_order() {
        let all = tenants(TenantLimits { requests_per_second: 1, ..TenantLimits::default() });
        let set_rate = |rate| all.set_limits(TenantLimits { requests_per_second: rate, ..TenantLimits::default() });
        let stream = all.open_stream(&key(Some("a"))).unwrap().unwrap();
        let now = Instant::now();
        let mut turns: Vec<_> = (0..100).map(|_| stream.request_turn(now)).collect();
        for (rate, interval) in [(1000, 1), (10, 100), (1, 1000)] {
            set_rate(rate);
            assert_eq!(stream.request_turn(now).delay(now).as_millis(), 100 * interval, "of who comes then");
            turns.iter_mut().for_each(|turn| turn.follow_rate(now));
            let delays: Vec<_> = turns.iter().map(|turn| turn.delay(now).as_millis()).collect();
            assert_eq!(delays, (0..100).map(|before| before * interval).collect::<Vec<_>>(), "of those who wait");
        }
        set_rate(2);
        turns[0].follow_rate(now);
        let next = |now: Instant| stream.request_turn(now).delay(now).as_millis();
        assert_eq!(next(now + Duration::from_secs(40)), 10_000, "who waits has moved the turns of who comes later");
        drop(turns);
        assert_eq!(next(now), 0, "all have left");
    }

    #[tokio::test]
    async fn who_waits_for_its_turn_is_woken_by_another_rate() {
        for rate in [1000, 0] {
            let all = tenants(TenantLimits { requests_per_second: 1, ..TenantLimits::default() });
            let stream = all.open_stream(&key(Some("a"))).unwrap().unwrap();
            (0..100).for_each(|_| stream.request_turn(Instant::now()).take());
            let mut turn = stream.request_turn(Instant::now());
            let mut comes = std::pin::pin!(turn.comes());
            assert!(futures_util::FutureExt::now_or_never(comes.as_mut()).is_none(), "there are 100 before it");
            all.set_limits(TenantLimits { requests_per_second: rate, ..TenantLimits::default() });
            tokio::time::timeout(Duration::from_secs(20), comes).await.expect("nothing wakes it");
        }
    }

    #[test]
    fn the_next_session_of_a_client_is_the_same_stream_and_its_names_count_once() {
        let all = tenants(TenantLimits { streams: 1, ..TenantLimits::default() });
        let open = || all.open_stream(&key(Some("a")));
        let first = open().unwrap().unwrap();
        first.set_names(2 * STEP);
        assert!(first.pass_on(&key(Some("b"))).is_none() && first.pass_on(&key(None)).is_none(), "of another tenant");
        let next = first.pass_on(&key(Some("a"))).unwrap();
        assert!(first.pass_on(&key(Some("a"))).is_none(), "there is one place");
        next.set_names(2 * STEP);
        first.set_names(0); // the view has released them
        let names = || next.tenant.names.load(Ordering::Relaxed);
        assert_eq!((names(), open().is_err()), (2 * STEP, true));
        drop(first);
        assert_eq!((names(), open().is_err()), (2 * STEP, true));
        next.set_names(STEP);
        assert_eq!(names(), STEP);
        drop(next);
        assert!(open().is_ok());
        assert!(all.lock().is_empty());
    }
}
