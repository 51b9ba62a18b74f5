use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::compression::tests::gzip;
use crate::upstream::{AdsServer, ConnectionAges};

/// A server that gives these answers, one to each poll, over as many connections as it takes.
pub(in crate::upstream::rest) struct Server {
    pub(in crate::upstream::rest) address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    connections: usize,
    /// The heads of the requests.
    heads: Vec<String>,
}

/// What it does with one poll.
pub(in crate::upstream::rest) enum Does {
    Answer(Vec<u8>),
    /// Sends this answer, and closes the connection.
    Last(String),
}

pub(in crate::upstream::rest) fn answer(status: &str, body: &str) -> Does {
    encoded_answer(status, "identity", body.as_bytes())
}

fn encoded_answer(status: &str, encoding: &str, body: &[u8]) -> Does {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-encoding: {encoding}\r\ncontent-length: {length}\r\n\r\n");
    Does::Answer([head.as_bytes(), body].concat())
}

impl Server {
    pub(in crate::upstream::rest) async fn that(does: Vec<Does>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, seen) = (listener.local_addr().unwrap(), Arc::<Mutex<Seen>>::default());
        let of = seen.clone();
        let does = Arc::new(Mutex::new(does.into_iter()));
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                of.lock().unwrap().connections += 1;
                let (of, does) = (of.clone(), does.clone());
                tokio::spawn(async move {
                    while let Some(head) = request(&mut socket).await {
                        of.lock().unwrap().heads.push(head);
                        let next = does.lock().unwrap().next();
                        match next {
                            Some(Does::Answer(bytes)) => socket.write_all(&bytes).await.unwrap(),
                            Some(Does::Last(text)) => {
                                socket.write_all(text.as_bytes()).await.unwrap();
                                break;
                            }
                            None => std::future::pending().await,
                        }
                    }
                });
            }
        });
        Self { address, seen }
    }

    fn wire(&self) -> PollConnection {
        let uri = format!("http://{}", self.address).parse().unwrap();
        let at = AdsServer { uri, message_bytes: 100, tokens: vec!["/no/such/token".into()], ..AdsServer::undialed() };
        let (refresh_delay, request_timeout) = (Duration::from_secs(5), Duration::from_secs(20));
        PollConnection::new(Arc::new(RestServer { at, refresh_delay, request_timeout }), Arc::default(), moves())
    }

    fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }
}

/// Connections are replaced as soon as they are to be.
fn moves() -> Arc<Moves> {
    Arc::new(Moves::new(Duration::ZERO))
}

/// Reads one request, and returns its head. None at the end of the connection.
async fn request(socket: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    socket.read_exact(&mut vec![0; length.parse().unwrap()]).await.ok()?;
    Some(head)
}

const BODY: &[u8] = b"{body}";

async fn post(wire: &mut PollConnection) -> Result<PollAnswer, Failure> {
    wire.post("/v3/discovery:clusters", Bytes::from_static(BODY)).await
}

#[tokio::test]
async fn polls_go_over_one_connection_and_over_another_once_the_server_has_closed_it() {
    let server = Server::that(vec![
        answer("200 OK", "one"),
        answer("304 Not Modified", ""),
        Does::Last(String::new()),
        answer("200 OK", "two"),
        Does::Last(String::new()),
        Does::Last(String::new()),
    ])
    .await;
    let mut wire = server.wire();
    assert!(matches!(post(&mut wire).await, Ok(PollAnswer::Content(body)) if body == "one"));
    assert!(matches!(post(&mut wire).await, Ok(PollAnswer::Unchanged)));
    assert_eq!(server.connections(), 1);
    assert!(matches!(post(&mut wire).await, Ok(PollAnswer::Content(body)) if body == "two"), "it is sent once more");
    assert_eq!(server.connections(), 2);
    // On a new connection, a closed connection means no answer.
    assert!(matches!(post(&mut wire).await, Err(Failure::Silent(_))));
    assert_eq!(server.connections(), 3);
    let seen = server.seen.lock().unwrap();
    let host = format!("host: {}\r\n", server.address);
    for head in &seen.heads {
        assert!(head.starts_with("post /v3/discovery:clusters http/1.1\r\n") && head.contains(&host), "{head}");
        assert!(head.contains("content-type: application/json") && !head.contains("authorization"), "{head}");
    }
}

