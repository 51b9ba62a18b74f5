//! A server whose deletions are ignored: what it removes stays, also after restarts. What it says still counts as an answer.

use std::time::Duration;

use weir_core::protocol::ladder::Rule;
use weir_core::protocol::session::Variant;
use weir_core::protocol::sources::{Plan, ServerPlan};
use weir_core::protocol::upstream::ServerQuirks;

use super::bench::{Bench, Set, delta, plan, sotw};
use super::support::{CDS, EDS};

/// Returns a plan with one server whose deletions are ignored.
fn keeping(variant: Variant) -> Plan {
    let quirks = ServerQuirks { ignore_deletions: true, ..ServerQuirks::default() }.into();
    Plan { servers: vec![ServerPlan::Streams { variant, quirks }], ..plan(1, variant, Rule::default()) }
}

/// Lets time pass for longer than any silence lasts. The server stays alive.
fn watch(bench: &mut Bench) {
    (0..60).for_each(|_| bench.later(Duration::from_secs(5)));
}

#[test]
fn xlat_20_what_a_delta_server_has_deleted_is_kept_over_restarts_and_is_not_asked_for_again() {
    for (url, name, set) in [(CDS, "*", Set::All), (EDS, "b", Set::Names)] {
        let mut bench = Bench::with_servers(keeping(Variant::Delta));
        bench.want(url, name, true);
        bench.open(0);
        bench.say(0, delta(url, &[("b", "1")], &[]));
        bench.say(0, delta(url, &[], &["b"]));
        bench.later(Duration::from_secs(1)); // the set settles
        for restart in 0..20 {
            bench = bench.restarted(keeping(Variant::Delta));
            bench.want(url, name, true);
            let requests = bench.open(0);
            assert!(requests[0].contains("b:weir-unknown"), "{requests:?}");
            assert_eq!(bench.view.tables().loaded_from_disk(), 1);
            bench.say(0, delta(url, &[], &["b"]));
            assert_eq!(bench.view.tables().loaded_from_disk(), 0, "the server has answered");
            watch(&mut bench);
            assert_eq!(bench.held(url, set, "b"), "1", "after restart {restart}");
            assert_eq!(bench.asked_again(), [0; 0]);
        }
    }
}

#[test]
fn xlat_20_a_reconnect_keeps_what_was_deleted() {
    let mut bench = Bench::with_servers(keeping(Variant::Delta));
    bench.want(EDS, "b", true);
    bench.open(0);
    bench.say(0, delta(EDS, &[("b", "1")], &[]));
    bench.say(0, delta(EDS, &[], &["b"]));
    bench.end(0, true);
    assert_eq!(bench.open(0), ["+[b] -[] {}"]);
    watch(&mut bench); // the server is silent about the name
    assert_eq!(bench.held(EDS, Set::Names, "b"), "1");
    bench.say(0, delta(EDS, &[("b", "2")], &[]));
    assert_eq!(bench.held(EDS, Set::Names, "b"), "2");
}

#[test]
fn xlat_20_the_set_of_a_sotw_server_confirms_what_it_lacks_and_keeps_it() {
    let mut bench = Bench::with_servers(keeping(Variant::Sotw));
    bench.want(CDS, "*", true);
    bench.open(0);
    bench.say(0, sotw(CDS, "1", &[("a", "1"), ("b", "1")]));
    bench.later(Duration::from_secs(1));
    bench = bench.restarted(keeping(Variant::Sotw));
    bench.want(CDS, "*", true);
    bench.open(0);
    bench.say(0, sotw(CDS, "2", &[("a", "1")]));
    assert_eq!(bench.held(CDS, Set::All, "b"), "1");
    assert_eq!(bench.view.tables().loaded_from_disk(), 0, "it would keep delta clients with other versions waiting");
}

#[test]
fn xlat_20_there_is_nothing_to_keep_of_a_name_that_is_not_cached() {
    let mut bench = Bench::with_servers(keeping(Variant::Delta));
    bench.want(EDS, "never", true);
    bench.open(0);
    bench.say(0, delta(EDS, &[], &["never"]));
    assert_eq!(bench.held(EDS, Set::Names, "never"), "gone");
}
