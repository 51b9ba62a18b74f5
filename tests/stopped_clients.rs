//! A thousand clients with different interests stop reading while everything changes: memory does not grow with the changes, and clients that read
//! again are sent the newest state, without earlier ones.
//!
//! Relay and clients are in this process, and all its live bytes are counted, so this file has no other test.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use weir::app::App;
use weir::config::Config;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use weir_testkit::client::{Client, PATIENCE, node};
use weir_testkit::folder::Folder;
use weir_testkit::resources::EDS;

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[allow(unsafe_code)] // a counting allocator needs it; it forwards every call unchanged
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

const CLIENTS: usize = 1000;
const CONNECTIONS: usize = 20;
/// The content of each resource: more than a client accepts before it reads.
const CONTENT: usize = 4 << 10;
const WINDOW: u32 = 1 << 10;

/// Changes every resource in a single file.
fn change(folder: &Folder, round: usize) {
    let content = "x".repeat(CONTENT);
    let resource = |number: usize| {
        let endpoints = format!(r#"[{{"locality":{{"region":"{round}","zone":"{content}"}}}}]"#);
        format!(r#"{{"@type":"{EDS}","clusterName":"{}","endpoints":{endpoints}}}"#, name(number))
    };
    let text = (0..CLIENTS + 1).map(resource).collect::<Vec<_>>().join(",\n");
    folder.write(".new", &format!("[{text}]"));
    fs::rename(folder.file(".new"), folder.file("all.json")).unwrap();
}

fn name(number: usize) -> String {
    format!("cluster-{number:05}")
}

/// Connects a client that subscribes to one resource.
async fn subscribe(channel: Channel, number: usize) -> Client {
    let first = DeltaDiscoveryRequest {
        node: node("web"),
        type_url: EDS.into(),
        resource_names_subscribe: vec![name(number)],
        ..Default::default()
    };
    Client::call(channel, &[], weir_core::proto::Request::Delta(first)).await.unwrap()
}

/// Reads until the state of this round has arrived, and returns the number of responses.
async fn read_to(client: &mut Client, round: usize) -> usize {
    let Client::Delta(_, responses) = client else { unreachable!() };
    for count in 1.. {
        let response = timeout(PATIENCE, responses.message()).await.expect("no response").unwrap().unwrap();
        assert!(response.removed_resources.is_empty());
        if round_of(&response) == round {
            return count;
        }
    }
    unreachable!()
}

/// Returns the round in which the resource was changed.
fn round_of(response: &DeltaDiscoveryResponse) -> usize {
    let body = &response.resources[0].resource.as_ref().unwrap().value;
    let zone = body.iter().position(|byte| *byte == b'x').unwrap();
    // The region is before the tag and the length of the zone.
    let digits = body[..zone - 3].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&body[zone - 3 - digits..zone - 3]).unwrap().parse().unwrap()
}

async fn channel(address: SocketAddr, window: u32) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    endpoint.initial_stream_window_size(window).initial_connection_window_size(1 << 20).connect().await.unwrap()
}

/// Waits until at most this many bytes are live: some may still be on their way to a client. Returns their number.
async fn lives_within(bytes: usize) -> usize {
    let began = Instant::now();
    loop {
        let live = LIVE.load(Ordering::Relaxed);
        if live <= bytes {
            return live;
        }
        assert!(began.elapsed() < PATIENCE, "{live} bytes are alive, more than {bytes}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the fewest bytes that were live within some time.
async fn rest() -> usize {
    let mut least = usize::MAX;
    for _ in 0..50 {
        sleep(Duration::from_millis(20)).await;
        least = least.min(LIVE.load(Ordering::Relaxed));
    }
    least
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i1_memory_does_not_grow_with_changes_that_nobody_reads() {
    let folder = Folder::new("stopped-clients");
    change(&folder, 1);
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nupstream: {{files: '{}'}}\nviews: {{key: [cluster]}}\nshards: 0\n",
        folder.0.display()
    );
    let app = App::bind(Config::parse(Path::new("test.yaml"), &text).unwrap()).await.unwrap();
    let address = app.addresses()[0];
    tokio::spawn(app.run());
    let mut reader = subscribe(channel(address, 65_535).await, CLIENTS).await;
    read_to(&mut reader, 1).await;
    let mut clients = Vec::new();
    for connection in 0..CONNECTIONS {
        let channel = channel(address, WINDOW).await;
        for number in (connection..CLIENTS).step_by(CONNECTIONS) {
            clients.push(subscribe(channel.clone(), number).await);
        }
    }
    let mut round = 1;
    let mut change_to = async |last: usize| {
        while round < last {
            round += 1;
            change(&folder, round);
            read_to(&mut reader, round).await;
        }
    };
    change_to(6).await;
    let few = rest().await;
    change_to(30).await;
    let many = lives_within(few + few / 20).await;
    println!("{few} bytes alive after 6 changes, {many} after 30");
    for client in &mut clients {
        let responses = read_to(client, 30).await;
        assert!(responses <= 3, "what was on its way, and the newest: {responses} responses");
    }
}
