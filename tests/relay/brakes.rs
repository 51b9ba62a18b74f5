//! Brakes over real connections: clients keep what a push would remove from them at once, and removals that are meant pass in the end.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tokio::net::UnixStream;

use super::examples::{assert_documented, example, phrases};
use super::holder::{ALL_CLUSTERS, Holder, Wish};
use super::log_lines::Lines;
use super::status::weir;
use super::*;
use weir_testkit::folder::Folder;
use weir_testkit::speaker::{Bodies, Speaker, bare};

/// Accepts a stream as a control plane that has sent nothing, once it requests a type.
pub(super) async fn asked(plane: &mut Plane, url: &str) -> Speaker {
    let mut speaker = Speaker::of(plane, BTreeMap::new()).await;
    speaker.is_asked(url).await;
    speaker
}

pub(super) struct Bench {
    pub(super) relay: Relay,
    pub(super) plane: Plane,
    folder: Folder,
}

impl Bench {
    pub(super) async fn start(up: Variant, keys: &str) -> Self {
        let plane = Plane::start(&BOTH).await;
        let folder = Folder::with_short_path("brakes");
        let text = format!(
            "listen: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0', socket: '{}'}}
upstream: {{servers: [{{uri: 'http://{}'{}, backoff: {{initial: 10ms, max: 10ms}}}}]}}
views: {{key: [cluster]}}
brakes: {{{keys}}}
",
            folder.socket().display(),
            plane.address,
            protocol_of(up),
        );
        let config = Config::parse(Path::new("test.yaml"), &text).unwrap();
        let relay = run(bind_with_brakes(config).await.unwrap(), std::future::pending());
        Self { relay, plane, folder }
    }

    async fn brakes(&self) -> Value {
        serde_json::from_str(&get(self.relay.admin, "/brakes").await).unwrap()
    }

    async fn holds(&self, removals: usize) {
        until(&format!("{removals} removals are held"), async || {
            let brakes = self.brakes().await;
            let held = brakes["sets"].as_array().unwrap().iter().map(|set| set["held"].as_u64().unwrap()).sum::<u64>();
            held == removals as u64
        })
        .await;
        if removals > 0 {
            assert_documented("curl -s 127.0.0.1:19000/brakes", &self.brakes().await.to_string());
        }
    }

    /// Waits until the metrics count this reason.
    async fn counts(&self, reason: &str) {
        let name = "weir_brake_removals_released_total{type=\"envoy.config.cluster.v3.Cluster\"";
        let start = format!("{name},reason=\"{reason}\"}} ");
        until(&start, async || {
            let metrics = get(self.relay.admin, "/metrics").await;
            metrics.lines().filter_map(|line| line.strip_prefix(&start)).any(|count| count != "0")
        })
        .await;
    }

