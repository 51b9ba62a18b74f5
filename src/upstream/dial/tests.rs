use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::*;
use crate::upstream::connection_pool::{ConnectionPool, Moves};

mod proxied;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(250);

fn pool(server: AdsServer, dialer: Arc<Dialer>) -> Arc<ConnectionPool> {
    Arc::new(ConnectionPool::new(Arc::new(server), dialer, Some(Arc::new(Moves::new(PAUSE)))))
}

/// A listener whose queue is full, so that the kernel answers no other connection, and what fills it.
async fn full() -> (socket2::Socket, Vec<TcpStream>, SocketAddr) {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let mut filling = Vec::new();
    while let Ok(connected) = timeout(4 * SHORT, TcpStream::connect(address)).await {
        filling.push(connected.unwrap());
    }
    (listener, filling, address)
}

/// An address that refuses connections, and the socket that reserves it, so that no other program listens there.
pub(in crate::upstream) fn closed() -> (socket2::Socket, SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

fn server_at(address: SocketAddr) -> AdsServer {
    AdsServer { uri: format!("http://{address}").parse().unwrap(), ..AdsServer::undialed() }
}

#[tokio::test]
async fn a_server_has_its_own_time_to_accept_a_connection() {
    let mute = full().await;
    let server = AdsServer { connect_timeout: SHORT, ..server_at(mute.2) };
    let late = timeout(LONG, dial(&server, b"h2")).await.expect("it is given up").err().unwrap();
    assert_eq!(late.to_string(), format!("{}: no connection within 250ms", mute.2));
}

#[tokio::test]
async fn what_failed_at_an_address_is_said() {
    let (_bound, closed) = closed();
    let failed = dial(&server_at(closed), b"h2").await.err().unwrap();
    assert!(failed.to_string().starts_with(&format!("{closed}: ")), "{failed}");
}

#[test]
fn the_first_words_of_a_server_are_waited_for_no_longer_than_its_connection() {
    let with = |seconds| AdsServer { connect_timeout: Duration::from_secs(seconds), ..AdsServer::undialed() };
    assert_eq!([1, 5, 20].map(|seconds| with(seconds).dial_limits().first_words.as_secs()), [1, 5, 5]);
}

/// Each name has these addresses.
struct Fixed(Vec<SocketAddr>);

impl Lookup for Fixed {
    fn addresses(&self, _: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(self.0.clone())
    }
}

impl Dialer {
    pub(in crate::upstream) fn to(addresses: Vec<SocketAddr>) -> Arc<Self> {
        Self::by(Fixed(addresses), PAUSE)
    }
}

/// Takes connections and says nothing on them, until the test ends.
pub(in crate::upstream) async fn silent() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut taken = Vec::new();
        while let Ok((socket, _)) = listener.accept().await {
            taken.push(socket);
        }
    });
    address
}

/// A server that sends its settings, and nothing else, and how many connections are open.
async fn good() -> (SocketAddr, Arc<std::sync::atomic::AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, open) = (listener.local_addr().unwrap(), Arc::<std::sync::atomic::AtomicUsize>::default());
    let counted = open.clone();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let open = counted.clone();
            tokio::spawn(async move {
                use tokio::io::{AsyncReadExt, AsyncWriteExt};
                open.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
                socket.write_all(&settings).await.unwrap();
                let mut read = [0; 1024];
                while socket.read(&mut read).await.is_ok_and(|bytes| bytes > 0) {}
                open.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
            });
        }
    });
    (address, open)
}

