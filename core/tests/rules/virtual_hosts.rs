//! Virtual hosts: at start, on demand, by alias.

use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, Resource as Wrapper};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Client, Variant};
use weir_core::protocol::view::SessionId;
use weir_core::xds::{Access, AccessRule, NamePattern, TypeTable};

use super::support::{Bench, CDS, RDS, Set, VHDS, wrapper};

/// Lets the server send a route configuration whose virtual hosts come by VHDS.
fn give_routes(bench: &mut Bench, name: &str, content: &str) {
    bench.give(RDS, name, content, |wrapper| {
        let any = wrapper.resource.as_mut().unwrap();
        any.value = [any.value.as_ref(), [0x4a, 0].as_slice()].concat().into();
    });
}

fn named(name: &str) -> impl Fn(&mut Wrapper) {
    move |wrapper| wrapper.name = name.into()
}

/// Lets the server send the host `own` for each of these aliases.
fn give_host(bench: &mut Bench, own: &str, aliases: &[&str], content: &str) {
    for alias in aliases {
        bench.give(VHDS, alias, content, |wrapper| {
            wrapper.name = own.into();
            wrapper.aliases = aliases.iter().map(ToString::to_string).collect();
        });
    }
}

/// Returns a client that may not have the host `r/secret`.
fn without_secret() -> Client {
    let rule = AccessRule {
        types: vec!["envoy.config.route.v3.VirtualHost".into()],
        names: vec![NamePattern::parse("r/secret")],
        peers: Vec::new(),
    };
    Client { clearance: Access::of(vec![rule]).clearance(None), ..Client::plain(Variant::Delta) }
}

/// Adds an Envoy that was sent the route configuration `r`, and has requested virtual hosts as Envoys do.
fn started(bench: &mut Bench) -> SessionId {
    let client = bench.client(Variant::Delta);
    bench.delta(client, RDS, &["r"], &[]);
    give_routes(bench, "r", "1");
    assert_eq!(bench.said(client), ["R r"]);
    bench.delta(client, VHDS, &[], &[]);
    client
}

#[test]
fn delta_36_an_empty_first_request_means_the_hosts_of_the_routes_that_were_requested() {
    let mut bench = Bench::new();
    let client = started(&mut bench);
    for host in ["r/one", "r/with/slash", "other/two"] {
        bench.give(VHDS, "*", "1", named(host));
    }
    assert_eq!(bench.said(client), ["V r/one"], "DELTA-37: what stands before the last slash names the routes");
    bench.delta(client, RDS, &["other"], &[]);
    give_routes(&mut bench, "other", "1");
    assert_eq!(bench.said(client), ["R other", "V other/two"]);
}

#[test]
fn delta_36_a_wildcard_that_is_named_means_the_same_on_a_stream_with_routes() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, RDS, &["r"], &[]);
    give_routes(&mut bench, "r", "1");
    assert_eq!(bench.said(client), ["R r"]);
    bench.delta(client, VHDS, &["*"], &[]);
    for host in ["r/one", "other/two"] {
        bench.give(VHDS, "*", "1", named(host));
    }
    assert_eq!(bench.said(client), ["V r/one"]);
}

#[test]
fn delta_36_switched_to_names_an_empty_first_request_gets_one_empty_answer() {
    let mut bench = Bench::of(ProtocolOptions::default(), TypeTable::new().with_virtual_hosts_by_name());
    let client = started(&mut bench);
    assert_eq!(bench.asked_upstream(), ["+r"], "nothing of virtual hosts");
    bench.give(VHDS, "*", "1", named("r/one"));
    assert_eq!(bench.said(client), ["V "]);
    assert_eq!(bench.said(client), [""; 0]);
    bench.delta(client, VHDS, &["r/one"], &[]);
    bench.give(VHDS, "r/one", "1", |_| {});
    assert_eq!(bench.said(client), ["V r/one"]);
}

#[test]
fn a_stream_of_virtual_hosts_alone_is_given_all_of_them() {
    let mut bench = Bench::new();
    let only = Some(bench.kind(VHDS));
    let client = bench.add(Client { only, ..Client::plain(Variant::Delta) });
    bench.delta(client, VHDS, &[], &[]);
    bench.give(VHDS, "*", "1", named("r/one"));
    assert_eq!(bench.said(client), ["V r/one"]);
}

