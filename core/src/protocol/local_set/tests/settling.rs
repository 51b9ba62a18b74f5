//! When a set that may have more counts as settled, and what renews a TTL.

use super::*;

#[test]
fn a_set_that_is_never_known_to_be_complete_settles_once_it_is_quiet() {
    let folder = "xdstp://x/envoy.config.cluster.v3.Cluster/f";
    let mut bench = Bench::new(false);
    bench.hold(&[(CDS, "a", "1"), (CDS, &format!("{folder}/a"), "1")], true);
    bench.ask(CDS, &["*", &format!("{folder}/*")], &[]);
    bench.ask(RDS, &["*"], &[]);
    bench.said();
    let quiet = BEGIN + UpstreamOptions::default().settle_fresh;
    assert_eq!(bench.set.next_deadline(), Some(quiet));
    let settled = |bench: &mut Bench, now| {
        let updates = bench.set.on_time(now);
        let of = |update: &Update| matches!(update, Update::Progress { completeness: Completeness::Settled, .. });
        assert!(updates.iter().all(of), "{updates:?}");
        updates.len()
    };
    assert_eq!(settled(&mut bench, BEGIN), 0);
    assert_eq!(settled(&mut bench, quiet), 2, "the set and the collection that it has something of");
    assert_eq!((settled(&mut bench, quiet), bench.set.next_deadline()), (0, None));
}

#[test]
fn a_renewal_is_no_news_so_that_a_set_with_short_ttls_settles() {
    let mut bench = Bench::new(false);
    let kind = bench.table.resolve(CDS);
    let short = |wrapper: &mut discovery::Resource| {
        wrapper.ttl = Some(prost_types::Duration { seconds: 0, nanos: 400_000_000 });
    };
    bench.take([(kind.clone(), [resource(&kind, "a", b"1", short)].into())].into(), true);
    bench.ask(CDS, &["*"], &[]);
    assert_eq!(bench.said(), ["C* +a ..."]);
    let (mut now, mut settled) = (BEGIN, 0);
    for _ in 0..5 {
        now = now + Duration::from_millis(200);
        assert_eq!(bench.say(now).as_deref(), Some("C* +a ..."), "{now:?}");
        settled += bench.set.on_time(now).len();
    }
    assert_eq!(settled, 1);
}

#[test]
fn a_set_settles_only_once_something_of_it_was_reported_and_also_if_it_is_empty_by_then() {
    let glob = |at: usize| format!("xdstp://x/envoy.config.cluster.v3.Cluster/f{at}/*");
    let member = |at: usize| format!("xdstp://x/envoy.config.cluster.v3.Cluster/f{at}/m");
    let mut bench = Bench::new(false);
    bench.hold(&[(CDS, &member(1), "1"), (CDS, &member(2), "1"), (RDS, "r", "1")], true);
    bench.ask(CDS, &[&glob(1)], &[]);
    bench.said();
    let quiet = BEGIN + UpstreamOptions::default().settle_fresh;
    bench.ask(CDS, &[&glob(2)], &[]);
    assert!(bench.set.on_time(quiet).is_empty(), "more is due");
    assert_eq!(bench.said(), [format!("C +{} ...", member(2))]);
    bench.hold(&[(RDS, "r", "1")], true);
    bench.said();
    let settled: Vec<_> = bench.set.on_time(quiet).iter().map(|update| format!("{:?}", update.subject().1)).collect();
    assert_eq!(settled.len(), 2, "{settled:?}");
    let updates = bench.set.on_time(quiet);
    assert!(updates.is_empty() && bench.set.next_deadline().is_none(), "{updates:?}");
}

#[test]
fn a_change_of_what_the_view_has_is_no_news() {
    let mut bench = Bench::new(false);
    bench.hold(&[(CDS, "a", "1")], true);
    bench.ask(CDS, &["*"], &[]);
    bench.said();
    let quiet = bench.set.next_deadline();
    bench.hold(&[(CDS, "a", "2")], true);
    assert_eq!(bench.say(BEGIN + Duration::from_millis(400)).as_deref(), Some("C* +a ..."));
    assert_eq!(bench.set.next_deadline(), quiet);
    bench.hold(&[(CDS, "a", "2"), (CDS, "b", "1")], true);
    assert_eq!(bench.say(BEGIN + Duration::from_millis(400)).as_deref(), Some("C* +b ..."));
    assert_eq!(bench.set.next_deadline(), quiet.map(|at| at + Duration::from_millis(400)));
}

#[test]
fn a_resource_with_a_ttl_is_reported_again_while_it_exists() {
    let mut bench = Bench::new(true);
    let kind = bench.table.resolve(CDS);
    let with_ttl = |wrapper: &mut discovery::Resource| {
        wrapper.ttl = Some(prost_types::Duration { seconds: 10, nanos: 0 });
    };
    bench.take([(kind.clone(), [resource(&kind, "a", b"1", with_ttl)].into())].into(), true);
    bench.ask(CDS, &["a"], &[]);
    assert_eq!(bench.said(), ["C +a"]);
    let half = BEGIN + Duration::from_secs(5);
    assert_eq!(bench.set.next_deadline(), Some(half));
    assert_eq!((bench.say(BEGIN), bench.say(half)), (None, Some("C +a".into())));
    assert_eq!(bench.set.next_deadline(), Some(half + Duration::from_secs(5)));
    bench.hold(&[], true);
    assert_eq!(bench.said(), ["C -a"]);
    assert_eq!(bench.set.next_deadline(), None);
}
