//! Resources that a server has sent and for which there was no room: they are missing because of the relay, not because of the server.

use weir_core::protocol::upstream::Room;
use weir_core::protocol::view::{Scarcity, SessionId};

use super::*;

/// Lets a server respond while nothing new has room.
fn say_without_room(bench: &mut Bench, server: usize, response: Response) {
    let id = StreamId { server, at: 0 };
    let epoch = bench.up[&id];
    let message = ResponseMessage::Decoded(response);
    let mut response = ReceivedResponse::read(message, &bench.table, &bench.store).unwrap();
    let room = Room { excess: 1, each: 10, spare: 0, why: "full".into() };
    let stream = bench.sources.stream(id).unwrap();
    assert!(stream.make_room(&mut response, &room, &bench.view) > 0, "something is new");
    for batch in bench.sources.on_received(id, epoch, response, &bench.view, bench.now) {
        bench.view.apply_from(batch.origin, batch.updates, bench.now);
    }
    bench.settle();
}

#[test]
fn what_had_no_room_is_no_reason_for_a_fallback_until_there_is_room() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::with_servers(plan(2, variant, Rule::Uncached));
        bench.want(EDS, "a", true);
        bench.want(EDS, "b", true);
        bench.open(0);
        let response = match variant {
            Variant::Sotw => sotw(EDS, "1", &[("a", "1"), ("b", "1")]),
            Variant::Delta => delta(EDS, &[("a", "1"), ("b", "1")], &[]),
        };
        say_without_room(&mut bench, 0, response);
        assert_eq!(bench.held(EDS, Set::Names, "b"), "unknown");
        bench.end(0, false);
        assert_eq!(bench.standing(), LadderState::Cached(0), "{variant:?}: it has sent all that is wanted");
        bench.want_as(TWO, EDS, "b", true);
        assert_eq!(bench.standing(), LadderState::Cached(0), "{variant:?}: who asks for it later is no reason either");
        bench.view.set_scarcity(Scarcity::None, true);
        bench.want_as(SessionId(1_003), EDS, "b", true);
        assert_eq!(bench.standing(), LadderState::Trying(1), "{variant:?}: now the next server's has room");
    }
}

#[test]
fn another_name_is_a_reason_all_the_same() {
    let mut bench = Bench::with_servers(plan(2, Variant::Delta, Rule::Uncached));
    bench.want(EDS, "a", true);
    bench.open(0);
    say_without_room(&mut bench, 0, delta(EDS, &[("a", "1")], &[]));
    bench.end(0, false);
    assert_eq!(bench.standing(), LadderState::Cached(0));
    bench.want(EDS, "c", true);
    assert_eq!(bench.standing(), LadderState::Trying(1));
}

#[test]
fn a_server_is_back_also_with_what_has_no_room() {
    let mut bench = served(Rule::Reachability);
    bench.want(EDS, "b", true);
    bench.end(0, false);
    bench.open(1);
    bench.say(1, delta(EDS, &[("a", "9")], &[]));
    assert_eq!(bench.standing(), LadderState::Active(1));
    bench.open(0);
    say_without_room(&mut bench, 0, delta(EDS, &[("b", "1")], &[]));
    assert_eq!((bench.standing(), bench.held(EDS, Set::Names, "a").as_str()), (LadderState::Active(0), "9"));
}
