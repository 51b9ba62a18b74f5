//! The table of states (FB-11), with a test for each row.

use super::*;

#[derive(Default)]
struct World {
    uncached: bool,
    unreachable: Vec<usize>,
}

impl LadderContext for World {
    fn anything_uncached(&self) -> bool {
        self.uncached
    }

    fn is_unreachable(&self, server: usize) -> bool {
        self.unreachable.contains(&server)
    }
}

const NOW: Moment = Moment::START;

fn uncached() -> World {
    World { uncached: true, unreachable: Vec::new() }
}

fn cached() -> World {
    World::default()
}

fn ladder(servers: usize, rule: Rule) -> Ladder {
    Ladder::new(servers, rule, FallbackTimers::default())
}

/// Returns a ladder of three servers, of which the one at `at` is active.
fn active(at: usize, rule: Rule) -> Ladder {
    let mut ladder = ladder(3, rule);
    ladder.on_interest(&uncached(), NOW);
    for server in 0..at {
        ladder.on_unreachable(server, &uncached(), NOW);
    }
    assert!(ladder.on_response(at, true, NOW).0);
    assert_eq!(ladder.state(), LadderState::Active(at));
    ladder
}

/// A ladder of three unreachable servers with everything cached, in state `cached` at the first.
fn held() -> Ladder {
    let mut ladder = active(0, Rule::Uncached);
    ladder.on_unreachable(0, &cached(), NOW);
    assert_eq!(ladder.state(), LadderState::Cached(0));
    ladder
}

#[test]
fn fb_11_row_1_the_first_name_opens_the_first_server() {
    let mut ladder = ladder(2, Rule::Uncached);
    assert_eq!(ladder.on_interest(&uncached(), NOW), [LadderAction::Open(0)]);
    assert_eq!(ladder.state(), LadderState::Trying(0));
}

#[test]
fn fb_11_row_2_a_response_makes_its_server_the_active_one() {
    let mut ladder = ladder(2, Rule::Uncached);
    ladder.on_interest(&uncached(), NOW);
    assert_eq!(ladder.on_response(0, false, NOW), (true, vec![]), "any well-formed one");
    assert_eq!(ladder.state(), LadderState::Active(0));
}

#[test]
fn fb_11_row_3_an_unreachable_server_is_left_if_the_rule_holds() {
    for (rule, world) in [(Rule::Uncached, uncached()), (Rule::Reachability, cached())] {
        let mut ladder = ladder(3, rule);
        ladder.on_interest(&uncached(), NOW);
        assert_eq!(ladder.on_unreachable(0, &world, NOW), [LadderAction::Open(1)], "{rule:?}");
        assert_eq!((ladder.state(), ladder.open()), (LadderState::Trying(1), 0..2), "the first stays open");
        assert_eq!(ladder.on_unreachable(1, &world, NOW), [LadderAction::Open(2)]);
    }
}

#[test]
fn fb_11_row_4_with_everything_cached_there_is_no_reason_to_go_on() {
    let mut ladder = ladder(2, Rule::Uncached);
    ladder.on_interest(&uncached(), NOW);
    assert_eq!(ladder.on_unreachable(0, &cached(), NOW), []);
    assert_eq!(ladder.state(), LadderState::Cached(0));
}

#[test]
fn fb_11_row_5_and_row_9_after_the_last_there_is_none() {
    for rule in [Rule::Uncached, Rule::Reachability] {
        let mut trying = ladder(1, rule);
        trying.on_interest(&uncached(), NOW);
        assert_eq!(trying.on_unreachable(0, &cached(), NOW), []);
        assert_eq!(trying.state(), LadderState::Down);
        let mut last = active(2, rule);
        assert_eq!(last.on_unreachable(2, &uncached(), NOW), []);
        assert_eq!((last.state(), last.open()), (LadderState::Down, 0..3), "all keep trying");
    }
}

#[test]
fn fb_11_row_7_an_unreachable_active_server_is_left_if_the_rule_holds() {
    for (rule, world) in [(Rule::Uncached, uncached()), (Rule::Reachability, cached())] {
        let mut ladder = active(0, rule);
        assert_eq!(ladder.on_unreachable(0, &world, NOW), [LadderAction::Open(1)]);
        assert_eq!(ladder.state(), LadderState::Trying(1));
    }
}

#[test]
fn fb_11_row_8_an_unreachable_active_server_is_kept_while_all_is_cached() {
    assert_eq!(held().open(), 0..1);
}

