//! Probes while the relay is busy.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;

use tokio::runtime::Builder;

use super::*;

const WORKERS: usize = 2;

/// Returns the status and the body of the answer, if there is one within a second.
fn ask(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?; // it is short, and comes at once
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

#[test]
fn i10_probes_are_answered_while_all_worker_threads_are_busy() {
    let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().unwrap();
    let (probes, admin, serving) = runtime.block_on(async {
        let plane = Plane::start(&BOTH).await;
        let text = format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nprobes: {{address: '127.0.0.1:0'}}\nadmin: {{address: '127.0.0.1:0'}}\n\
             upstream: {{servers: [{{uri: 'http://{}'}}]}}\n",
            plane.address
        );
        let app = crate::bind(Config::parse(Path::new("test.yaml"), &text).unwrap()).await.unwrap();
        (app.probes_address().unwrap(), app.admin_address().unwrap(), tokio::spawn(app.run()))
    });
    let healthy = Some((200, "ok\n".to_owned()));
    assert_eq!((ask(probes, "/healthz"), ask(admin, "/healthz")), (healthy.clone(), healthy.clone()));

    let (begun, begins) = mpsc::channel();
    let mut ends = Vec::new();
    for _ in 0..WORKERS {
        let (end, ended) = mpsc::channel::<()>();
        ends.push(end);
        let begun = begun.clone();
        runtime.spawn(async move {
            begun.send(thread::current().id()).unwrap();
            let _ = ended.recv(); // until the test has ended
        });
    }
    for _ in 0..WORKERS {
        begins.recv_timeout(client::PATIENCE).expect("a worker thread is free for it");
    }
    for _ in 0..3 {
        assert_eq!(ask(probes, "/healthz"), healthy);
        assert_eq!(ask(probes, "/ready"), Some((200, "ready\n".to_owned())));
    }
    assert_eq!(ask(admin, "/healthz"), None, "no worker thread is free");
    drop(ends);
    assert_eq!(ask(admin, "/healthz"), healthy);

    serving.abort();
    let is_closed = || TcpStream::connect(probes).is_err();
    let closed = (0..2_000).any(|_| {
        thread::sleep(Duration::from_millis(10));
        is_closed()
    });
    assert!(closed, "the thread of probes ends with the relay");
}
