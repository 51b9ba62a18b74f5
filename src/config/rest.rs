//! REST clients.

use super::checker::Checker;
use super::form::Located;
use super::raw;
use crate::downstream::RestOptions;
use crate::memory::Budget;

pub(super) fn check(raw: &Located<raw::Rest>, memory: &Budget, checker: &mut Checker) -> Option<RestOptions> {
    let by_default = memory.part(CACHE).min(MOST_CACHED);
    let cache_bytes = raw.cache_bytes.as_ref().map_or(by_default, |given| given.value.0);
    let response_bytes = raw.response_bytes.as_ref().map_or(cache_bytes.saturating_mul(4), |given| given.0);
    let is_known = !checker.has_fault_within("rest.cache_bytes");
    if let Some(given) = raw.response_bytes.as_ref().filter(|_| is_known && response_bytes / 2 < cache_bytes) {
        let least = cache_bytes.saturating_mul(2);
        let reason = format!("invalid size {response_bytes}: expected at least {least}, twice rest.cache_bytes");
        checker.fault(&given.place, reason);
    }
    raw.enabled.then_some(RestOptions {
        timeout: raw.timeout.0,
        long_poll: raw.long_poll.0,
        cache_bytes: cache_bytes as u64,
        response_bytes,
    })
}

/// The default of `rest.cache_bytes` where memory is scarce, in percent of `limits.memory`.
const CACHE: usize = 2;
/// A larger cache is of no use: polling clients request the same resources.
const MOST_CACHED: usize = 64 << 20;
