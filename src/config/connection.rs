//! Connections to a server: liveness, keepalive and backoff.

use std::time::Duration;

use weir_core::protocol::upstream::BackoffTimes;

use super::checker::{Checker, or};
use super::form::{Factor, Interval, Jitter, Pause, Wait};
use super::raw;
use crate::upstream::{Keepalive, LifeTimes};

/// Keys that are missing are as in `default`.
pub(super) fn backoff(raw: &raw::Backoff, default: BackoffTimes, checker: &mut Checker) -> BackoffTimes {
    let read = BackoffTimes {
        initial: or(&raw.initial, Pause(default.initial)).0,
        factor: or(&raw.factor, Factor(default.factor)).0,
        max: or(&raw.max, Wait(default.max)).0,
        jitter: or(&raw.jitter, Jitter(default.jitter)).0,
        reset_after: or(&raw.reset_after, Wait(default.reset_after)).0,
    };
    let given = raw.max.as_ref().map(|max| &max.place).or(raw.initial.as_ref().map(|initial| &initial.place));
    if let Some(place) = given.filter(|_| read.max < read.initial) {
        let [initial, max] = [read.initial, read.max].map(humantime::format_duration);
        checker.fault(place, format!("invalid backoff: max is {max}, expected at least {initial}, which is initial"));
    }
    read
}

pub(super) fn life(raw: Option<&raw::Probe>) -> LifeTimes {
    let default = LifeTimes::default();
    let (interval, timeout) = probe(raw, (default.interval, default.timeout));
    LifeTimes { interval, timeout }
}

pub(super) fn keepalive(raw: Option<&raw::Probe>) -> Keepalive {
    let default = Keepalive::default();
    let (interval, timeout) = probe(raw, (default.interval, default.timeout));
    Keepalive { interval, timeout }
}

/// Returns the interval, if any, and the timeout.
fn probe(raw: Option<&raw::Probe>, default: (Option<Duration>, Duration)) -> (Option<Duration>, Duration) {
    let Some(raw) = raw else { return default };
    (or(&raw.interval, Interval(default.0)).0, or(&raw.timeout, Pause(default.1)).0)
}
