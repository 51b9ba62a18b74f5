//! Metrics of the state file.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::counter;
use crate::state::StateCounters;

/// Registers nothing if no state is kept.
pub(super) fn register(registry: &mut Registry, state: Option<&StateCounters>) {
    let Some(state) = state else { return };
    counter(registry, "state_writes", "Writes to the state file", state.commits());
    counter(registry, "state_failures", "Attempts to open or write the state file that failed", state.failures());
    let help = "Unix time at which the state file last had everything that clients were given";
    let current = Gauge::<f64, AtomicU64>::default();
    current.set(state.current_at());
    registry.register("state_current_timestamp_seconds", help, current);
    counter(registry, "state_views_loaded", "Views loaded from the state file", state.loaded_views());
    counter(registry, "state_resources_loaded", "Resources loaded from the state file", state.loaded_resources());
}