#[test]
fn delta_38_and_delta_42_an_alias_is_answered_by_what_it_leads_to_and_left_as_it_was_asked() {
    let mut bench = Bench::new();
    let client = started(&mut bench);
    bench.asked_upstream();
    bench.delta(client, VHDS, &["r/one.test"], &[]);
    assert_eq!(bench.asked_upstream(), ["+r/one.test"], "in the client's own words");
    bench.give(VHDS, "r/one.test", "1", |wrapper| {
        wrapper.name = "r/host".into();
        wrapper.aliases = vec!["r/one.test".into()];
    });
    let reply = bench.poll(client).unwrap();
    assert_eq!(reply.resources[0].name.as_str(), "r/host");
    assert_eq!(reply.resources[0].aliases()[0].as_str(), "r/one.test");
    bench.remove(VHDS, "r/one.test");
    assert_eq!(bench.said(client), ["V  -r/host"], "DELTA-29: under the name that the client knows");
    bench.delta(client, VHDS, &[], &["r/one.test"]);
    bench.later(30_000);
    assert_eq!(bench.asked_upstream(), ["-r/one.test"]);
}

#[test]
fn delta_39_an_alias_that_leads_nowhere_is_answered_without_a_body() {
    let mut bench = Bench::new();
    let client = started(&mut bench);
    bench.delta(client, VHDS, &["r/nowhere"], &[]);
    assert_eq!(bench.said(client), [""; 0], "unknown is not unresolved");
    bench.remove(VHDS, "r/nowhere");
    assert_eq!(bench.said(client), ["V ?r/nowhere"]);
    assert_eq!(bench.said(client), [""; 0]);
}

#[test]
fn delta_41_a_changed_route_configuration_is_followed_by_its_hosts() {
    let mut bench = Bench::new();
    let client = started(&mut bench);
    bench.give(VHDS, "*", "1", named("r/one"));
    bench.delta(client, VHDS, &["r/two"], &[]);
    bench.give(VHDS, "r/two", "1", |_| {});
    bench.said(client);
    give_routes(&mut bench, "r", "2");
    assert_eq!(bench.said(client), ["R r", "V r/one,r/two"]);
    bench.give(RDS, "r", "3", |_| {});
    assert_eq!(bench.said(client), ["R r"], "one that has all its hosts inside");
}

#[test]
fn delta_43_clusters_on_demand_stand_beside_the_wildcard() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &[], &[]);
    bench.whole(CDS, &[("a", "1")]);
    bench.delta(client, CDS, &["b", "missing"], &[]);
    bench.give(CDS, "b", "1", |_| {});
    bench.remove(CDS, "missing");
    assert_eq!(bench.said(client), ["C a,b -missing"]);
}

#[test]
fn delta_33_two_aliases_of_one_host_are_one_resource() {
    let mut bench = Bench::new();
    let client = bench.add(Client { ttl: true, ..Client::plain(Variant::Delta) });
    bench.delta(client, VHDS, &["r/one.test", "r/two.test"], &[]);
    for key in ["r/one.test", "r/two.test"] {
        bench.give(VHDS, key, "1", |wrapper| {
            wrapper.name = "r/host".into();
            wrapper.aliases = vec!["r/one.test".into(), "r/two.test".into()];
        });
    }
    assert_eq!(bench.said(client), ["V r/host"]);
    for key in ["r/one.test", "r/two.test"] {
        bench.remove(VHDS, key);
    }
    assert_eq!(bench.said(client), ["V  -r/host"]);
}

#[test]
fn delta_39_a_host_stays_when_one_of_its_aliases_leads_nowhere() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, VHDS, &["r/one.test", "r/two.test"], &[]);
    give_host(&mut bench, "r/host", &["r/one.test", "r/two.test"], "1");
    assert_eq!(bench.said(client), ["V r/host"]);
    bench.remove(VHDS, "r/two.test");
    assert_eq!(bench.said(client), ["V ?r/two.test"]);
    give_host(&mut bench, "r/host", &["r/one.test"], "2");
    assert_eq!(bench.said(client), ["V r/host"]);
    bench.remove(VHDS, "r/one.test");
    assert_eq!(bench.said(client), ["V  -r/host"], "with the last of them");
}

