//! What becomes of the streams of a view that its server refuses.

use super::*;
use crate::protocol::server_status::ServerStatus;

const DENIED: i32 = 7;

impl World {
    /// Lets the server refuse the view. Returns whether that ends the stream.
    fn is_ended_by_refusal(&mut self) -> bool {
        self.session.on_view_refused(&ServerStatus { code: DENIED, message: "no".into() });
        let newest = self.view.snapshot().clone();
        match self.session.poll(&newest, &mut self.leases, self.now) {
            Step::End(CloseReason::Refused(status)) => status.code == DENIED,
            Step::End(end) => panic!("{end}"),
            Step::Idle(_) | Step::Reply(_) => false,
        }
    }
}

/// Returns a client of all clusters, of which there is one.
fn with_a_cluster(client: Client) -> World {
    let mut world = World::new(client);
    world.subscribe(CDS, &["*"], &[]);
    world.whole(CDS, &["a"]);
    world
}

#[test]
fn a_stream_that_has_had_nothing_ends_and_one_that_has_had_a_response_stays() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut world = World::plain(variant);
        world.subscribe(CDS, &["*"], &[]);
        assert_eq!(world.take_replies(), None);
        assert!(world.is_ended_by_refusal(), "{variant:?}: nothing is known");

        let mut world = with_a_cluster(Client::plain(variant));
        assert!(world.is_ended_by_refusal(), "{variant:?}: it has not been sent what is cached");

        let mut world = with_a_cluster(Client::plain(variant));
        let nonce = world.take_replies().unwrap();
        assert!(!world.is_ended_by_refusal(), "{variant:?}");
        world.answer(CDS, &["*"], nonce, None);
        world.set(CDS, "a", "2");
        assert!(world.poll().is_some(), "{variant:?}: it goes on");
    }
}

#[test]
fn a_stream_of_a_relay_ends_whatever_it_has_had() {
    let mut world = with_a_cluster(Client { relay: true, ..Client::plain(Variant::Delta) });
    world.take_replies().unwrap();
    assert!(world.is_ended_by_refusal());
}

#[test]
fn a_client_that_came_back_with_what_is_current_stays_although_it_was_sent_nothing() {
    let mut world = with_a_cluster(Client::plain(Variant::Sotw));
    let version = world.poll().unwrap().version.to_string();
    let mut again = World::plain(Variant::Sotw);
    let Request::Sotw(request) = again.made(CDS, &[], &[], "", None) else { unreachable!() };
    again.request(Request::Sotw(DiscoveryRequest { version_info: version, ..request }));
    again.whole(CDS, &["a"]);
    assert_eq!(again.take_replies(), None, "it has that");
    assert!(!again.is_ended_by_refusal());
}
