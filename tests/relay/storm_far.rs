//! Many views open streams at once to a control plane that is 200 ms away: they share connections that are still being made.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::failover::{content_of, relay_over};
use super::*;

const VIEWS: usize = 1_000;
/// The relay's default.
const STREAMS_PER_CONNECTION: usize = 50;
const ONE_WAY: Duration = Duration::from_millis(100);

/// A proxy that forwards bytes with a delay.
struct Far {
    accepted: AtomicUsize,
    cut: Notify,
}

impl Far {
    /// Listens at each address.
    fn listen(listeners: Vec<TcpListener>, server: SocketAddr) -> (Arc<Self>, JoinSet<()>) {
        let far = Arc::new(Self { accepted: AtomicUsize::new(0), cut: Notify::new() });
        let mut tasks = JoinSet::new();
        for listener in listeners {
            tasks.spawn(far.clone().accept(listener, server));
        }
        (far, tasks)
    }

    async fn accept(self: Arc<Self>, listener: TcpListener, server: SocketAddr) {
        let mut connections = JoinSet::new();
        loop {
            let (near, _) = listener.accept().await.unwrap();
            self.accepted.fetch_add(1, Ordering::Relaxed);
            let far = self.clone();
            connections.spawn(async move {
                let (near, server) = (near.into_split(), TcpStream::connect(server).await.unwrap().into_split());
                tokio::select! {
                    () = late(near.0, server.1) => {}
                    () = late(server.0, near.1) => {}
                    () = far.cut.notified() => {}
                }
            });
        }
    }
}

/// Forwards bytes in one direction with a delay, until the end.
async fn late(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let (sender, mut on_their_way) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async move {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut bytes).await {
            let _ = sender.send((Instant::now() + ONE_WAY, bytes[..read].to_vec())); // the other end may be closed
        }
    };
    let write = async move {
        while let Some((due, bytes)) = on_their_way.recv().await {
            sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(read, write);
}

/// Answers each stream with a cluster, until all clients have it. A stream is opened once more if the calls that show that its connection is
/// alive are not answered in time, so more than one for each view may come.
async fn answer_all(plane: &mut Plane, version: &str, clients: &mut [Client]) -> Vec<plane::Stream> {
    let mut streams = Vec::new();
    let answers = async {
        while let Some(stream) = plane.streams.recv().await {
            say(&stream, version, &[], &[("a", version)], &[]);
            streams.push(stream);
        }
    };
    let all_have_it = async {
        for client in clients {
            assert_eq!(content_of(client).await, [format!("a={version}")]);
        }
    };
    tokio::select! {
        () = answers => panic!("the plane is gone"),
        () = all_have_it => {}
    }
    streams
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "keeps the processors busy: a thousand views at once"]
async fn night_views_that_come_all_at_once_from_afar_take_no_more_connections_than_their_streams_need() {
    let _turn = super::HEAVY.lock().await;
    let mut plane = Plane::start(&[Variant::Delta]).await;
    // If the machine has both IPv4 and IPv6, the name has two addresses, so that the relay could try a second one beside the first.
    let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = first.local_addr().unwrap().port();
    let second = TcpListener::bind(("::1", port)).await.ok();
    let (far, _tasks) = Far::listen([first].into_iter().chain(second).collect(), plane.address);
    let server = format!("{{uri: 'http://localhost:{port}', variant: delta, backoff: {{initial: 200ms, max: 1s}}}}");
    let relay = relay_over(&format!("{{servers: [{server}]}}")).await;

    let mut clients = Vec::new();
    for _ in 0..VIEWS / 100 {
        clients.extend(Client::connect_many(relay.address, 100).await);
    }
    for (number, client) in clients.iter().enumerate() {
        client.ask(CDS, &[], Some(&format!("view-{number}")));
    }
    let needed = VIEWS / STREAMS_PER_CONNECTION;
    let most = needed + needed / 20;
    let streams = answer_all(&mut plane, "1", &mut clients).await;
    let accepted = far.accepted.load(Ordering::Relaxed);
    assert!(accepted >= needed, "{accepted} connections, {needed} are needed");

    // All connections break at once, and all views open their streams again.
    far.cut.notify_waiters();
    let opened = streams.len();
    drop(streams);
    let streams = answer_all(&mut plane, "2", &mut clients).await;
    let opened_again = streams.len();
    assert!(opened.min(opened_again) <= VIEWS + VIEWS / 20, "{opened} and {opened_again} streams, {VIEWS} are needed");
    let again = far.accepted.load(Ordering::Relaxed) - accepted;
    assert!(again >= needed, "{again} connections, {needed} are needed");
    // After a pause of the machine the other address is tried beside the first, as its answer is late.
    assert!(accepted.min(again) <= most, "{accepted} and {again} connections, {needed} are needed");
}
