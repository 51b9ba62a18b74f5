//! The program while no process reads its log: clients are served as usual, a reader that comes back is told which lines are missing, and the program
//! ends when it has to. Panics are in the log too.

use std::io::{BufRead, BufReader, PipeReader};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tonic::transport::{Channel, Endpoint};
use weir::telemetry::{LogControl, LogFormat};
use weir_core::protocol::session::Variant;
use weir_testkit::admin::{get, metric};
use weir_testkit::client::{Client, PATIENCE};
use weir_testkit::folder::Folder;
use weir_testkit::last_errors;
use weir_testkit::one_cluster::{CDS, receives, send};
use weir_testkit::plane::Plane;
use weir_testkit::program::field;

use crate::WEIR;

const DROPPED: &str = "log lines were dropped";

/// The program, with a log that is read only when the test reads it.
struct Program {
    child: Child,
    log: BufReader<PipeReader>,
    _folder: Folder,
}

impl Program {
    fn start(config: &str) -> Self {
        let folder = Folder::new("unread-log");
        folder.write("relay.yaml", config);
        let (reader, writer) = std::io::pipe().unwrap();
        let mut command = Command::new(WEIR);
        command.args(["--config", &folder.file("relay.yaml"), "--log", "debug"]).env("NO_COLOR", "1").stderr(writer);
        Self { child: command.spawn().unwrap(), log: BufReader::new(reader), _folder: folder }
    }

    /// Reads lines until one has this text, and returns it. Checks that each line is complete: it begins with its time.
    fn read_until(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "{text} is missing");
            let is_whole = line.get(10..11) == Some("T") && line.get(26..28) == Some("Z ") && line.ends_with('\n');
            assert!(is_whole, "{line:?}");
            if line.contains(text) {
                return line;
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have exited already
        let _ = self.child.wait();
    }
}

async fn asks(address: SocketAddr) -> Client {
    let client = Client::connect(address, Variant::Sotw).await;
    client.ask(CDS, &[], Some("web"));
    client
}

async fn dropped_lines(admin: &str) -> u64 {
    metric(admin, "weir_log_lines_dropped_total").await.expect("no such metric") as u64
}

/// Connects clients that call unknown methods, until this many lines were dropped.
async fn flood(address: SocketAddr, admin: &str, until: u64) {
    let path = format!("/{}", "x".repeat(2 << 10)); // the log line contains it
    let begun = Instant::now();
    while dropped_lines(admin).await < until {
        assert!(begun.elapsed() < PATIENCE, "no lines are dropped");
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        for _ in 0..100 {
            call(channel.clone(), &path).await;
        }
    }
}

async fn call(mut channel: Channel, path: &str) {
    use tonic::codegen::Service;
    std::future::poll_fn(|cx| Service::<http::Request<tonic::body::Body>>::poll_ready(&mut channel, cx)).await.unwrap();
    let call = http::Request::post(path).header("content-type", "application/grpc").body(tonic::body::Body::empty());
    let answer = tokio::time::timeout(PATIENCE, channel.call(call.unwrap())).await.expect("no answer");
    drop(answer.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i10_a_log_that_nobody_reads_delays_nobody_and_who_reads_it_again_learns_what_is_missing() {
    let mut plane = Plane::start(&[Variant::Sotw]).await;
    let config = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nviews: {{key: [cluster]}}\n\
         drain: {{grace: 0s, spread: 0s}}\n\
         upstream: {{servers: [{{uri: 'http://{}', variant: sotw}}]}}\n",
        plane.address
    );
    let mut program = Program::start(&config);
    let started = program.read_until("weir started"); // nothing else is read
    let address: SocketAddr = field(&started, "listen").unwrap().parse().unwrap();
    let admin = field(&started, "admin").unwrap();
    last_errors::note(admin.parse().unwrap());

    let mut client = asks(address).await;
    let mut stream = plane.stream().await;
    stream.request().await;
    send(&stream, "one");
    receives(&mut client, "one").await;
    flood(address, &admin, 1).await;
    send(&stream, "two");
    receives(&mut client, "two").await;
    let begun = Instant::now();
    while !get(&admin, "/problems").await.1.contains("\"log_dropped\"") {
        assert!(begun.elapsed() < PATIENCE, "it is no problem");
        flood(address, &admin, dropped_lines(&admin).await + 1).await; // the problem lasts while lines are dropped
    }
    let mut newcomer = asks(address).await;
    receives(&mut newcomer, "two").await;
    assert_eq!(get(&admin, "/healthz").await, (200, "ok\n".into()));

    let mention = program.read_until(DROPPED);
    let lines: u64 = field(mention.trim_end(), "lines").unwrap().parse().unwrap();
    assert!(lines > 0, "{mention}");

    // The log is not read again. The program ends in time, and no earlier line is cut off.
    flood(address, &admin, dropped_lines(&admin).await + 1).await;
    let id = program.child.id().to_string();
    let told = Instant::now();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    while program.child.try_wait().unwrap().is_none() {
        assert!(told.elapsed() < PATIENCE / 2, "it does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(program.child.wait().unwrap().success());
}

/// Runs a part of this file in a process of its own, which writes the log of a relay.
fn in_its_own_process(part: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", &format!("unread_log::{part}"), "--nocapture"])
        .env(OWN_PROCESS, part)
        .env("RUST_BACKTRACE", "0");
    command.stdout(Stdio::null()).output().unwrap()
}

/// Starts the log of a relay if this is the process for that part.
fn log_of(part: &str) -> Option<LogControl> {
    std::env::var(OWN_PROCESS).ok().filter(|name| name == part)?;
    Some(LogControl::start_with_queue(&"info".parse().unwrap(), LogFormat::Text).unwrap())
}

const OWN_PROCESS: &str = "WEIR_TEST_PART";

#[test]
fn panics_are_lines_of_the_log_also_the_one_that_ends_the_process() {
    let name = "panics_are_lines_of_the_log_also_the_one_that_ends_the_process";
    if let Some(log) = log_of(name) {
        let _end = log.end();
        let ended = std::thread::Builder::new().name("of a test".into()).spawn(|| panic!("the first\nof two"));
        assert!(ended.unwrap().join().is_err());
        panic!("the second");
    }
    let Output { status, stderr, .. } = in_its_own_process(name);
    let text = String::from_utf8(stderr).unwrap();
    assert!(!status.success());
    let [first, second] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert!(first.contains("ERROR weir::telemetry::log: a thread panicked thread=\"of a test\" at=\"tests/"), "{text}");
    assert!(first.ends_with(" error=\"the first\\nof two\"") && second.ends_with(" error=\"the second\""), "{text}");
}

#[test]
fn what_is_logged_before_the_process_aborts_is_written() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("the second");
        }
    }
    let name = "what_is_logged_before_the_process_aborts_is_written";
    if log_of(name).is_some() {
        let _panics = Panics;
        panic!("the first");
    }
    let Output { status, stderr, .. } = in_its_own_process(name);
    let text = String::from_utf8(stderr).unwrap();
    assert!(status.signal().is_some(), "{status}");
    for part in ["error=\"the first\"", "error=\"the second\"", "error=\"panic in a destructor during cleanup\""] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}
