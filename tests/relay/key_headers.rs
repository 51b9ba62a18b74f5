//! Request headers in the sharing key: each view shows its own headers to the control plane, and a rejection concerns only new streams of that view.

use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use super::poller::CLUSTERS;
use super::rest_plane::{Behaviour, RestPlane};
use super::rest_source::cluster as polled;
use super::warm_start::{Stoppable, is_saved, state_in};
use super::*;
use weir_testkit::folder::Folder;

const KEY: &str = "views: {key: [cluster, header.x-consul-token]}\n";
const PERMISSION_DENIED: u8 = 7;

async fn start(plane: &Plane, up: Variant) -> Relay {
    run(crate::bind(config(plane.address, protocol_of(up), KEY)).await.unwrap(), std::future::pending())
}

pub(super) async fn channel(relay: &Relay) -> Channel {
    Endpoint::from_shared(format!("http://{}", relay.address)).unwrap().connect().await.unwrap()
}

/// Opens a stream of a client that shows a token, and subscribes to all clusters.
async fn call(channel: &Channel, token: Option<&str>) -> Result<Client, Status> {
    call_showing(channel, token.as_slice()).await
}

async fn call_showing(channel: &Channel, tokens: &[&str]) -> Result<Client, Status> {
    call_as(channel, "web", tokens).await
}

pub(super) async fn call_as(channel: &Channel, cluster: &str, tokens: &[&str]) -> Result<Client, Status> {
    let headers: Vec<_> = tokens.iter().map(|token| ("x-consul-token", *token)).collect();
    Client::call_for_clusters(channel.clone(), &headers, cluster).await
}

/// Returns the first response or status of a new stream with a token.
async fn first(channel: &Channel, token: &str) -> Result<Vec<String>, Status> {
    call(channel, Some(token)).await?.names().await
}

#[tokio::test]
async fn clients_with_their_own_tokens_have_views_of_their_own_that_show_them_to_the_server() {
    for up in BOTH {
        let mut plane = Plane::start(&BOTH).await;
        let relay = start(&plane, up).await;
        let channel = channel(&relay).await;
        let (mut one, mut other) = (None, None);
        for (token, name) in [("token-one", "a"), ("token-other", "b")] {
            let mut caller = call(&channel, Some(token)).await.unwrap();
            let stream = plane.stream().await;
            assert_eq!(stream.headers["x-consul-token"], token, "{up:?}");
            say(&stream, "1", &[(name, "1")], &[(name, "1")], &[]);
            assert_eq!(caller.names().await.unwrap(), [name], "{up:?}");
            let place = if token == "token-one" { &mut one } else { &mut other };
            *place = Some((caller, stream));
        }
        // A client with the same token shares the view. The first view has kept its resources.
        assert_eq!(first(&channel, "token-one").await.unwrap(), ["a"]);
        let _without = call(&channel, None).await.unwrap();
        let stream = plane.stream().await;
        assert!(!stream.headers.contains_key("x-consul-token"), "a view of those that show none");
        for page in ["/upstreams", "/clients", "/resources", "/metrics", "/config"] {
            let text = get(relay.admin, page).await;
            assert!(!text.contains("token-one") && !text.contains("token-other"), "{page}");
        }
        // When the relay opens a stream again, it shows the same token.
        let (mut caller, stream) = one.take().unwrap();
        drop(stream);
        let again = plane.stream().await;
        assert_eq!(again.headers["x-consul-token"], "token-one");
        say(&again, "2", &[("a", "2")], &[("a", "2")], &[]);
        assert_eq!(caller.names().await.unwrap(), ["a"]);
    }
}

