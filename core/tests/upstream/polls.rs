//! What may be concluded from polls, each of which is about one type.

use std::time::Duration;

use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::ServerQuirks;

use super::support::{CDS, EDS};
use super::{Bench, WINDOW, requested, sotw};

const TIMER: Duration = Duration::from_secs(15);

/// Returns a bench whose server has answered the first poll with `a` and `b`.
fn polled(url: &str, names: &[&str]) -> Bench {
    let rules = ServerQuirks { per_type_liveness: true, ..ServerQuirks::default() };
    let mut bench = requested(Variant::Sotw, url, names, rules);
    bench.respond(0, sotw(url, &["a", "b"], "1"));
    bench.requests(0);
    bench
}

/// Lets the server answer a poll with a 304. Returns what follows.
fn unchanged(bench: &mut Bench, url: &str) -> Vec<String> {
    let (epoch, now) = (bench.epochs[0], bench.now);
    let update = bench.upstream.streams_mut()[0].on_unchanged(epoch, url, now);
    let mut texts = bench.apply(update.into_iter().collect());
    texts.extend(bench.later(Duration::ZERO));
    texts
}

/// Lets the server answer a poll with these names. Returns what follows.
fn answered(bench: &mut Bench, url: &str, names: &[&str], version: &str) -> Vec<String> {
    let mut texts = bench.respond(0, sotw(url, names, version));
    bench.requests(0);
    texts.extend(bench.later(Duration::ZERO));
    texts
}

#[test]
fn up_24_an_answer_to_a_poll_from_the_time_between_two_requests_for_a_name_deletes_nothing() {
    let mut bench = polled(CDS, &["a", "b"]);
    bench.later(TIMER);
    for on in [false, true] {
        bench.want(CDS, "a", on);
        bench.later(WINDOW);
        bench.requests(0);
    }
    let under_way = answered(&mut bench, CDS, &["a", "b"], "2");
    assert_eq!(under_way, ["Named a set", "Named b set"], "that poll was begun before");
    assert_eq!(answered(&mut bench, CDS, &["b"], "3"), ["Named b set"]);
    assert_eq!(bench.later(WINDOW), [""; 0]);
    assert_eq!(bench.later(2 * TIMER), ["Named a gone"], "that was time enough for another answer");
}

#[test]
fn up_25_what_polls_lack_beside_an_entry_without_a_name_stays_until_an_answer_without_such_an_entry() {
    for (url, names, known) in
        [(CDS, &["*"][..], &["whole {\"a\"}"][..]), (EDS, &["a", "b"], &["Named a set", "Named b gone"])]
    {
        let mut bench = polled(url, names);
        bench.reopen();
        bench.respond(0, sotw(url, &["a", ""], "2"));
        bench.requests(0);
        bench.later(TIMER);
        assert_eq!(unchanged(&mut bench, url), [""; 0], "{url}: b may be the one");
        assert_eq!(answered(&mut bench, url, &["a"], "3"), known, "{url}");
    }
}

#[test]
fn up_25_names_have_no_answer_while_a_polled_server_has_an_entry_without_a_name() {
    let mut bench = polled(EDS, &["a", "b"]);
    bench.want(EDS, "c", true);
    bench.later(WINDOW);
    bench.requests(0);
    assert_eq!(answered(&mut bench, EDS, &["a", "b", ""], "2"), ["Named a set", "Named b set"]);
    bench.later(TIMER);
    assert_eq!(unchanged(&mut bench, EDS), [""; 0], "c may be the one");
    let next = bench.upstream.streams_mut()[0].next_deadline();
    assert!(next.is_none_or(|next| next > bench.now), "its task does not wake again and again: {next:?}");
    assert_eq!(answered(&mut bench, EDS, &["a", "b"], "3"), ["Named a set", "Named b set", "Named c gone"]);
}
