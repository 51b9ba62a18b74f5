//! Single rules of the protocol on the pure model. Each test is named after its rule.

mod bursts;
mod collections;
mod costs;
mod delta;
mod errors;
mod full_sets;
mod history;
mod life;
mod lingering;
mod lists;
mod nacked_routing;
mod names;
mod order;
mod permissions;
mod removals;
mod requests;
mod sotw;
mod stages;
#[path = "../support/mod.rs"]
mod support;
mod translation;
mod transport;
mod virtual_hosts;
mod void;
mod waits;
mod warm_start;

use support::{Bench, CDS, EDS, LDS, RDS};
use weir_core::protocol::session::Variant;

const THREE: [(&str, &str); 3] = [("a", "1"), ("b", "1"), ("c", "1")];

/// Returns a view with three resources of each of four types, for `*` and for names, which stay cached.
fn warm() -> Bench {
    let mut bench = Bench::new();
    let keeper = bench.client(Variant::Delta);
    for url in [CDS, LDS, EDS, RDS] {
        bench.delta(keeper, url, &["*", "a", "b", "c"], &[]);
        bench.set(url, &THREE);
        bench.whole(url, &THREE);
    }
    bench.said(keeper);
    bench
}
