//! A watched configuration that could not be applied is tried again automatically.

use super::certificates::Authority;
use super::client_tls::{Connecting, VERSIONS};
use super::log_lines::Lines;
use super::reload::{World, text};
use super::*;
use weir_testkit::folder::Folder;

const WATCHED: &str = "reload: {watch: true, spread: 0s}\n";
const UNWATCHED: &str = "reload: {watch: false, spread: 0s}\n";

async fn failures(world: &World) -> f64 {
    world.metric("weir_config_reloads_total{result=\"failed\"}").await
}

async fn is_taken(world: &World) -> bool {
    world.metric("weir_config_reloads_total{result=\"taken\"}").await > 0.0
}

const INVALID: &str = "invalid configuration";
const WAITING: &str = "waiting: the configuration is read again when it or a file that it names changes";

#[tokio::test]
async fn a_certificate_that_is_there_later_than_the_configuration_counts_without_a_signal_if_the_file_is_watched() {
    let (lines, _guard) = Lines::of_this_thread();
    let (plane, own) = (Plane::start(&BOTH).await, Authority::named("own"));
    let [before, after] = ["localhost", "localhost"].map(|name| own.sign(name));
    let with = |certificate: &str, rest: &str| {
        let tls = format!("tls: {{certificate: {certificate}.pem, key: {certificate}.key}}");
        text(&[plane.address], rest).replacen("'127.0.0.1:0'", &format!("'127.0.0.1:0', {tls}"), 1)
    };
    let start = async |name: &str, rest: &str| {
        let folder = Folder::with_short_path(name);
        let files = [("a.pem", &before.certificate), ("a.key", &before.key), ("b.key", &after.key)];
        files.iter().for_each(|(file, text)| std::fs::write(folder.0.join(file), text).unwrap());
        World::start_in(folder, &with("a", rest)).await
    };
    let (watched, unwatched) = (start("watch-tls", WATCHED).await, start("watch-none", UNWATCHED).await);
    let write = |text: &str| {
        for world in [&watched, &unwatched] {
            std::fs::write(world.folder.0.join("b.pem"), text).unwrap();
        }
    };
    unwatched.write(&with("b", UNWATCHED));
    unwatched.reloads.reload().await.unwrap_err();
    assert_eq!(lines.with(INVALID).len(), 1);
    watched.write(&with("b", WATCHED));
    until("it says what it waits for", async || lines.with(WAITING).len() == 1).await;
    assert!(lines.with(WAITING)[0].1.contains("b.pem"), "{:?}", lines.with(WAITING));
    assert_eq!((failures(&watched).await, lines.with(INVALID).len()), (1.0, 2));
    for (round, bad) in ["none", "none at all"].into_iter().enumerate() {
        write(bad);
        until("it is tried", async || failures(&watched).await == (round + 2) as f64).await;
        assert_eq!(lines.with(INVALID).len(), 3, "an error that is the same is no news");
    }
    watched.write(&format!("# edited\n{}", with("b", WATCHED)));
    until("it is tried", async || failures(&watched).await == 4.0).await;
    assert_eq!(lines.with(INVALID).len(), 4, "who has edited the file is told");
    write(&after.certificate);
    until("it counts", async || is_taken(&watched).await).await;
    let connecting = Connecting { roots: own.pem.clone(), identity: None, versions: VERSIONS.to_vec(), alpn: "h2" };
    let shown = async |world: &World| {
        let stream = connecting.connect_to(world.relay.address).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    let [before, after] = [before, after].map(|identity| certificates::certificate(&identity.certificate).to_vec());
    assert_eq!(shown(&watched).await, after);
    assert_eq!(lines.with(WAITING).len(), 3, "the certificate was missing, then it was bad, then in another file");
    assert_eq!((failures(&unwatched).await, shown(&unwatched).await), (1.0, before), "nobody said that it counts");
    assert!(!is_taken(&unwatched).await);
}

#[tokio::test]
async fn a_bootstrap_that_is_there_later_than_the_configuration_counts_without_a_signal() {
    let (lines, _guard) = Lines::of_this_thread();
    let mut plane = Plane::start(&BOTH).await;
    let address = plane.address;
    let world = World::start("watch-bootstrap", &text(&[address], WATCHED)).await;
    let servers = format!("servers: [{{uri: 'http://{address}', variant: delta}}]");
    world.write(&text(&[address], WATCHED).replace(&servers, "bootstrap: b.json"));
    until("it says what it waits for", async || lines.with(WAITING).len() == 1).await;
    let (status, _) = world.post_reload().await;
    assert_eq!((status, lines.with(INVALID).len()), (422, 2), "who asks is told each time");
    let bootstrap =
        format!(r#"{{"xds_servers": [{{"server_uri": "{address}", "channel_creds": [{{"type": "insecure"}}]}}]}}"#);
    std::fs::write(world.folder.0.join("b.json"), bootstrap).unwrap();
    until("it counts", async || is_taken(&world).await).await;
    assert_eq!(lines.with(WAITING).len(), 1);
    let client = Client::connect(world.relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    plane.stream().await;
}
