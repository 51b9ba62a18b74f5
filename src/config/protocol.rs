//! Limits and timers of the pure layers.

use std::time::Duration;

use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::SessionOptions;
use weir_core::protocol::upstream::UpstreamOptions;
use weir_core::protocol::view::{BrakeRules, ViewOptions};

use super::checker::Checker;
use super::memory::or_part;
use super::raw;
use crate::memory::Budget;

pub(super) fn check(raw: &raw::Root, brakes: BrakeRules, memory: &Budget, checker: &mut Checker) -> ProtocolOptions {
    let limits = &raw.limits;
    if let Some(place) = limits.resource_timer.given().filter(|_| limits.resource_timer.0 < SHORTEST_TIMER) {
        checker.warn(place, "below 15s, names that a control plane is slow to send may count as absent");
    }
    if let Some(place) = limits.removal_history_age.given().filter(|_| limits.removal_history_age.0 < SHORTEST_HISTORY)
    {
        checker.fault(place, "expected 10s or more, since removals wait that long for clients that keep up");
    }
    let (session, view, upstream) = (of_sessions(raw), of_views(limits, brakes, memory), of_streams(limits));
    let reference_hold = view.reference_hold;
    let mut options = ProtocolOptions { session, view, upstream };
    options.hold_referenced(reference_hold);
    options
}

fn of_sessions(raw: &raw::Root) -> SessionOptions {
    let limits = &raw.limits;
    SessionOptions {
        types: limits.types_per_stream.0,
        names: limits.names_per_type.0,
        names_per_stream: limits.names_per_stream.0,
        reply_bytes: limits.reply_bytes.0,
        clusters_timeout: limits.clusters_timeout.0,
        fetch_timeout: limits.fetch_timeout.0,
        grpc_fail_fast: raw.clients.grpc_fail_fast.value,
        on_refused_type: raw.clients.on_refused_type.value,
        ..SessionOptions::default()
    }
}

fn of_views(limits: &raw::Limits, brakes: BrakeRules, memory: &Budget) -> ViewOptions {
    ViewOptions {
        names_per_view: limits.names_per_view.0,
        cached_bytes: or_part(&limits.cached_bytes, memory, CACHED),
        sought_names: limits.sought_names.0,
        history_bytes: limits.removal_history_bytes.0,
        history_age: limits.removal_history_age.0,
        absent_names_per_stream: limits.absent_names_per_stream.0,
        linger: limits.linger.0,
        lingering: limits.lingering.0,
        reference_hold: limits.reference_hold.0,
        clusters_timeout: limits.clusters_timeout.0,
        brakes,
        ..ViewOptions::default()
    }
}

fn of_streams(limits: &raw::Limits) -> UpstreamOptions {
    UpstreamOptions {
        resource_timer: limits.resource_timer.0,
        second_silence: limits.second_silence.0,
        ..UpstreamOptions::default()
    }
}

/// The default of `limits.cached_bytes`, in percent of `limits.memory`.
const CACHED: usize = 50;
/// The default timeout of clients. With a shorter timer Weir would report an absence that no server has reported (XLAT-17).
const SHORTEST_TIMER: Duration = Duration::from_secs(15);
/// Even clients that keep up receive removals late: these wait for ACKs, clusters and routing.
const SHORTEST_HISTORY: Duration = Duration::from_secs(10);
