//! Many clients and many views at once: none waits for something that another has already found out.

use std::time::Instant;

use futures_util::future::join_all;
use tokio::net::TcpStream;

use super::evidence::servers;
use super::flock::Flock;
use super::holder::{ALL_CLUSTERS, Holder, Wish};
use super::*;
use weir_testkit::folder::Folder;
use weir_testkit::script::Way;
use weir_testkit::server::Server;

/// A connect that takes longer was dropped by the kernel once: the kernel repeats it after a second.
const BEFORE_A_RETRY: Duration = Duration::from_millis(900);
/// The time limit from the set's arrival at the relay until all clients have it. On a busy machine it is longer: so many times the time that as many clients
/// need that come once the set is known.
const SOON: Duration = Duration::from_secs(2);
const AS_LATER: u32 = 2;
/// The time limit for one client that comes once the set is known: it waits for nobody. Beside a crowd that is leaving it may need as long as a
/// crowd that comes.
const ALONE: Duration = Duration::from_secs(1);
/// How often to try: a busy machine may be late once.
const TRIES: usize = 3;
/// How many open files of this process are not sockets of a client's connection.
const OTHER_SOCKETS: usize = 500;

/// Returns the number of clients: a thousand, or fewer if this process may not open so many files. Each has two, and a thousand may still be leaving.
fn crowd() -> usize {
    let options = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let files = options.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next());
    let files: usize = files.and_then(|text| text.parse().ok()).unwrap_or(1024);
    1_000.min(files.saturating_sub(OTHER_SOCKETS) / 4)
}

/// How long clients took.
#[derive(Debug)]
struct Times {
    /// The longest time to connect.
    connecting: Duration,
    /// From the set's arrival until the last client has it.
    waiting: Duration,
    /// Until one client has it that comes while the crowd is leaving.
    beside_leaving: Duration,
    /// Until one client has it that comes after they have left, and until as many have it.
    alone: Duration,
    known: Duration,
}

async fn all_at_once() -> Times {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, protocol_of(Variant::Delta)).await;
    // All clients begin to connect before the relay can accept any connection.
    let connect = || async {
        let start = Instant::now();
        (TcpStream::connect(relay.address).await.expect("a connect is lost"), start.elapsed())
    };
    let some = async |count| -> (Vec<_>, Vec<_>) { join_all((0..count).map(|_| connect())).await.into_iter().unzip() };
    let (sockets, times) = some(crowd()).await;
    let flock = Flock::over(sockets, CDS, &[]);
    let mut stream = plane.stream().await;
    stream.request().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let said = Instant::now();
    flock.has(TWO.len()).await;
    let waiting = said.elapsed();
    flock.heard(); // and no stream has ended
    drop(flock);
    let later = async |count| {
        let sockets = some(count).await.0;
        let begun = Instant::now();
        let flock = Flock::over(sockets, CDS, &[]);
        flock.has(TWO.len()).await;
        begun.elapsed()
    };
    let beside_leaving = later(1).await;
    until("all have left", async || metric(&relay, "weir_client_connections").await == 0.0).await;
    let (alone, known) = (later(1).await, later(crowd()).await);
    assert!(plane.streams.try_recv().is_err(), "one stream for all of them");
    Times { connecting: times.into_iter().max().unwrap(), waiting, beside_leaving, alone, known }
}

#[tokio::test]
#[ignore = "measures how long a thousand clients wait"]
async fn night_a_thousand_clients_of_one_view_connect_at_once_and_have_their_first_set_at_once() {
    let _turn = super::HEAVY.lock().await;
    let mut late = Vec::new();
    for _ in 0..TRIES {
        let times = all_at_once().await;
        let is_soon = times.waiting < SOON.max(AS_LATER * times.known)
            && times.beside_leaving < ALONE.max(times.known)
            && times.alone < ALONE;
        if times.connecting < BEFORE_A_RETRY && is_soon {
            return;
        }
        late.push(times);
    }
    panic!("{late:?}");
}

const VIEWS: [&str; 5] = ["v1", "v2", "v3", "v4", "v5"];
/// The third pause would be 100 s.
const LONG_PAUSES: &str = ", variant: delta, backoff: {initial: 10ms, factor: 100, max: 1h, jitter: 0}";

/// Returns a subscription to everything, for a node of this cluster.
fn everything(cluster: &'static str) -> Wish {
    Wish { cluster, ..ALL_CLUSTERS }
}

#[tokio::test]
async fn fb_20_up_33_views_that_wait_for_a_server_come_back_once_one_of_them_has_found_it() {
    let content = Way::GivesOnly(&[("a", "1")]);
    let server = Server::start(content.clone()).await;
    let relay = relay_with_options(&servers(&[server.address], LONG_PAUSES), "", |_| {}).await;
    let mut clients = Vec::new();
    for view in VIEWS {
        let client = Holder::new(relay.address, Variant::Delta, everything(view)).await;
        client.until("the set", |record| record.holds.len() == 1).await;
        clients.push(client);
    }
    let address = server.kill().await;
    until("each view has tried in vain twice", async || ended(&relay).await >= 3 * VIEWS.len()).await;

    let server = Server::start_at(address, content).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(server.seen().opened, 0, "none of them tries for a long time");
    let newcomer = Holder::new(relay.address, Variant::Delta, everything("new")).await;
    newcomer.until("the set", |record| record.holds.len() == 1).await;
    let found = Instant::now();
    server.sees("all views are back", |seen| seen.open == VIEWS.len() + 1).await;
    assert!(found.elapsed() < Duration::from_secs(30), "{:?}", found.elapsed()); // the pause is 100 s
    clients.iter().for_each(Holder::has_lost_nothing);
}

#[tokio::test]
async fn fb_20_views_without_a_token_come_back_once_one_is_answered_over_a_connection_that_was_never_lost() {
    let server = Server::start(Way::GivesOnly(&[("a", "1")])).await;
    let folder = Folder::new("crowd-without-token");
    folder.write("token", "one");
    let each = format!("{LONG_PAUSES}, headers: {{x-token: {{file: '{}'}}}}", folder.file("token"));
    let relay = relay_with_options(&servers(&[server.address], &each), "", |_| {}).await;
    let holder = async |view| Holder::new(relay.address, Variant::Delta, everything(view)).await;
    let stays = holder("stays").await;
    stays.until("the set", |record| record.holds.len() == 1).await;
    folder.write("token", "");
    let mut waiting = Vec::new();
    for view in VIEWS {
        waiting.push(holder(view).await);
    }
    until("each view has tried in vain three times", async || ended(&relay).await >= 3 * VIEWS.len()).await;

    folder.write("token", "two");
    let newcomer = holder("new").await;
    for client in waiting.iter().chain([&newcomer, &stays]) {
        client.until("the set", |record| record.holds.len() == 1).await;
        client.has_lost_nothing();
    }
    let one_connection = format!("weir_upstream_connections{{server=\"http://{}\"}} 1\n", server.address);
    assert!(get(relay.admin, "/metrics").await.contains(&one_connection));
}

/// Returns how often an upstream stream has ended or could not be opened.
pub(super) async fn ended(relay: &Relay) -> usize {
    let metrics = get(relay.admin, "/metrics").await;
    let counts = metrics.lines().filter(|line| line.starts_with("weir_upstream_streams_closed_total{"));
    counts.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
}
