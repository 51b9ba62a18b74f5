//! When a session need not be polled after a request: the relay then makes no attempt at a reply.

use super::*;

/// Returns a client that has answered one reply of each of two types, and the nonce of the last one.
fn resting(variant: Variant) -> (World, u64) {
    let mut world = World::new(Client { errors: true, ..Client::plain(variant) });
    world.subscribe(CDS, &["*", "a"], &[]);
    world.whole(CDS, &["a", "b"]);
    world.set(CDS, "a", "1");
    let nonce = world.take_replies().unwrap();
    world.later(60_000);
    assert_eq!(world.take_replies(), None);
    world.answer(CDS, &["*", "a"], nonce, None);
    assert!(world.session.is_at_rest(), "{variant:?}: an ACK releases nothing");
    assert_eq!(world.take_replies(), None);
    (world, nonce)
}

#[test]
fn a_request_after_which_a_reply_is_due_ends_the_rest_of_its_session() {
    let glob = "xdstp://x/envoy.config.cluster.v3.Cluster/*";
    let broken = "xdstp://x";
    for variant in [Variant::Sotw, Variant::Delta] {
        let requests: &[(&[&str], &[&str])] = match variant {
            Variant::Sotw => &[(&["*", "a", "b"], &[]), (&["*"], &[]), (&["a"], &[]), (&["*", "a", broken], &[])],
            Variant::Delta => &[(&["b"], &[]), (&["*"], &[]), (&[], &["a"]), (&[broken], &[]), (&[glob], &[])],
        };
        for (on, off) in requests {
            let (mut world, nonce) = resting(variant);
            let request = world.made(CDS, on, off, &nonce.to_string(), None);
            world.request(request);
            let rests = world.session.is_at_rest();
            let is_due = *on == [glob] || world.poll().is_some();
            assert!(is_due && !rests, "{variant:?} +{on:?} -{off:?}: due {is_due}, rests {rests}");
        }
    }
}

#[test]
fn a_session_rests_only_after_a_poll_that_left_nothing() {
    let (mut world, nonce) = resting(Variant::Sotw);
    world.answer(CDS, &["*", "a"], nonce, Some("no"));
    assert!(!world.session.is_at_rest(), "a NACK may end a wait");
    world.take_replies();
    world.set(CDS, "b", "2");
    let nonce = world.take_replies().unwrap();
    world.set(CDS, "b", "3");
    assert_eq!(world.take_replies(), None, "it waits for the ACK");
    world.answer(CDS, &["*", "a"], nonce, None);
    assert!(!world.session.is_at_rest(), "the ACK releases a change");
    assert_eq!(world.take_replies(), Some(nonce + 1));
    world.answer(CDS, &["*", "a"], nonce + 1, None);
    assert!(world.session.is_at_rest());
    world.subscribe("type.googleapis.com/own.Type", &["x"], &[]);
    world.answer(CDS, &["*", "a"], nonce + 1, None);
    assert!(!world.session.is_at_rest(), "it was not polled after another request");
}

#[test]
fn a_removal_that_waits_for_the_count_of_new_interest_ends_the_rest() {
    let (mut world, _) = resting(Variant::Delta);
    let request = world.made(CDS, &["c"], &[], "", None);
    world.session.on_request(request, world.now);
    let changes = world.session.take_interest();
    world.remove(CDS, "b");
    assert_eq!(world.take_replies(), None, "what it newly subscribes to may have to come first");
    assert!(!world.session.is_at_rest());
    changes.into_iter().for_each(|change| world.view.change_interest(ME, change, world.now));
    world.publish();
    world.session.on_interest_applied();
    assert!(world.poll().is_some_and(|reply| names(&reply.removed) == ["b"]));
}
