//! A view that had fallen back, or whose server gets another one in front of it: what its ladder does after a reload, and after a restart.

use super::reload::{AT_ONCE, World, is_settled, text};
use super::warm_start::{Stoppable, contents, is_saved, of, state_in};
use super::*;
use weir_testkit::folder::Folder;

/// FB-26: a reload does not undo a fallback that has begun.
#[tokio::test]
async fn a_view_that_had_fallen_back_goes_on_at_the_next_server() {
    let dead = Plane::start(&BOTH).await.kill().await;
    let mut second = Plane::start(&BOTH).await;
    let world = World::start("fallen", &text(&[dead, second.address], AT_ONCE)).await;
    let mut client = Client::connect(world.relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = second.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    client.sent().await;
    is_settled(&world.relay).await;
    world.change(&text(&[dead, second.address], &format!("{AT_ONCE}limits: {{names_per_type: 77}}\n"))).await;
    assert_eq!(client.ended().await, Code::Unavailable);
    let mut back = Client::connect(world.relay.address, Variant::Delta).await;
    back.ask(CDS, &[], Some("web"));
    assert_eq!(back.sent().await.set, ["a", "b"]);
    let stream = second.stream().await;
    let news = [("a", "2"), ("b", "1")];
    say(&stream, "2", &news, &news, &[]);
    assert_eq!(back.sent().await.set, ["a"]);
}

/// FB-31: the server that a view has goes on with it although a reload puts another one in front. Everything is cached, and what changes meanwhile must not
/// wait for a server that was never there.
#[tokio::test]
async fn a_server_that_is_put_in_front_and_is_away_does_not_stop_the_one_that_was_active() {
    let dead = Plane::start(&BOTH).await.kill().await;
    let mut active = Plane::start(&BOTH).await;
    let world = World::start("in-front", &text(&[active.address], AT_ONCE)).await;
    let mut client = Client::connect(world.relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = active.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    client.sent().await;
    is_settled(&world.relay).await;
    world.change(&text(&[dead, active.address], AT_ONCE)).await;
    assert_eq!(client.ended().await, Code::Unavailable);
    let mut back = Client::connect(world.relay.address, Variant::Delta).await;
    back.ask(CDS, &[], Some("web"));
    assert_eq!(back.sent().await.set, ["a", "b"]);
    let stream = active.stream().await;
    let news = [("a", "2"), ("b", "1")];
    say(&stream, "2", &news, &news, &[]);
    assert_eq!(back.sent().await.set, ["a"]);
}

/// FB-31: the first server is still away. Although everything is on disk, what changes meanwhile comes from the server that was active before the restart.
#[tokio::test]
#[ignore = "waits five seconds for each pair of variants"]
async fn night_a_view_that_had_fallen_back_goes_on_at_that_server_after_a_restart() {
    each_translation(|up, down| async move {
        let folder = Folder::with_short_path(&format!("fallen-{up:?}-{down:?}"));
        let dead = Plane::start(&BOTH).await.kill().await;
        let mut second = Plane::start(&BOTH).await;
        let protocol = protocol_of(up);
        let both = format!("{protocol}}}, {{uri: 'http://{}'{protocol}", second.address);
        let rest = state_in(&folder, "");
        let relay = Stoppable::start(dead, &both, &rest).await;
        let mut client = Client::connect(relay.0.address, down).await;
        client.ask(CDS, &[], Some("web"));
        let stream = second.stream().await;
        say(&stream, "1", &TWO, &TWO, &[]);
        assert_eq!(contents(&mut client).await, of(&TWO));
        is_saved(&relay.0).await;
        relay.stop().await;

        let relay = Stoppable::start(dead, &both, &rest).await;
        let mut client = Client::connect(relay.0.address, down).await;
        client.ask(CDS, &[], Some("web"));
        assert_eq!(contents(&mut client).await, of(&TWO), "from disk");
        let stream = second.stream().await;
        let news = [("a", "2"), ("b", "1")];
        say(&stream, "2", &news, &news, &[]);
        assert_eq!(contents(&mut client).await["a"], "2");
        relay.stop().await;
    })
    .await;
}
