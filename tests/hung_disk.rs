//! The program on a disk that takes writes and never finishes one: clients are served as ever, operators see it, and the program ends when it
//! is told to.

#[path = "relay/client.rs"]
#[allow(dead_code)] // tests/relay uses the rest
mod client;
#[path = "relay/last_errors.rs"]
mod last_errors;
#[path = "relay/load_plane.rs"]
#[allow(dead_code)] // tests/relay uses the rest
mod load_plane;
#[path = "relay/plane.rs"]
#[allow(dead_code)] // tests/relay uses the rest
mod plane;
#[path = "support/program.rs"]
mod program;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use client::{Client, PATIENCE};
use plane::{Plane, Stream};
use program::Program;
use weir_core::proto::discovery::{DiscoveryRequest, DiscoveryResponse};
use weir_core::proto::{Any, Response};
use weir_core::protocol::session::Variant;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// Calls that bring bytes to the disk wait while a file is there.
const HANGING_SYNC: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static void wait_for_disk(void) {
    const char *file = getenv("HUNG_DISK");
    while (file && access(file, F_OK) == 0) usleep(10000);
}
int fdatasync(int fd) { wait_for_disk(); return syscall(SYS_fdatasync, fd); }
int fsync(int fd) { wait_for_disk(); return syscall(SYS_fsync, fd); }
"#;

/// Files of the test, deleted with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hung-disk-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // what is left is in the build folder
    }
}

fn built_library(folder: &Folder) -> String {
    let (source, library) = (folder.file("sync.c"), folder.file("sync.so"));
    fs::write(&source, HANGING_SYNC).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o", &library, &source]).status().unwrap();
    assert!(built.success());
    library
}

/// Sends a set of one cluster, which has the version as its content.
fn send(stream: &Stream, version: &str) {
    let mut value = vec![0x0a, 1, b'a', 0xc2, 0x3e, version.len() as u8];
    value.extend(version.bytes());
    stream.respond(&Response::Sotw(DiscoveryResponse {
        version_info: version.into(),
        nonce: version.into(),
        type_url: CDS.into(),
        resources: vec![Any { type_url: CDS.into(), value: value.into() }],
        ..DiscoveryResponse::default()
    }));
}

async fn receives(client: &mut Client, version: &str) {
    let Client::Sotw(requests, replies) = client else { unreachable!() };
    let reply = tokio::time::timeout(PATIENCE, replies.message()).await.expect("no reply").unwrap().unwrap();
    assert!(reply.resources[0].value.ends_with(version.as_bytes()), "{reply:?}");
    let ack = DiscoveryRequest { type_url: CDS.into(), response_nonce: reply.nonce, ..DiscoveryRequest::default() };
    requests.send(DiscoveryRequest { version_info: reply.version_info, ..ack }).unwrap();
}

async fn metric(admin: &str, name: &str) -> f64 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut socket = tokio::net::TcpStream::connect(admin).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).await.unwrap();
    let value = response.lines().find_map(|line| line.strip_prefix(name)).expect("no such metric");
    value.trim().parse().unwrap()
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs_delays_nothing_but_the_file() {
    let folder = Folder::new();
    let mut plane = Plane::start(&[Variant::Sotw]).await;
    let config = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nviews: {{key: [cluster]}}\n\
         drain: {{grace: 0s, spread: 0s}}\nstate: {{path: {}}}\n\
         upstream: {{servers: [{{uri: 'http://{}', variant: sotw}}]}}\n",
        folder.file("state"),
        plane.address
    );
    let (library, hung) = (built_library(&folder), folder.file("hung"));
    let environment = format!("export LD_PRELOAD='{library}' HUNG_DISK='{hung}'");
    let mut program = Program::start_after(&environment, "hung-disk.yaml", &config, PATIENCE);
    last_errors::note(program.admin.parse().unwrap());
    let address: SocketAddr = program.address.parse().unwrap();
    let current = async |program: &Program| metric(&program.admin, "weir_state_current_timestamp_seconds ").await;
    until("the file is current", async || current(&program).await > 0.0).await;

    fs::write(&hung, "").unwrap();
    let mut client = Client::connect(address, Variant::Sotw).await;
    client.ask(CDS, &[], Some("web"));
    let mut stream = plane.stream().await;
    stream.request().await;
    for version in ["one", "two", "three"] {
        send(&stream, version);
        receives(&mut client, version).await;
    }
    until("it is logged", async || !program.logged("the disk is slow").is_empty()).await;
    let stands_at = current(&program).await;
    send(&stream, "four");
    receives(&mut client, "four").await;
    let mut newcomer = Client::connect(address, Variant::Sotw).await;
    newcomer.ask(CDS, &[], Some("web"));
    receives(&mut newcomer, "four").await;
    assert_eq!(current(&program).await, stands_at, "nothing has reached the disk");
    assert_eq!(program.logged("the disk is slow").len(), 1);

    fs::remove_file(&hung).unwrap();
    until("the file is current again", async || current(&program).await > stands_at).await;

    // It hangs for good, with something to write.
    fs::write(&hung, "").unwrap();
    send(&stream, "five");
    receives(&mut client, "five").await;
    let id = program.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    until("the program ends", async || program.child.try_wait().unwrap().is_some()).await;
    assert_eq!(program.logged("the last state could not be written in time").len(), 1);
}
