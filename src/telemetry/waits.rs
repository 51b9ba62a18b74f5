//! Metrics of open waits.

use weir_core::protocol::wait::WaitKind;

use super::page::Page;
use super::table::*;
use crate::relay::{WaitReport, WaitWatch};

pub(super) fn add(page: &mut Page, waits: &WaitReport, watch: &WaitWatch) {
    let sums = waits.sums();
    for kind in WaitKind::ALL {
        let age = sums.get(&kind).map_or(0.0, |sum| sum.oldest.as_secs_f64());
        page.add(OLDEST_WAIT_SECONDS, [kind.name()], age);
    }
    for (kind, count) in watch.counts() {
        page.add(WAITS_BEYOND_BOUND, [kind.name()], count);
    }
}
