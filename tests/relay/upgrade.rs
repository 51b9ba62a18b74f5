//! State files and configurations of earlier versions, in tests/upgrade: this version continues from them.
//!
//! `WEIR_WRITE=1 cargo test --test relay upgrade` writes the files of this version that are missing, and changes none that exist.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use redb::{Database, TableDefinition};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use weir::build_facts::VERSION;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::gzip::{gunzip, gzip};
use super::log_lines::{Lines, ask_each_time};
use super::warm_start::{Stoppable, is_saved, state_in};
use super::*;
use weir_testkit::folder::Folder;

const SECRETS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
/// The sets of the control plane, one after the other.
const FIRST: [(&str, &str); 2] = [("a", "1"), ("b", "1")];
const LAST: [(&str, &str); 2] = [("a", "2"), ("b", "1")];
const NEXT: [(&str, &str); 3] = [("a", "2"), ("b", "1"), ("c", "1")];
/// The maximum of bytes in the files of one version.
const MOST: u64 = 100 << 10;

/// What the version that wrote the state sent to clients.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Given {
    /// The versions of the set of clusters that a SotW client was sent, oldest first.
    sets: Vec<String>,
    /// The versions by name that a delta client was sent.
    clusters: BTreeMap<String, String>,
    endpoints: BTreeMap<String, String>,
    secrets: BTreeMap<String, String>,
}

/// The folder of one version.
struct Kept(PathBuf);

impl Kept {
    /// Returns the folders of all versions.
    fn all() -> Vec<Self> {
        let folders = fs::read_dir("tests/upgrade").unwrap().map(|entry| Self(entry.unwrap().path()));
        folders.collect()
    }

    fn of_this_version() -> Self {
        Self(Path::new("tests/upgrade").join(VERSION))
    }

    fn is_complete(&self) -> bool {
        self.given().exists()
    }

    fn given(&self) -> PathBuf {
        self.0.join("given.json")
    }

    fn state(&self, is_encrypted: bool) -> PathBuf {
        self.0.join(if is_encrypted { "encrypted.gz" } else { "plain.gz" })
    }

    /// Starts a relay with the configuration of that version, and its state in a folder.
    async fn start(&self, folder: &Folder, is_encrypted: bool, plane: SocketAddr) -> Stoppable {
        let configuration = fs::read_to_string(self.0.join("relay.yaml")).unwrap();
        let configuration = configuration.replace("127.0.0.1:3128", &proxy_to(plane).await.to_string());
        let configuration = match is_encrypted {
            true => configuration,
            false => configuration.replace(", key: state.key", ""),
        };
        fs::copy(self.0.join("state.key"), folder.0.join("state.key")).unwrap();
        let config = Config::parse(&folder.0.join("relay.yaml"), &configuration).unwrap();
        Stoppable::of(bind_with_brakes(config).await.unwrap())
    }

    async fn write(&self) {
        let (plain, encrypted) = (self.written(false).await, self.written(true).await);
        assert_eq!((&plain.sets, &plain.clusters), (&encrypted.sets, &encrypted.clusters), "versions are content");
        fs::write(self.given(), serde_json::to_string_pretty(&encrypted).unwrap() + "\n").unwrap();
    }

    /// Writes one of the state files, and returns what clients were sent meanwhile. Without a key they are sent no secrets, since secrets would not
    /// be saved.
    async fn written(&self, is_encrypted: bool) -> Given {
        let folder = Folder::with_short_path(&format!("upgrade-from-{is_encrypted}"));
        let mut plane = Plane::start(&BOTH).await;
        let relay = self.start(&folder, is_encrypted, plane.address).await;
        let mut sotw = Client::connect(relay.0.address, Variant::Sotw).await;
        sotw.ask(CDS, &[], Some("web"));
        let mut stream = plane.stream().await;
        let mut sets = Vec::new();
        for (version, set) in [("1", &FIRST), ("2", &LAST)] {
            say(&stream, version, set, set, &[]);
            let sent = sotw.sent().await;
            sotw.ack(CDS, &[], &sent);
            sets.push(sent.version);
        }
        let mut delta = Client::connect(relay.0.address, Variant::Delta).await;
        delta.ask(CDS, &[], Some("web"));
        let clusters = versions(&mut delta).await;
        delta.ask(EDS, &["e"], None);
        say_named(&mut stream, EDS, "e").await;
        let (endpoints, mut secrets) = (versions(&mut delta).await, BTreeMap::new());
        if is_encrypted {
            delta.ask(SECRETS, &["certificate"], None);
            say_named(&mut stream, SECRETS, "certificate").await;
            secrets = versions(&mut delta).await;
        }
        is_saved(&relay.0).await;
        relay.stop().await;
        fs::write(self.state(is_encrypted), gzip(&fs::read(folder.0.join("state")).unwrap())).unwrap();
        Given { sets, clusters, endpoints, secrets }
    }

