//! What events cost: how much is looked at goes by what has happened, and not by what is there.

use std::time::Duration;

use weir::protocol::limits::Limits;
use weir::protocol::session::Variant;
use weir::protocol::view::BrakeRules;
use weir::protocol::visits::take_visits;

use super::support::{Bench, CDS, EDS};

/// A view whose brake holds so many removals.
fn braked(held: usize) -> Bench {
    let types = ["envoy.config.cluster.v3.Cluster".into()].into();
    let brakes = BrakeRules { types, share: 10, count: 1, grace: Duration::from_secs(3600), ..BrakeRules::default() };
    let mut bench = Bench::with(Limits { brakes, reference_hold: Duration::ZERO, ..Limits::default() });
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*"], &[]);
    let names: Vec<_> = (0..held + 10).map(|number| format!("c{number:06}")).collect();
    let all: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    bench.whole(CDS, &all);
    bench.later(60_000);
    bench.whole(CDS, &all[..10]);
    assert_eq!(bench.view.brakes(0)[0].held, held);
    bench
}

#[test]
fn a_flush_and_a_subscription_under_a_brake_cost_nothing_that_is_held() {
    let visits = |held| {
        let mut bench = braked(held);
        bench.view.take_brake_state(bench.now);
        let other = bench.client(Variant::Delta);
        take_visits();
        bench.delta(other, EDS, &["a"], &[]);
        bench.later(1);
        assert_eq!(bench.view.take_brake_state(bench.now), None, "nothing is to be noted");
        take_visits()
    };
    let [few, many] = [1_000, 40_000].map(visits);
    assert!(many <= 8 && many * 10 <= few.max(1) * 12, "{few} with 1,000 held, {many} with 40,000");
}
