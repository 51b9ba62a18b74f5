//! Resources of other servers that the active server does not have, or has not sent yet.

use std::time::Duration;

use super::*;

#[test]
fn fb_26_what_a_fallback_server_lacks_is_kept_or_deleted() {
    for (holds_missing, left) in [(true, "1"), (false, "gone")] {
        for variant in [Variant::Sotw, Variant::Delta] {
            let mut bench = Bench::with_servers(Plan { holds_missing, ..plan(2, variant, Rule::Reachability) });
            bench.want(CDS, "*", true);
            bench.open(0);
            let say = |bench: &mut Bench, server: usize, set: &[(&str, &str)]| match variant {
                Variant::Sotw => bench.say(server, sotw(CDS, "7", set)),
                Variant::Delta => bench.say(server, delta(CDS, set, &[])),
            };
            say(&mut bench, 0, &[("a", "1"), ("b", "1")]);
            bench.end(0, false);
            bench.open(1);
            say(&mut bench, 1, &[("b", "9"), ("c", "9")]);
            bench.later(Duration::from_secs(60));
            let held = |bench: &Bench, name: &str| bench.held(CDS, Set::All, name);
            if variant == Variant::Delta {
                assert_eq!(held(&bench, "a"), "1", "its silence is not enough");
                assert_eq!(bench.asked_again().len(), usize::from(!holds_missing), "what would stay is not asked for");
                bench.open(1);
                bench.later(Duration::from_secs(120));
            }
            assert_eq!((held(&bench, "a").as_str(), held(&bench, "b").as_str()), (left, "9"), "{variant:?}");
            // Back at the first server, its updates count, and what only the second had is removed.
            bench.open(0);
            say(&mut bench, 0, &[("a", "1"), ("b", "1")]);
            bench.later(Duration::from_secs(60));
            assert_eq!((held(&bench, "a").as_str(), held(&bench, "b").as_str()), ("1", "1"), "{variant:?}");
            if variant == Variant::Delta {
                assert_eq!((held(&bench, "c").as_str(), bench.asked_again()), ("9", vec![0]));
                assert_eq!(bench.open(0), ["+[] -[] {a:1,b:1,c:weir-unknown}"]);
                bench.later(Duration::from_secs(120));
            }
            assert_eq!(held(&bench, "c"), "gone", "{variant:?}");
        }
    }
}

#[test]
fn fb_26_and_up_24_an_answer_under_way_to_an_open_server_says_nothing_of_names_that_come_to_it() {
    let name = "xdstp://x/envoy.config.cluster.v3.Cluster/c";
    let full = |names: &[(&str, &str)]| sotw(CDS, "7", names);
    for (holds_missing, left) in [(true, "1"), (false, "gone")] {
        let mut two = plan(2, Variant::Sotw, Rule::Reachability);
        (two.top.servers, two.holds_missing) = (vec![1], holds_missing);
        two.authorities.insert("x".into(), AuthorityPlan { servers: vec![0, 1], rule: Rule::Reachability });
        let mut bench = Bench::with_servers(two);
        bench.want(CDS, "old", true);
        bench.want(CDS, name, true);
        bench.open(0);
        bench.open(1);
        bench.say(0, full(&[(name, "1")]));
        bench.say(1, full(&[("old", "1")]));
        bench.end(0, false);
        bench.say(1, full(&[("old", "2")])); // before the server can have read the next request
        assert_eq!(bench.held(CDS, Set::Names, name), "1", "no word of it");
        bench.requested(1);
        bench.say(1, full(&[("old", "3")]));
        assert_eq!(bench.held(CDS, Set::Names, name), "1", "nor need this be one");
        bench.later(Duration::from_secs(16));
        assert_eq!(bench.held(CDS, Set::Names, name), "1", "silence takes nothing from those who hold it");
        if !holds_missing {
            assert_eq!(bench.asked_again(), [1]);
            bench.open(1);
        }
        bench.say(1, full(&[("old", "3")]));
        assert_eq!(bench.held(CDS, Set::Names, name), left, "it had time enough to read the question");
        bench.say(1, full(&[("old", "3"), (name, "4")]));
        assert_eq!(bench.held(CDS, Set::Names, name), "4");
        bench.say(1, full(&[("old", "3")]));
        assert_eq!(bench.held(CDS, Set::Names, name), "gone", "what it gave itself");
    }
}

