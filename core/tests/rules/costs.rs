//! What events cost: how much is visited depends on what has happened, and not on how much there is.

use std::time::Duration;

use weir_core::proto::Request;
use weir_core::proto::discovery::DeltaDiscoveryRequest;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::view::{BrakeRules, SessionId};
use weir_core::protocol::visits::take_visits;

use super::support::{Bench, CDS, EDS, LDS, RDS, SDS, Set, VHDS, lead, wrapper};

const MANY: usize = 30_000;

/// Asserts that an event visits little compared with what it concerns, and that it visits no more beside many others than beside few.
fn assert_law(event: &str, concerned: usize, visits: impl Fn(usize) -> u64) {
    let few = visits(1_000);
    assert!(few <= 8 * concerned as u64, "{event}: {few} for {concerned}, beside 1,000 others");
    let many = visits(MANY);
    assert!(many * 10 <= few.max(1) * 12, "{event}: {few} beside 1,000 others, {many} beside {MANY}");
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("r{number:06}")).collect()
}

fn texts(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

fn contents(names: &[String]) -> Vec<(&str, &str)> {
    names.iter().map(|name| (name.as_str(), "1")).collect()
}

/// Lets a client subscribe to names, and the server send all of them in one response.
fn give_all(bench: &mut Bench, client: SessionId, url: &str, names: &[String]) {
    bench.delta(client, url, &texts(names), &[]);
    bench.gives(url, Set::Names, &contents(names));
}

fn options(keeps_order: bool) -> ProtocolOptions {
    match keeps_order {
        true => ProtocolOptions::default(),
        false => ProtocolOptions::default().with(|options| options.hold_referenced(Duration::ZERO)),
    }
}

/// Returns a set of `count` clusters that a client of `*` was sent, beside as many secrets of another client.
fn with_set(count: usize, keeps_order: bool) -> (Bench, SessionId) {
    let mut bench = Bench::with(options(keeps_order));
    let (client, other, names) = (bench.client(Variant::Delta), bench.client(Variant::Delta), names(count));
    give_all(&mut bench, other, SDS, &names);
    bench.delta(client, CDS, &["*"], &[]);
    if keeps_order {
        bench.delta(client, RDS, &["route"], &[]);
    }
    bench.whole(CDS, &contents(&names));
    if keeps_order {
        lead(&mut bench, "route", &[&names[count - 1]]);
    }
    bench.said(client);
    (bench, client)
}

/// Returns a view whose brake holds this many removals.
fn braked(url: &str, held: usize) -> (Bench, SessionId) {
    let types = ["envoy.config.cluster.v3.Cluster".into(), "envoy.config.listener.v3.Listener".into()].into();
    let brakes = BrakeRules { types, share: 10, count: 1, grace: Duration::from_secs(3600), ..BrakeRules::default() };
    let mut bench = Bench::with(options(false).with(|options| options.view.brakes = brakes));
    let client = bench.client(Variant::Delta);
    bench.delta(client, url, &["*"], &[]);
    let names = names(held + 10);
    let all = contents(&names);
    bench.whole(url, &all);
    bench.later(60_000);
    bench.whole(url, &all[..10]);
    assert_eq!(bench.view.holds().brakes(0)[0].held, held);
    (bench, client)
}

#[test]
fn a_flush_and_a_subscription_under_a_brake_cost_nothing_that_is_held() {
    assert_law("a subscription", 1, |held| {
        let (mut bench, _) = braked(CDS, held * 2 / 5);
        bench.view.take_brake_state(bench.now);
        let other = bench.client(Variant::Delta);
        take_visits();
        bench.delta(other, EDS, &["a"], &[]);
        bench.later(1);
        assert_eq!(bench.view.take_brake_state(bench.now), None, "nothing is to be noted");
        take_visits()
    });
}

#[test]
fn a_change_under_a_brake_costs_nothing_that_is_held() {
    for (url, said) in [(CDS, "C r000003"), (LDS, "")] {
        assert_law(url, 1, |held| {
            let (mut bench, client) = braked(url, held * 2 / 5);
            bench.said(client);
            bench.view.take_brake_state(bench.now);
            take_visits();
            bench.gives(url, Set::All, &[("r000003", "2")]);
            bench.later(1);
            assert_eq!(bench.said(client).concat(), said, "a change of a listener waits");
            take_visits()
        });
    }
}

#[test]
fn a_change_and_a_removal_in_a_set_cost_nothing_of_the_rest_of_it() {
    for keeps_order in [false, true] {
        assert_law("a change", 1, |others| {
            let (mut bench, client) = with_set(others, keeps_order);
            take_visits();
            bench.gives(CDS, Set::All, &[("r000003", "2")]);
            bench.later(100);
            assert_eq!(bench.said(client), ["C r000003"]);
            take_visits()
        });
        assert_law("a removal", 1, |others| {
            let (mut bench, client) = with_set(others, keeps_order);
            take_visits();
            bench.remove(CDS, "r000003");
            bench.later(100);
            assert_eq!(bench.said(client), ["C  -r000003"]);
            take_visits()
        });
    }
}

#[test]
fn a_change_and_a_removal_of_a_name_cost_nothing_of_other_names() {
    let beside = |others| {
        let mut bench = Bench::new();
        let (client, other, names) = (bench.client(Variant::Delta), bench.client(Variant::Delta), names(others));
        give_all(&mut bench, other, EDS, &names);
        give_all(&mut bench, client, EDS, &["a".to_owned()]);
        bench.said(client);
        take_visits();
        (bench, client)
    };
    assert_law("a change", 1, |others| {
        let (mut bench, client) = beside(others);
        bench.gives(EDS, Set::Names, &[("a", "2")]);
        bench.later(1);
        assert_eq!(bench.said(client), ["C a"]);
        take_visits()
    });
    assert_law("a removal", 1, |others| {
        let (mut bench, client) = beside(others);
        bench.remove(EDS, "a");
        bench.later(1);
        assert_eq!(bench.said(client), ["C  -a"]);
        take_visits()
    });
}

#[test]
fn the_removal_of_half_a_set_costs_by_what_is_removed_and_by_what_is_sent() {
    for keeps_order in [false, true] {
        for count in [1_000, MANY] {
            let removed = names(count / 2);
            let (mut bench, client) = with_set(count, keeps_order);
            let kind = bench.kind(CDS);
            take_visits();
            bench.removes(CDS, Set::All, &removed);
            bench.later(100);
            bench.said(client);
            let visits = take_visits();
            assert_eq!(bench.view.tables().held(&kind, true), count / 2);
            assert!(visits <= 8 * removed.len() as u64 + 8, "{visits} for {} in one response", removed.len());

            let (mut bench, client) = with_set(count, keeps_order);
            take_visits();
            bench.whole(CDS, &contents(&names(count)[count / 2..]));
            bench.later(100);
            bench.said(client);
            let visits = take_visits();
            assert_eq!(bench.view.tables().held(&kind, true), count / 2);
            assert!(visits <= 8 * count as u64 + 8, "{visits} for {count} that were sent or removed");
        }
    }
}

#[test]
fn the_removal_of_a_host_costs_by_the_number_of_aliases_that_lead_to_it() {
    let visits = |count: usize| {
        let mut bench = Bench::with(options(false));
        let (client, aliases) = (bench.client(Variant::Delta), names(count));
        bench.delta(client, VHDS, &texts(&aliases), &[]);
        let host = wrapper(VHDS, "r/host", "1");
        bench.gives_as(VHDS, Set::Names, aliases.iter().map(|alias| (alias.as_str(), host.clone())));
        assert_eq!(bench.said(client), ["V r/host"]);
        take_visits();
        bench.removes(VHDS, Set::Names, &aliases);
        assert_eq!(bench.said(client), ["V  -r/host"]);
        take_visits()
    };
    let (few, many) = (visits(1_000), visits(2_000));
    assert!(few >= 1_000 && many <= few * 5 / 2, "{few} for 1,000 aliases, {many} for 2,000");
}

#[test]
fn a_client_that_comes_back_costs_by_what_it_states_and_by_its_own_set() {
    const OWN: usize = 1_000;
    let own: Vec<_> = (0..OWN).map(|number| format!("own{number:04}")).collect();
    for (url, on) in [(LDS, vec!["*"]), (EDS, texts(&own))] {
        assert_law(url, 2 * OWN, |others| {
            let mut bench = Bench::new();
            let (keeper, other, names) = (bench.client(Variant::Delta), bench.client(Variant::Delta), names(others));
            for of_others in [EDS, RDS] {
                give_all(&mut bench, other, of_others, &names);
            }
            give_all(&mut bench, keeper, EDS, &own);
            bench.delta(keeper, LDS, &["*"], &[]);
            bench.whole(LDS, &contents(&own));
            let versions = own.iter().map(|name| (name.clone(), bench.resource(url, name, "1").full.to_string()));
            let request = DeltaDiscoveryRequest {
                type_url: url.into(),
                resource_names_subscribe: on.iter().map(ToString::to_string).collect(),
                initial_resource_versions: versions.collect(),
                ..Default::default()
            };
            let client = bench.client(Variant::Delta);
            take_visits();
            bench.request(client, Request::Delta(request));
            bench.later(1);
            assert_eq!(bench.said(client).len(), 1);
            take_visits()
        });
    }
}

/// With the first piece, all that the client states is compared.
#[test]
fn a_further_piece_of_listeners_costs_nothing_of_what_the_client_states() {
    const PIECE: usize = 15;
    assert_law("the second piece", PIECE, |count| {
        let mut bench = Bench::with(options(false).with(|options| options.session.reply_bytes = 1_000));
        let (stated, other) = (names(count), bench.client(Variant::Delta));
        bench.delta(other, LDS, &["*"], &[]);
        bench.whole(LDS, &contents(&stated));
        bench.set(LDS, &contents(&names(count + 3 * PIECE))[count..]);
        let versions = stated.iter().map(|name| (name.clone(), bench.resource(LDS, name, "1").full.to_string()));
        let request = DeltaDiscoveryRequest {
            type_url: LDS.into(),
            resource_names_subscribe: vec!["*".into()],
            initial_resource_versions: versions.collect(),
            ..Default::default()
        };
        let client = bench.client(Variant::Delta);
        bench.request(client, Request::Delta(request));
        assert_eq!(bench.poll(client).map(|reply| reply.resources.len()), Some(PIECE));
        take_visits();
        assert_eq!(bench.poll(client).map(|reply| reply.resources.len()), Some(PIECE));
        take_visits()
    });
}
