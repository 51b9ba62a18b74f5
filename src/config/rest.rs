//! What the file says of clients that poll.

use std::time::Duration;

use super::check::{Checker, number};
use super::raw;
use crate::downstream::RestOptions;

impl Checker<'_> {
    pub fn rest(&mut self, raw: &raw::Rest) -> Option<RestOptions> {
        let patience = self.duration(&raw.timeout, "rest.timeout").unwrap_or(PATIENCE);
        let hold = self.duration(&raw.long_poll, "rest.long_poll").unwrap_or_default();
        if let Some(bytes) = raw.cache_bytes.as_ref().filter(|bytes| bytes.value == 0) {
            self.fault(bytes, "rest.cache_bytes", "must be greater than 0");
        }
        let cache_bytes = number(&raw.cache_bytes, CACHE_BYTES);
        let response_bytes = number(&raw.response_bytes, cache_bytes.saturating_mul(4));
        if let Some(bytes) = raw.response_bytes.as_ref().filter(|bytes| bytes.value / 2 < cache_bytes) {
            self.fault(bytes, "rest.response_bytes", "has to be twice rest.cache_bytes, which is a part of it");
        }
        raw.enabled.then_some(RestOptions {
            timeout: patience,
            long_poll: hold,
            cache_bytes: cache_bytes as u64,
            response_bytes,
        })
    }
}

/// Less than what an Envoy waits unless it is told otherwise (REST-6), and more than a set takes to settle after its first response, so
/// that the first poll of a view is answered.
const PATIENCE: Duration = Duration::from_millis(800);
const CACHE_BYTES: usize = 64 << 20;
