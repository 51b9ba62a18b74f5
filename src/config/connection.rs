//! The waits between attempts to open a stream.

use weir_core::protocol::upstream::BackoffTimes;

use super::checker::Checker;
use super::raw;

/// Reads the waits. Missing keys are as in `default`.
pub(super) fn backoff(raw: &raw::Backoff, default: BackoffTimes, checker: &mut Checker) -> BackoffTimes {
    let read = BackoffTimes {
        initial: raw.initial.or(default.initial).0,
        factor: raw.factor.or(default.factor).0,
        max: raw.max.or(default.max).0,
        jitter: raw.jitter.or(default.jitter).0,
        reset_after: raw.reset_after.or(default.reset_after).0,
    };
    let given = raw.max.given().or(raw.initial.given());
    if let Some(place) = given.filter(|_| read.max < read.initial) {
        let [initial, max] = [read.initial, read.max].map(humantime::format_duration);
        checker.fault(place, format!("invalid backoff: max is {max}, expected at least {initial}, which is initial"));
    }
    read
}
