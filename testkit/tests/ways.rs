//! What a control plane that answers by itself can be told to do: each way and manner, shown by a client without a relay, in both variants.

use std::time::Duration;

use tonic::Code;
use weir_core::proto::discovery::DeltaDiscoveryRequest;
use weir_core::protocol::session::Variant;
use weir_testkit::address::own_address;
use weir_testkit::client::{Client, node};
use weir_testkit::plane::{Habits, Plane};
use weir_testkit::resources::{BOTH, CDS, EDS};
use weir_testkit::script::{Manner, Set, Way, World};
use weir_testkit::server::Server;
use weir_testkit::speaker::{Speaker, bare};

/// How long a test waits to see that nothing arrives.
const MOMENT: Duration = Duration::from_millis(100);

async fn each(case: impl AsyncFn(Variant)) {
    for variant in BOTH {
        println!("{variant:?}");
        case(variant).await;
    }
}

/// Returns clusters with these names and contents.
fn clusters(all: &[(&str, &str)]) -> World {
    World::from([(CDS, set(all))])
}

fn set(all: &[(&str, &str)]) -> Set {
    all.iter().map(|(name, content)| ((*name).to_owned(), (*content).to_owned())).collect()
}

async fn client_of(server: &Server, variant: Variant) -> Client {
    Client::connect(server.address, variant).await
}

#[tokio::test]
async fn it_gives_what_is_requested_and_gives_it_again_when_the_content_changes() {
    each(async |variant| {
        let server = Server::start(Way::Gives("1")).await;
        let mut client = client_of(&server, variant).await;
        client.ask(EDS, &["a", "b"], Some("web"));
        assert_eq!(client.sent().await.set, ["a", "b"]);
        server.sees("both are requested", |seen| seen.requested.len() == 2).await;
        server.turn(Way::Gives("2"));
        assert_eq!(client.sent().await.set, ["a", "b"]);
        assert_eq!((server.seen().opened, server.seen().open), (1, 1));
        drop(client);
        server.sees("the stream has ended", |seen| seen.open == 0).await;
    })
    .await;
}

#[tokio::test]
async fn it_gives_only_what_the_script_has_and_removes_stated_names_that_it_has_not() {
    each(async |variant| {
        let server = Server::start(Way::GivesOnly(&[("a", "1"), ("b", "1")])).await;
        let mut client = client_of(&server, variant).await;
        client.ask(EDS, &["a", "x"], Some("web"));
        assert_eq!(client.sent().await.set, ["a"]);
        client.ask(CDS, &[], None);
        assert_eq!(client.sent().await.set, ["a", "b"]);
        let mut other = client_of(&server, variant).await;
        let Client::Delta(requests, _) = &other else { return };
        let initial_resource_versions = [("a".to_owned(), "1".to_owned()), ("gone".to_owned(), "1".to_owned())].into();
        let stating = DeltaDiscoveryRequest {
            node: node("web"),
            type_url: CDS.into(),
            initial_resource_versions,
            ..Default::default()
        };
        requests.send(stating).unwrap();
        let sent = other.sent().await;
        assert_eq!((sent.set, sent.removed), (vec!["a".to_owned(), "b".to_owned()], vec!["gone".to_owned()]));
    })
    .await;
}

#[tokio::test]
async fn it_has_a_world_sends_what_is_new_in_it_and_is_silent_about_unknown_names() {
    each(async |variant| {
        let server = Server::start(Way::Has(clusters(&[("a", "1"), ("b", "1")]))).await;
        let mut client = client_of(&server, variant).await;
        client.ask(CDS, &[], Some("web"));
        let sent = client.sent().await;
        assert_eq!(sent.set, ["a", "b"]);
        client.ack(CDS, &[], &sent);
        server.sees("the ACK", |seen| seen.acks == 1 && seen.sent == 2 && seen.responses == 1).await;
        client.ask(EDS, &["unknown"], None);
        client.hears_nothing(MOMENT).await;
        server.change(|world| drop(world.get_mut(CDS).unwrap().insert("c".into(), "1".into())));
        let is_sotw = variant == Variant::Sotw;
        assert_eq!(client.sent().await.set, if is_sotw { vec!["a", "b", "c"] } else { vec!["c"] });
        server.change(|world| drop(world.get_mut(CDS).unwrap().remove("a")));
        let sent = client.sent().await;
        assert_eq!((sent.set.len(), sent.removed.len()), if is_sotw { (2, 0) } else { (0, 1) });
        server.change(|world| drop(world.insert(EDS, set(&[("unknown", "1")]))));
        assert_eq!(client.sent().await.set, ["unknown"], "it exists now");
        client.hears_nothing(MOMENT).await;
    })
    .await;
}

