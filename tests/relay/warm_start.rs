//! A relay that restarts with its earlier resources, while its control plane is down, up, or has other resources than before.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use super::client::PATIENCE;
use super::log_lines::Lines;
use super::*;
use weir_testkit::folder::Folder;

const SECRETS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
const UNKNOWN: &str = "weir-unknown";

/// Returns a configuration with views by cluster, and their state in a folder.
pub(super) fn state_in(folder: &Folder, more: &str) -> String {
    let path = folder.0.join("state");
    format!("views: {{key: [cluster]}}\ndrain: {{grace: 0s, spread: 0s}}\nstate: {{path: {}{more}}}\n", path.display())
}

/// A relay that can be stopped as by SIGTERM.
pub(super) struct Stoppable(pub Relay, oneshot::Sender<()>);

impl Stoppable {
    pub(super) async fn start(plane: SocketAddr, protocol: &str, rest: &str) -> Self {
        Self::of(crate::bind(config(plane, protocol, rest)).await.unwrap())
    }

    /// Runs a program that was built.
    pub(super) fn of(app: App) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self(run(app, async move { drop(stopped.await) }), stop)
    }

    pub(super) async fn stop(mut self) {
        self.1.send(()).unwrap();
        tokio::time::timeout(PATIENCE, &mut self.0.task).await.expect("the relay does not stop").unwrap();
    }
}

/// Returns the contents of the next reply, by name.
pub(super) async fn contents(client: &mut Client) -> BTreeMap<String, String> {
    let bodies: Vec<Any> = match client {
        Client::Sotw(_, replies) => replies.message().await.unwrap().unwrap().resources,
        Client::Delta(_, replies) => {
            let wrapped = replies.message().await.unwrap().unwrap().resources;
            wrapped.into_iter().filter_map(|wrapper| wrapper.resource).collect()
        }
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let parts = |body: &Any| {
        let (name, rest) = body.value[2..].split_at(body.value[1].into());
        (text(name), text(&rest[3..]))
    };
    bodies.iter().map(parts).collect()
}

pub(super) fn of(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, content)| (name.to_string(), content.to_string())).collect()
}

/// Waits until the set is settled, and the file has everything that is known then.
pub(super) async fn is_saved(relay: &Relay) {
    until("the set is settled", async || {
        let upstreams = get(relay.admin, "/upstreams").await;
        ["settled", "complete"].iter().any(|known| upstreams.contains(&format!("\"completeness\": \"{known}\"")))
    })
    .await;
    is_current(relay).await;
}

/// Waits until the file has everything that is known now.
async fn is_current(relay: &Relay) {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    until("everything is saved", async || {
        value_of(&get(relay.admin, "/metrics").await, "weir_state_current_timestamp_seconds").is_some_and(|at| at > now)
    })
    .await;
}

/// Waits until a gauge of views has this sum.
async fn gauge(relay: &Relay, name: &str, sum: u64) {
    let start = format!("{name}{{");
    until(&format!("{name} {sum}"), async || {
        let metrics = get(relay.admin, "/metrics").await;
        let of_views = metrics.lines().filter(|line| line.starts_with(&start));
        of_views.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>() == sum
    })
    .await;
}