#[test]
fn fb_11_row_10_a_new_name_that_is_not_cached_ends_the_holding_at_once() {
    let mut ladder = held();
    assert_eq!(ladder.on_interest(&cached(), NOW), [], "one that is cached");
    assert_eq!(ladder.on_interest(&uncached(), NOW), [LadderAction::Open(1)]);
    assert_eq!(ladder.state(), LadderState::Trying(1));
}

#[test]
fn fb_11_row_11_a_response_ends_the_holding() {
    let mut ladder = held();
    assert_eq!(ladder.on_response(0, false, NOW), (true, vec![]));
    assert_eq!(ladder.state(), LadderState::Active(0));
}

#[test]
fn fb_11_row_12_a_usable_response_of_a_higher_server_closes_those_below() {
    for rule in [Rule::Uncached, Rule::Reachability] {
        let mut ladder = active(2, rule);
        assert_eq!(ladder.on_response(1, false, NOW), (false, vec![]), "FB-9");
        assert_eq!(ladder.state(), LadderState::Active(2));
        assert_eq!(ladder.on_response(1, true, NOW), (true, vec![LadderAction::CloseBelow(1)]));
        assert_eq!((ladder.state(), ladder.open()), (LadderState::Active(1), 0..2));
        assert_eq!(ladder.on_response(0, true, NOW), (true, vec![LadderAction::CloseBelow(0)]));
        assert_eq!(ladder.switches(), Switches { down: 2, up: 2 });
    }
    let mut trying = active(0, Rule::Uncached);
    trying.on_unreachable(0, &uncached(), NOW);
    assert_eq!(
        trying.on_response(0, false, NOW),
        (true, vec![LadderAction::CloseBelow(0)]),
        "while the next is being tried"
    );
}

#[test]
fn fb_11_row_13_a_late_message_of_a_closed_server_is_nothing() {
    let mut ladder = active(1, Rule::Uncached);
    ladder.on_response(0, true, NOW);
    assert_eq!(ladder.on_response(1, true, NOW), (false, vec![]));
    assert_eq!(ladder.state(), LadderState::Active(0));
}

#[test]
fn fb_11_row_14_a_new_name_moves_nothing_while_a_server_is_active() {
    let mut ladder = active(1, Rule::Uncached);
    assert_eq!(ladder.on_interest(&uncached(), NOW), []);
    assert_eq!(ladder.open(), 0..2, "it is asked of every one of these");
}

#[test]
fn fb_11_row_17_and_fb_28_silence_counts_of_a_server_that_has_answered_or_that_is_the_only_one() {
    let world = uncached();
    let mut only = ladder(1, Rule::Uncached);
    only.on_interest(&world, NOW);
    assert_eq!((only.state(), only.authoritative()), (LadderState::Trying(0), Some(0)));
    only.on_unreachable(0, &world, NOW);
    assert_eq!((only.state(), only.authoritative()), (LadderState::Down, None));
    let mut several = ladder(2, Rule::Uncached);
    several.on_interest(&world, NOW);
    assert_eq!((several.state(), several.authoritative()), (LadderState::Trying(0), None));
    several.on_response(0, false, NOW);
    assert_eq!(several.authoritative(), Some(0));
    several.on_unreachable(0, &world, NOW);
    assert_eq!((several.state(), several.authoritative()), (LadderState::Trying(1), None));
    assert_eq!(held().authoritative(), None);
}

#[test]
fn fb_11_row_16_with_nothing_wanted_everything_is_closed() {
    let mut ladder = active(1, Rule::Uncached);
    assert_eq!(ladder.on_idle(NOW), [LadderAction::CloseAll]);
    assert_eq!((ladder.state(), ladder.open()), (LadderState::Idle, 0..0));
    assert_eq!(ladder.on_idle(NOW), []);
}

#[test]
fn fb_11_row_19_and_row_21_only_an_answer_ends_the_outage_and_any_does() {
    let mut ladder = active(2, Rule::Uncached);
    ladder.on_unreachable(2, &cached(), NOW);
    assert_eq!(ladder.on_response(1, false, NOW), (true, vec![LadderAction::CloseBelow(1)]));
    assert_eq!(ladder.state(), LadderState::Active(1));
}