#[tokio::test]
async fn it_sends_one_response_or_pieces() {
    let five = clusters(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"), ("e", "1")]);
    each(async |variant| {
        for (piece, in_delta) in [(None, vec![5]), (Some(2), vec![2, 2, 1])] {
            let manner = Manner { piece, ..Manner::default() };
            let server = Server::with(own_address(), Habits::default(), manner, Way::Has(five.clone())).await;
            let mut client = client_of(&server, variant).await;
            client.ask(CDS, &[], Some("web"));
            for length in if variant == Variant::Sotw { vec![5] } else { in_delta } {
                assert_eq!(client.sent().await.set.len(), length);
            }
            client.hears_nothing(MOMENT).await;
        }
    })
    .await;
}

#[tokio::test]
async fn it_forgets_the_node_and_does_not_answer_a_request_without_one() {
    each(async |variant| {
        let world = World::from([(CDS, set(&[("a", "1")])), (EDS, set(&[("a", "1")]))]);
        let manner = Manner { forgets_node: true, ..Manner::default() };
        let server = Server::with(own_address(), Habits::default(), manner, Way::Has(world)).await;
        let mut client = client_of(&server, variant).await;
        client.ask(CDS, &[], Some("web"));
        assert_eq!(client.sent().await.set, ["a"]);
        client.ask(EDS, &["a"], None);
        client.hears_nothing(MOMENT).await;
        client.ask(EDS, &["a"], Some("web"));
        assert_eq!(client.sent().await.set, ["a"]);
    })
    .await;
}

#[tokio::test]
async fn it_is_mute_until_the_script_changes() {
    each(async |variant| {
        let server = Server::start(Way::Mute).await;
        let mut client = client_of(&server, variant).await;
        client.ask(EDS, &["a"], Some("web"));
        server.sees("the request", |seen| seen.requested.contains("a")).await;
        client.hears_nothing(MOMENT).await;
        server.turn(Way::Gives("1"));
        assert_eq!(client.sent().await.set, ["a"]);
    })
    .await;
}

#[tokio::test]
async fn it_ends_a_stream_unheard_or_after_one_response() {
    each(async |variant| {
        let server = Server::start(Way::EndsUnheard).await;
        let mut client = client_of(&server, variant).await;
        client.hears_nothing(MOMENT).await;
        client.ask(CDS, &[], Some("web"));
        client.ended().await;
        server.turn(Way::EndsAfterOne(&[("a", "1")]));
        let mut client = client_of(&server, variant).await;
        client.ask(CDS, &[], Some("web"));
        let sent = client.sent().await;
        assert_eq!(sent.set, ["a"]);
        client.ack(CDS, &[], &sent);
        client.ended().await;
        server.turn(Way::Gives("1"));
        let mut client = client_of(&server, variant).await;
        client.ask(EDS, &["a"], Some("web"));
        assert_eq!(client.sent().await.set, ["a"]);
        server.turn(Way::EndsUnheard);
        client.ended().await;
    })
    .await;
}

#[tokio::test]
async fn it_ends_a_stream_for_a_type_and_serves_others() {
    each(async |variant| {
        let server = Server::start(Way::EndsForTypes(&[EDS], 16, clusters(&[("a", "1")]))).await;
        let mut client = client_of(&server, variant).await;
        client.ask(CDS, &[], Some("web"));
        assert_eq!(client.sent().await.set, ["a"]);
        client.ask(EDS, &["a"], None);
        assert_eq!(client.end().await, (Code::Unauthenticated, "no such type".into()));
        let seen = server.seen();
        assert_eq!(seen.types.iter().map(|types| types.len()).collect::<Vec<_>>(), [2], "{seen:?}");
        server.turn(Way::EndsForTypes(&["*"], 12, World::new()));
        let mut client = client_of(&server, variant).await;
        client.ask(CDS, &[], Some("web"));
        assert_eq!(client.ended().await, Code::Unimplemented);
    })
    .await;
}

#[tokio::test]
async fn it_ends_a_stream_whose_request_is_too_long() {
    each(async |variant| {
        let habits = Habits { max_request: Some(1000), ..Habits::default() };
        let server = Server::with(own_address(), habits, Manner::default(), Way::Gives("1")).await;
        let mut client = client_of(&server, variant).await;
        client.ask(EDS, &["short"], Some("web"));
        assert_eq!(client.sent().await.set, ["short"]);
        client.ask(EDS, &["short", &"long".repeat(250)], None);
        let (code, message) = client.end().await;
        assert!(code == Code::OutOfRange && message.contains("the limit is: 1000 bytes"), "{code:?}: {message}");
        let seen = server.seen();
        assert!(seen.refused.len() == 1 && seen.longest < 1000, "{seen:?}");
    })
    .await;
}

#[tokio::test]
async fn after_a_restart_it_has_half_a_configuration_or_has_forgotten_what_it_sent() {
    each(async |variant| {
        let mut plane = Plane::start(&BOTH).await;
        let mut client = Client::connect(plane.address, variant).await;
        client.ask(CDS, &[], Some("web"));
        let mut speaker = Speaker::of(&mut plane, Default::default()).await;
        speaker.has(CDS, bare(["a", "b"])).await;
        assert_eq!(client.sent().await.set, ["a", "b"]);
        for (sent, removed) in [(speaker.sent, vec!["b".to_owned()]), (Default::default(), Vec::new())] {
            plane = Plane::start_at(plane.kill().await, &BOTH).await;
            let mut client = Client::connect(plane.address, variant).await;
            client.ask(CDS, &[], Some("web"));
            let mut speaker = Speaker::of(&mut plane, sent).await;
            speaker.has(CDS, bare(["a"])).await;
            let told = client.sent().await;
            match variant {
                Variant::Sotw => assert_eq!(told.set, ["a"]),
                Variant::Delta => assert_eq!(told.removed, removed),
            }
        }
    })
    .await;
}
