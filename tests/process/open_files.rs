//! The program with few open files: it raises the limit as far as allowed, reserves enough for operators, and serves clients again as soon as
//! it can.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tonic::transport::Endpoint;
use weir_core::protocol::session::Variant;
use weir_testkit::admin::{get, metric};
use weir_testkit::client::{Client, PATIENCE};
use weir_testkit::folder::Folder;
use weir_testkit::one_cluster::CDS;
use weir_testkit::program::{Program, field};
use weir_testkit::script::Way;
use weir_testkit::server::Server;
use weir_testkit::wait::until;

use crate::WEIR;

async fn reached(program: &Program, limit: &str) -> f64 {
    let name = format!("weir_limit_reached_total{{limit=\"{limit}\"}}");
    metric(&program.admin, &name).await.unwrap_or_else(|| panic!("{name} is missing"))
}

fn write_cluster(folder: &Folder, stat_name: &str) {
    let text = format!("resources:\n- {{'@type': {CDS}, name: a, alt_stat_name: {stat_name}}}\n");
    folder.write("clusters.yaml", &text);
}

/// Returns the configuration of a relay that serves the files of a folder.
fn config_of(folder: &Folder, more: &str) -> String {
    format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nupstream: {{files: '{}'}}\n{more}",
        folder.0.display()
    )
}

async fn client_of(program: &Program) -> Option<Client> {
    let address: SocketAddr = program.address.parse().unwrap();
    let client = Client::try_connect(address, Variant::Delta).await?;
    client.ask(CDS, &[], Some("web"));
    Some(client)
}

#[tokio::test]
async fn the_soft_limit_is_raised_to_the_hard_one_and_the_log_has_both() {
    let folder = Folder::new("open-files-raised");
    write_cluster(&folder, "one");
    let limits = "ulimit -S -n 100 && ulimit -H -n 300";
    let program = Program::start_after(WEIR, limits, "open-files-raised.yaml", &config_of(&folder, ""), PATIENCE);
    let raised = program.logged("limit of open files raised");
    assert_eq!((field(&raised[0], "before"), field(&raised[0], "now")), (Some("100".into()), Some("300".into())));
    let started = &program.logged("weir started")[0];
    assert_eq!(field(started, "open_files").as_deref(), Some("300"));
    assert_eq!(field(started, "max_connections").as_deref(), Some("207"));
    let limits = get(&program.admin, "/metrics").await.1;
    assert!(limits.contains("process_max_fds 300\n"), "{limits}");
}

#[tokio::test]
async fn silent_connections_beyond_the_limit_of_open_files_stop_neither_operators_nor_clients() {
    let folder = Folder::new("open-files-silent");
    write_cluster(&folder, "one");
    let config = config_of(&folder, "limits: {connections: 5000}\n");
    let program = Program::start_after(WEIR, "ulimit -n 128", "open-files-silent.yaml", &config, PATIENCE);
    let lowered = &program.logged("limits.connections lowered")[0];
    assert_eq!((field(lowered, "configured"), field(lowered, "lowered")), (Some("5000".into()), Some("72".into())));
    let mut neighbour = client_of(&program).await.unwrap();
    let sent = neighbour.sent().await;
    assert_eq!(sent.set, ["a"]);
    neighbour.ack(CDS, &[], &sent);
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(&program.address).await.unwrap());
    }
    assert_eq!(get(&program.admin, "/healthz").await.0, 200);
    until("the limit is reached", async || reached(&program, "limits.connections").await > 0.0).await;
    write_cluster(&folder, "two");
    assert_eq!(neighbour.sent().await.set, ["a"]);
    let served = async {
        loop {
            if let Some(mut client) = client_of(&program).await {
                return client.sent().await;
            }
        }
    };
    let sent = tokio::time::timeout(2 * PATIENCE, served).await.expect("no new client is served");
    assert_eq!(sent.set, ["a"]);
    assert_eq!(reached(&program, "open_files").await, 0.0, "files are left for others");
}

/// Every file stays open: connections to a server that answers have the last ones. The reserve is for operators, and is not taken back from them.
#[tokio::test]
async fn operators_are_served_while_all_files_stay_open_and_the_relay_is_idle() {
    let server = Server::start(Way::Gives("one")).await;
    let config = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}
upstream: {{servers: [{{uri: 'http://{}', max_streams_per_connection: 1}}]}}
views: {{key: [cluster]}}
limits: {{views_per_connection: 0}}\n",
        server.address
    );
    let program = Program::start_after(WEIR, "ulimit -n 128", "open-files-kept.yaml", &config, PATIENCE);
    let channel = Endpoint::from_shared(format!("http://{}", program.address)).unwrap().connect().await.unwrap();
    let mut streams = Vec::new();
    for number in 0..120 {
        let cluster = format!("cluster-{number}"); // a view of its own, with a connection of its own
        streams.push(Client::call_for_clusters(channel.clone(), &[], &cluster).await.unwrap());
    }
    let process = format!("/proc/{}", program.child.id());
    let all_are_open = || std::fs::read_dir(format!("{process}/fd")).unwrap().count() >= 128;
    until("all files are open", async || all_are_open()).await;
    for _ in 0..10 {
        assert_eq!(get(&program.admin, "/healthz").await.0, 200);
    }
    until("and are again", async || all_are_open()).await;
    let before = processor_time(&process);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let used = processor_time(&process) - before;
    assert!(used < Duration::from_millis(500), "{used:?} of a second, in which nothing happened");
}

fn processor_time(process: &str) -> Duration {
    let line = std::fs::read_to_string(format!("{process}/stat")).unwrap();
    let fields: Vec<_> = line.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|at| fields[*at].parse::<u64>().unwrap()).sum(); // user, system
    Duration::from_millis(ticks * 10)
}

#[tokio::test]
async fn operators_are_served_when_all_files_are_open_and_clients_when_some_are_closed() {
    // The kernel completes connections to the server, which answers nothing.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}
upstream: {{servers: [{{uri: 'http://{}', max_streams_per_connection: 1}}]}}
views: {{key: [cluster], idle_timeout: 100ms}}
limits: {{linger: 0s, views_per_connection: 0}}\n",
        server.local_addr().unwrap()
    );
    let program = Program::start_after(WEIR, "ulimit -n 128", "open-files-exhausted.yaml", &config, PATIENCE);
    let address: SocketAddr = program.address.parse().unwrap();
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut streams = Vec::new();
    for number in 0..120 {
        // Each has a view of its own, for which the relay has to connect to the server.
        let cluster = format!("cluster-{number}");
        streams.push(Client::call_for_clusters(channel.clone(), &[], &cluster).await.unwrap());
    }
    let mut more = Vec::new();
    for _ in 0..20 {
        more.push(TcpStream::connect(address).await.unwrap());
    }
    until("all files are open", async || reached(&program, "open_files").await > 0.0).await;
    for _ in 0..10 {
        assert_eq!(get(&program.admin, "/healthz").await.0, 200);
    }
    program.says("cannot accept connections", PATIENCE);
    assert_eq!(program.logged("cannot accept connections").len(), 1);
    drop((streams, channel, more));
    let mut client = Client::connect(address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    client.hears_nothing(Duration::from_millis(50)).await; // the stream stays open, although the server answers nothing
}