#[tokio::test]
async fn a_refused_token_gets_the_status_on_new_streams_until_the_server_takes_it_again() {
    for up in BOTH {
        let mut plane = Plane::start(&BOTH).await;
        let relay = start(&plane, up).await;
        let channel = channel(&relay).await;
        let mut known = call(&channel, Some("revoked-token")).await.unwrap();
        let stream = plane.stream().await;
        say(&stream, "1", &[("a", "1")], &[("a", "1")], &[]);
        assert_eq!(known.names().await.unwrap(), ["a"]);
        let mut neighbour = call(&channel, Some("good-token")).await.unwrap();
        let of_neighbour = plane.stream().await;
        say(&of_neighbour, "1", &[("n", "1")], &[("n", "1")], &[]);
        assert_eq!(neighbour.names().await.unwrap(), ["n"]);
        stream.end_with(PERMISSION_DENIED);
        until("new streams are refused", async || match first(&channel, "revoked-token").await {
            Err(status) => status.code() == tonic::Code::PermissionDenied,
            Ok(names) => names != ["a"],
        })
        .await;
        assert_eq!(first(&channel, "good-token").await.unwrap(), ["n"], "others are not concerned");
        // The relay opens the view's stream again with the same token. The connected client has kept its resources.
        let again = plane.stream().await;
        assert_eq!(again.headers["x-consul-token"], "revoked-token");
        let status = first(&channel, "revoked-token").await.map(|_| ()).unwrap_err();
        assert_eq!(status.code(), tonic::Code::PermissionDenied);
        say(&again, "2", &[("a", "2")], &[("a", "2")], &[]);
        assert_eq!(known.names().await.unwrap(), ["a"], "{up:?}: its stream has lived on");
        until("new streams are served again", async || first(&channel, "revoked-token").await.is_ok()).await;
    }
}

#[tokio::test]
async fn what_a_server_refuses_stays_refused_while_another_one_is_active_in_its_place() {
    let (mut refusing, mut serving) = (Plane::start(&BOTH).await, Plane::start(&BOTH).await);
    let servers = format!("[{{uri: 'http://{}'}}, {{uri: 'http://{}'}}]", refusing.address, serving.address);
    let listen = "listen: [{address: '127.0.0.1:0'}]\nadmin: {address: '127.0.0.1:0'}";
    let text = format!("{listen}\nupstream: {{servers: {servers}}}\n{KEY}");
    let config = Config::parse(Path::new("test.yaml"), &text).unwrap();
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let channel = channel(&relay).await;
    let _refusing = tokio::spawn(async move {
        while let Some(stream) = refusing.streams.recv().await {
            stream.end_with(PERMISSION_DENIED);
        }
    });
    let mut caller = call(&channel, Some("token")).await.unwrap();
    let stream = serving.stream().await;
    say(&stream, "1", &[("b", "1")], &[("b", "1")], &[]);
    if let Ok(names) = caller.names().await {
        assert_eq!(names, ["b"]); // the response was sent before the rejection
    }
    until("new streams are refused", async || {
        first(&channel, "token").await.is_err_and(|status| status.code() == tonic::Code::PermissionDenied)
    })
    .await;
}

#[tokio::test]
async fn a_relay_below_learns_that_a_token_is_refused_and_taken_again() {
    let mut plane = Plane::start(&BOTH).await;
    let upper = start(&plane, Variant::Delta).await;
    let below = crate::bind(config(upper.address, protocol_of(Variant::Delta), KEY)).await.unwrap();
    let lower = run(below, std::future::pending());
    let channel = channel(&lower).await;
    let mut known = call(&channel, Some("revoked-token")).await.unwrap();
    let stream = plane.stream().await;
    assert_eq!(stream.headers["x-consul-token"], "revoked-token", "through both");
    say(&stream, "1", &[("a", "1")], &[("a", "1")], &[]);
    assert_eq!(known.names().await.unwrap(), ["a"]);
    stream.end_with(PERMISSION_DENIED);
    until("new streams of the lower one are refused", async || match first(&channel, "revoked-token").await {
        Err(status) => status.code() == tonic::Code::PermissionDenied,
        Ok(names) => names != ["a"],
    })
    .await;
    let again = plane.stream().await;
    say(&again, "2", &[("a", "2")], &[("a", "2")], &[]);
    assert_eq!(known.names().await.unwrap(), ["a"], "its stream has lived on");
    until("new streams are served again", async || first(&channel, "revoked-token").await.is_ok()).await;
}

#[tokio::test]
async fn a_call_with_two_values_of_a_header_or_a_long_one_is_refused() {
    let plane = Plane::start(&BOTH).await;
    let relay = start(&plane, Variant::Delta).await;
    let channel = channel(&relay).await;
    let long = "x".repeat(4097);
    for (tokens, said) in [(vec!["one", "two"], "more than once"), (vec![long.as_str()], "the limit is 4096")] {
        let status = match call_showing(&channel, &tokens).await {
            Ok(mut caller) => caller.names().await.unwrap_err(),
            Err(status) => status,
        };
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        assert!(status.message().contains(said), "{status}");
    }
}

