//! Probes while the relay is busy.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::log_lines::{HANGING, HANGS, ask_each_time};
use super::*;

const WORKERS: usize = 2;
/// How long a scrape waits for its page (`telemetry/exposition.rs`).
const SCRAPE_WAITS: Duration = Duration::from_secs(10);

/// Returns the status and the body of the answer, if there is one.
fn ask(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    ask_within(client::PATIENCE, address, path)
}

fn ask_within(patience: Duration, address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(patience)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?; // the response is short and immediate
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// Sends the request of a scrape.
fn scrape(address: SocketAddr) -> TcpStream {
    let mut scrape = TcpStream::connect(address).unwrap();
    scrape.set_read_timeout(Some(client::PATIENCE)).unwrap();
    write!(scrape, "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    scrape
}

fn answer(mut scrape: TcpStream) -> String {
    let mut answer = String::new();
    scrape.read_to_string(&mut answer).unwrap();
    answer
}

/// A relay whose worker threads the test can block.
struct Relay {
    runtime: Runtime,
    clients: SocketAddr,
    probes: SocketAddr,
    admin: SocketAddr,
    serving: JoinHandle<()>,
}

impl Relay {
    fn start(more: &str) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().unwrap();
        let (clients, probes, admin, serving) = runtime.block_on(async {
            let plane = Plane::start(&BOTH).await;
            let text = format!(
                "listen: [{{address: '127.0.0.1:0'}}]\nprobes: {{address: '127.0.0.1:0'}}\n\
                 admin: {{address: '127.0.0.1:0'}}\nupstream: {{servers: [{{uri: 'http://{}'}}]}}\n{more}",
                plane.address
            );
            let app = crate::bind(Config::parse(Path::new("test.yaml"), &text).unwrap()).await.unwrap();
            let (clients, probes, admin) =
                (app.addresses()[0], app.probes_address().unwrap(), app.admin_address().unwrap());
            (clients, probes, admin, tokio::spawn(app.run()))
        });
        Self { runtime, clients, probes, admin, serving }
    }

    /// Blocks a worker thread until the returned sender is dropped.
    fn block_worker(&self) -> mpsc::Sender<()> {
        let ((end, ended), (begun, begins)) = (mpsc::channel::<()>(), mpsc::channel());
        self.runtime.spawn(async move {
            begun.send(()).unwrap();
            let _ = ended.recv();
        });
        begins.recv_timeout(client::PATIENCE).expect("a worker thread is free for it");
        end
    }

    /// Whether a scrape waits for its page. A refusal would be as quick as the answer to a probe that comes later.
    fn waits(&self, scrape: &TcpStream) -> bool {
        let is_unanswered = || {
            scrape.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            let is_unanswered = scrape.peek(&mut [0]).is_err();
            scrape.set_read_timeout(Some(client::PATIENCE)).unwrap();
            is_unanswered
        };
        is_unanswered() && {
            self.probe_until("/healthz", |_, _| true);
            is_unanswered()
        }
    }

    /// Probes until a response satisfies a condition, and returns its body.
    fn probe_until(&self, path: &str, holds: impl Fn(u16, &str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            if let Some((status, body)) = ask_within(Duration::from_secs(3), self.probes, path)
                && holds(status, &body)
            {
                return body;
            }
            assert!(begun.elapsed() < client::PATIENCE, "{path} does not become that");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn i10_probes_are_answered_while_all_worker_threads_are_busy() {
    let relay = Relay::start("");
    let (probes, admin) = (relay.probes, relay.admin);
    let healthy = Some((200, "ok\n".to_owned()));
    assert_eq!((ask(probes, "/healthz"), ask(admin, "/healthz")), (healthy.clone(), healthy.clone()));

    relay.probe_until("/ready", |status, _| status == 200);

    let ends: Vec<_> = (0..WORKERS).map(|_| relay.block_worker()).collect();
    for _ in 0..3 {
        assert_eq!(ask(probes, "/healthz"), healthy);
        assert_eq!(ask(probes, "/ready"), Some((200, "ready\n".to_owned())));
    }
    assert_eq!(ask_within(Duration::from_secs(3), admin, "/healthz"), None, "no worker thread is free");
    drop(ends);
    assert_eq!(ask(admin, "/healthz"), healthy);

    relay.serving.abort();
    let is_closed = || TcpStream::connect(probes).is_err();
    let closed = (0..2_000).any(|_| {
        thread::sleep(Duration::from_millis(10));
        is_closed()
    });
    assert!(closed, "the thread of probes ends with the relay");
}

/// A scrape waits for the worker threads, and a probe does not. The limit of scrapes counts none whose scraper has left.
#[test]
fn i10_scrapes_that_wait_keep_no_probe_from_its_answer() {
    let relay = Relay::start("");
    relay.probe_until("/ready", |status, _| status == 200);
    let ends: Vec<_> = (0..WORKERS).map(|_| relay.block_worker()).collect();
    let scrapes: Vec<_> = (0..40).map(|_| scrape(relay.probes)).collect();
    assert_eq!(ask(relay.probes, "/healthz"), Some((200, "ok\n".to_owned())));
    drop(ends);
    let is_page = |answer: &String| answer.starts_with("HTTP/1.1 200");
    let is_refused = |answer: &str| answer.starts_with("HTTP/1.1 503") && answer.contains("too many scrapes");
    let (pages, others): (Vec<_>, Vec<_>) = scrapes.into_iter().map(answer).partition(is_page);
    assert!(pages.len() >= 16 && !others.is_empty(), "{} and {}", pages.len(), others.len());
    for answer in others {
        assert!(is_refused(&answer), "{answer}");
    }
    relay.probe_until("/metrics", |status, _| status == 200);

    let ends: Vec<_> = (0..WORKERS).map(|_| relay.block_worker()).collect();
    let (begun, oldest) = (Instant::now(), scrape(relay.probes));
    assert_eq!(ask(relay.probes, "/healthz"), Some((200, "ok\n".to_owned())));
    let leaving: Vec<_> = (0..40).map(|_| scrape(relay.probes)).collect();
    relay.probe_until("/metrics", |status, body| status == 503 && body.contains("too many scrapes"));
    drop(leaving);
    let waits = loop {
        let later = scrape(relay.probes);
        if relay.waits(&later) {
            break later;
        }
        let refused = answer(later);
        assert!(is_refused(&refused) && begun.elapsed() < client::PATIENCE, "{refused}");
        thread::sleep(Duration::from_millis(20));
    };
    drop(ends);
    // The oldest one has not left. On a slow machine it may have waited for too long.
    for answer in [oldest, waits].map(answer) {
        let is_late = begun.elapsed() >= SCRAPE_WAITS && answer.contains("have not answered in time");
        assert!(is_page(&answer) || is_late, "{answer}");
    }
    relay.serving.abort();
}

#[test]
fn i10_healthz_fails_while_no_worker_thread_gets_on_and_not_while_one_of_them_does_not() {
    let relay = Relay::start("watchdog: 4s\nshards: 0\n");
    relay.probe_until("/ready", |status, _| status == 200);
    let first = relay.block_worker();
    let stalls =
        |page: &str| page.lines().any(|line| line.starts_with("weir_worker_stalls_total") && line.ends_with(" 1"));
    relay.probe_until("/metrics", |_, page| stalls(page)); // it stalls for 5 s first
    assert_eq!(ask(relay.probes, "/healthz"), Some((200, "ok\n".into())));

    let second = relay.block_worker();
    let reason = relay.probe_until("/healthz", |status, _| status == 503);
    let lasted =
        reason.strip_prefix("the worker threads have not answered for ").and_then(|rest| rest.split(' ').next());
    let lasted = lasted.and_then(|seconds| seconds.parse::<u64>().ok());
    assert!(lasted.is_some_and(|seconds| seconds < 20), "by the configured time, not by the default of 30 s: {reason}");
    assert_eq!(ask(relay.probes, "/ready"), Some((200, "ready\n".into())), "the thread of probes does not wait");
    drop((first, second));
    relay.probe_until("/healthz", |status, _| status == 200);
    relay.serving.abort();
}

#[test]
fn i10_healthz_fails_while_a_shard_hangs_and_the_other_one_serves_who_connects() {
    ask_each_time();
    let relay = Relay::start("watchdog: 1s\nshards: 2\n");
    relay.probe_until("/healthz", |status, _| status == 200);
    let hanging = HANGING.lock().unwrap();
    let mut hangs = TcpStream::connect(relay.clients).unwrap();
    hangs.set_read_timeout(Some(client::PATIENCE)).unwrap();
    write!(hangs, "GET /v3/discovery:{HANGS} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    // On a busy machine the worker threads may be late too.
    let reason = relay.probe_until("/healthz", |status, body| status == 503 && body.starts_with("shard "));
    assert!(reason.contains(" has not answered for "), "{reason}");
    for _ in 0..3 {
        let (status, _) = ask(relay.clients, "/v3/discovery:none").expect("the other shard serves it");
        assert_eq!(status, 404);
    }
    drop(hanging);
    relay.probe_until("/healthz", |status, _| status == 200);
    let mut answer = [0; 12];
    hangs.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 404");
    relay.serving.abort();
}
