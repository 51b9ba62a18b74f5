//! What the file says of connections to a server: whether it is still there, and when it is tried again.

use std::time::Duration;

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::check::Checker;
use super::raw::Text;
use crate::protocol::upstream::BackoffTimes;
use crate::upstream::{Keepalive, LifeTimes};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBackoff {
    pub initial: Option<Text>,
    pub factor: Option<Spanned<f64>>,
    pub max: Option<Text>,
    pub jitter: Option<Spanned<f64>>,
    pub reset_after: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProbe {
    pub interval: Option<Text>,
    pub timeout: Option<Text>,
}

impl Checker<'_> {
    /// What is not said is as in `default`.
    pub fn backoff(&mut self, raw: Option<&RawBackoff>, default: BackoffTimes, at: &str) -> BackoffTimes {
        let Some(raw) = raw else { return default };
        let read = BackoffTimes {
            initial: self.duration(&raw.initial, &format!("{at}.initial")).unwrap_or(default.initial),
            factor: raw.factor.as_ref().map_or(default.factor, |factor| factor.value),
            max: self.duration(&raw.max, &format!("{at}.max")).unwrap_or(default.max),
            jitter: raw.jitter.as_ref().map_or(default.jitter, |jitter| jitter.value),
            reset_after: self.duration(&raw.reset_after, &format!("{at}.reset_after")).unwrap_or(default.reset_after),
        };
        let faults = self.faults.len();
        if let Some(initial) = raw.initial.as_ref().filter(|_| read.initial < SHORTEST) {
            self.fault(initial, &format!("{at}.initial"), SHORT);
        }
        if let Some(factor) = raw.factor.as_ref().filter(|factor| !(1.0..=LARGEST_FACTOR).contains(&factor.value)) {
            let reason = format!("invalid factor {}: expected a number from 1 to {LARGEST_FACTOR}", factor.value);
            self.fault(factor, &format!("{at}.factor"), &reason);
        }
        if let Some(jitter) = raw.jitter.as_ref().filter(|jitter| !(0.0..=1.0).contains(&jitter.value)) {
            let reason = format!("invalid jitter {}: expected a number from 0 to 1", jitter.value);
            self.fault(jitter, &format!("{at}.jitter"), &reason);
        }
        if let Some(text) = raw.max.as_ref().or(raw.initial.as_ref()).filter(|_| read.max < read.initial) {
            let [initial, max] = [read.initial, read.max].map(humantime::format_duration);
            let reason = format!("invalid max {max}: expected at least the initial wait, {initial}");
            self.fault(text, &format!("{at}.max"), &reason);
        }
        if self.faults.len() == faults { read } else { default }
    }

    pub fn life(&mut self, raw: Option<&RawProbe>, at: &str) -> LifeTimes {
        let default = LifeTimes::default();
        let (interval, timeout) = self.pings(raw, at, (default.interval, default.timeout));
        LifeTimes { interval, timeout }
    }

    pub fn keepalive(&mut self, raw: Option<&RawProbe>, at: &str) -> Keepalive {
        let default = Keepalive::default();
        let (interval, timeout) = self.pings(raw, at, (default.interval, default.timeout));
        Keepalive { interval, timeout }
    }

    /// How often, if at all, and how long to wait for an answer.
    fn pings(
        &mut self,
        raw: Option<&RawProbe>,
        at: &str,
        default: (Option<Duration>, Duration),
    ) -> (Option<Duration>, Duration) {
        let Some(raw) = raw else { return default };
        let interval = self.duration(&raw.interval, &format!("{at}.interval"));
        let timeout = self.duration(&raw.timeout, &format!("{at}.timeout"));
        let short = |time: Option<Duration>| time.is_some_and(|time| time < SHORTEST);
        if let Some(text) = raw.interval.as_ref().filter(|_| short(interval.filter(|interval| !interval.is_zero()))) {
            self.fault(text, &format!("{at}.interval"), &format!("{SHORT}, or 0s for never"));
        }
        if let Some(text) = raw.timeout.as_ref().filter(|_| short(timeout)) {
            self.fault(text, &format!("{at}.timeout"), SHORT);
        }
        let interval = interval.map_or(default.0, |interval| Some(interval).filter(|interval| !interval.is_zero()));
        (interval, timeout.unwrap_or(default.1))
    }
}

const SHORTEST: Duration = Duration::from_millis(10);
const SHORT: &str = "expected 10ms or more";
const LARGEST_FACTOR: f64 = 100.0;