#[test]
fn fb_13_what_a_new_server_confirms_stays_whichever_type_it_begins_with_and_however_late() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::with_servers(Plan { holds_missing: false, ..plan(2, variant, Rule::Reachability) });
        let say = |bench: &mut Bench, server: usize, url: &str| match variant {
            Variant::Sotw => bench.say(server, sotw(url, "7", &[("a", "1")])),
            Variant::Delta => bench.say(server, delta(url, &[("a", "1")], &[])),
        };
        bench.want(CDS, "*", true);
        bench.want(LDS, "*", true);
        bench.open(0);
        say(&mut bench, 0, CDS);
        say(&mut bench, 0, LDS);
        bench.end(0, false);
        for server in [1, 0] {
            bench.open(server);
            say(&mut bench, server, CDS);
            bench.later(Duration::from_secs(8));
            assert_eq!(bench.held(LDS, Set::All, "a"), "1", "{variant:?}: it has not said a word of these yet");
            say(&mut bench, server, LDS);
            bench.later(Duration::from_secs(60));
            let held = [CDS, LDS].map(|url| bench.held(url, Set::All, "a"));
            assert_eq!(held, ["1", "1"], "{variant:?}, server {server}");
        }
    }
}

#[test]
fn coll_18_a_server_that_returns_is_believed_of_a_collection_once_it_has_spoken_of_it() {
    let mut federated = plan(2, Variant::Delta, Rule::Reachability);
    federated.authorities.insert("x".into(), AuthorityPlan { servers: vec![0, 1], rule: Rule::Reachability });
    let folder = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/f";
    let [glob, a, b, other] = ["*", "a", "b", "deep/o"].map(|id| format!("{folder}/{id}"));
    let mut bench = Bench::with_servers(federated);
    bench.want(EDS, &glob, true);
    bench.want(EDS, &other, true);
    bench.open(0);
    bench.say(0, delta(EDS, &[(&a, "1"), (&other, "1")], &[]));
    bench.end(0, false);
    bench.open(1);
    bench.say(1, delta(EDS, &[(&a, "1"), (&b, "2"), (&other, "1")], &[]));
    bench.open(0);
    bench.say(0, delta(EDS, &[(&other, "1")], &[]));
    bench.later(Duration::from_secs(60));
    let held = |bench: &Bench| [&a, &b].map(|name| bench.held(EDS, Set::Names, name));
    assert_eq!(held(&bench), ["1", "2"], "of the collection it has said nothing yet");
    assert_eq!(bench.asked_again(), [0]);
    let unknown = [&a, &b].map(|name| format!("{name}:weir-unknown"));
    assert_eq!(bench.open(0), [format!("+[{glob},{other}] -[] {{{},{},{other}:1}}", unknown[0], unknown[1])]);
    bench.say(0, delta(EDS, &[(&a, "1")], &[]));
    bench.later(Duration::from_secs(119));
    assert_eq!(held(&bench), ["1", "2"]);
    bench.later(Duration::from_secs(1));
    assert_eq!(held(&bench), ["1", "unknown"], "what only the other had is gone, and leaves no trace");
}

#[test]
fn fb_9_and_fb_13_a_server_that_returns_says_again_what_it_has() {
    let mut bench = served(Rule::Reachability);
    bench.end(0, false);
    bench.open(1);
    bench.say(1, delta(EDS, &[("a", "9")], &[]));
    assert_eq!(bench.held(EDS, Set::Names, "a"), "9");
    let requested: Vec<_> = bench.sources.streams_mut().filter(|(id, _)| id.server == 0).map(|(id, _)| id).collect();
    let mut stated = Vec::new();
    for (_, stream) in bench.sources.streams_mut().filter(|(id, _)| requested.contains(id)) {
        stream.opened();
        while let Some(Request::Delta(request)) = stream.next_request(bench.now) {
            stated.extend(request.initial_resource_versions);
        }
    }
    assert_eq!(
        stated,
        [("a".to_owned(), "weir-unknown".to_owned())],
        "a version that is nobody's: it may not be left out"
    );
}

