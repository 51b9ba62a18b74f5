//! What events cost: how much is visited depends on what has happened, and not on how much there is.

use std::time::Duration;

use weir_core::proto::Response;
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::ServerQuirks;
use weir_core::protocol::visits::take_visits;

use super::support::{CDS, EDS, Set};
use super::{Bench, delta, requested, sotw};

const TIMER: Duration = Duration::from_secs(15);

/// Returns how much is visited when a server turns silent about one name, beside `others` other names. With `is_claimed`, a client holds that name.
fn of_a_silent_name(others: usize, is_claimed: bool) -> u64 {
    let names: Vec<_> = (0..others).map(|number| format!("e{number:06}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut bench = requested(Variant::Delta, EDS, &names, ServerQuirks::default());
    for some in names.chunks(1_000) {
        bench.respond(0, delta(EDS, some, &[], "1"));
    }
    bench.later(TIMER);
    assert!(!bench.asks_again(), "the server has given everything");
    bench.want(EDS, "silent", true);
    bench.requests(0);
    take_visits();
    assert_eq!(bench.later(TIMER), ["Named silent unanswered"]);
    if is_claimed {
        bench.claim(EDS, Set::Names, "silent");
        bench.later(Duration::ZERO);
        assert!(bench.asks_again());
    }
    take_visits()
}

#[test]
fn a_name_that_turns_silent_costs_what_it_concerns() {
    for is_claimed in [false, true] {
        let [few, many] = [1_000, 100_000].map(|others| of_a_silent_name(others, is_claimed));
        assert!(many <= 8 && many * 10 <= few.max(1) * 12, "{few} beside 1,000, {many} beside 100,000");
    }
}

/// One client may request this many names, so the work that they cause is divided.
#[test]
fn names_that_turn_silent_together_do_so_in_parts() {
    let names = names(1_000);
    let mut bench = requested(Variant::Delta, EDS, &texts(&names), ServerQuirks::default());
    bench.now = bench.now + TIMER;
    assert_eq!(bench.judge().len(), 0, "the server has to show life first");
    assert!(bench.upstream.streams_mut()[0].take_liveness_call());
    bench.answers_call();
    let mut parts = Vec::new();
    loop {
        parts.push(bench.judge().len());
        match bench.upstream.streams_mut()[0].next_deadline() {
            Some(due) if due <= bench.now => {}
            _ => break,
        }
    }
    assert_eq!(parts.iter().sum::<usize>(), 1_000, "{parts:?}");
    assert!(parts.iter().all(|part| *part <= 128), "{parts:?}");
}

/// Asserts that an event visits little, and that it visits no more beside many others than beside few.
fn assert_law(event: &str, visits: impl Fn(usize) -> u64) {
    let few = visits(1_000);
    assert!(few <= 8, "{event}: {few} beside 1,000");
    let many = visits(MANY);
    assert!(many * 10 <= few.max(1) * 12, "{event}: {few} beside 1,000, {many} beside {MANY}");
}

/// Nearly as many names as one client may claim.
const MANY: usize = 80_000;

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number:06}")).collect()
}