#[test]
fn delta_29_a_host_stays_as_long_as_the_wildcard_has_it_or_an_alias_leads_to_it() {
    let mut bench = Bench::new();
    let client = started(&mut bench);
    bench.give(VHDS, "*", "1", named("r/host"));
    bench.delta(client, VHDS, &["r/one.test"], &[]);
    give_host(&mut bench, "r/host", &["r/one.test"], "1");
    bench.said(client);
    bench.removes(VHDS, Set::All, &["r/host"]);
    assert_eq!(bench.said(client), [""; 0], "the alias leads to it");
    bench.give(VHDS, "*", "2", named("r/host"));
    assert_eq!(bench.said(client), ["V r/host"]);
    bench.removes(VHDS, Set::Names, &["r/one.test"]);
    assert_eq!(bench.said(client), ["V ?r/one.test"], "the wildcard has it");
    bench.removes(VHDS, Set::All, &["r/host"]);
    assert_eq!(bench.said(client), ["V  -r/host"]);
}

#[test]
fn delta_29_a_host_that_an_alias_has_left_is_removed_in_the_reply_with_the_next() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, VHDS, &["r/x.test"], &[]);
    give_host(&mut bench, "r/one", &["r/x.test"], "1");
    assert_eq!(bench.said(client), ["V r/one"]);
    give_host(&mut bench, "r/two", &["r/x.test"], "2");
    assert_eq!(bench.said(client), ["V r/two -r/one"]);
    give_host(&mut bench, "r/three", &["r/x.test"], "3");
    bench.remove(VHDS, "r/x.test");
    assert_eq!(bench.said(client), ["V  -r/two"], "what it was sent, and not what the view had last");
}

#[test]
fn delta_33_a_name_that_is_an_alias_of_another_host_now_is_not_removed_beside_it() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, VHDS, &["r/x.test"], &[]);
    bench.give(VHDS, "r/x.test", "1", |_| {});
    assert_eq!(bench.said(client), ["V r/x.test"]);
    give_host(&mut bench, "r/two", &["r/x.test"], "2");
    assert_eq!(bench.said(client), ["V r/two"]);
    bench.give(VHDS, "r/x.test", "3", |_| {});
    assert_eq!(bench.said(client), ["V r/x.test -r/two"]);
}

#[test]
fn delta_29_a_host_that_one_alias_has_left_stays_until_the_last_has_left_it() {
    let mut bench = Bench::new();
    let (client, both) = (bench.client(Variant::Delta), ["r/a.test", "r/b.test"]);
    bench.delta(client, VHDS, &both, &[]);
    give_host(&mut bench, "r/one", &both, "1");
    assert_eq!(bench.said(client), ["V r/one"]);
    give_host(&mut bench, "r/two", &["r/a.test"], "2");
    assert_eq!(bench.said(client), ["V r/two"], "the other leads to the first still");
    give_host(&mut bench, "r/two", &both, "3");
    assert_eq!(bench.said(client), ["V r/two -r/one"]);
    give_host(&mut bench, "r/three", &both, "4");
    assert_eq!(bench.said(client), ["V r/three -r/two"], "once, though both have left it");
}

#[test]
fn delta_29_a_host_that_two_aliases_leave_stays_until_the_second_is_sent() {
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.session.reply_bytes = 1));
    let (client, both) = (bench.client(Variant::Delta), ["r/a", "r/b"]);
    bench.delta(client, VHDS, &both, &[]);
    give_host(&mut bench, "r/one", &both, "1");
    bench.said(client);
    let hosts = [("r/a", "r/two"), ("r/b", "r/three")].map(|(alias, own)| {
        let mut wrapper = wrapper(VHDS, own, "2");
        wrapper.aliases = vec![alias.into()];
        (alias, wrapper)
    });
    bench.gives_as(VHDS, Set::Names, hosts);
    assert_eq!(bench.said(client), ["V r/two", "V r/three -r/one"], "one resource fills a reply");
}

#[test]
fn delta_24_a_host_that_the_wildcard_lost_before_is_removed_when_its_last_alias_is_left() {
    let mut bench = Bench::new();
    let (client, both) = (started(&mut bench), ["r/one.test", "r/two.test"]);
    bench.give(VHDS, "*", "1", named("r/host"));
    assert_eq!(bench.said(client), ["V r/host"]);
    bench.delta(client, VHDS, &both, &[]);
    give_host(&mut bench, "r/host", &both, "1");
    bench.said(client);
    bench.removes(VHDS, Set::All, &["r/host"]);
    assert_eq!(bench.said(client), [""; 0], "the aliases lead to it");
    bench.delta(client, VHDS, &[], &["r/two.test"]);
    assert_eq!(bench.said(client), [""; 0], "one of them does still");
    bench.delta(client, VHDS, &[], &["r/one.test"]);
    assert_eq!(bench.said(client), ["V  -r/host"]);
}

