//! Servers that return, or end, in the middle of something: what is in doubt then, and what is not (spec sections 6, 7 and 11).

use std::time::Duration;

use weir::proto::{Request, Response};
use weir::protocol::ladder::{Rule, Standing};
use weir::protocol::session::Variant;
use weir::protocol::sources::{AuthorityPlan, Plan};
use weir::protocol::unit::{Class, Fill};

use super::bench::*;
use super::support::{CDS, EDS, LDS};

const FOLDER: &str = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/f";

/// Two servers for everything, with an authority `x` of its own over the same two.
fn two(variant: Variant) -> Plan {
    let mut two = Plan { holds_missing: false, ..plan(2, variant, Rule::Reachability) };
    two.authorities.insert("x".into(), AuthorityPlan { servers: vec![0, 1], rule: Rule::Reachability });
    two
}

/// The first of two servers is out of reach, and the second is asked.
fn fallen_back(wanted: &[(&str, &str)]) -> Bench {
    let mut bench = Bench::new(two(Variant::Delta));
    wanted.iter().for_each(|(url, name)| bench.want(url, name, true));
    bench.end(0, false);
    bench.open(1);
    bench
}

fn fill(bench: &Bench, url: &str, glob: Option<&str>) -> Fill {
    let kind = bench.table.resolve(url);
    match glob {
        None => bench.unit.state().shelf(&kind, Class::Star).unwrap().fill,
        Some(glob) => bench.unit.state().shelf(&kind, Class::Named).unwrap().fill_of(&glob.into()).unwrap(),
    }
}