    /// Requests a release, and returns the status and the text of the response.
    async fn release(&self, query: &str) -> (u16, String) {
        let socket = UnixStream::connect(self.folder.socket()).await.unwrap();
        let request = format!("POST /brakes/release?{query} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        exchange(socket, &request).await
    }
}

/// Runs `weir release`, and returns exit code, stdout and stderr.
async fn release_by_command(admin: &str, arguments: &[String]) -> (i32, String, String) {
    let arguments = arguments.iter().map(String::as_str);
    weir(&["release", "--admin", admin].into_iter().chain(arguments).collect::<Vec<_>>()).await
}

pub(super) fn names(numbers: std::ops::Range<usize>) -> BTreeSet<String> {
    numbers.map(|number| format!("c{number:03}")).collect()
}

fn with(mut names: BTreeSet<String>, more: &str) -> BTreeSet<String> {
    names.insert(more.to_owned());
    names
}

const LISTENERS: Wish = Wish { url: LDS, names: &[], cluster: "web" };

pub(super) async fn has(holder: &Holder, what: &str, names: &BTreeSet<String>) {
    holder.until(what, |record| record.holds == *names).await;
}

#[tokio::test]
#[ignore = "keeps the processors busy: 500 clients, within the time of a brake"]
async fn night_an_empty_push_takes_nothing_from_500_clients_and_passes_after_its_own_time() {
    let _turn = super::HEAVY.lock().await;
    let mut bench = Bench::start(Variant::Sotw, "grace: 1s, empty_grace: 12s").await;
    let all = names(0..100);
    let mut clients = vec![Holder::new(bench.relay.address, Variant::Sotw, ALL_CLUSTERS).await];
    let mut server = asked(&mut bench.plane, CDS).await;
    server.set(CDS, bare(&all));
    for number in 1..500 {
        clients.push(Holder::new(bench.relay.address, BOTH[number % 2], ALL_CLUSTERS).await);
    }
    for client in &clients {
        has(client, "all clusters", &all).await;
    }
    server.set(CDS, Bodies::new());
    bench.holds(100).await;
    server.set(CDS, bare(with(BTreeSet::new(), "new")));
    for client in &clients {
        client.until("an addition passes", |record| record.heard.contains("new")).await;
        client.has_lost_nothing();
    }
    let late = Holder::new(bench.relay.address, Variant::Sotw, ALL_CLUSTERS).await;
    has(&late, "a client that comes now gets all of it", &with(all, "new")).await;
    server.set(CDS, Bodies::new());
    for client in &clients {
        has(client, "what is meant passes in the end", &BTreeSet::new()).await;
    }
    bench.counts("empty_grace").await;
}

#[tokio::test]
#[ignore = "waits six seconds for each pair of variants"]
async fn night_half_a_push_and_a_drip_are_held_and_pass_after_the_grace() {
    let (lines, _guard) = Lines::of_this_thread();
    for (up, down) in BOTH.into_iter().flat_map(|up| BOTH.map(|down| (up, down))) {
        println!("{up:?} upstream, {down:?} downstream");
        let mut bench = Bench::start(up, "grace: 6s").await; // all that is shown is looked at before it is over
        let client = Holder::new(bench.relay.address, down, ALL_CLUSTERS).await;
        let mut server = asked(&mut bench.plane, CDS).await;
        server.set(CDS, bare(names(0..100)));
        has(&client, "all clusters", &names(0..100)).await;
        for gone in (0..=60).rev() {
            server.set(CDS, bare(names(0..40 + gone)));
        }
        bench.holds(30).await;
        has(&client, "an ordinary part of it passes", &names(0..70)).await;
        let shown = bench.brakes().await;
        let set = &shown["sets"][0];
        assert_eq!((&set["type"], &set["set"]), (&"envoy.config.cluster.v3.Cluster".into(), &"*".into()), "{shown}");
        assert!(set["of"] == 100 && set["names"].as_array().unwrap().len() == 20, "{shown}");
        assert!(shown["servers"][0]["held"] == 30 && shown["servers"][0]["views"] == 1, "{shown}");
        let ready = get(bench.relay.admin, "/ready").await;
        assert!(ready.starts_with("ready\nnote: brakes hold 30 removals in 1 view;"), "{ready}");
        let metrics = get(bench.relay.admin, "/metrics").await;
        for line in [
            "weir_brake_held_removals{type=\"envoy.config.cluster.v3.Cluster\"} 30",
            "weir_brakes_engaged_total{type=\"envoy.config.cluster.v3.Cluster\"} 1",
        ] {
            assert!(metrics.lines().any(|written| written == line), "{line}");
        }
        has(&client, "the rest passes after the grace", &names(0..40)).await;
        bench.holds(0).await;
        let metrics = get(bench.relay.admin, "/metrics").await;
        let released = "type=\"envoy.config.cluster.v3.Cluster\",reason=\"grace\"} 30";
        assert!(metrics.contains(released), "{metrics}");
        let server = format!("server=\"http://{}\"", bench.plane.address);
        let with = |part: &str| lines.with(part).into_iter().find(|(_, line)| line.contains(&server));
        until("the log has the end", async || with("brake holds removals no longer").is_some()).await;
        let ended = with("brake holds removals no longer").unwrap().1;
        assert!(ended.contains("reason=") && ended.contains("grace"), "{ended}");
        let held = with("generation=").unwrap().1;
        for part in ["brake holds removals", "type_url=", "removals="] {
            assert!(held.contains(part), "{part} is missing in {held}");
        }
    }
}

#[tokio::test]
async fn a_server_that_restarts_empty_again_and_again_takes_nothing() {
    for up in BOTH {
        let mut bench = Bench::start(up, "grace: 1s, empty_grace: 10m, agree_after: 0s").await;
        let client = Holder::new(bench.relay.address, Variant::Delta, ALL_CLUSTERS).await;
        let mut server = asked(&mut bench.plane, CDS).await;
        server.set(CDS, bare(names(0..20)));
        has(&client, "all clusters", &names(0..20)).await;
        for _ in 0..3 {
            drop(server);
            server = asked(&mut bench.plane, CDS).await;
            server.set(CDS, Bodies::new());
            if up == Variant::Sotw {
                while nonce_of(&server.stream.request().await).is_empty() {} // the second time they are held already
            }
            bench.holds(20).await;
        }
        server.set(CDS, bare(with(names(0..20), "new")));
        has(&client, "it has read its state", &with(names(0..20), "new")).await;
        bench.holds(0).await;
        bench.counts("recovered").await;
        client.has_lost_nothing();
    }
}

#[tokio::test]
async fn a_later_opening_that_agrees_ends_the_grace() {
    let mut bench = Bench::start(Variant::Sotw, "grace: 10m, agree_after: 0s").await;
    let client = Holder::new(bench.relay.address, Variant::Sotw, ALL_CLUSTERS).await;
    let mut server = asked(&mut bench.plane, CDS).await;
    server.set(CDS, bare(names(0..100)));
    has(&client, "all clusters", &names(0..100)).await;
    server.set(CDS, bare(names(0..50)));
    server.set(CDS, bare(names(0..50)));
    bench.holds(50).await;
    client.has_lost_nothing();
    drop(server);
    let mut server = asked(&mut bench.plane, CDS).await;
    server.set(CDS, bare(names(0..50)));
    has(&client, "it is meant", &names(0..50)).await;
    bench.counts("agreed").await;
}

#[tokio::test]
async fn an_operator_lets_go_what_was_shown_and_nothing_later() {
    let mut bench = Bench::start(Variant::Delta, "grace: 10m").await;
    let client = Holder::new(bench.relay.address, Variant::Sotw, ALL_CLUSTERS).await;
    let mut server = asked(&mut bench.plane, CDS).await;
    server.set(CDS, bare(names(0..100)));
    has(&client, "all clusters", &names(0..100)).await;
    server.set(CDS, bare(names(0..50)));
    bench.holds(50).await;
    let shown = bench.brakes().await;
    let (view, seen) = (shown["sets"][0]["view"].as_str().unwrap(), shown["sets"][0]["generation"].as_u64().unwrap());
    server.set(CDS, bare(names(0..20)));
    bench.holds(80).await;
    let stale = bench.release(&format!("generation={}&view={view}", seen - 1)).await;
    assert!(stale.0 == 409 && stale.1.contains("held later"), "{stale:?}");
    let socket = format!("unix:{}", bench.folder.socket().display());
    let of_view = |generation: u64| ["--generation".to_owned(), generation.to_string(), "--view".into(), view.into()];
    let (code, out, error) = release_by_command(&socket, &of_view(seen - 1)).await;
    assert_eq!((code, &*out), (1, ""), "{error}");
    assert!(error.starts_with("error: all that is held there was held later; "), "{error}");
    let (code, _, error) = release_by_command(&bench.relay.admin.to_string(), &of_view(seen)).await;
    assert!(code == 2 && error.starts_with("error: this address only reads: "), "{code} {error}");
    let (code, _, error) = release_by_command("unix:/none/admin.sock", &of_view(seen)).await;
    assert!(code == 2 && error.starts_with("error: cannot reach unix:/none/admin.sock: "), "{code} {error}");
    assert_eq!(bench.release(&format!("generation={seen}&view=other")).await.0, 404);
    assert_eq!(bench.release(&format!("generation={seen}")).await.0, 400);
    client.has_lost_nothing();
    let released = release_by_command(&socket, &of_view(seen)).await;
    assert_eq!(released, (0, "released 50 removals in 1 view\n".into(), String::new()));
    let documented =
        example("weir release --admin unix:/run/weir/admin.sock --generation 1795305600001 --view 7e735f75ea494f2f");
    assert_eq!(phrases(&documented), phrases(&released.1));
    let left: BTreeSet<_> = names(0..50);
    has(&client, "what was shown", &left).await;
    assert_eq!(
        bench.release(&format!("generation={seen}&view={view}")).await.0,
        409,
        "the brake of now is a later one"
    );
    let shown = bench.brakes().await;
    let (server, generation) = (shown["servers"][0]["server"].as_str().unwrap(), &shown["servers"][0]["generation"]);
    let of_server =
        |kind: &str| ["--generation", &generation.to_string(), "--server", server, "--type", kind].map(str::to_owned);
    assert_eq!(release_by_command(&socket, &of_server("listeners")).await.0, 1);
    assert_eq!(release_by_command(&socket, &of_server("clusters")).await.0, 0);
    has(&client, "the rest", &names(0..20)).await;
    bench.counts("operator").await;
}

#[tokio::test]
#[ignore = "waits six seconds for each pair of variants"]
async fn night_renamed_listeners_wait_with_those_that_they_replace() {
    for (up, down) in BOTH.into_iter().flat_map(|up| BOTH.map(|down| (up, down))) {
        println!("{up:?} upstream, {down:?} downstream");
        let mut bench = Bench::start(up, "grace: 6s").await; // it is seen while it waits
        let client = Holder::new(bench.relay.address, down, LISTENERS).await;
        let mut server = asked(&mut bench.plane, LDS).await;
        server.set(LDS, bare(names(0..20)));
        has(&client, "all listeners", &names(0..20)).await;
        server.set(LDS, bare(names(100..110)));
        bench.holds(20).await;
        let shown = bench.brakes().await;
        assert_eq!(shown["sets"][0]["changes"], 10, "{shown}");
        assert_eq!(client.record().heard, names(0..20), "none of the new ones");
        client.has_lost_nothing();
        has(&client, "all of it after the grace", &names(100..110)).await;
    }
}

#[tokio::test]
async fn one_push_to_many_views_is_shown_and_released_as_one() {
    let mut bench = Bench::start(Variant::Delta, "grace: 10m").await;
    let (one, two) = (ALL_CLUSTERS, Wish { cluster: "batch", ..ALL_CLUSTERS });
    let mut servers = Vec::new();
    let mut clients = Vec::new();
    for wish in [one, two] {
        clients.push(Holder::new(bench.relay.address, Variant::Delta, wish).await);
        servers.push(asked(&mut bench.plane, CDS).await);
    }
    servers.iter_mut().for_each(|server| server.set(CDS, bare(names(0..50))));
    for client in &clients {
        has(client, "all clusters", &names(0..50)).await;
    }
    servers.iter_mut().for_each(|server| server.set(CDS, Bodies::new()));
    bench.holds(100).await;
    let shown = bench.brakes().await;
    let of = &shown["servers"][0];
    assert!(of["views"] == 2 && of["held"] == 100 && shown["sets_count"] == 2, "{shown}");
    let server = of["server"].as_str().unwrap().replace(':', "%3A").replace('/', "%2F");
    let released = bench.release(&format!("generation={}&server={server}", of["generation"])).await;
    assert_eq!(released, (200, "released 100 removals in 2 views\n".into()));
    for client in &clients {
        has(client, "nothing", &BTreeSet::new()).await;
    }
}