#[test]
fn delta_24_a_host_that_was_left_by_its_own_name_is_removed_if_the_wildcard_has_lost_it() {
    let mut bench = Bench::new();
    let client = started(&mut bench);
    bench.give(VHDS, "*", "1", named("r/host"));
    bench.delta(client, VHDS, &["r/host"], &[]);
    bench.give(VHDS, "r/host", "1", |_| {});
    bench.said(client);
    bench.removes(VHDS, Set::All, &["r/host"]);
    assert_eq!(bench.said(client), [""; 0]);
    bench.delta(client, VHDS, &[], &["r/host"]);
    assert_eq!(bench.said(client), ["V  -r/host"]);
}

#[test]
fn delta_16_a_host_that_was_stated_stays_if_an_alias_leads_to_it() {
    let mut bench = Bench::new();
    let only = Some(bench.kind(VHDS));
    let client = bench.add(Client { only, ..Client::plain(Variant::Delta) });
    let request = DeltaDiscoveryRequest {
        type_url: VHDS.into(),
        resource_names_subscribe: ["*", "r/one.test"].map(str::to_owned).into(),
        initial_resource_versions: ["r/host", "r/old"].map(|name| (name.to_owned(), "x".to_owned())).into(),
        ..Default::default()
    };
    bench.request(client, Request::Delta(request));
    give_host(&mut bench, "r/host", &["r/one.test"], "1");
    bench.whole(VHDS, &[]);
    assert_eq!(bench.said(client), ["V r/host -r/old"]);
}

#[test]
fn delta_16_a_host_that_was_stated_stays_if_an_alias_in_a_later_piece_leads_to_it() {
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.session.reply_bytes = 60));
    let only = Some(bench.kind(VHDS));
    let client = bench.add(Client { only, ..Client::plain(Variant::Delta) });
    let request = DeltaDiscoveryRequest {
        type_url: VHDS.into(),
        resource_names_subscribe: ["*", "r/a.test", "r/b.test"].map(str::to_owned).into(),
        initial_resource_versions: ["r/host", "r/old"].map(|name| (name.to_owned(), "x".to_owned())).into(),
        ..Default::default()
    };
    bench.request(client, Request::Delta(request));
    give_host(&mut bench, "r/other", &["r/a.test"], "1");
    give_host(&mut bench, "r/host", &["r/b.test"], "1");
    bench.whole(VHDS, &[]);
    assert_eq!(bench.said(client), ["V r/other", "V r/host -r/old"], "one host fills a reply");
}

#[test]
fn delta_33_a_name_that_leads_nowhere_is_not_in_the_reply_that_has_a_host_of_that_name() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, VHDS, &["r/host", "r/one.test"], &[]);
    bench.remove(VHDS, "r/host");
    give_host(&mut bench, "r/host", &["r/one.test"], "1");
    assert_eq!(bench.said(client), ["V r/host"]);
}

/// An Envoy that has both for a moment rejects the new one, and is not sent it again.
#[test]
fn i7_a_host_comes_in_one_reply_with_the_removal_of_the_one_whose_domain_it_may_take() {
    let mut bench = Bench::new();
    let client = started(&mut bench);
    bench.give(VHDS, "*", "1", named("r/old"));
    assert_eq!(bench.said(client), ["V r/old"]);
    bench.give(VHDS, "*", "1", named("r/new"));
    bench.remove(VHDS, "r/old");
    assert_eq!(bench.said(client), ["V r/new -r/old"]);
}

#[test]
fn delta_36_hosts_of_routes_that_were_left_are_not_sent_any_more() {
    let mut bench = Bench::new();
    let client = started(&mut bench);
    bench.give(VHDS, "*", "1", named("r/one"));
    bench.said(client);
    bench.delta(client, RDS, &[], &["r"]);
    bench.give(VHDS, "*", "2", named("r/one"));
    assert_eq!(bench.said(client), [""; 0]);
}