#[tokio::test]
async fn a_client_whose_token_the_server_never_takes_gets_the_status() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = start(&plane, Variant::Delta).await;
    let channel = channel(&relay).await;
    let mut caller = call(&channel, Some("wrong-token")).await.unwrap();
    let mut ended = None;
    for _ in 0..2 {
        tokio::select! {
            names = caller.names() => { ended = Some(names); break }
            stream = plane.stream() => {
                assert_eq!(stream.headers["x-consul-token"], "wrong-token");
                stream.end_quoting(PERMISSION_DENIED, "nobody has wrong-token");
            }
        }
    }
    let ended = match ended {
        Some(ended) => ended,
        None => caller.names().await,
    };
    let status = ended.unwrap_err();
    assert_eq!(status.code(), tonic::Code::PermissionDenied);
    assert!(status.message().contains("nobody has [redacted]"), "{status}");
    let upstreams = get(relay.admin, "/upstreams").await;
    assert!(!upstreams.contains("wrong-token"), "{upstreams}");
}

#[tokio::test]
async fn a_type_that_one_token_may_not_read_is_no_refusal_of_the_token_though_others_are_given_it() {
    for up in BOTH {
        let mut plane = Plane::start(&BOTH).await;
        let relay = start(&plane, up).await;
        let channel = channel(&relay).await;
        let mut callers = Vec::new();
        for token in ["reads-all", "reads-less"] {
            let mut caller = call(&channel, Some(token)).await.unwrap();
            let mut stream = plane.stream().await;
            say(&stream, "1", &[(token, "1")], &[(token, "1")], &[]);
            assert_eq!(caller.names().await.unwrap(), [token]);
            caller.ask(LDS, &[], None);
            requested(&mut stream, LDS).await;
            if token == "reads-all" {
                stream.respond(&listeners(up));
                assert_eq!(caller.names().await.unwrap(), ["l"]);
            } else {
                stream.end_with(PERMISSION_DENIED);
            }
            callers.push((caller, stream));
        }
        let _again = plane.stream().await;
        for _ in 0..3 {
            assert_eq!(first(&channel, "reads-less").await.unwrap(), ["reads-less"], "{up:?}");
        }
    }
}

/// Waits until a type is requested.
async fn requested(stream: &mut Stream, url: &str) {
    while stream.request().await.type_url() != url {}
}

fn listeners(variant: Variant) -> Response {
    let listener = Any { type_url: LDS.into(), value: bytes::Bytes::from_static(b"\x0a\x01l") };
    let (version, type_url) = ("1".to_owned(), LDS.to_owned());
    match variant {
        Variant::Sotw => {
            let (version_info, nonce) = (version.clone(), version);
            let resources = vec![listener];
            Response::Sotw(DiscoveryResponse { version_info, resources, type_url, nonce, ..Default::default() })
        }
        Variant::Delta => {
            let resource = Some(listener);
            let resources =
                vec![Resource { name: "l".into(), version: version.clone(), resource, ..Default::default() }];
            Response::Delta(DeltaDiscoveryResponse { nonce: version, resources, type_url, ..Default::default() })
        }
    }
}

#[tokio::test]
async fn a_refused_token_does_not_lead_its_view_to_other_connections() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = start(&plane, Variant::Delta).await;
    let channel = channel(&relay).await;
    let mut good = call(&channel, Some("good-token")).await.unwrap();
    let of_good = plane.stream().await;
    say(&of_good, "1", &[("a", "1")], &[("a", "1")], &[]);
    assert_eq!(good.names().await.unwrap(), ["a"]);
    let mut revoked = call(&channel, Some("revoked-token")).await.unwrap();
    let mut stream = plane.stream().await;
    say(&stream, "1", &[("a", "1")], &[("a", "1")], &[]);
    assert_eq!(revoked.names().await.unwrap(), ["a"]);
    for _ in 0..3 {
        stream.end_with(PERMISSION_DENIED);
        stream = plane.stream().await;
        assert_eq!(stream.headers["x-consul-token"], "revoked-token");
        assert_eq!(stream.from, of_good.from, "it is on the connection of the others");
    }
}