    /// Starts this version with one of the state files while the control plane is down, and then starts the control plane.
    async fn goes_on(&self, is_encrypted: bool) {
        let given: Given = serde_json::from_slice(&fs::read(self.given()).unwrap()).unwrap();
        let folder = Folder::with_short_path(&format!("upgrade-to-{is_encrypted}"));
        fs::write(folder.0.join("state"), gunzip(&fs::read(self.state(is_encrypted)).unwrap())).unwrap();
        let plane = Plane::start(&BOTH).await.kill().await;
        let relay = self.start(&folder, is_encrypted, plane).await;
        let address = relay.0.address;
        let last = given.sets.last().unwrap();

        // Clients without resources get the saved ones, under the saved versions.
        let mut sotw = Client::connect(address, Variant::Sotw).await;
        sotw.ask(CDS, &[], Some("web"));
        let sent = sotw.sent().await;
        assert_eq!((&sent.set[..], &sent.version), (&["a".to_owned(), "b".to_owned()][..], last));
        let mut delta = Client::connect(address, Variant::Delta).await;
        delta.ask(CDS, &[], Some("web"));
        assert_eq!(versions(&mut delta).await, given.clusters);
        delta.ask(EDS, &["e"], None);
        assert_eq!(versions(&mut delta).await, given.endpoints);
        if is_encrypted {
            delta.ask(SECRETS, &["certificate"], None);
            assert_eq!(versions(&mut delta).await, given.secrets);
        }
        // A client with the set before the last gets the last set.
        let mut behind = returning(address, &given.sets[0]).await;
        assert_eq!(behind.sent().await.version, *last);

        // Clients with the resources of the old relay get what is new, and nothing before that; a delta client's first reply may be empty (DELTA-21).
        let mut same = returning(address, last).await;
        let mut stating = stating(address, &given.clusters).await;
        let mut plane = Plane::start_at(plane, &BOTH).await;
        let stream = plane.stream().await;
        say(&stream, "2", &LAST, &LAST, &[]);
        say(&stream, "3", &NEXT, &NEXT, &[]);
        let mut sent = stating.sent().await;
        if sent.set.is_empty() && sent.removed.is_empty() {
            sent = stating.sent().await;
        }
        assert_eq!((&sent.set[..], sent.removed.len()), (&["c".to_owned()][..], 0), "encrypted: {is_encrypted}");
        assert_eq!(same.sent().await.set, ["a", "b", "c"], "encrypted: {is_encrypted}");
        relay.stop().await;
    }
}

/// Returns the versions of the next reply of a delta client, by name.
async fn versions(delta: &mut Client) -> BTreeMap<String, String> {
    let Client::Delta(_, replies) = delta else { panic!("SotW has no versions of names") };
    let reply = tokio::time::timeout(client::PATIENCE, replies.message()).await.expect("nothing came");
    reply.unwrap().unwrap().resources.into_iter().map(|resource| (resource.name, resource.version)).collect()
}

/// Connects a SotW client that has a set of clusters from another connection.
async fn returning(address: SocketAddr, version: &str) -> Client {
    let client = Client::connect(address, Variant::Sotw).await;
    let Client::Sotw(requests, _) = &client else { unreachable!() };
    let (node, type_url, version_info) = (client::node("web"), CDS.into(), version.into());
    requests.send(DiscoveryRequest { node, type_url, version_info, ..Default::default() }).unwrap();
    client
}

/// Connects a delta client that has the clusters from another connection.
async fn stating(address: SocketAddr, versions: &BTreeMap<String, String>) -> Client {
    let client = Client::connect(address, Variant::Delta).await;
    let Client::Delta(requests, _) = &client else { unreachable!() };
    let (node, type_url, stated) = (client::node("web"), CDS.into(), versions.clone());
    let request = DeltaDiscoveryRequest { node, type_url, initial_resource_versions: stated, ..Default::default() };
    requests.send(request).unwrap();
    client
}

/// Starts an HTTP proxy that connects to one server, whatever host is requested. A state file contains the names of servers: through the proxy, the
/// server has the name that the configuration gives it, whatever its address.
async fn proxy_to(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = client.read_u8().await else { return };
                    head.push(byte);
                }
                let Ok(mut server) = TcpStream::connect(server).await else { return }; // the server is down
                if client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.is_ok() {
                    let _ = copy_bidirectional(&mut client, &mut server).await; // until one of them closes
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn this_version_goes_on_from_the_state_and_the_configuration_of_each_earlier_one() {
    let this = Kept::of_this_version();
    if std::env::var("WEIR_WRITE").is_ok_and(|value| value == "1") && !this.is_complete() {
        this.write().await;
    }
    assert!(this.is_complete(), "{}: WEIR_WRITE=1 cargo test --test relay upgrade", this.0.display());
    for kept in Kept::all() {
        println!("{}", kept.0.display());
        let files = fs::read_dir(&kept.0).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
        assert!(files.sum::<u64>() <= MOST, "{} is too large", kept.0.display());
        for is_encrypted in [false, true] {
            kept.goes_on(is_encrypted).await;
        }
    }
}

#[tokio::test]
async fn a_state_file_of_a_newer_version_is_renamed_as_it_is_and_the_log_says_why() {
    const ABOUT: TableDefinition<&str, &[u8]> = TableDefinition::new("about");
    ask_each_time();
    let folder = Folder::with_short_path("newer-format");
    let state = folder.0.join("state");
    let (key, mut record) = ("format", [&1000_u32.to_le_bytes()[..], &[0]].concat());
    let hash = xxh3_64_with_seed(&record, xxh3_64_with_seed(key.as_bytes(), key.len() as u64));
    record.extend(hash.to_le_bytes());
    let database = Database::create(&state).unwrap();
    let writing = database.begin_write().unwrap();
    writing.open_table(ABOUT).unwrap().insert(key, record.as_slice()).unwrap();
    writing.commit().unwrap();
    drop(database);

    let plane = Plane::start(&BOTH).await;
    let relay = Stoppable::start(plane.address, "", &state_in(&folder, "")).await;
    Lines::of_file(&folder.0, "a newer version has written it").await;
    Lines::of_file(&folder.0, "state file unusable; renamed").await;
    until("it starts without", async || get(relay.0.admin, "/ready").await == "ready\n").await;
    let aside = Database::open(folder.0.join("state.unusable-1")).unwrap();
    let reading = redb::ReadableDatabase::begin_read(&aside).unwrap();
    let kept = reading.open_table(ABOUT).unwrap().get(key).unwrap().unwrap().value().to_vec();
    assert_eq!(kept, record, "it is as it was");
    relay.stop().await;
}