fn texts(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// Returns a delta server that has sent a set of this many clusters at once, and has been silent since.
fn with_set(count: usize) -> Bench {
    let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
    bench.respond(0, delta(CDS, &texts(&names(count)), &[], "1"));
    bench.requests(0);
    bench.later(TIMER);
    bench
}

#[test]
fn a_response_costs_what_is_in_it() {
    for (on, off, said) in [(&["n000007~2"][..], &[][..], "set"), (&[][..], &["n000007"][..], "gone")] {
        assert_law(said, |others| {
            let mut bench = with_set(others);
            take_visits();
            assert_eq!(bench.respond(0, delta(CDS, on, off, "2"))[0], format!("Wildcard n000007 {said}"));
            bench.requests(0);
            bench.later(Duration::ZERO);
            take_visits()
        });
    }
}

#[test]
fn a_claim_costs_nothing_of_those_that_wait() {
    for is_of_the_type in [true, false] {
        assert_law("a claim", |waiting| {
            let mut bench = with_set(1);
            bench.want(EDS, "a", true);
            bench.requests(0);
            names(waiting + 1)[1..].iter().for_each(|name| bench.claim(CDS, Set::All, name));
            bench.later(Duration::ZERO);
            assert!(bench.asks_again());
            bench.reopen();
            bench.later(TIMER);
            assert!(!bench.asks_again(), "all of them are asked for");
            take_visits();
            match is_of_the_type {
                true => bench.claim(CDS, Set::All, "new"),
                false => bench.claim(EDS, Set::Names, "a"),
            }
            bench.later(Duration::ZERO);
            let visits = take_visits();
            assert!(bench.asks_again(), "the new one is to be asked for");
            visits
        });
    }
}

#[test]
fn while_a_server_shows_no_life_an_event_costs_nothing_of_what_clients_hold() {
    assert_law("an event", |claims| {
        let mut bench = with_set(1);
        bench.reopen();
        bench.mute = true;
        names(claims + 1)[1..].iter().for_each(|name| bench.claim(CDS, Set::All, name));
        bench.later(4 * TIMER);
        assert!(!bench.asks_again());
        take_visits();
        bench.later(Duration::from_secs(1));
        let visits = take_visits();
        bench.mute = false;
        bench.later(Duration::from_secs(1));
        assert!(bench.asks_again(), "it is alive");
        visits
    });
}

#[test]
fn while_the_end_of_a_set_is_asked_for_an_event_costs_nothing_of_the_set() {
    assert_law("an event", |others| {
        let mut bench = with_set(others);
        bench.reopen();
        bench.respond(0, delta(CDS, &["n000007~2"], &[], "2"));
        bench.claim_set(CDS);
        bench.later(Duration::from_secs(1));
        take_visits();
        bench.later(Duration::from_secs(1));
        take_visits()
    });
}

#[test]
fn a_poll_and_a_claim_cost_nothing_of_what_a_polled_server_has() {
    let polled = |bench: &mut Bench| {
        let (epoch, now) = (bench.epochs[0], bench.now);
        bench.upstream.streams_mut()[0].on_unchanged(epoch, EDS, now);
        bench.later(Duration::ZERO)
    };
    assert_law("a poll", |others| {
        let names = names(others);
        let rules = ServerQuirks { per_type_liveness: true, ..ServerQuirks::default() };
        let mut bench = requested(Variant::Sotw, EDS, &texts(&names), rules);
        bench.respond(0, sotw(EDS, &texts(&names), "1"));
        bench.requests(0);
        bench.later(TIMER);
        assert_eq!(polled(&mut bench), [""; 0], "it has everything");
        bench.want(EDS, "silent", true);
        bench.requests(0);
        take_visits();
        bench.claim(EDS, Set::Names, "silent");
        bench.later(Duration::ZERO);
        bench.later(TIMER);
        assert_eq!(polled(&mut bench), ["Named silent gone"]);
        assert_eq!(polled(&mut bench), [""; 0]);
        take_visits()
    });
}

#[test]
fn an_event_costs_nothing_of_the_collections_that_a_server_of_sotw_cannot_serve() {
    assert_law("an event", |globs| {
        let globs: Vec<_> =
            (0..globs).map(|at| format!("xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/{at}/*")).collect();
        let mut bench = requested(Variant::Sotw, EDS, &texts(&globs), ServerQuirks::default());
        assert_eq!(bench.later(Duration::ZERO).len(), globs.len(), "each has an error, once");
        bench.want(EDS, "a", true);
        take_visits();
        bench.later(Duration::ZERO);
        bench.upstream.streams_mut()[0].next_deadline();
        take_visits()
    });
}

#[test]
fn a_look_at_a_stream_costs_nothing_of_what_is_rejected() {
    assert_law("a look", |rejected| {
        let mut bench = with_set(1);
        let mut response = delta(CDS, &texts(&names(rejected)), &[], "2");
        if let Response::Delta(response) = &mut response {
            response.resources.iter_mut().for_each(|resource| resource.resource = None);
        }
        bench.respond(0, response);
        take_visits();
        let types: Vec<_> = bench.upstream.streams_mut()[0].types().collect();
        assert_eq!(types.len(), 1);
        take_visits()
    });
}