#[test]
fn fb_11_row_20_another_attempt_that_fails_moves_nothing() {
    let mut ladder = active(2, Rule::Reachability);
    assert_eq!(ladder.on_unreachable(0, &uncached(), NOW), []);
    assert_eq!(ladder.on_unreachable(1, &uncached(), NOW), []);
    assert_eq!(ladder.state(), LadderState::Active(2));
    let mut down = active(2, Rule::Uncached);
    down.on_unreachable(2, &cached(), NOW);
    assert_eq!(down.on_unreachable(1, &uncached(), NOW), []);
    assert_eq!(down.state(), LadderState::Down);
}

#[test]
fn fb_11_row_22_servers_known_to_be_unreachable_are_passed_at_once() {
    let world = World { uncached: true, unreachable: vec![0, 1] };
    let mut ladder = ladder(3, Rule::Uncached);
    assert_eq!(ladder.on_interest(&world, NOW), [LadderAction::Open(0), LadderAction::Open(1), LadderAction::Open(2)]);
    assert_eq!(ladder.state(), LadderState::Trying(2));
}

#[test]
fn fb_11_row_22_a_server_known_to_be_unreachable_is_left_no_sooner_than_the_delay_allows() {
    let patience = FallbackTimers { delay: Duration::from_secs(5), ..FallbackTimers::default() };
    let world = World { uncached: true, unreachable: vec![0] };
    let mut ladder = Ladder::new(2, Rule::Uncached, patience);
    assert_eq!(ladder.on_interest(&world, NOW), [LadderAction::Open(0)]);
    let end = NOW + Duration::from_secs(5);
    assert_eq!((ladder.state(), ladder.next_deadline()), (LadderState::Cached(0), Some(end)));
    assert_eq!(ladder.on_time(&world, end), [LadderAction::Open(1)]);
}

#[test]
fn fb_31_a_fallback_that_has_begun_is_not_undone_because_its_reason_went_away() {
    let mut ladder = active(0, Rule::Uncached);
    ladder.on_unreachable(0, &uncached(), NOW);
    assert_eq!(ladder.on_interest(&cached(), NOW), []);
    assert_eq!(ladder.state(), LadderState::Trying(1));
}

#[test]
fn fb_17_waiting_times_keep_the_ladder_from_flapping() {
    let patience = FallbackTimers { delay: Duration::from_secs(5), hold_down: Duration::from_secs(60) };
    let mut ladder = Ladder::new(2, Rule::Reachability, patience);
    let at = |seconds| NOW + Duration::from_secs(seconds);
    ladder.on_interest(&cached(), at(0));
    assert_eq!(ladder.on_unreachable(0, &cached(), at(1)), []);
    assert_eq!((ladder.state(), ladder.next_deadline()), (LadderState::Cached(0), Some(at(6))));
    assert_eq!(ladder.on_unreachable(0, &cached(), at(4)), [], "the time runs from the first failure");
    assert_eq!(ladder.on_time(&cached(), at(6)), [LadderAction::Open(1)]);
    ladder.on_response(1, true, at(7));
    assert_eq!(ladder.on_response(0, true, at(10)), (true, vec![LadderAction::CloseBelow(0)]));
    assert_eq!(ladder.on_unreachable(0, &cached(), at(11)), []);
    assert_eq!(ladder.next_deadline(), Some(at(70)), "it has only just come back");
    ladder.on_response(0, true, at(12));
    assert_eq!(ladder.next_deadline(), None);
}

#[test]
fn a_ladder_that_has_no_reason_to_go_on_waits_for_no_time() {
    let patience = FallbackTimers { delay: Duration::from_secs(5), ..FallbackTimers::default() };
    for patience in [FallbackTimers::default(), patience] {
        let mut ladder = Ladder::new(2, Rule::Uncached, patience);
        ladder.on_interest(&uncached(), NOW);
        ladder.on_unreachable(0, &cached(), NOW);
        assert_eq!((ladder.state(), ladder.next_deadline()), (LadderState::Cached(0), None), "all is cached");
    }
    let mut ladder = Ladder::new(2, Rule::Uncached, patience);
    let at = |seconds| NOW + Duration::from_secs(seconds);
    ladder.on_interest(&uncached(), NOW);
    assert_eq!(ladder.on_unreachable(0, &uncached(), NOW), []);
    assert_eq!(ladder.next_deadline(), Some(at(5)));
    assert_eq!(ladder.on_time(&cached(), at(5)), [], "the reason has gone meanwhile");
    assert_eq!(ladder.next_deadline(), None);
    assert_eq!(ladder.on_interest(&uncached(), at(6)), [LadderAction::Open(1)]);
}