/// A kernel accepts connections for a program that hangs, so an address counts when its server has spoken (FB-32).
#[tokio::test]
async fn a_good_address_is_found_among_those_that_refuse_drop_or_say_nothing_and_at_once_the_next_time() {
    let (_bound, closed) = closed();
    let (full, good) = (full().await, good().await);
    let dialer = Dialer::to(vec![closed, full.2, silent().await, silent().await, good.0]);
    let server = AdsServer {
        uri: "http://control.example:1".parse().unwrap(),
        connect_timeout: 10 * LONG, // one address would take longer than this test waits for all of them
        max_streams_per_connection: 1,
        ..AdsServer::undialed()
    };
    let pool = pool(server, dialer);
    let (first, _) = timeout(LONG, pool.slot(0)).await.expect("a connection").unwrap();
    // If the good address came first by chance, the others are tried now, since there is no connection to them yet.
    let (second, _) = timeout(LONG, pool.slot(0)).await.expect("another connection").unwrap();
    let mut slots = vec![first, second];
    // The others are avoided for a second after their first failure, and for longer after each other one.
    let mut times: Vec<Duration> = Vec::new();
    while times.last().is_none_or(|time| *time >= Duration::from_secs(2)) {
        assert!(times.len() < 5, "{times:?}");
        let start = tokio::time::Instant::now();
        let (slot, _) = timeout(LONG, pool.slot(0)).await.expect("one more").unwrap();
        times.push(start.elapsed());
        slots.push(slot);
    }
    assert_eq!(good.1.load(std::sync::atomic::Ordering::Relaxed), slots.len());
}

/// Views that start together do not all go to one address.
#[tokio::test]
async fn connections_are_spread_over_the_addresses_of_a_server() {
    let servers = [good().await, good().await, good().await];
    let dialer = Dialer::to(servers.iter().map(|server| server.0).collect());
    let server = AdsServer {
        uri: "http://control.example:1".parse().unwrap(),
        max_streams_per_connection: 1,
        connect_timeout: LONG,
        ..AdsServer::undialed()
    };
    let pool = pool(server, dialer);
    let dialing = futures_util::future::join_all((0..30).map(|_| pool.slot(0)));
    let slots = timeout(LONG, dialing).await.unwrap();
    assert!(slots.iter().all(Result::is_ok));
    let open = || servers.each_ref().map(|server| server.1.load(std::sync::atomic::Ordering::Relaxed));
    // An address that was late had another one tried beside it, whose connection closes.
    let settles = async {
        while open() != [10; 3] {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LONG, settles).await.unwrap_or_else(|_| panic!("{:?}", open()));
}

/// A proxy may be alive in front of a server that is not: its settings arrive, but no response.
#[tokio::test]
async fn an_address_whose_server_ends_streams_without_a_response_is_left_for_another_until_one_comes() {
    let servers = [good().await, good().await];
    let open = || servers.each_ref().map(|server| server.1.load(std::sync::atomic::Ordering::Relaxed));
    let dialer = Dialer::to(servers.iter().map(|server| server.0).collect());
    let uri = "http://control.example:1".parse().unwrap();
    let server = AdsServer { uri, max_streams_per_connection: 1, connect_timeout: LONG, ..AdsServer::undialed() };
    let pool = pool(server, dialer.clone());
    let avoided = || servers.each_ref().map(|server| dialer.book.is_avoided(server.0));
    let connect = async |least| timeout(LONG, pool.slot(least)).await.expect("no connection").unwrap().0;
    let closes = async || {
        while open() != [0, 0] {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    // An address is avoided for a second after its first rejection, and for longer after each other one.
    let (mut least, mut is_left) = (0, false);
    while !is_left {
        assert!(least < 10, "the same one again");
        let first = connect(least).await;
        let at_first = open();
        first.is_rejecting();
        drop(first);
        closes().await;
        let second = connect(least + 1).await;
        is_left = open() != at_first;
        drop(second);
        closes().await;
        least += 2;
    }

    let third = connect(least).await;
    third.is_rejecting();
    let at_third = open().map(|connections| connections > 0);
    assert!(avoided().iter().zip(at_third).any(|(avoided, is_there)| *avoided && is_there));
    third.has_answered();
    assert!(!avoided().iter().zip(at_third).any(|(avoided, is_there)| *avoided && is_there), "a response came");
}
