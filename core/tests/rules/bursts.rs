//! What waits for what within a burst.

use weir_core::proto::Request;
use weir_core::proto::discovery::DeltaDiscoveryRequest;
use weir_core::protocol::session::{Step, Variant};

use super::support::{Bench, CDS, Extent, LDS, Set, text_of};

#[test]
fn listeners_wait_for_unknown_clusters_up_to_a_time_limit_and_not_once_the_server_has_responded() {
    for responded in [false, true] {
        let mut bench = Bench::new();
        let client = bench.client(Variant::Delta);
        bench.delta(client, CDS, &["*"], &[]);
        bench.delta(client, LDS, &["*"], &[]);
        if responded {
            bench.reaches(CDS, Set::All, Extent::First);
        }
        bench.whole(LDS, &[("a", "1")]);
        if responded {
            assert_eq!(bench.said(client), ["C ", "L a"], "an empty answer has its place among the additions");
            continue;
        }
        assert_eq!(bench.said(client), [""; 0]);
        let Step::Idle(Some(until)) = bench.step(client) else { panic!("it would not be woken") };
        bench.now = until;
        assert_eq!(bench.said(client), ["L a"]);
    }
}

#[test]
fn clusters_are_not_removed_while_listeners_that_the_client_holds_are_unknown() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*"], &[]);
    bench.whole(CDS, &[("a", "1"), ("b", "1")]);
    assert_eq!(bench.said(client), ["C a,b"]);
    let initial_resource_versions = [("l".to_owned(), "of-another".to_owned())].into();
    let request = DeltaDiscoveryRequest { type_url: LDS.into(), initial_resource_versions, ..Default::default() };
    bench.request(client, Request::Delta(request));
    bench.whole(CDS, &[("b", "1")]);
    assert_eq!(bench.said(client), [""; 0], "its listener may refer to it");
    bench.whole(LDS, &[("l", "1")]);
    assert_eq!(bench.said(client), ["L l", "C  -a"]);
}

#[test]
fn a_change_after_an_unanswered_sotw_reply_is_sent_at_the_time_that_the_session_names() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, CDS, &["*"], "");
    bench.whole(CDS, &[("a", "1")]);
    assert_eq!(bench.said(client), ["C a"]);
    bench.whole(CDS, &[("a", "2")]);
    let Step::Idle(Some(until)) = bench.step(client) else { panic!("it would not be woken") };
    bench.now = until;
    assert_eq!(bench.said(client), ["C a"]);
}

#[test]
fn i4_what_changes_again_within_a_burst_is_sent_with_the_next() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new();
        let client = bench.client(variant);
        for (url, name) in [(CDS, "a"), (LDS, "l")] {
            match variant {
                Variant::Sotw => bench.sotw(client, url, &[name], ""),
                Variant::Delta => bench.delta(client, url, &[name], &[]),
            }
        }
        bench.set(LDS, &[("l", "1")]);
        bench.set(CDS, &[("a", "1")]);
        let sent = bench.poll(client).map(|reply| text_of(&reply));
        assert_eq!(sent.as_deref(), Some("C a"));
        bench.set(LDS, &[("l", "2")]);
        let first = bench.poll(client).expect("the burst goes on");
        if variant == Variant::Sotw {
            bench.sotw(client, LDS, &["l"], "2");
        }
        let second = bench.poll(client).expect("it has changed");
        assert_eq!((text_of(&first), text_of(&second)), ("L l".into(), "L l".into()));
        assert_ne!(first.version, second.version);
        assert!(bench.poll(client).is_none());
    }
}
