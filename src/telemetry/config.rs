//! Metrics of the configuration file.

use std::sync::atomic::AtomicU64;
use std::time::UNIX_EPOCH;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::Labelled;
use super::{gauge, integer};
use crate::config_status::ConfigFacts;

pub(super) fn register(registry: &mut Registry, facts: &ConfigFacts) {
    let help = "Whether the configuration file was valid when it was last read";
    gauge(registry, "config_last_reload_successful", help, usize::from(facts.error.is_none()));
    let help = "Unix time at which the configuration in use was read";
    let read = Gauge::<f64, AtomicU64>::default();
    read.set(facts.read.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
    registry.register("config_last_reload_success_timestamp_seconds", help, read);
    let reloads =
        Labelled::<Counter>::register(registry, "config_reloads", "Times the configuration file was read again");
    reloads.at(&[("result", "taken")]).inc_by(facts.reloads);
    reloads.at(&[("result", "failed")]).inc_by(facts.failures);
    let help = "Keys whose change in the configuration file needs a restart";
    gauge(registry, "config_pending_keys", help, facts.pending.len());
    let hashes = Labelled::<Gauge>::register(registry, "config_hash", "SHA-256 of the configuration file in use");
    hashes.at(&[("sha256", &facts.sha256)]).set(integer(1));
}