#[tokio::test]
async fn polls_show_it_and_a_server_that_refuses_them_all_refuses_the_token() {
    let plane = RestPlane::start().await;
    plane.script.has(CLUSTERS, "1", vec![polled("a", "1")]);
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\n\
         upstream: {{servers: [{{rest: 'http://{}', refresh_delay: 40ms}}]}}\n{KEY}",
        plane.address
    );
    let config = Config::parse(Path::new("test.yaml"), &text).unwrap();
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let channel = channel(&relay).await;
    let mut caller = call(&channel, Some("polled-token")).await.unwrap();
    assert_eq!(caller.names().await.unwrap(), ["a"]);
    assert!(plane.script.polls().iter().all(|poll| poll.headers["x-consul-token"] == "polled-token"));
    plane.script.behave(CLUSTERS, Behaviour::Status(403));
    until("new streams are refused", async || {
        first(&channel, "polled-token").await.is_err_and(|status| status.code() == tonic::Code::PermissionDenied)
    })
    .await;
    plane.script.has(CLUSTERS, "2", vec![polled("a", "2")]);
    assert_eq!(caller.names().await.unwrap(), ["a"], "its stream has lived on");
    until("new streams are served again", async || first(&channel, "polled-token").await.is_ok()).await;
    let text = get(relay.admin, "/upstreams").await;
    assert!(!text.contains("polled-token"), "{text}");
}

#[tokio::test]
async fn a_view_comes_back_from_disk_for_those_alone_that_show_its_header_if_the_state_has_a_key() {
    let folder = Folder::with_short_path("header-state");
    std::fs::write(folder.0.join("key"), [5; 32]).unwrap();
    let with_key = format!(", key: {}", folder.0.join("key").display());
    for more in ["", &with_key] {
        let _ = std::fs::remove_file(folder.0.join("state"));
        let rest = state_in(&folder, more).replace("views: {key: [cluster]}\n", KEY);
        let mut plane = Plane::start(&BOTH).await;
        let before = Stoppable::start(plane.address, ", variant: sotw", &rest).await;
        let mut caller = call(&channel(&before.0).await, Some("own-token")).await.unwrap();
        say(&plane.stream().await, "1", &[("a", "1")], &[], &[]);
        assert_eq!(caller.names().await.unwrap(), ["a"]);
        is_saved(&before.0).await;
        before.stop().await;
        let file = std::fs::read(folder.0.join("state")).unwrap();
        assert!(!file.windows(9).any(|bytes| bytes == b"own-token"));
        let address = plane.kill().await;
        let relay = Stoppable::start(address, ", variant: sotw", &rest).await;
        let channel = channel(&relay.0).await;
        let [mut own, mut other] =
            [call(&channel, Some("own-token")).await, call(&channel, Some("other-token")).await].map(Result::unwrap);
        if more == with_key {
            assert_eq!(own.names().await.unwrap(), ["a"], "without its server");
        }
        let mut plane = Plane::start_at(address, &BOTH).await;
        let mut streams = Vec::new(); // dropping a stream would end it, and the relay would open it again
        for _ in 0..2 {
            let stream = plane.stream().await;
            let is_own = stream.headers["x-consul-token"] == "own-token";
            let (caller, name) = if is_own { (&mut own, "new") } else { (&mut other, "b") };
            say(&stream, "2", &[(name, "1")], &[], &[]);
            assert_eq!(caller.names().await.unwrap(), [name], "{more}");
            streams.push(stream);
        }
        relay.stop().await;
    }
}

/// Returns the names that pages and logs use for the views of the connected clients.
async fn view_names(relay: &Relay) -> Vec<String> {
    let clients: serde_json::Value = serde_json::from_str(&get(relay.admin, "/clients").await).unwrap();
    clients["clients"].as_array().unwrap().iter().map(|row| row["view"].to_string()).collect()
}

