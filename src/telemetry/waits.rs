//! Metrics of what waits.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use weir_core::protocol::wait::WaitKind;

use super::labels::Labelled;
use crate::relay::{WaitReport, WaitWatch};

pub(super) fn register(registry: &mut Registry, waits: &WaitReport, watch: &WaitWatch) {
    let help = "For how long the oldest wait of a kind has lasted; its clock stands while the control plane is away";
    let oldest = Labelled::<Gauge<f64, AtomicU64>>::register(registry, "oldest_wait_seconds", help);
    let sums = waits.sums();
    for kind in WaitKind::ALL {
        let age = sums.get(&kind).map_or(0.0, |sum| sum.oldest.as_secs_f64());
        oldest.at(&[("wait", kind.name())]).set(age);
    }
    let help = "Waits that lasted more than 1 s longer than they may";
    let beyond = Labelled::<Counter>::register(registry, "waits_beyond_bound", help);
    for (kind, count) in watch.counts() {
        beyond.at(&[("wait", kind.name())]).inc_by(count);
    }
}