#[tokio::test]
async fn an_error_of_the_server_itself_is_silence_and_one_of_a_type_is_a_refusal_with_its_words() {
    for (status, is_silent) in [
        ("500 Internal Server Error", true),
        ("503 Service Unavailable", true),
        ("501 Not Implemented", false),
        ("404 Not Found", false),
        ("204 No Content", false),
    ] {
        let body = if status.starts_with("204") { "" } else { " no clusters\n" };
        let server = Server::that(vec![answer(status, body)]).await;
        let failure = post(&mut server.wire()).await.unwrap_err();
        assert_eq!(matches!(failure, Failure::Silent(_)), is_silent, "{status}: {failure:?}");
        assert_eq!(failure.to_string(), format!("{status}: {}", body.trim()));
    }
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_a_refusal_and_one_that_breaks_off_is_silence() {
    let limited = |length: usize| answer("200 OK", &"a".repeat(length));
    let server = Server::that(vec![limited(100), limited(101)]).await;
    let mut wire = server.wire();
    assert!(matches!(post(&mut wire).await, Ok(PollAnswer::Content(body)) if body.len() == 100));
    assert!(matches!(post(&mut wire).await, Err(Failure::Refused(_))));
    let server = Server::that(vec![Does::Last("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhalf".into())]).await;
    let failure = post(&mut server.wire()).await.unwrap_err();
    assert!(
        matches!(&failure, Failure::Silent(reason) if reason.starts_with("the answer breaks off: ")),
        "{failure:?}"
    );
}

/// After a poll without an answer, the next poll goes to another address.
#[tokio::test]
async fn a_poll_without_an_answer_makes_the_next_one_go_to_another_address() {
    let good = Server::that((0..=DIALERS).map(|_| answer("200 OK", "one")).collect()).await;
    let addresses = vec![crate::upstream::dial::tests::silent().await, good.address];
    let mut late = Vec::new();
    for _ in 0..DIALERS {
        let at = AdsServer { uri: "http://control.example:1".parse().unwrap(), ..AdsServer::undialed() };
        let times = [Duration::from_secs(5), Duration::from_secs(2)];
        let server = RestServer { at, refresh_delay: times[0], request_timeout: times[1] };
        let mut wire = PollConnection::new(Arc::new(server), Dialer::to(addresses.clone()), moves());
        if matches!(post(&mut wire).await, Err(Failure::Silent(_))) {
            let mut wire = PollConnection::new(wire.server.clone(), wire.dialer.clone(), moves());
            let answered = tokio::time::timeout(Duration::from_secs(20), post(&mut wire)).await.unwrap();
            if matches!(answered, Ok(PollAnswer::Content(_))) {
                return;
            }
            // The good one may have been late, or the other one is no longer avoided.
            late.push(answered);
            assert!(late.len() < 4, "{late:?}");
        }
    }
    panic!("each dialer began at the good one, which chance does not do");
}

/// Each orders the addresses in its own way.
const DIALERS: usize = 64;

impl PollConnection {
    /// Its server is at this address from now on, and its connections become old soon.
    fn to(&mut self, address: SocketAddr) {
        let (uri, ages) =
            (format!("http://{address}").parse().unwrap(), ConnectionAges { drain: None, max: Some(AGE) });
        let request_timeout = Duration::from_secs(5); // the silent server takes all of it
        let at = AdsServer { uri, ages, ..self.server.at.clone() };
        self.server = Arc::new(RestServer { at, request_timeout, ..(*self.server).clone() });
    }
}

const AGE: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_connection_that_is_old_is_replaced_between_two_polls_and_kept_until_the_other_one_has_an_answer() {
    let (_bound, closed) = crate::upstream::dial::tests::closed();
    let refuses = Server::that(vec![answer("404 Not Found", "not here")]).await;
    for other in [closed, crate::upstream::dial::tests::silent().await, refuses.address] {
        let server = Server::that((0..3).map(|_| answer("200 OK", "one")).collect()).await;
        let mut wire = server.wire();
        wire.to(server.address);
        assert!(post(&mut wire).await.is_ok());
        assert_eq!(server.connections(), 1);
        tokio::time::sleep(2 * AGE).await;
        wire.to(other);
        assert!(post(&mut wire).await.is_ok(), "the old one still works");
        wire.to(server.address);
        assert!(post(&mut wire).await.is_ok());
        assert_eq!(server.connections(), 1, "no other one is made for a while");
        assert!(wire.retry_at.is_some_and(|at| at > Instant::now() + RETRY / 2));
    }
    assert_eq!(refuses.connections(), 1, "it was asked");
}

#[tokio::test]
async fn a_connection_that_replaces_another_one_is_used_once_it_is_there() {
    let server = Server::that((0..10).map(|_| answer("200 OK", "one")).collect()).await;
    let mut wire = server.wire();
    wire.to(server.address);
    assert!(post(&mut wire).await.is_ok());
    tokio::time::sleep(2 * AGE).await;
    assert!(post(&mut wire).await.is_ok());
    while !wire.replacing.is_empty() {
        assert!(post(&mut wire).await.is_ok()); // the other connection was late for the poll before
    }
    assert_eq!((server.connections(), wire.retry_at), (2, None));
}

#[tokio::test]
async fn a_server_may_compress_its_answers_with_gzip_and_another_encoding_is_named() {
    let (plain, large) = (vec![b'a'; 100], vec![b'a'; 101]);
    let gzipped = |status: &str, body: &[u8]| encoded_answer(status, "gzip", &gzip(body));
    let server = Server::that(vec![
        gzipped("200 OK", &plain),
        gzipped("200 OK", &large),
        encoded_answer("200 OK", "gzip", &gzip(&plain)[..20]),
        encoded_answer("200 OK", "br", b"x"),
        gzipped("404 Not Found", b"no clusters\n"),
        encoded_answer("404 Not Found", "br", b"x"),
    ])
    .await;
    let mut wire = server.wire();
    assert!(matches!(post(&mut wire).await, Ok(PollAnswer::Content(body)) if body == plain));
    for text in [
        "the answer is compressed and cannot be read: more than 100 bytes when inflated",
        "the answer is compressed and cannot be read: gzip data ends before its end",
        "the server compresses its answers with \"br\": expected gzip or identity",
        "404 Not Found: no clusters",
        "404 Not Found: ",
    ] {
        let failure = post(&mut wire).await.unwrap_err();
        assert!(matches!(&failure, Failure::Refused(reason) if reason == text), "{failure:?}");
    }
}