/// The name contains a hash. It stays the same over a reload that ends no stream, one that does, and a restart: clients find their views again.
#[tokio::test]
async fn a_view_with_a_header_has_one_name_over_reloads_and_restarts_with_one_state_key() {
    let folder = Folder::with_short_path("header-names");
    std::fs::write(folder.0.join("key"), [5; 32]).unwrap();
    let state = state_in(&folder, &format!(", key: {}", folder.0.join("key").display()))
        .replace("views: {key: [cluster]}\ndrain: {grace: 0s, spread: 0s}\n", KEY);
    let mut plane = Plane::start(&BOTH).await;
    let address = plane.address;
    let text = |more: &str| {
        format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\n\
             upstream: {{servers: [{{uri: 'http://{address}', variant: sotw}}]}}\nbrakes: {{enabled: false}}\n{state}{more}"
        )
    };
    let drain = "drain: {grace: 0s, spread: 0s}\nreload: {spread: 0s}\n";
    let world = super::reload::World::start("header-names", &text(drain)).await;
    let mut caller = call(&channel(&world.relay).await, Some("own-token")).await.unwrap();
    let stream = plane.stream().await;
    say(&stream, "1", &[("a", "1")], &[], &[]);
    assert_eq!(caller.names().await.unwrap(), ["a"]);
    let names = view_names(&world.relay).await;
    assert_eq!(names.len(), 1);

    let report = world.change(&text("drain: {grace: 0s, spread: 1ms}\nreload: {spread: 0s}\n")).await;
    assert!(report.changed.iter().all(|key| key.starts_with("drain")), "{report:?}");
    say(&stream, "2", &[("a", "2")], &[], &[]);
    assert_eq!(caller.names().await.unwrap(), ["a"], "the same stream, on both sides");
    assert_eq!(view_names(&world.relay).await, names);

    world.change(&text(&format!("{drain}limits: {{linger: 1m}}\n"))).await;
    assert_eq!(caller.names().await.unwrap_err().code(), tonic::Code::Unavailable, "come back");
    let mut caller = call(&channel(&world.relay).await, Some("own-token")).await.unwrap();
    assert_eq!(caller.names().await.unwrap(), ["a"], "what is cached");
    until("the earlier stream has left", async || view_names(&world.relay).await.len() == 1).await;
    assert_eq!(view_names(&world.relay).await, names);
    let stream = plane.stream().await;
    assert_eq!(stream.headers["x-consul-token"], "own-token");
    say(&stream, "3", &[("a", "3")], &[], &[]);
    assert_eq!(caller.names().await.unwrap(), ["a"]);

    is_saved(&world.relay).await;
    let super::reload::World { mut relay, stop, .. } = world;
    drop(stop);
    tokio::time::timeout(client::PATIENCE, &mut relay.task).await.expect("the relay does not stop").unwrap();
    plane.kill().await;
    let world = super::reload::World::start("header-names-after", &text(drain)).await;
    let mut caller = call(&channel(&world.relay).await, Some("own-token")).await.unwrap();
    assert_eq!(caller.names().await.unwrap(), ["a"], "from disk");
    assert_eq!(view_names(&world.relay).await, names);
}

/// Hashes that were made with another key lead to no view. So such a view is not loaded, and no relay becomes ready by it.
#[tokio::test]
async fn a_state_that_was_imported_under_another_key_brings_no_view_with_headers() {
    let folder = Folder::with_short_path("header-import");
    let key = |number: u8| {
        let path = folder.0.join(format!("key-{number}"));
        std::fs::write(&path, [number; 32]).unwrap();
        path.display().to_string()
    };
    let (state, copy) = (folder.0.join("state").display().to_string(), folder.0.join("copy").display().to_string());
    let (own, other) = (key(5), key(6));
    let rest = |key: &str| state_in(&folder, &format!(", key: {key}")).replace("views: {key: [cluster]}\n", KEY);
    let mut plane = Plane::start(&BOTH).await;
    let before = Stoppable::start(plane.address, ", variant: sotw", &rest(&own)).await;
    let mut open = Vec::new();
    for token in [Some("own-token"), None] {
        let mut caller = call(&channel(&before.0).await, token).await.unwrap();
        let stream = plane.stream().await;
        say(&stream, "1", &[("a", "1")], &[], &[]);
        assert_eq!(caller.names().await.unwrap(), ["a"]);
        open.push((caller, stream));
    }
    is_saved(&before.0).await;
    before.stop().await;
    let address = plane.kill().await;
    let (code, _, said) = super::status::weir(&["snapshot", "export", "--state", &state, "--key", &own, &copy]).await;
    assert_eq!(code, 0, "{said}");
    for (key, loaded) in [(&own, 2), (&other, 1)] {
        std::fs::remove_file(&state).unwrap();
        let import = ["snapshot", "import", "--state", &state, "--key", key, &copy];
        let (code, _, said) = super::status::weir(&import).await;
        assert_eq!(code, 0, "{said}");
        let relay = Stoppable::start(address, ", variant: sotw", &rest(key)).await;
        let names = call(&channel(&relay.0).await, None).await.unwrap().names().await.unwrap();
        assert_eq!(names, ["a"], "those that show no header find their view");
        let metrics = get(relay.0.admin, "/metrics").await;
        assert!(metrics.contains(&format!("\nweir_state_views_loaded_total {loaded}\n")), "{metrics}");
        relay.stop().await;
    }
}
