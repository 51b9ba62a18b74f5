//! Many clients come while one relay follows another: each is served by one of the two.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use weir_core::protocol::session::Variant;
use weir_testkit::client::{Client, Io, PATIENCE};
use weir_testkit::folder::Folder;
use weir_testkit::one_cluster::CDS;
use weir_testkit::resources::BOTH;
use weir_testkit::script::Way;
use weir_testkit::server::Server;

use super::{bound, start};

/// The name of the relay that has served a client, or why none did.
type Served = Result<String, String>;

/// Where clients connect.
#[derive(Debug, Clone)]
enum Door {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Door {
    async fn connect(&self) -> io::Result<Box<dyn Io>> {
        let stream: Box<dyn Io> = match self {
            Self::Tcp(address) => Box::new(tokio::net::TcpStream::connect(address).await?),
            Self::Unix(path) => Box::new(tokio::net::UnixStream::connect(path).await?),
        };
        Ok(stream)
    }
}

/// Connects at a moment, and opens a stream.
async fn come(door: Door, moment: Duration, variant: Variant) -> Served {
    tokio::time::sleep(moment).await;
    let stream = door.connect().await.map_err(|error| format!("not connected: {error}"))?;
    served_by(stream, variant).await
}

/// Opens a stream over a connection, and waits for the cluster.
async fn served_by(stream: Box<dyn Io>, variant: Variant) -> Served {
    tokio::time::timeout(PATIENCE, first_response(stream, variant)).await.unwrap_or_else(|_| Err(NO_RESPONSE.into()))
}

const NO_RESPONSE: &str = "no response";
const NOT_ALL: &str = "resources from";

async fn first_response(stream: Box<dyn Io>, variant: Variant) -> Served {
    let mut client = Client::over_as(stream, variant).await.ok_or("no stream")?;
    client.ask(CDS, &[], Some("web"));
    let text = |status: tonic::Status| status.to_string();
    let (resources, identifier) = match &mut client {
        Client::Sotw(_, responses) => {
            let response = responses.message().await.map_err(text)?.ok_or("no more responses")?;
            (response.resources.len(), response.control_plane)
        }
        Client::Delta(_, responses) => {
            let response = responses.message().await.map_err(text)?.ok_or("no more responses")?;
            (response.resources.len(), response.control_plane)
        }
    };
    match identifier {
        // A message with one short text.
        Some(message) if resources == 1 => Ok(String::from_utf8_lossy(&message[2..]).into_owned()),
        other => Err(format!("{resources} {NOT_ALL} {other:?}")),
    }
}

/// Returns numbers from 0 to 1, the same ones each time.
fn shares() -> impl Iterator<Item = f64> {
    let next =
        |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    std::iter::successors(Some(7_u64), next).map(|state| f64::from((state >> 32) as u32) / f64::from(u32::MAX))
}

const RESTARTS: usize = 20;
/// The clients of each restart and each socket. The silent ones are accepted before the next relay is started, and send their request once their own
/// relay drains.
const CLIENTS: usize = 25;
const SILENT: usize = 5;
/// How long a relay that drains waits for the first request of a connection (`downstream/connections/ending.rs`).
pub(super) const JUST_ACCEPTED: Duration = Duration::from_secs(1);

#[test]
fn a_thousand_clients_that_come_while_relays_overlap_are_each_served_by_one_of_the_two() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Server::start(Way::GivesOnly(&[("a", "1")])));
    let folder = Folder::with_short_path("restart-handover");
    let ((tcp, address), path) = (bound(), folder.socket());
    let unix = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o660)).unwrap();
    let name = |number: usize| format!("relay-{number}");
    let start_next = |number: usize| {
        let config = format!(
            "listen: [{{address: '{address}'}}, {{address: 'unix:{}', mode: '0660'}}]\nviews: {{key: [cluster]}}\n\
             upstream: {{servers: [{{uri: 'http://{}', variant: sotw}}]}}\ndrain: {{spread: 0s}}\n\
             clients: {{control_plane_identifier: {}}}\n",
            path.display(),
            server.address,
            name(number)
        );
        let sockets = [OwnedFd::from(tcp.try_clone().unwrap()), OwnedFd::from(unix.try_clone().unwrap())];
        start(&format!("handover-{number}"), &config, sockets)
    };
    let all = |clients: Vec<tokio::task::JoinHandle<Served>>| -> Vec<Served> {
        clients.into_iter().map(|client| runtime.block_on(client).unwrap()).collect()
    };
    let doors = [Door::Tcp(address), Door::Unix(path.clone())];
    let (mut shares, mut variants) = (shares(), BOTH.into_iter().cycle());
    let (mut relay, mut took, mut served, mut late) = (start_next(0), Duration::from_millis(200), 0, 0);
    for number in 1..=RESTARTS {
        let (old, next_one): (Served, Served) = (Ok(name(number - 1)), Ok(name(number)));
        let mut silent = Vec::new();
        for door in &doors {
            // A socket accepts one after the other, so these are accepted when a later one is served.
            silent.extend((0..SILENT).map(|_| runtime.block_on(door.connect()).unwrap()));
            assert_eq!(runtime.block_on(come(door.clone(), Duration::ZERO, Variant::Delta)), old);
        }
        // The others come at any moment of a restart that takes as long as the one before.
        let (begun, mut coming) = (Instant::now(), Vec::new());
        for door in doors.iter().flat_map(|door| std::iter::repeat_n(door, CLIENTS - SILENT - 1)) {
            let moment = took.mul_f64(shares.next().unwrap());
            coming.push(runtime.spawn(come(door.clone(), moment, variants.next().unwrap())));
        }
        let (next, signaled) = (start_next(number), Instant::now());
        relay.signal("-TERM");
        relay.says("closing listeners and ending client streams", PATIENCE);
        let silent = silent.into_iter().zip(variants.by_ref());
        let by_old = all(silent.map(|(stream, variant)| runtime.spawn(served_by(stream, variant))).collect());
        took = begun.elapsed();
        let by_either = all(coming);
        // On a machine so slow, requests may be late for the relay that drains. It still leaves no client waiting.
        let is_late = signaled.elapsed() >= JUST_ACCEPTED;
        let may_be_late =
            |by: &Served| is_late && matches!(by, Err(why) if why != NO_RESPONSE && !why.contains(NOT_ALL));
        assert!(by_old.iter().all(|by| *by == old || may_be_late(by)), "{by_old:?}");
        assert!(by_either.iter().all(|by| *by == old || *by == next_one || may_be_late(by)), "{by_either:?}");
        served += doors.len() + by_old.len() + by_either.len();
        late += usize::from(is_late);
        assert!(relay.has_succeeded(PATIENCE));
        relay = next;
    }
    for door in doors {
        assert_eq!(runtime.block_on(come(door, Duration::ZERO, Variant::Sotw)), Ok(name(RESTARTS)));
    }
    assert_eq!(served, 1000);
    if late > 0 {
        println!("the machine was too slow for {late} of {RESTARTS} restarts to show that no request is refused");
    }
}
