//! REST clients.

use std::time::Duration;

use super::checker::{Checker, or};
use super::form::{Located, Size, Wait};
use super::raw;
use crate::downstream::RestOptions;

pub(super) fn check(raw: &Located<raw::Rest>, checker: &mut Checker) -> Option<RestOptions> {
    let cache_bytes = or(&raw.cache_bytes, Size(CACHE_BYTES)).0;
    let response_bytes = or(&raw.response_bytes, Size(cache_bytes.saturating_mul(4))).0;
    let is_known = !checker.has_fault_within(&raw.place.key("cache_bytes"));
    if let Some(given) = raw.response_bytes.as_ref().filter(|given| is_known && given.0 / 2 < cache_bytes) {
        let least = cache_bytes.saturating_mul(2);
        checker.fault(
            &given.place,
            format!("invalid size {}: expected at least {least}, twice rest.cache_bytes", given.0),
        );
    }
    or(&raw.enabled, true).then_some(RestOptions {
        timeout: or(&raw.timeout, Wait(TIMEOUT)).0,
        long_poll: or(&raw.long_poll, Wait(Duration::ZERO)).0,
        cache_bytes: cache_bytes as u64,
        response_bytes,
    })
}

/// Shorter than Envoy's default timeout (REST-6), and longer than a set needs to settle after its first response, so that the first poll of
/// a view gets a response.
const TIMEOUT: Duration = Duration::from_millis(800);
const CACHE_BYTES: usize = 64 << 20;
