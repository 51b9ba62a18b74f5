//! What events of servers cost: how much is visited depends on what an event concerns, and not on how much there is.

use weir_core::protocol::visits::take_visits;

use super::*;

/// Returns how much is visited when a stream with unanswered names ends, after `given` other names were given.
fn of_an_end(given: usize) -> u64 {
    let mut bench = Bench::with_servers(plan(1, Variant::Delta, Rule::Reachability));
    let names: Vec<_> = (0..given).map(|number| format!("c{number:06}")).collect();
    names.iter().for_each(|name| bench.want(CDS, name, true));
    (0..OPEN).for_each(|number| bench.want(CDS, &format!("missing{number}"), true));
    bench.open(0);
    let resources: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    bench.say(0, delta(CDS, &resources, &[]));
    take_visits();
    bench.end(0, true);
    take_visits()
}

#[test]
fn the_end_of_a_stream_costs_nothing_of_what_was_given_for_each_name_that_was_not() {
    let visits = of_an_end(GIVEN);
    assert!(visits <= (2 * GIVEN + 8 * OPEN) as u64, "{visits} for {OPEN} names beside {GIVEN}");
}

/// A client may make up many names, and unsubscribe from them one by one.
#[test]
fn the_end_of_a_name_costs_nothing_of_the_names_of_other_authorities() {
    let of_an_end = |others: usize| {
        let mut two = plan(1, Variant::Delta, Rule::Reachability);
        two.authorities.insert("x".into(), AuthorityPlan { servers: vec![0], rule: Rule::Reachability });
        let mut bench = Bench::with_servers(two);
        bench.want(CDS, "xdstp://x/envoy.config.cluster.v3.Cluster/a", true);
        bench.want(CDS, "xdstp://x/envoy.config.cluster.v3.Cluster/b", true);
        (0..others).for_each(|number| bench.want(CDS, &format!("made-up-{number:06}"), true));
        bench.want(CDS, "xdstp://x/envoy.config.cluster.v3.Cluster/b", false);
        take_visits();
        bench.later(Duration::from_secs(3600));
        take_visits()
    };
    let (few, many) = (of_an_end(100), of_an_end(2_000));
    assert!(many <= few * 12 / 10 + 8, "{few} beside 100 names, {many} beside 2,000");
}

const GIVEN: usize = 10_000;
const OPEN: usize = 100;