#[test]
fn delta_36_a_wildcard_that_was_answered_with_all_hosts_is_not_limited_by_a_later_request() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, VHDS, &["*"], &[]);
    bench.give(VHDS, "*", "1", named("other/two"));
    assert_eq!(bench.said(client), ["V other/two"], "it requested no route configuration");
    bench.delta(client, RDS, &["r"], &[]);
    give_routes(&mut bench, "r", "1");
    bench.said(client);
    bench.delta(client, VHDS, &["r/one.test"], &[]);
    bench.give(VHDS, "*", "2", named("other/two"));
    assert_eq!(bench.said(client), ["V other/two"], "it has the host, and has to be sent its changes");
}

#[test]
fn key_11_a_host_that_a_client_may_not_have_does_not_follow_its_route_configuration() {
    let mut bench = Bench::new();
    let client = bench.add(without_secret());
    bench.delta(client, RDS, &["r"], &[]);
    give_routes(&mut bench, "r", "1");
    bench.delta(client, VHDS, &[], &[]);
    bench.give(VHDS, "*", "1", named("r/one"));
    bench.give(VHDS, "*", "1", named("r/secret"));
    assert_eq!(bench.said(client), ["R r", "V r/one"]);
    give_routes(&mut bench, "r", "2");
    assert_eq!(bench.said(client), ["R r", "V r/one"]);
}

#[test]
fn key_11_a_host_is_removed_when_its_alias_leads_to_one_that_the_client_may_not_have() {
    let mut bench = Bench::new();
    let client = bench.add(without_secret());
    bench.delta(client, VHDS, &["r/x.test"], &[]);
    give_host(&mut bench, "r/one", &["r/x.test"], "1");
    assert_eq!(bench.said(client), ["V r/one"]);
    give_host(&mut bench, "r/secret", &["r/x.test"], "2");
    assert_eq!(bench.said(client), ["V  -r/one"]);
}

/// The host that goes may have had the domain of the one that comes: a client that has both rejects the second, and is not sent it again.
#[test]
fn a_host_that_comes_beside_many_longer_lives_comes_with_the_removal_of_the_one_that_goes() {
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.session.reply_bytes = 1000));
    let client = bench.add(Client { ttl: true, ..Client::plain(Variant::Delta) });
    let others: Vec<_> = (0..50).map(|number| format!("r/host{number}")).collect();
    let names = others.iter().map(String::as_str).chain(["r/z"]).collect::<Vec<_>>();
    bench.delta(client, VHDS, &[&names[..], &["r/a"]].concat(), &[]);
    for name in &names {
        bench.give(VHDS, name, "1", |wrapper| wrapper.ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 }));
    }
    while bench.poll(client).is_some() {}
    others.iter().for_each(|name| bench.prolongs(VHDS, Set::Names, name, 60));
    bench.give(VHDS, "r/a", "1", |_| {});
    bench.remove(VHDS, "r/z");
    let replies: Vec<_> = std::iter::from_fn(|| bench.poll(client)).collect();
    let first = &replies[0];
    assert_eq!(first.resources[0].name.as_str(), "r/a");
    assert_eq!(first.removed.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["r/z"]);
    let sent: Vec<_> = replies.iter().map(|reply| reply.resources.len()).collect();
    assert!(sent.len() > 2 && sent.iter().sum::<usize>() == 51, "{sent:?}");
}

#[test]
fn delta_33_a_host_of_many_aliases_and_of_the_wildcard_that_lives_longer_is_sent_once() {
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.session.reply_bytes = 1000));
    let client = bench.add(Client { ttl: true, ..Client::plain(Variant::Delta) });
    let aliases: Vec<_> = (0..50).map(|number| format!("r/host{number}.test")).collect();
    let aliases: Vec<_> = aliases.iter().map(String::as_str).collect();
    let give = |bench: &mut Bench, asked: &str| {
        bench.give(VHDS, asked, "1", |wrapper| {
            wrapper.name = "r/one".into();
            wrapper.aliases = aliases.iter().map(ToString::to_string).collect();
            wrapper.ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
        });
    };
    bench.delta(client, VHDS, &aliases, &[]);
    for asked in aliases.iter().chain(&["*"]) {
        give(&mut bench, asked);
    }
    while bench.poll(client).is_some() {}
    for wildcard in [false, true] {
        if wildcard {
            bench.delta(client, VHDS, &["*"], &[]);
        }
        bench.later(1000);
        aliases.iter().for_each(|asked| give(&mut bench, asked));
        let replies: Vec<_> = std::iter::from_fn(|| bench.poll(client)).collect();
        assert_eq!(replies.iter().map(|reply| reply.resources.len()).collect::<Vec<_>>(), [1], "`*`: {wildcard}");
    }
}
