//! Limits and timers of the pure layers.

use std::time::Duration;

use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::SessionOptions;
use weir_core::protocol::upstream::UpstreamOptions;
use weir_core::protocol::view::{BrakeRules, ViewOptions};

use super::checker::{Checker, or};
use super::form::{Count, Pause, Positive, Size, Wait};
use super::raw;

pub(super) fn check(raw: &raw::Root, brakes: BrakeRules, checker: &mut Checker) -> ProtocolOptions {
    let limits = &raw.limits;
    if let Some(timer) = limits.resource_timer.as_ref().filter(|timer| timer.0 < SHORTEST_TIMER) {
        let reason = "below 15s, names that a control plane is slow to send may count as absent";
        checker.warn(&timer.place, reason);
    }
    if let Some(age) = limits.removal_history_age.as_ref().filter(|age| age.0 < SHORTEST_HISTORY) {
        let reason = "expected 10s or more, since removals wait that long for clients that keep up";
        checker.fault(&age.place, reason.to_owned());
    }
    let (session, view, upstream) = (of_sessions(raw), of_views(raw, brakes), of_streams(raw));
    let reference_hold = view.reference_hold;
    let mut options = ProtocolOptions { session, view, upstream };
    options.hold_referenced(reference_hold);
    options
}

fn of_sessions(raw: &raw::Root) -> SessionOptions {
    let (limits, defaults) = (&raw.limits, SessionOptions::default());
    SessionOptions {
        types: or(&limits.types_per_stream, Positive(defaults.types)).0,
        names: or(&limits.names_per_type, Positive(defaults.names)).0,
        names_per_stream: or(&limits.names_per_stream, Positive(defaults.names_per_stream)).0,
        reply_bytes: or(&limits.reply_bytes, Size(defaults.reply_bytes)).0,
        clusters_timeout: or(&limits.clusters_timeout, Wait(defaults.clusters_timeout)).0,
        fetch_timeout: or(&limits.fetch_timeout, Wait(defaults.fetch_timeout)).0,
        grpc_fail_fast: or(&raw.clients.grpc_fail_fast, defaults.grpc_fail_fast),
        ..defaults
    }
}

fn of_views(raw: &raw::Root, brakes: BrakeRules) -> ViewOptions {
    let (limits, defaults) = (&raw.limits, ViewOptions::default());
    ViewOptions {
        names_per_view: or(&limits.names_per_view, Positive(defaults.names_per_view)).0,
        cached_bytes: or(&limits.cached_bytes, Size(defaults.cached_bytes)).0,
        sought_names: or(&limits.sought_names, Positive(defaults.sought_names)).0,
        history_bytes: or(&limits.removal_history_bytes, Size(defaults.history_bytes)).0,
        history_age: or(&limits.removal_history_age, Pause(defaults.history_age)).0,
        absent_names_per_stream: or(&limits.absent_names_per_stream, Count(defaults.absent_names_per_stream)).0,
        linger: or(&limits.linger, Wait(defaults.linger)).0,
        lingering: or(&limits.lingering, Count(defaults.lingering)).0,
        reference_hold: or(&limits.reference_hold, Wait(defaults.reference_hold)).0,
        brakes,
        ..defaults
    }
}

fn of_streams(raw: &raw::Root) -> UpstreamOptions {
    let (limits, defaults) = (&raw.limits, UpstreamOptions::default());
    UpstreamOptions {
        resource_timer: or(&limits.resource_timer, Pause(defaults.resource_timer)).0,
        second_silence: or(&limits.second_silence, Pause(defaults.second_silence)).0,
        ..defaults
    }
}

/// The default timeout of clients. A shorter timer would report absence that no server has reported (XLAT-17).
const SHORTEST_TIMER: Duration = Duration::from_secs(15);
/// Removals of clients that keep up wait for ACKs, clusters and routing.
const SHORTEST_HISTORY: Duration = Duration::from_secs(10);
