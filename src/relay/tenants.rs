//! Limits on what the clients of one tenant have together. The key of a client's view names its tenant.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

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
    next_request: Mutex<Option<Instant>>,
}

/// A stream of a tenant, with its names, until this is dropped.
#[derive(Debug)]
pub(crate) struct TenantStream {
    tenant: Arc<Tenant>,
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
        self.limits.requests_per_second.store(requests_per_second, Ordering::Relaxed);
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
        Ok(Some(TenantStream { tenant, reported: AtomicUsize::new(0), has_exceeded: AtomicBool::new(false) }))
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
    delay: Duration,
    /// The part of the rate that it has reserved, if any.
    reserved: Option<(&'t Tenant, Duration)>,
}

impl TenantStream {
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
        let rate = self.tenant.all.limits.requests_per_second.load(Ordering::Relaxed);
        let rate = u32::try_from(rate).unwrap_or(u32::MAX);
        let Some(interval) = Duration::from_secs(1).checked_div(rate) else {
            return RequestTurn { delay: Duration::ZERO, reserved: None };
        };
        let mut next = self.tenant.next_request();
        let earliest = now.checked_sub(interval * (rate - 1)).unwrap_or(now);
        let at = next.map_or(earliest, |next| next.max(earliest));
        *next = Some(at + interval);
        RequestTurn { delay: at.saturating_duration_since(now), reserved: Some((&self.tenant, interval)) }
    }
}

impl Tenant {
    fn next_request(&self) -> MutexGuard<'_, Option<Instant>> {
        self.next_request.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestTurn<'_> {
    pub(crate) fn delay(&self) -> Duration {
        self.delay
    }

    /// The request is read.
    pub(crate) fn take(mut self) {
        self.reserved = None;
    }
}

/// A client that leaves before its turn gives its place to others.
impl Drop for RequestTurn<'_> {
    fn drop(&mut self) {
        let Some((tenant, interval)) = self.reserved.take() else { return };
        let mut next = tenant.next_request();
        *next = next.and_then(|next| next.checked_sub(interval));
    }
}

impl Drop for TenantStream {
    fn drop(&mut self) {
        self.report_names(0);
        self.tenant.streams.fetch_sub(1, Ordering::Relaxed);
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
            let delay = turn.delay().as_millis();
            turn.take();
            delay
        };
        assert_eq!([&one, &two, &one, &two, &other].map(|stream| wait(stream, now)), [0, 0, 500, 1000, 0]);
        for _ in 0..100 {
            assert_eq!(one.request_turn(now).delay().as_millis(), 1500, "who left before its turn makes none wait");
        }
        assert_eq!(wait(&one, now + Duration::from_secs(10)), 0);
        all.set_limits(TenantLimits::default());
        assert_eq!(wait(&two, now), 0);
    }
}
