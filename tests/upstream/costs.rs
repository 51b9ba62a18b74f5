//! What events cost: how much is looked at goes by what has happened, and not by what is there.

use std::time::Duration;

use weir::protocol::session::Variant;
use weir::protocol::upstream::ServerQuirks;
use weir::protocol::view::Class;
use weir::protocol::visits::take_visits;

use super::support::EDS;
use super::{delta, requested};

const TIMER: Duration = Duration::from_secs(15);

/// How much is looked at when one name turns silent that a client holds or does not hold, beside so many others.
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
        bench.claim(EDS, Class::Named, "silent");
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