/// Starts a relay that gets two clusters for a client. Stops it once they are saved.
async fn serve_and_stop(plane: &mut Plane, protocol: &str, rest: &str) {
    let relay = Stoppable::start(plane.address, protocol, rest).await;
    let mut client = Client::connect(relay.0.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    client.sent().await;
    is_saved(&relay.0).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_relay_that_starts_without_a_control_plane_serves_what_it_had_and_then_what_is_new() {
    each_translation(|up, down| async move {
        let folder = Folder::with_short_path(&format!("warm-{up:?}-{down:?}"));
        let rest = state_in(&folder, "");
        let mut plane = Plane::start(&BOTH).await;
        let first = Stoppable::start(plane.address, protocol_of(up), &rest).await;
        let mut client = Client::connect(first.0.address, down).await;
        client.ask(CDS, &[], Some("web"));
        let stream = plane.stream().await;
        say(&stream, "5", &TWO, &TWO, &[]);
        assert_eq!(contents(&mut client).await, of(&TWO));
        is_saved(&first.0).await;
        first.stop().await;
        let address = plane.kill().await;

        let second = Stoppable::start(address, protocol_of(up), &rest).await;
        let ready = "ready\nnote: 1 view from disk or an earlier configuration, not confirmed by a server\n";
        until("it is ready with what is on disk", async || get(second.0.admin, "/ready").await == ready).await;
        let mut client = Client::connect(second.0.address, down).await;
        client.ask(CDS, &[], Some("web"));
        assert_eq!(contents(&mut client).await, of(&TWO), "the control plane is away");
        let upstreams = get(second.0.admin, "/upstreams").await;
        assert!(upstreams.contains("\"from_disk\": {\n      \"resources\": 2,"), "{upstreams}");
        gauge(&second.0, "weir_resources_from_disk", 2).await;
        Lines::of_file(&folder.0, "state loaded").await;
        let mut stranger = Client::connect(second.0.address, down).await;
        stranger.ask(CDS, &[], Some("other"));

        // The control plane is up again, and has used the same version for other content.
        let mut plane = Plane::start_at(address, &BOTH).await;
        let (mut stream, mut others) = (plane.stream().await, plane.stream().await);
        let (mut request, of_others) = (stream.request().await, others.request().await);
        if !node_of(&request).contains("web") {
            (stream, others, request) = (others, stream, of_others);
        }
        match &request {
            Request::Sotw(request) => assert_eq!(request.version_info, ""),
            Request::Delta(request) => {
                let stated = request.initial_resource_versions.iter().map(|(n, v)| (&**n, &**v));
                let stated: Vec<_> = stated.filter(|(name, _)| !name.starts_with(plane::END_OF_SET)).collect();
                assert_eq!(stated, [("a", UNKNOWN), ("b", UNKNOWN)], "under a version that no server gives");
            }
        }
        let news = [("a", "2"), ("b", "1")];
        say(&stream, "5", &news, &news, &[]);
        let changed = contents(&mut client).await;
        assert_eq!(changed.get("a").map(String::as_str), Some("2"));
        say(&others, "1", &[("z", "1")], &[("z", "1")], &[]);
        assert_eq!(stranger.sent().await.set, ["z"], "nothing was sent before");
        until("all of it is confirmed", async || !get(second.0.admin, "/upstreams").await.contains("from_disk\": {"))
            .await;
        gauge(&second.0, "weir_resources_from_disk", 0).await;
        assert!(!get(second.0.admin, "/metrics").await.contains("weir_state_failures_total 1"));
    })
    .await;
}

fn node_of(request: &Request) -> String {
    request.node().map(|node| String::from_utf8_lossy(node).into_owned()).unwrap_or_default()
}

#[tokio::test]
async fn what_the_control_plane_has_dropped_meanwhile_goes_by_its_word() {
    for up in BOTH {
        let folder = Folder::with_short_path(&format!("dropped-{up:?}"));
        let rest = state_in(&folder, "");
        let mut plane = Plane::start(&BOTH).await;
        serve_and_stop(&mut plane, protocol_of(up), &rest).await;
        let second = Stoppable::start(plane.address, protocol_of(up), &rest).await;
        let mut client = Client::connect(second.0.address, Variant::Delta).await;
        client.ask(CDS, &[], Some("web"));
        assert_eq!(client.sent().await.set, ["a", "b"]);
        let mut stream = plane.stream().await;
        stream.request().await;
        say(&stream, "1", &[("a", "1")], &[("a", "1")], &["b"]);
        assert_eq!(client.sent().await.removed, ["b"]);
        second.stop().await;
        // A cluster that the control plane has removed does not come back from disk.
        let address = plane.kill().await;
        let third = Stoppable::start(address, protocol_of(up), &rest).await;
        let mut client = Client::connect(third.0.address, Variant::Delta).await;
        client.ask(CDS, &[], Some("web"));
        assert_eq!(client.sent().await.set, ["a"]);
    }
}

#[tokio::test]
async fn a_client_that_may_hold_something_newer_waits_for_the_control_plane() {
    let folder = Folder::with_short_path("newer");
    let rest = state_in(&folder, "");
    let mut plane = Plane::start(&BOTH).await;
    let first = Stoppable::start(plane.address, ", variant: sotw", &rest).await;
    let mut client = Client::connect(first.0.address, Variant::Sotw).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let current = client.sent().await.version;
    is_saved(&first.0).await;
    first.stop().await;
    let address = plane.kill().await;
    let second = Stoppable::start(address, ", variant: sotw", &rest).await;
    let returns = async |version: &str| {
        let client = Client::connect(second.0.address, Variant::Sotw).await;
        let Client::Sotw(requests, _) = &client else { unreachable!() };
        let request = DiscoveryRequest {
            node: client::node("web"),
            type_url: CDS.into(),
            version_info: version.into(),
            ..Default::default()
        };
        requests.send(request).unwrap();
        client
    };
    let (mut same, mut newer) = (returns(&current).await, returns("1.of-another-replica").await);
    gauge(&second.0, "weir_client_streams_blocked", 1).await;
    let mut plane = Plane::start_at(address, &BOTH).await;
    let mut stream = plane.stream().await;
    stream.request().await;
    let news = [("a", "9"), ("c", "1")];
    say(&stream, "1", &news, &news, &["b"]);
    let mut told = newer.sent().await;
    while told.set != ["a", "c"] {
        assert!(told.set.contains(&"c".to_owned()), "nothing was sent before: {told:?}");
        told = newer.sent().await; // the set without the removed cluster comes last
    }
    while same.sent().await.set != ["a", "c"] {}
}

#[tokio::test]
async fn a_file_that_another_process_has_is_left_alone_and_taken_over_later() {
    let folder = Folder::with_short_path("two");
    let rest = state_in(&folder, "");
    let mut plane = Plane::start(&BOTH).await;
    let first = Stoppable::start(plane.address, "", &rest).await;
    let mut client = Client::connect(first.0.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    client.sent().await;
    is_saved(&first.0).await;
    let second = Stoppable::start(plane.address, "", &rest).await;
    until("it starts without", async || get(second.0.admin, "/ready").await == "ready\n").await;
    assert!(metric(&second.0, "weir_state_failures_total").await >= 1.0, "each attempt fails");
    assert!(folder.0.join("state").exists());
    first.stop().await;
    until("the second has the file", async || {
        get(second.0.admin, "/metrics").await.contains("weir_state_views_loaded_total 1")
    })
    .await;
    let address = plane.kill().await;
    let mut client = Client::connect(second.0.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    assert_eq!(client.sent().await.set, ["a", "b"], "{address} is away");
}

/// An overlapping restart in an outage: only the state file has the resources.
#[tokio::test]
async fn a_file_that_the_process_before_closes_when_it_drains_is_waited_for() {
    let folder = Folder::with_short_path("overlap");
    let rest = state_in(&folder, "");
    let mut plane = Plane::start(&BOTH).await;
    let first = Stoppable::start(plane.address, "", &rest).await;
    let mut client = Client::connect(first.0.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    client.sent().await;
    is_saved(&first.0).await;
    let second = Stoppable::start(plane.kill().await, "", &rest).await;
    let mut client = Client::connect(second.0.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    assert!(get(second.0.admin, "/ready").await.contains("state"), "it waits for the file");
    first.stop().await;
    assert_eq!(client.sent().await.set, ["a", "b"]);
    assert_eq!(probe(second.0.admin, "/ready").await.0, 200);
}

#[tokio::test]
async fn an_unusable_file_is_renamed_and_the_relay_starts_without_it() {
    let folder = Folder::with_short_path("unusable");
    let state = folder.0.join("state");
    std::fs::write(&state, "not a state file".repeat(100)).unwrap();
    let mut plane = Plane::start(&BOTH).await;
    let relay = Stoppable::start(plane.address, "", &state_in(&folder, "")).await;
    let mut client = Client::connect(relay.0.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    client.sent().await;
    is_saved(&relay.0).await;
    let aside = std::fs::read_to_string(folder.0.join("state.unusable-1")).unwrap();
    assert!(aside.starts_with("not a state file"));
    Lines::of_file(&folder.0, "state file unusable; renamed").await;
}

#[tokio::test]
async fn a_disk_that_cannot_be_written_costs_the_state_and_nothing_else() {
    let folder = Folder::with_short_path("readonly");
    let rest = format!("views: {{key: [cluster]}}\nstate: {{path: {}}}\n", folder.0.join("missing/state").display());
    let mut plane = Plane::start(&BOTH).await;
    let relay = Stoppable::start(plane.address, "", &rest).await;
    let mut client = Client::connect(relay.0.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    assert_eq!(client.sent().await.set, ["a", "b"]);
    assert!(metric(&relay.0, "weir_state_failures_total").await >= 1.0, "each attempt fails");
    relay.stop().await;
}

#[tokio::test]
async fn secrets_are_written_only_with_a_key_and_a_view_that_lacks_its_secrets_is_not_used() {
    let folder = Folder::with_short_path("secrets");
    std::fs::write(folder.0.join("key"), [5; 32]).unwrap();
    let with_key = format!(", key: {}", folder.0.join("key").display());
    for (more, is_served) in [("", false), (", serve_without_secrets: true", true), (&with_key, true)] {
        let _ = std::fs::remove_file(folder.0.join("state"));
        let rest = state_in(&folder, more);
        let mut plane = Plane::start(&BOTH).await;
        let first = Stoppable::start(plane.address, ", variant: sotw", &rest).await;
        let mut client = Client::connect(first.0.address, Variant::Sotw).await;
        client.ask(CDS, &[], Some("web"));
        let mut stream = plane.stream().await;
        say(&stream, "1", &TWO, &TWO, &[]);
        client.sent().await;
        client.ask(SECRETS, &["certificate"], None);
        while !matches!(stream.request().await, Request::Sotw(request) if request.type_url == SECRETS) {}
        say_any(&stream, SECRETS, &["certificate"]);
        assert_eq!(client.sent().await.set, ["certificate"]);
        is_saved(&first.0).await;
        first.stop().await;
        let file = std::fs::read(folder.0.join("state")).unwrap();
        assert!(!file.windows(11).any(|bytes| bytes == b"certificate\xc2"), "{more}");
        let address = plane.kill().await;
        let second = Stoppable::start(address, ", variant: sotw", &rest).await;
        let mut client = Client::connect(second.0.address, Variant::Sotw).await;
        client.ask(CDS, &[], Some("web"));
        if is_served {
            assert_eq!(client.sent().await.set, ["a", "b"], "{more}");
        }
        client.ask(SECRETS, &["certificate", "new"], None);
        if more == with_key {
            assert_eq!(client.sent().await.set, ["certificate"], "{more}");
        }
        // The client gets the missing resources from the server, and got nothing before.
        let mut plane = Plane::start_at(address, &BOTH).await;
        let mut stream = plane.stream().await;
        if !is_served {
            say(&stream, "9", &[("z", "1")], &[], &[]);
            assert_eq!(client.sent().await.set, ["z"], "{more}");
        }
        while stream.request().await.type_url() != SECRETS {}
        say_any(&stream, SECRETS, &["certificate", "new"]);
        let of_server: &[&str] = if more == with_key { &["new"] } else { &["certificate", "new"] };
        assert_eq!(client.sent().await.set, of_server, "{more}");
        second.stop().await;
    }
}

#[tokio::test]
async fn a_view_that_is_too_old_is_served_without_readiness_or_not_at_all() {
    for (policy, ready, is_served) in [("serve", 200, true), ("not_ready", 503, true), ("refuse", 503, false)] {
        let folder = Folder::with_short_path(&format!("old-{policy}"));
        let rest = state_in(&folder, &format!(", max_age: 10ms, when_older: {policy}"));
        let mut plane = Plane::start(&BOTH).await;
        serve_and_stop(&mut plane, "", &rest).await;
        let address = plane.kill().await;
        tokio::time::sleep(Duration::from_millis(20)).await; // so that the view is older than `max_age`
        let second = Stoppable::start(address, "", &rest).await;
        let mut client = Client::connect(second.0.address, Variant::Delta).await;
        client.ask(CDS, &[], Some("web"));
        until(policy, async || probe(second.0.admin, "/ready").await.0 == ready).await;
        match is_served {
            true => {
                assert_eq!(client.sent().await.set, ["a", "b"], "{policy}");
                assert_eq!(probe(second.0.admin, "/ready").await.0, ready, "{policy}, once the file is loaded");
            }
            false => hears_of_the_server_first(&mut client, address).await,
        }
    }
}

/// A later process with other options may still use it. Before, it was removed from the file when its first client came.
#[tokio::test]
async fn i3_a_view_that_is_too_old_to_be_used_stays_in_the_file_until_a_server_has_spoken() {
    for has_spoken in [false, true] {
        let folder = Folder::with_short_path(&format!("unused-{has_spoken}"));
        let options = |when_older: &str| state_in(&folder, &format!(", max_age: 1ms, when_older: {when_older}"));
        let mut plane = Plane::start(&BOTH).await;
        serve_and_stop(&mut plane, "", &options("serve")).await;
        let address = plane.kill().await;
        let written = std::fs::metadata(folder.0.join("state")).unwrap().modified().unwrap();
        let age = Duration::from_millis(50); // more than `max_age`, by the coarse clock of files too
        until("the view is too old", async || written.elapsed().is_ok_and(|since| since > age)).await;

        let second = Stoppable::start(address, "", &options("refuse")).await;
        let mut client = Client::connect(second.0.address, Variant::Delta).await;
        client.ask(CDS, &[], Some("web"));
        report_with(&second.0, "/upstreams", "\"clients\": 1").await;
        is_current(&second.0).await;
        if has_spoken {
            let mut plane = Plane::start_at(address, &BOTH).await;
            let stream = plane.stream().await;
            say(&stream, "9", &[("z", "1")], &[("z", "1")], &[]);
            assert_eq!(client.sent().await.set, ["z"]);
            is_saved(&second.0).await;
            plane.kill().await;
        }
        second.stop().await;

        let third = Stoppable::start(address, "", &options("serve")).await;
        let mut client = Client::connect(third.0.address, Variant::Delta).await;
        client.ask(CDS, &[], Some("web"));
        let expected: &[&str] = if has_spoken { &["z"] } else { &["a", "b"] };
        assert_eq!(client.sent().await.set, expected);
    }
}

#[tokio::test]
async fn another_key_of_views_makes_other_views() {
    let folder = Folder::with_short_path("other-key");
    let rest = state_in(&folder, "");
    let mut plane = Plane::start(&BOTH).await;
    serve_and_stop(&mut plane, "", &rest).await;
    let address = plane.kill().await;
    let rest = rest.replace("[cluster]", "[cluster, locality]");
    let second = Stoppable::start(address, "", &rest).await;
    let mut client = Client::connect(second.0.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    hears_of_the_server_first(&mut client, address).await;
    Lines::of_file(&folder.0, "views of the state file are not used").await;
}

/// Starts the control plane of a client that has requested all clusters, and checks that the client was sent nothing from disk.
async fn hears_of_the_server_first(client: &mut Client, address: SocketAddr) {
    let mut plane = Plane::start_at(address, &BOTH).await;
    say(&plane.stream().await, "9", &[("z", "1")], &[("z", "1")], &[]);
    assert_eq!(client.sent().await.set, ["z"], "nothing was sent before");
}

#[tokio::test]
async fn names_of_a_shared_authority_come_back_too_once_for_all_views() {
    let folder = Folder::with_short_path("shared");
    let name = "xdstp://x/envoy.config.cluster.v3.Cluster/a";
    let mut plane = Plane::start(&BOTH).await;
    let first = start_shared(plane.address, &folder, "").await;
    for cluster in ["one", "other"] {
        let mut client = Client::connect(first.0.address, Variant::Delta).await;
        client.ask(CDS, &[name], Some(cluster));
        if cluster == "one" {
            let mut stream = plane.stream().await;
            stream.request().await;
            say(&stream, "1", &[], &[(name, "1")], &[]);
            // Keeps the stream open until the test ends.
            tokio::spawn(async move { while stream.requests.recv().await.is_some() {} });
        }
        assert_eq!(client.sent().await.set, [name]);
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        until("it is saved", async || {
            value_of(&get(first.0.admin, "/metrics").await, "weir_state_current_timestamp_seconds")
                .is_some_and(|at| at > now)
        })
        .await;
    }
    first.stop().await;
    let address = plane.kill().await;
    let second = start_shared(address, &folder, "").await;
    until("two and the hub are loaded", async || {
        get(second.0.admin, "/metrics").await.contains("weir_state_views_loaded_total 3\n")
    })
    .await;
    for cluster in ["one", "other", "a new one"] {
        let mut client = Client::connect(second.0.address, Variant::Delta).await;
        client.ask(CDS, &[name], Some(cluster));
        assert_eq!(client.sent().await.set, [name], "{cluster}");
    }
    second.stop().await;
    let third = start_shared(address, &folder, ", max_age: 1ms, when_older: not_ready").await;
    for cluster in ["one", "yet another"] {
        let mut client = Client::connect(third.0.address, Variant::Delta).await;
        client.ask(CDS, &[name], Some(cluster));
        assert_eq!(client.sent().await.set, [name], "{cluster}");
        assert_eq!(probe(third.0.admin, "/ready").await.0, 503, "what all views share is from disk too");
    }
}

/// Starts a relay whose views share an authority, with its state in a folder.
async fn start_shared(address: SocketAddr, folder: &Folder, more: &str) -> Stoppable {
    let upstream = format!(
        "upstream: {{servers: [{{uri: 'http://{address}'}}], authorities: {{x: {{}}}}, shared_authorities: [x]}}"
    );
    let state = state_in(folder, more);
    let text = format!("listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\n{upstream}\n{state}");
    Stoppable::of(bind_with_brakes(Config::parse(Path::new("test.yaml"), &text).unwrap()).await.unwrap())
}

#[tokio::test]
async fn what_a_brake_holds_is_held_by_the_next_process_and_does_not_start_anew() {
    let folder = Folder::with_short_path("braked");
    let rest = state_in(&folder, "");
    let mut plane = Plane::start(&BOTH).await;
    let start = async |address: SocketAddr| {
        Stoppable::of(bind_with_brakes(config(address, ", variant: sotw", &rest)).await.unwrap())
    };
    let held = async |relay: &Relay| -> serde_json::Value {
        serde_json::from_str(&get(relay.admin, "/brakes").await).unwrap()
    };
    let names: Vec<_> = (0..20).map(|number| format!("c{number:02}")).collect();
    let twenty: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    let first = start(plane.address).await;
    let mut client = Client::connect(first.0.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &twenty, &twenty, &[]);
    assert_eq!(client.sent().await.set.len(), 20);
    say(&stream, "2", &[], &[], &[]);
    until("the brake holds", async || held(&first.0).await["sets"][0]["held"] == 20).await;
    is_saved(&first.0).await;
    let before = held(&first.0).await["sets"][0].clone();
    first.stop().await;
    let second = start(plane.kill().await).await;
    let mut client = Client::connect(second.0.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    assert_eq!(client.sent().await.set.len(), 20, "what is held is served");
    let after = held(&second.0).await["sets"][0].clone();
    for field in ["held", "generation", "of", "names"] {
        assert_eq!(after[field], before[field], "{field}: {after}");
    }
}

/// The process before was sent resources of the type. That the server now ends streams for it says nothing about what was saved.
#[tokio::test]
async fn what_was_saved_of_a_type_that_the_server_refuses_by_now_stays() {
    const OWN: &str = "type.googleapis.com/own.Type";
    let folder = Folder::with_short_path("warm-refused");
    let (rest, delta) = (state_in(&folder, ""), ", variant: delta");
    let mut plane = Plane::start(&BOTH).await;
    let first = Stoppable::start(plane.address, delta, &rest).await;
    let mut client = Client::connect(first.0.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let mut stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    client.sent().await;
    client.ask(OWN, &["x"], None);
    let mut trial = plane.stream().await;
    say_named(&mut trial, OWN, "x").await;
    say_named(&mut stream, OWN, "x").await;
    assert_eq!(client.sent().await.set, ["x"]);
    is_saved(&first.0).await;
    first.stop().await;

    let second = Stoppable::start(plane.address, delta, &rest).await;
    let mut client = Client::connect(second.0.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    client.sent().await;
    client.ask(OWN, &["x"], None);
    assert_eq!(client.sent().await.set, ["x"], "from the disk");
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let mut trial = plane.stream().await;
    while trial.request().await.type_url() != OWN {}
    trial.end_with(2);
    let mut compared = plane.stream().await;
    say_named(&mut compared, CDS, "weir-second-stream").await;
    until("the type is refused", async || get(second.0.admin, "/upstreams").await.contains("\"REFUSED\"")).await;
    let mut late = Client::connect(second.0.address, Variant::Delta).await;
    late.ask(OWN, &["x"], Some("web"));
    assert_eq!(late.sent().await.set, ["x"], "what is cached stays");
    client.hears_nothing(Duration::from_millis(300)).await;
}