#[test]
fn xlat_16_what_a_server_had_not_before_an_outage_is_no_news_after_it() {
    let mut bench = Bench::with_servers(plan(2, Variant::Delta, Rule::Uncached));
    bench.want(EDS, "x", true);
    bench.want(EDS, "y", true);
    bench.want(CDS, "*", true);
    bench.open(0);
    bench.say(0, delta(EDS, &[("y", "1")], &["x"]));
    bench.end(0, false);
    bench.want(EDS, "z", true);
    bench.open(1);
    bench.say(1, delta(EDS, &[("x", "9"), ("z", "9")], &[]));
    assert_eq!((bench.standing(), bench.held(EDS, Set::Names, "x").as_str()), (LadderState::Active(1), "9"));
    bench.open(0);
    bench.say(0, delta(CDS, &[("c", "1")], &[]));
    assert_eq!((bench.standing(), bench.held(EDS, Set::Names, "x").as_str()), (LadderState::Active(0), "9"));
    bench.say(0, delta(EDS, &[], &["x"]));
    assert_eq!(bench.held(EDS, Set::Names, "x"), "gone", "now it has said so again");
}

#[test]
fn fb_26_what_only_another_gave_stays_while_the_server_is_away() {
    let mut bench = Bench::with_servers(plan(2, Variant::Delta, Rule::Reachability));
    bench.want(CDS, "*", true);
    bench.open(0);
    bench.say(0, delta(CDS, &[("a", "1")], &[]));
    bench.end(0, false);
    bench.open(1);
    bench.say(1, delta(CDS, &[("a", "1"), ("x", "9")], &[]));
    bench.open(0);
    bench.say(0, delta(CDS, &[("a", "1")], &[]));
    bench.end(0, true);
    bench.later(Duration::from_secs(30));
    bench.open(0);
    bench.later(Duration::from_secs(30));
    assert_eq!(bench.held(CDS, Set::All, "x"), "9", "nothing has been said on this stream");
    assert_eq!(bench.asked_again(), [0]);
    assert_eq!(bench.open(0), ["+[] -[] {a:weir-unknown,x:weir-unknown}"], "and so it is asked again");
    bench.say(0, delta(CDS, &[("a", "1")], &[]));
    bench.later(Duration::from_secs(119));
    assert_eq!(bench.held(CDS, Set::All, "x"), "9");
    bench.end(0, true); // before its time had ended
    bench.open(0);
    bench.later(Duration::from_secs(119));
    assert_eq!(bench.held(CDS, Set::All, "x"), "9", "what was before the stream was lost does not count");
    bench.later(Duration::from_secs(1));
    assert_eq!(bench.held(CDS, Set::All, "x"), "gone");
}

#[test]
fn up_24_a_name_in_passing_error_is_not_deleted_by_an_answer_without_it() {
    let mut bench = Bench::with_servers(plan(1, Variant::Sotw, Rule::Uncached));
    bench.want(LDS, "a", true);
    bench.want(LDS, "b", true);
    bench.open(0);
    let Response::Sotw(mut response) = sotw(LDS, "1", &[("a", "1")]) else { unreachable!() };
    let detail = Status { code: 14, message: "later".into() };
    let name = ResourceName { name: "b".into(), ..Default::default() };
    response.resource_errors = vec![ResourceError { resource_name: Some(name), error_detail: Some(detail) }];
    bench.say(0, Response::Sotw(response));
    bench.say(0, sotw(LDS, "2", &[("a", "2")]));
    assert_eq!(bench.held(LDS, Set::Names, "b"), "unknown", "it was never there to be deleted");
}

#[test]
fn xlat_16_a_passing_error_is_no_absence_though_it_is_the_first_word() {
    let mut bench = Bench::with_servers(plan(1, Variant::Delta, Rule::Uncached));
    bench.want(EDS, "a", true);
    bench.open(0);
    let Response::Delta(mut response) = delta(EDS, &[], &[]) else { unreachable!() };
    let detail = Status { code: 14, message: "later".into() };
    let name = ResourceName { name: "a".into(), ..Default::default() };
    response.resource_errors = vec![ResourceError { resource_name: Some(name), error_detail: Some(detail) }];
    bench.say(0, Response::Delta(response));
    assert_eq!((bench.held(EDS, Set::Names, "a").as_str(), bench.standing()), ("unknown", LadderState::Active(0)));
}
