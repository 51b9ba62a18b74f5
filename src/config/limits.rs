//! Limits of connections and handshakes, of draining and of load reports.

use std::time::Duration;

use weir_core::protocol::loads::LoadLimits;

use super::bounds::{Setting, is_share_of};
use super::checker::{Checker, or};
use super::form::{Count, Interval, Pause, Positive, Size, Wait};
use super::raw;
use crate::downstream::{ConnectionLimits, DrainTimes, HandshakeLimits};
use crate::relay::LoadsMode;

pub(super) fn connections(raw: &raw::Root, checker: &mut Checker) -> ConnectionLimits {
    let raw = &raw.limits;
    let header_bytes = or(&raw.header_bytes, Size(HEADER_BYTES)).0;
    let streams_per_connection = or(&raw.streams_per_connection, Positive(STREAMS_PER_CONNECTION)).0;
    if let Some(given) = raw.streams_per_connection.as_ref().filter(|given| given.0 > MOST_STREAMS) {
        let reason =
            format!("invalid number {}: expected at most {MOST_STREAMS}, what HTTP/2 has numbers for", given.0);
        checker.fault(&given.place, reason);
    }
    ConnectionLimits {
        connections: raw.connections.as_ref().map(|given| given.value.0),
        per_address: or(&raw.connections_per_address, Count(0)).0,
        per_identity: or(&raw.connections_per_identity, Count(0)).0,
        new_per_second: or(&raw.new_connections_per_second, Count(0)).0,
        new_streams_per_second: or(&raw.new_streams_per_second, Count(NEW_STREAMS_PER_SECOND)).0,
        first_request: or(&raw.first_request_timeout, Interval(Some(FIRST_REQUEST))).0.unwrap_or_default(),
        streams_per_connection: streams_per_connection.min(MOST_STREAMS) as u32,
        streams_per_identity: or(&raw.streams_per_identity, Count(0)).0,
        streams: or(&raw.streams, Positive(STREAMS)).0,
        requests_per_second: or(&raw.requests_per_second, Count(0)).0,
        header_bytes,
    }
}

pub(super) fn handshakes(raw: &raw::Root) -> HandshakeLimits {
    HandshakeLimits {
        at_a_time: or(&raw.limits.handshakes, Positive(HANDSHAKES)).0,
        timeout: or(&raw.limits.handshake_timeout, Pause(HANDSHAKE_TIMEOUT)).0,
        per_address: or(&raw.limits.handshakes_per_address, Count(0)).0,
    }
}

pub(super) fn loads(raw: &raw::LoadReports, checker: &mut Checker) -> LoadsMode {
    let outage = or(&raw.max_outage, Wait(MAX_OUTAGE)).0;
    if let Some(given) = raw.max_outage.as_ref().filter(|_| outage.is_zero()) {
        checker.fault(&given.place, "invalid duration \"0s\": expected more than 0s");
    }
    let limits = LoadLimits {
        outage,
        bytes: or(&raw.bytes_per_view, Size(BYTES_PER_VIEW)).0,
        bytes_total: or(&raw.bytes_total, Size(BYTES_TOTAL)).0,
    };
    is_share_of(
        &Setting::size("load_reports.bytes_per_view", limits.bytes, &raw.bytes_per_view),
        &Setting::size("load_reports.bytes_total", limits.bytes_total, &raw.bytes_total),
        checker,
    );
    match raw.mode.value {
        raw::LoadsMode::PassThrough => LoadsMode::PassThrough,
        raw::LoadsMode::Aggregate => LoadsMode::Aggregate(limits),
        raw::LoadsMode::Off => LoadsMode::Off,
    }
}

pub(super) fn drain(raw: &raw::Drain, reload: &raw::Reload) -> DrainTimes {
    DrainTimes {
        delay: or(&raw.delay, Wait(Duration::ZERO)).0,
        grace: or(&raw.grace, Wait(GRACE)).0,
        spread: or(&raw.spread, Wait(SPREAD)).0,
        bytes_per_second: or(&raw.bytes_per_second, Size(DRAIN_RATE)).0,
        reload_spread: or(&reload.spread, Wait(RELOAD_SPREAD)).0,
    }
}

/// A handshake is a millisecond or two of work. What is ready meanwhile waits for as many, divided by the number of workers.
const HANDSHAKES: usize = 16;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_REQUEST: Duration = Duration::from_secs(60);
/// An Envoy without ADS opens a stream for each cluster and route, all of them before it has received HTTP/2 settings.
const STREAMS_PER_CONNECTION: usize = 4096;
/// An Envoy with 1,500 streams opens them at once.
const NEW_STREAMS_PER_SECOND: usize = 2000;
const STREAMS: usize = 1_000_000;
const HEADER_BYTES: usize = 16 << 10;
/// The numbers of streams have 31 bits, and clients use the odd ones.
const MOST_STREAMS: usize = 1 << 30;
const MAX_OUTAGE: Duration = Duration::from_secs(300);
const BYTES_PER_VIEW: usize = 64 << 20;
const BYTES_TOTAL: usize = 256 << 20;
pub(super) const GRACE: Duration = Duration::from_secs(10);
const SPREAD: Duration = Duration::from_secs(30);
/// Half of what a network of 1 Gbit/s carries.
const DRAIN_RATE: usize = 64 << 20;
/// Nothing waits for it: the streams are served meanwhile.
const RELOAD_SPREAD: Duration = Duration::from_secs(60);
