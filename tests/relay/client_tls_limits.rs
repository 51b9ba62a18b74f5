//! Limits of TLS handshakes, and how far clients with slow handshakes obstruct others.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::certificates::Authority;
use crate::client::PATIENCE;
use crate::client_tls::World;
use crate::until;
use weir_testkit::folder::Folder;

/// No handshake takes this long.
const NEVER: &str = "handshake_timeout: 10m";

async fn reached(world: &World, key: &str) -> u64 {
    world.metric(&format!("weir_limit_reached_total{{limit=\"limits.{key}\"}}")).await
}

async fn is_closed(mut socket: TcpStream) {
    let mut unread = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut unread)).await;
    assert!(closed.is_ok(), "it is still open");
}

#[tokio::test]
async fn a_handshake_that_takes_its_client_too_long_is_closed() {
    let world = World::with(Folder::with_short_path("tls"), "", "limits: {handshake_timeout: 300ms}").await;
    is_closed(TcpStream::connect(world.relay.address).await.unwrap()).await;
    let mut slow = TcpStream::connect(world.relay.address).await.unwrap();
    let began = Instant::now();
    // The start of a handshake of 512 bytes, byte by byte.
    let mut bytes = b"\x16\x03\x01\x02\x00\x01".iter().copied().chain(std::iter::repeat(0));
    while slow.write_all(&[bytes.next().unwrap()]).await.is_ok() && began.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(began.elapsed() < PATIENCE, "it goes on");
    until("both are counted", async || {
        (reached(&world, "handshake_timeout").await, world.failed("timeout").await) == (2, 2)
    })
    .await;
}

#[tokio::test]
async fn slow_handshakes_keep_nobody_from_being_served() {
    let mut world =
        World::with(Folder::with_short_path("tls"), "", &format!("limits: {{handshakes: 1, {NEVER}}}")).await;
    let mut neighbour = world.served(None).await;
    let mut slow = Vec::new();
    for _ in 0..50 {
        let mut socket = TcpStream::connect(world.relay.address).await.unwrap();
        socket.write_all(b"\x16\x03\x01\x02\x00\x01").await.unwrap();
        slow.push(socket);
    }
    let _new = tokio::time::timeout(PATIENCE, world.served(None)).await.expect("it waits for the slow ones");
    world.change("2");
    assert_eq!(neighbour.sent().await.set, ["a"]);
}

#[tokio::test]
async fn handshakes_are_charged_until_they_end() {
    let world = World::with(Folder::with_short_path("tls"), "", &format!("limits: {{{NEVER}}}")).await;
    let charged = async || world.metric("weir_memory_charged_bytes{to=\"common\"}").await;
    let before = charged().await;
    let mut slow = Vec::new();
    for _ in 0..100 {
        let mut socket = TcpStream::connect(world.relay.address).await.unwrap();
        socket.write_all(b"\x16\x03\x01\x02\x00\x01").await.unwrap();
        slow.push(socket);
    }
    crate::until("they are charged", async || charged().await >= before + 100 * (20 << 10)).await;
    drop(slow);
    crate::until("they have ended", async || charged().await < before + 10 * (20 << 10)).await;
}

#[tokio::test]
async fn handshakes_beyond_the_limit_wait_and_none_is_refused() {
    let mut world =
        World::with(Folder::with_short_path("tls"), "", &format!("limits: {{handshakes: 1, {NEVER}}}")).await;
    let mut neighbour = world.served(None).await;
    let mut crowd = JoinSet::new();
    for _ in 0..100 {
        let (connecting, address) = (world.client(None), world.relay.address);
        crowd.spawn(async move { connecting.connect_to(address).await });
    }
    let connected = tokio::time::timeout(PATIENCE, crowd.join_all()).await.expect("some still wait");
    assert!(connected.iter().all(Result::is_ok));
    world.change("2");
    assert_eq!(neighbour.sent().await.set, ["a"]);
}

#[tokio::test]
async fn an_address_with_too_many_handshakes_is_closed_until_some_are_done() {
    let clients = Authority::named("clients");
    let folder = Folder::with_short_path("tls");
    folder.write("clients.pem", &clients.pem);
    let limits = "limits: {handshakes_per_address: 2, handshake_timeout: 6s}";
    let mut world = World::with(folder, "client_ca: clients.pem", limits).await;
    let identity = clients.sign("a");
    let mut neighbour = world.served(Some(&identity)).await;
    let slow = [
        TcpStream::connect(world.relay.address).await.unwrap(),
        TcpStream::connect(world.relay.address).await.unwrap(),
    ];
    crate::until("one is refused", async || {
        is_closed(TcpStream::connect(world.relay.address).await.unwrap()).await;
        reached(&world, "handshakes_per_address").await > 0
    })
    .await;
    assert!(world.failed("too_many_of_address").await > 0);
    for socket in slow {
        is_closed(socket).await;
    }
    let _new = world.served(Some(&identity)).await; // connected clients do not count
    world.change("2");
    assert_eq!(neighbour.sent().await.set, ["a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures how long changes take beside a thousand handshakes"]
async fn night_established_streams_are_served_while_five_hundred_clients_connect_at_once() {
    let _turn = super::HEAVY.lock().await;
    for limit in [16, 100_000] {
        let clients = Authority::named("clients");
        let folder = Folder::with_short_path("tls");
        folder.write("clients.pem", &clients.pem);
        let limits = format!("limits: {{handshakes: {limit}, {NEVER}}}");
        let mut world = World::with(folder, "client_ca: clients.pem", &limits).await;
        let identity = clients.sign("a");
        let mut neighbour = world.served(Some(&identity)).await;
        let mut crowd = JoinSet::new();
        for _ in 0..500 {
            let (connecting, address) = (world.client(Some(&identity)), world.relay.address);
            crowd.spawn(async move { connecting.connect_to(address).await.map(drop) });
        }
        let (mut changes, mut longest, began) = (1, Duration::ZERO, Instant::now());
        while !crowd.is_empty() {
            changes += 1;
            let of_change = Instant::now();
            world.change(&changes.to_string());
            neighbour.sent().await;
            longest = longest.max(of_change.elapsed());
            assert!(began.elapsed() < 2 * PATIENCE, "{} of the crowd are left", crowd.len());
            while let Some(connected) = crowd.try_join_next() {
                connected.unwrap().unwrap();
            }
        }
        let all = began.elapsed();
        println!("handshakes: {limit}: {changes} changes in {all:?}, the slowest in {longest:?}");
        // Beside other work each change takes seconds. A change that waits for the whole crowd takes all of the time.
        assert!(longest < Duration::from_secs(5).max(all * 3 / 4), "{longest:?} of {all:?}");
    }
}
