//! What counts as absent, and what a source that was unreachable leaves in doubt.

use super::*;

#[test]
fn fs_6_beside_other_sources_nothing_is_ever_absent_and_no_set_complete() {
    let mut bench = Bench::new(false);
    bench.hold(&[(CDS, "a", "1"), (RDS, "r", "1")], true);
    bench.ask(CDS, &["*"], &[]);
    bench.ask(RDS, &["r", "s"], &[]);
    assert_eq!(bench.said(), ["C* +a ...", "R +r"]);
    let asked = |bench: &Bench, name: &str| bench.set.request_of(&bench.table.resolve(RDS), &name.into());
    assert_eq!(asked(&bench, "s").map(|of| of.state), Some(RequestState::Waiting(None)));
    bench.hold(&[(CDS, "b", "1")], true);
    assert_eq!(bench.said(), ["C* +b ..."]);
    let mut none = Bench::new(false);
    none.hold(&[(RDS, "r", "1")], true);
    none.ask(CDS, &["*"], &[]);
    assert_eq!(none.said(), [""; 0], "nothing of the type here says nothing");
}

#[test]
fn nothing_is_absent_until_everything_has_been_read_once() {
    let mut bench = Bench::new(true);
    bench.hold(&[(CDS, "a", "1")], false);
    bench.ask(CDS, &["*"], &[]);
    bench.ask(RDS, &["r"], &[]);
    assert_eq!(bench.said(), ["C* +a ..."]);
    bench.hold(&[(CDS, "b", "1")], true);
    assert_eq!(bench.said(), ["C* +b ...", "R -r", "C* -a all"]);
    bench.hold(&[], false);
    assert_eq!(bench.said(), ["C* -b"], "what was complete once is not in doubt for a file that comes later");
}

#[test]
fn after_the_source_was_unreachable_everything_is_reported_again_and_what_is_removed() {
    let folder = "xdstp://x/envoy.config.cluster.v3.Cluster/f";
    let [glob, member, other] = ["*", "m", "n"].map(|id| format!("{folder}/{id}"));
    let mut bench = Bench::new(true);
    bench.hold(&[(CDS, "a", "1"), (CDS, "b", "1"), (CDS, &member, "1")], true);
    bench.ask(CDS, &["*", &glob], &[]);
    bench.said();
    bench.end();
    bench.hold(&[(CDS, "a", "1"), (CDS, "c", "1"), (CDS, &other, "1")], true);
    bench.open();
    let c = format!("C* +a +c +{other} ...");
    assert_eq!(
        bench.said(),
        [c, format!("C +{other} ..."), format!("C -{member} all"), format!("C* -b -{member} all")]
    );
    assert_eq!(bench.names(CDS, Class::Named), [other]);
}

#[test]
fn what_was_reported_as_absent_is_in_doubt_once_the_source_is_unreachable_also_if_it_has_come_meanwhile() {
    let mut bench = Bench::new(true);
    bench.hold(&[], true);
    bench.ask(RDS, &["n"], &[]);
    assert_eq!(bench.said(), ["R -n"]);
    bench.hold(&[(RDS, "n", "1")], true);
    let updates = bench.set.ended(bench.set.epoch, &bench.view);
    assert!(matches!(&updates[..], [Update::Interrupted { of: Selector::Name(name), .. }] if name.as_str() == "n"));
}

#[test]
fn what_comes_from_an_earlier_opening_changes_nothing() {
    let mut bench = Bench::new(true);
    bench.hold(&[(CDS, "a", "1")], true);
    bench.ask(CDS, &["*"], &[]);
    bench.said();
    let earlier = bench.set.epoch;
    bench.end();
    bench.open();
    bench.said();
    bench.set.on_snapshot(earlier, Arc::default());
    assert!(bench.set.ended(earlier, &bench.view).is_empty() && bench.set.is_open());
    assert_eq!((bench.said(), bench.names(CDS, Class::Wildcard)), (vec![], vec!["a".to_owned()]));
}
