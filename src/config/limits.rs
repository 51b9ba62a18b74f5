//! Limits of connections and handshakes, of draining and of load reports.

use weir_core::protocol::loads::LoadLimits;

use super::bounds::is_share_of;
use super::checker::Checker;
use super::memory::or_part;
use super::raw;
use crate::downstream::{ConnectionLimits, DrainTimes, HandshakeLimits};
use crate::memory::Budget;
use crate::relay::{LoadStreamLimits, LoadsMode, TenantLimits};

pub(super) fn connections(limits: &raw::Limits, checker: &mut Checker) -> ConnectionLimits {
    let streams_per_connection = limits.streams_per_connection.0;
    if let Some(place) = limits.streams_per_connection.given().filter(|_| streams_per_connection > MOST_STREAMS) {
        let reason = format!(
            "invalid number {streams_per_connection}: expected at most {MOST_STREAMS}, what HTTP/2 has numbers for"
        );
        checker.fault(place, reason);
    }
    ConnectionLimits {
        connections: limits.connections.as_ref().map(|given| given.value.0),
        per_address: limits.connections_per_address.0,
        per_identity: limits.connections_per_identity.0,
        new_per_second: limits.new_connections_per_second.0,
        new_streams_per_second: limits.new_streams_per_second.0,
        first_request: limits.first_request_timeout.0.unwrap_or_default(),
        streams_per_connection: streams_per_connection.min(MOST_STREAMS) as u32,
        streams_per_identity: limits.streams_per_identity.0,
        streams: limits.streams.0,
        requests_per_second: limits.requests_per_second.0,
        header_bytes: limits.header_bytes.0,
    }
}

pub(super) fn tenants(limits: &raw::Limits) -> TenantLimits {
    TenantLimits {
        streams: limits.streams_per_tenant.0,
        names: limits.names_per_tenant.0,
        requests_per_second: limits.tenant_requests_per_second.0,
    }
}

pub(super) fn handshakes(limits: &raw::Limits) -> HandshakeLimits {
    HandshakeLimits {
        at_a_time: limits.handshakes.0,
        timeout: limits.handshake_timeout.0,
        per_address: limits.handshakes_per_address.0,
    }
}

pub(super) fn loads(raw: &raw::LoadReports, memory: &Budget, checker: &mut Checker) -> LoadsMode {
    if let Some(place) = raw.max_outage.given().filter(|_| raw.max_outage.0.is_zero()) {
        checker.fault(place, "invalid duration \"0s\": expected more than 0s");
    }
    if let Some(total) = &raw.bytes_total {
        is_share_of(&raw.bytes_per_view, total, checker);
    }
    is_share_of(&raw.streams_per_connection, &raw.streams, checker);
    match raw.mode.value {
        raw::LoadsMode::PassThrough => LoadsMode::PassThrough(LoadStreamLimits {
            streams: raw.streams.0,
            per_connection: raw.streams_per_connection.0,
        }),
        raw::LoadsMode::Aggregate => LoadsMode::Aggregate(LoadLimits {
            outage: raw.max_outage.0,
            bytes: raw.bytes_per_view.0,
            bytes_total: or_part(&raw.bytes_total, memory, REPORTS),
        }),
        raw::LoadsMode::Off => LoadsMode::Off,
    }
}

pub(super) fn drain(raw: &raw::Drain, reload: &raw::Reload) -> DrainTimes {
    DrainTimes {
        delay: raw.delay.0,
        grace: raw.grace.0,
        spread: raw.spread.0,
        bytes_per_second: raw.bytes_per_second.0,
        reload_spread: reload.spread.0,
    }
}

/// The default of `load_reports.bytes_total`, in percent of `limits.memory`.
const REPORTS: usize = 6;
/// Stream numbers have 31 bits, and clients use the odd ones.
const MOST_STREAMS: usize = 1 << 30;