/// What a server is told on a new stream that is held of it, with the versions.
fn stated(bench: &mut Bench, server: usize) -> Vec<String> {
    let mut stated = Vec::new();
    let now = bench.now;
    for (id, stream) in bench.sources.streams().filter(|(id, _)| id.server == server) {
        let epoch = stream.opened();
        stream.on_sign_of_life(epoch);
        bench.up.insert(id, epoch);
        while let Some(Request::Delta(request)) = stream.next_request(now) {
            stated.extend(request.initial_resource_versions.iter().map(|(name, version)| format!("{name}:{version}")));
        }
        stream.written(now);
    }
    stated.sort();
    stated
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn xlat_12_and_row_12_a_set_that_a_server_was_left_in_the_middle_of_is_not_whole() {
    let [glob, a, b] = ["*", "a", "b"].map(|id| format!("{FOLDER}/{id}"));
    let mut bench = fallen_back(&[(LDS, "*"), (CDS, "*"), (EDS, &glob)]);
    bench.say(1, delta(LDS, &[("a", "1")], &[]));
    bench.say(1, delta(EDS, &[(&a, "1")], &[]));
    bench.open(0);
    bench.say(0, delta(CDS, &[("c", "1")], &[]));
    assert_eq!(bench.standing(), Standing::Active(0));
    bench.later(LONG);
    for (url, glob) in [(LDS, None), (EDS, Some(&*glob))] {
        assert_ne!(fill(&bench, url, glob), Fill::Whole, "{url}: there may have been more");
    }
    assert_eq!(fill(&bench, CDS, None), Fill::Whole, "which the other has begun with");
    bench.say(0, delta(LDS, &[("a", "1"), ("b", "1")], &[]));
    bench.say(0, delta(EDS, &[(&a, "1"), (&b, "1")], &[]));
    bench.later(LONG);
    assert_eq!((fill(&bench, LDS, None), fill(&bench, EDS, Some(&glob))), (Fill::Whole, Fill::Whole));
}

#[test]
fn xlat_12_a_set_that_is_gone_on_with_in_the_answer_that_leaves_the_other_becomes_whole() {
    let mut bench = fallen_back(&[(LDS, "*")]);
    bench.say(1, delta(LDS, &[("a", "1")], &[]));
    bench.open(0);
    bench.later(Duration::from_secs(4));
    bench.say(0, delta(LDS, &[("a", "1")], &[]));
    bench.later(Duration::from_secs(4));
    assert_ne!(fill(&bench, LDS, None), Fill::Whole, "its time runs from the new server's first piece");
    bench.later(Duration::from_secs(1));
    assert_eq!(fill(&bench, LDS, None), Fill::Whole);
}

#[test]
fn up_16_a_server_that_returns_and_never_stops_talking_is_believed_all_the_same() {
    let mut bench = fallen_back(&[(CDS, "*")]);
    bench.say(1, delta(CDS, &[("a", "1"), ("x", "1")], &[]));
    bench.open(0);
    for second in 0..15 {
        assert_eq!(bench.held(CDS, Class::Star, "x"), "1", "{second}");
        bench.say(0, delta(CDS, &[("a", if second % 2 == 0 { "2" } else { "3" })], &[]));
        bench.later(Duration::from_secs(1));
    }
    assert_eq!(bench.held(CDS, Class::Star, "x"), "gone");
}

#[test]
fn xlat_12_and_up_14_a_set_that_was_cut_off_is_said_again_and_so_becomes_whole() {
    let [glob, a, by_name] = ["*", "a", "deep/o"].map(|id| format!("{FOLDER}/{id}"));
    let mut bench = Bench::new(two(Variant::Delta));
    [(CDS, "*"), (LDS, "*"), (EDS, &glob), (EDS, &by_name)].iter().for_each(|(url, name)| bench.want(url, name, true));
    bench.open(0);
    bench.say(0, delta(LDS, &[("l", "1")], &[]));
    bench.later(LONG);
    bench.say(0, delta(CDS, &[("c", "1")], &[]));
    bench.say(0, delta(EDS, &[(&a, "1"), (&by_name, "1")], &[]));
    bench.end(0, true);
    assert_eq!(fill(&bench, CDS, None), Fill::Cold);
    let again = |versions: [&str; 4]| {
        let [c, l, a_version, named] = versions;
        let mut all = [format!("c:{c}"), format!("l:{l}"), format!("{a}:{a_version}"), format!("{by_name}:{named}")];
        all.sort();
        all
    };
    assert_eq!(
        stated(&mut bench, 0),
        again(["", "1", "", "1"]),
        "what is whole, and what is no set, is stated as it is"
    );
    bench.say(0, delta(CDS, &[("c", "1")], &[]));
    bench.say(0, delta(EDS, &[(&a, "1")], &[]));
    bench.later(LONG);
    assert_eq!((fill(&bench, CDS, None), fill(&bench, EDS, Some(&glob))), (Fill::Whole, Fill::Whole));
    bench.end(0, true);
    assert_eq!(stated(&mut bench, 0), again(["1", "1", "1", "1"]));
}

#[test]
fn up_24_a_name_that_is_wanted_beside_its_collection_does_not_stay_in_doubt_for_ever() {
    let folder = "xdstp://x/envoy.config.cluster.v3.Cluster/f";
    let [glob, name] = ["*", "c"].map(|id| format!("{folder}/{id}"));
    let mut two = two(Variant::Sotw);
    two.top.servers = vec![1];
    let mut bench = Bench::new(two);
    ["old", &glob, &name].iter().for_each(|name| bench.want(CDS, name, true));
    bench.open(0);
    bench.open(1);
    bench.say(0, sotw(CDS, "1", &[(&name, "1")]));
    bench.say(1, sotw(CDS, "1", &[("old", "1")]));
    bench.end(0, false);
    bench.asked(1);
    bench.say(1, sotw(CDS, "2", &[("old", "2")]));
    assert_eq!(bench.held(CDS, Class::Named, &name), "1", "the answer may be older than the question");
    bench.later(Duration::from_secs(16));
    assert_eq!(bench.held(CDS, Class::Named, &name), "gone", "in SotW nothing is ever said of the collection");
}