#[test]
fn fb_11_the_delay_of_an_outage_begins_with_that_outage() {
    let delay = Duration::from_secs(5);
    let mut ladder = Ladder::new(2, Rule::Reachability, FallbackTimers { delay, ..FallbackTimers::default() });
    let down = World { uncached: false, unreachable: vec![0] };
    ladder.on_interest(&uncached(), NOW);
    ladder.on_response(0, true, NOW);
    for outage in 0..3 {
        let began = NOW + Duration::from_secs(60 * outage);
        ladder.on_unreachable(0, &down, began);
        assert_eq!((ladder.state(), ladder.next_deadline()), (LadderState::Cached(0), Some(began + delay)));
        ladder.on_time(&down, began + delay / 2);
        ladder.on_response(0, true, began + delay / 2);
        assert_eq!((ladder.state(), ladder.next_deadline()), (LadderState::Active(0), None));
    }
}

#[test]
fn a_ladder_is_in_a_state_since_it_came_to_it_and_not_since_the_last_event() {
    let at = |seconds| NOW + Duration::from_secs(seconds);
    let mut ladder = ladder(2, Rule::Uncached);
    ladder.on_interest(&uncached(), at(1));
    ladder.on_response(0, true, at(2));
    ladder.on_response(0, true, at(3));
    ladder.on_interest(&uncached(), at(4));
    assert_eq!((ladder.state(), ladder.since()), (LadderState::Active(0), at(2)));
    for seconds in 5..8 {
        ladder.on_unreachable(0, &cached(), at(seconds));
        assert_eq!((ladder.state(), ladder.since()), (LadderState::Cached(0), at(5)));
    }
    ladder.on_response(0, false, at(9));
    assert_eq!((ladder.state(), ladder.since()), (LadderState::Active(0), at(9)));
}

#[test]
fn fb_17_a_server_is_kept_for_a_while_after_a_return_to_it_and_not_after_it_was_tried_first() {
    let patience = FallbackTimers { hold_down: Duration::from_secs(60), ..FallbackTimers::default() };
    let at = |seconds| NOW + Duration::from_secs(seconds);
    let mut ladder = Ladder::new(2, Rule::Reachability, patience);
    ladder.on_interest(&uncached(), at(0));
    ladder.on_response(0, true, at(1));
    assert_eq!(ladder.on_unreachable(0, &uncached(), at(2)), [LadderAction::Open(1)], "it is no return");
    ladder.on_response(1, true, at(3));
    ladder.on_response(0, true, at(100));
    assert_eq!(ladder.on_unreachable(0, &uncached(), at(110)), []);
    assert_eq!(ladder.next_deadline(), Some(at(160)));
    ladder.on_response(0, true, at(120));
    assert_eq!(ladder.on_unreachable(0, &uncached(), at(130)), [], "it has returned once more");
    assert_eq!(ladder.next_deadline(), Some(at(180)));
    assert_eq!(ladder.on_time(&uncached(), at(180)), [LadderAction::Open(1)]);
}

#[test]
fn a_ladder_waits_with_a_bound_for_a_timer_and_without_one_for_a_server() {
    let (delay, hold_down) = (Duration::from_secs(5), Duration::from_secs(60));
    let at = |seconds| NOW + Duration::from_secs(seconds);
    let age = Duration::from_secs;
    let mut ladder = Ladder::new(2, Rule::Uncached, FallbackTimers { delay, hold_down });
    assert_eq!(ladder.wait(at(0)), None);
    ladder.on_interest(&uncached(), at(0));
    ladder.on_response(0, true, at(1));
    assert_eq!(ladder.wait(at(9)), None, "its server is active");
    ladder.on_unreachable(0, &cached(), at(10));
    assert_eq!(ladder.wait(at(100)), Some((age(90), None)), "the rule does not allow the next one");
    ladder.on_interest(&uncached(), at(100));
    ladder.on_response(0, true, at(101));
    ladder.on_unreachable(0, &uncached(), at(110));
    assert_eq!(ladder.wait(at(113)), Some((age(3), Some(hold_down))), "it has returned");
    assert_eq!(ladder.on_time(&uncached(), ladder.next_deadline().unwrap()), [LadderAction::Open(1)]);
    assert_eq!(ladder.wait(at(170)), None, "the next one is tried");
    ladder.on_unreachable(1, &World { uncached: true, unreachable: vec![0, 1] }, at(200));
    assert_eq!(ladder.state(), LadderState::Down);
    assert_eq!(ladder.wait(at(260)), Some((age(60), None)));
}
