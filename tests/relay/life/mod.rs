//! How the edge finds out whether a control plane is alive, over real connections: hanging servers, proxies before servers, and what the streams of
//! several views share.

mod gateway;

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use weir::relay::{Connector, Link, LinkEvent, LinkId, LinkReport, ReportReceiver, report_channel};
use weir::upstream::AdsConnector;
use weir_core::protocol::sources::StreamId;

use super::client::PATIENCE;
use super::failover::relay_over;
use super::plane::Answers;
use super::*;
use weir_testkit::script::Way;
use weir_testkit::server::Server;

/// A time limit for calls that a busy machine keeps, in tests that have both answered and missed calls.
const TIMEOUT: Duration = Duration::from_secs(2);
const NEVER: &str = "liveness: {interval: 0s, timeout: 2s}";
const OFTEN: &str = "liveness: {interval: 100ms, timeout: 2s}";
/// The settings for tests in which each call is answered.
const PATIENT: &str = "liveness: {interval: 0s, timeout: 20s}";
/// How long a test waits to see that nothing is reported.
const MOMENT: Duration = Duration::from_millis(200);

/// Returns a connector that is configured as an operator would configure it.
pub fn connector(address: SocketAddr, more: &str) -> AdsConnector {
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nupstream: {{servers: [{{uri: 'http://{address}', variant: delta, {more}}}]}}\n\
         limits: {{resource_timer: 10ms, second_silence: 10ms}}\n" // so that the age of a connection does not matter
    );
    let config = Config::parse(Path::new("test.yaml"), &text).unwrap();
    AdsConnector::new(config.upstream.servers[0].ads().unwrap().clone())
}

/// The stream of one view.
pub struct View {
    task: JoinHandle<()>,
    reports: ReportReceiver<LinkReport>,
    pub life: Arc<Notify>,
    /// Kept, because dropping it would end the requests of the stream.
    requests: Option<mpsc::Sender<Request>>,
}

impl Drop for View {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl View {
    pub fn of(connector: &AdsConnector) -> Self {
        let (sender, reports) = report_channel(4);
        let id = LinkId { stream: StreamId { server: 0, at: 0 }, serial: 0 };
        let task = connector.start(Link {
            id,
            variant: Some(Variant::Delta),
            tenant: None,
            headers: Default::default(),
            reports: sender,
            reader: None,
            follows_another: false,
        });
        Self { task, reports, life: Arc::default(), requests: None }
    }

    /// Opens the stream of a view. Returns the view and the server's end of the stream.
    pub async fn up(connector: &AdsConnector, server: &mut Plane) -> (Self, Stream) {
        let mut view = Self::of(connector);
        view.opened().await;
        let stream = server.stream().await;
        (view, stream)
    }

    /// Ends the task, and returns the sender of its requests.
    pub async fn stop(mut self) -> Option<mpsc::Sender<Request>> {
        self.task.abort();
        let _ = (&mut self.task).await;
        self.requests.take()
    }

    pub async fn request(&self, request: Request) {
        self.requests.as_ref().expect("it is not open").send(request).await.unwrap();
    }

    pub async fn event(&mut self) -> LinkEvent {
        tokio::time::timeout(PATIENCE, self.reports.recv()).await.expect("nothing is reported").unwrap().event
    }

    /// Returns the next event. Waits however long that takes.
    pub async fn event_whenever(&mut self) -> LinkEvent {
        match self.reports.recv().await.expect("the task has ended").event {
            LinkEvent::Opened { life, requests, variant } => {
                (self.life, self.requests) = (life.clone(), Some(requests.clone()));
                LinkEvent::Opened { life, requests, variant }
            }
            other => other,
        }
    }

    pub async fn moving(&mut self) {
        let event = self.event().await;
        assert!(matches!(event, LinkEvent::Moving), "{event:?}");
    }

    pub async fn opened(&mut self) {
        match self.event().await {
            LinkEvent::Opened { life, requests, .. } => (self.life, self.requests) = (life, Some(requests)),
            other => panic!("{other:?}"),
        }
    }

    pub async fn ended(&mut self) -> (String, bool) {
        match self.event().await {
            LinkEvent::Ended { reason, answered, .. } => (reason, answered),
            other => panic!("{other:?}"),
        }
    }

    /// Waits for a response, of which parts may be reported before.
    pub async fn answered(&mut self) {
        let mut event = self.event().await;
        while matches!(event, LinkEvent::Receiving) {
            event = self.event().await;
        }
        assert!(matches!(event, LinkEvent::Response(_)), "{event:?}");
    }

    pub async fn is_alive(&mut self) {
        let event = self.event().await;
        assert!(matches!(event, LinkEvent::Alive), "{event:?}");
    }

    pub async fn says_nothing(&mut self, time: Duration) {
        if let Ok(report) = tokio::time::timeout(time, self.reports.recv()).await {
            panic!("{report:?}");
        }
    }
}

pub fn response(name: &str) -> bytes::Bytes {
    of_type(CDS, name)
}

pub fn of_type(url: &str, name: &str) -> bytes::Bytes {
    let resource = Some(Any { type_url: url.into(), ..cluster(name, "1") });
    let resources = vec![Resource { name: name.into(), version: "1".into(), resource, ..Default::default() }];
    let response = DeltaDiscoveryResponse { type_url: url.into(), nonce: "1".into(), resources, ..Default::default() };
    plane::encoded(&Response::Delta(response))
}

#[tokio::test]
async fn up_36_any_status_of_the_server_is_an_answer_to_the_call() {
    for status in [12, 13, 5, 0] {
        let mut server = Plane::answering(Answers::Status(status)).await;
        let (mut view, _stream) = View::up(&connector(server.address, PATIENT), &mut server).await;
        assert_eq!(server.calls(), 0, "nobody has asked");
        for calls in 1..=2 {
            view.life.notify_one();
            view.is_alive().await;
            assert_eq!(server.calls(), calls);
        }
    }
}

/// A link takes the next message from its stream once there is room for the report of the one before, so nothing else shows that it has come.
#[tokio::test]
async fn up_36_what_has_come_behind_a_report_that_waits_for_room_is_reported_before_the_answer_to_a_call() {
    const MESSAGES: usize = 20;
    let mut server = Plane::answering(Answers::Status(12)).await;
    let (mut view, stream) = View::up(&connector(server.address, PATIENT), &mut server).await;
    (0..MESSAGES).for_each(|number| stream.send(response(&number.to_string())));
    view.life.notify_one();
    until("it is asked", async || server.calls() == 1).await;
    tokio::time::sleep(MOMENT).await; // the answer comes
    for _ in 0..MESSAGES {
        view.answered().await;
    }
    view.is_alive().await;
}

#[tokio::test]
async fn up_36_the_health_service_is_called_where_that_is_wished_and_any_status_of_it_is_an_answer() {
    join_all([0, 5, 12].map(async |status| {
        let mut server = Plane::answering(Answers::Status(status)).await;
        let connector = connector(server.address, "liveness: {method: health, interval: 0s, timeout: 10s}");
        let (mut view, _stream) = View::up(&connector, &mut server).await;
        view.life.notify_one();
        view.is_alive().await;
        assert_eq!((server.calls(), server.path().as_str()), (1, "/grpc.health.v1.Health/Check"));
        server.answer(Answers::Status(14));
        view.life.notify_one();
        let (reason, _) = view.ended().await;
        assert!(reason.contains("no answer to two calls: the server is unavailable"), "{reason}");
    }))
    .await;
}

#[tokio::test]
async fn up_36_a_server_that_must_not_be_called_is_not_also_where_an_answer_would_decide_something() {
    let mut server = Plane::answering(Answers::Status(12)).await;
    let connector = connector(server.address, "liveness: {method: none, interval: 10ms, timeout: 10ms}");
    let (mut view, stream) = View::up(&connector, &mut server).await;
    view.life.notify_one();
    view.says_nothing(Duration::from_millis(200)).await;
    stream.send(response("a"));
    view.answered().await;
    assert_eq!(server.calls(), 0);
    assert_eq!(connector.unrouted_calls().as_deref(), Some("liveness.method is none"));
}

#[tokio::test]
async fn up_36_a_plain_404_of_a_gateway_is_neither_life_nor_death_and_the_question_stays_open() {
    let mut server = Plane::answering(Answers::Http(404)).await;
    let connector = connector(server.address, OFTEN);
    let (mut view, _stream) = View::up(&connector, &mut server).await;
    view.life.notify_one();
    until("it is asked again and again", async || server.calls() >= 4).await;
    view.says_nothing(Duration::from_millis(1)).await;
    assert_eq!(connector.unanswered_calls(), Some(0));
    server.answer(Answers::Status(12));
    view.is_alive().await;
}

/// A gateway that checks its callers may reject the unknown method, and let streams pass.
#[tokio::test]
async fn up_36_a_refusal_is_no_life_and_the_servers_own_method_is_called_instead_once_in_a_while() {
    for (refusal, own) in [(7, 0), (16, 12), (16, 2)] {
        let mut server = Plane::answering(Answers::Refused(refusal, Some(own))).await;
        let connector = connector(server.address, OFTEN);
        let (mut view, _stream) = View::up(&connector, &mut server).await;
        view.life.notify_one();
        view.is_alive().await;
        assert_eq!(server.empty_streams(), 1);
        view.life.notify_one();
        until("it is asked again", async || server.calls() >= 2).await;
        view.says_nothing(MOMENT).await;
        assert_eq!((server.empty_streams(), connector.unanswered_calls()), (1, Some(0)), "a server counts each");
    }
}

#[tokio::test]
async fn up_36_what_a_gateway_refuses_in_both_ways_or_a_server_never_answered_shows_nothing() {
    let both = [
        (Some(16), "they are refused, and an empty stream too (Unauthenticated)"),
        (None, "they are refused, and an empty stream has no answer"),
    ];
    for (own, reason) in both {
        let mut server = Plane::answering(Answers::Refused(16, own)).await;
        let connector = connector(server.address, NEVER);
        let (mut view, _stream) = View::up(&connector, &mut server).await;
        view.life.notify_one();
        until("it is said why", async || connector.unrouted_calls().as_deref() == Some(reason)).await;
        view.says_nothing(Duration::from_millis(1)).await;
        assert_eq!(connector.unanswered_calls(), Some(0));
    }
}

#[tokio::test]
async fn fb_2_two_calls_that_nobody_answers_for_the_server_end_the_stream() {
    let refusals = [(Answers::Status(14), "the server is unavailable"), (Answers::Http(503), "HTTP status 503")];
    for (answers, reason) in refusals {
        let mut server = Plane::answering(answers).await;
        let connector = connector(server.address, NEVER);
        let (mut view, stream) = View::up(&connector, &mut server).await;
        let requested = Instant::now();
        view.life.notify_one();
        let expected = format!("Unavailable: no answer to two calls: {reason}");
        assert_eq!(view.ended().await, (expected.clone(), false));
        assert!(requested.elapsed() >= TIMEOUT, "the server has time between the two");
        assert_eq!((server.calls(), connector.unanswered_calls()), (2, Some(2)));
        drop(stream);

        view.opened().await;
        let stream = server.stream().await;
        stream.send(response("a"));
        view.answered().await;
        view.life.notify_one();
        assert_eq!(view.ended().await, (expected, true), "a response came on it");
    }
}

#[tokio::test]
async fn fb_2_an_answer_takes_back_the_call_that_was_missed_before_it() {
    let mut server = Plane::answering(Answers::Held).await;
    let connector = connector(server.address, "liveness: {interval: 0s, timeout: 3s}");
    let (mut view, _stream) = View::up(&connector, &mut server).await;
    for round in 0..2 {
        server.answer(Answers::Held);
        view.life.notify_one();
        until("a call waits", async || server.calls() == 2 * round + 1).await;
        server.answer(Answers::Status(12)); // to the next call
        view.is_alive().await;
        assert_eq!((server.calls(), connector.unanswered_calls()), (2 * round + 2, Some(round as u64 + 1)));
    }
}

#[tokio::test]
async fn fb_32_a_server_that_hangs_after_an_answer_is_found_by_all_views_when_one_is_in_doubt() {
    // A stream that is alone finds out by connecting again. A stream on a silent connection with others finds out by a call.
    let ways = [(50, false), (50, true), (1, false), (1, true)];
    join_all(ways.map(|(streams, finds_out_by_connecting)| finds_out(streams, finds_out_by_connecting))).await;
}

async fn finds_out(streams: u32, by_connecting: bool) {
    let mut server = Plane::answering(Answers::Status(12)).await;
    let times = "liveness: {interval: 1h, timeout: 2s}, connect_timeout: 2s";
    let connector = connector(server.address, &format!("{times}, max_streams_per_connection: {streams}"));
    let mut views = Vec::new();
    for _ in 0..3 {
        let (mut view, stream) = View::up(&connector, &mut server).await;
        stream.send(response("a"));
        view.answered().await;
        views.push((view, stream));
    }
    server.hang();
    tokio::time::sleep(TIMEOUT).await; // nothing has arrived for the time limit of a call
    let _newcomer = by_connecting.then(|| View::of(&connector));
    if !by_connecting {
        views[0].0.life.notify_one();
    }
    for (view, _) in &mut views {
        assert_eq!(view.ended().await, ("Unavailable: no answer to two calls within 2s each".into(), true));
        let (reason, answered) = view.ended().await;
        assert!(reason.contains("took the connection and said nothing on it within 2s"), "{reason}");
        assert!(!answered);
    }
}

#[tokio::test]
async fn fb_32_a_server_that_hangs_at_accept_has_five_seconds_for_its_first_words() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let start = Instant::now();
    let mut plain = View::of(&connector(address, "connect_timeout: 20s"));
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nupstream: {{servers: [{{uri: 'https://{address}', connect_timeout: 20s}}]}}\n"
    );
    let config = Config::parse(Path::new("test.yaml"), &text).unwrap();
    let mut encrypted = View::of(&AdsConnector::new(config.upstream.servers[0].ads().unwrap().clone()));
    for (view, words) in [(&mut plain, "said nothing on it within 5s"), (&mut encrypted, "nothing of TLS within 5s")] {
        let (reason, answered) = view.ended().await;
        assert!(reason.contains(words) && !answered, "{reason}");
        let elapsed = start.elapsed().as_secs();
        assert!((5..20).contains(&elapsed), "{elapsed}");
    }
}

#[tokio::test]
async fn up_36_a_call_on_another_connection_says_nothing_of_this_one() {
    let mut server = Plane::answering(Answers::Status(12)).await;
    let (mut view, stream) = View::up(&connector(server.address, PATIENT), &mut server).await;
    server.leave();
    stream.send(response("a"));
    view.answered().await; // after the server has said that it accepts no more calls on this connection
    view.life.notify_one();
    let (reason, answered) = view.ended().await;
    assert!(reason.contains("the connection is lost, or takes no more calls") && answered, "{reason}");
    assert_eq!(server.calls(), 0);
    view.opened().await;
    assert_ne!(server.stream().await.connection, stream.connection);
}

#[tokio::test]
async fn a_server_that_is_busy_with_what_it_says_is_not_left() {
    let mut server = Plane::answering(Answers::Held).await;
    let connector = connector(server.address, OFTEN);
    let (mut view, stream) = View::up(&connector, &mut server).await;
    let bytes = response(&"a".repeat(400)); // enough for four calls
    stream.send(bytes.slice(..5));
    assert!(matches!(view.event().await, LinkEvent::Receiving));
    view.life.notify_one();
    let mut rest = bytes.slice(5..);
    while connector.unanswered_calls() < Some(4) && rest.len() > 1 {
        stream.send(rest.split_to(1));
        view.says_nothing(MOMENT / 4).await;
    }
    assert!(connector.unanswered_calls() >= Some(4), "there was not enough to say");
    let (reason, answered) = view.ended().await;
    assert!(reason.contains("no answer to two calls within 2s each") && !answered, "{reason}");
}

#[tokio::test]
async fn up_36_a_question_during_a_call_is_answered_by_the_next_one() {
    let mut server = Plane::answering(Answers::Held).await;
    let (mut view, _stream) =
        View::up(&connector(server.address, "liveness: {interval: 0s, timeout: 20s}"), &mut server).await;
    view.life.notify_one();
    until("the first call", async || server.calls() == 1).await;
    view.life.notify_one();
    server.release();
    until("the second call", async || server.calls() == 2).await;
    view.says_nothing(MOMENT).await;
    server.release();
    view.is_alive().await;
    view.says_nothing(MOMENT).await;
    assert_eq!(server.calls(), 2);
}

#[tokio::test]
async fn up_36_what_came_before_the_answer_to_a_call_is_reported_before_it_however_slowly_it_is_taken() {
    let mut server = Plane::answering(Answers::Status(12)).await;
    let (mut view, stream) = View::up(&connector(server.address, PATIENT), &mut server).await;
    (0..12).for_each(|_| stream.send(response("a")));
    view.life.notify_one();
    until("the call", async || server.calls() == 1).await;
    tokio::time::sleep(MOMENT / 2).await; // the answer arrives while earlier bytes are still unread
    for _ in 0..12 {
        view.answered().await;
    }
    view.is_alive().await;
}

#[tokio::test]
async fn a_message_that_comes_in_pieces_is_reported_once_before_it_is_complete() {
    let mut server = Plane::answering(Answers::Status(12)).await;
    let (mut view, stream) = View::up(&connector(server.address, NEVER), &mut server).await;
    let bytes = response("a");
    stream.send(bytes.clone());
    view.answered().await;
    stream.send(bytes.slice(..3));
    view.says_nothing(MOMENT).await;
    stream.send(bytes.slice(3..9));
    assert!(matches!(view.event().await, LinkEvent::Receiving));
    stream.send(bytes.slice(9..12));
    view.says_nothing(MOMENT).await;
    stream.send([&bytes[12..], &bytes[..7]].concat()); // the end of a message, and the beginning of the next
    view.answered().await;
    assert!(matches!(view.event().await, LinkEvent::Receiving));
    stream.send(bytes.slice(7..));
    view.answered().await;
}

#[tokio::test]
async fn the_turn_to_ask_goes_to_another_stream_when_one_ends() {
    let mut server = Plane::answering(Answers::Status(12)).await;
    let connector = connector(server.address, &format!("{OFTEN}, max_streams_per_connection: 1"));
    let (one, of_one) = View::up(&connector, &mut server).await;
    until("the first asks", async || server.calls() > 1).await;
    let (_two, of_two) = View::up(&connector, &mut server).await;
    let calls = server.calls();
    until("it goes on", async || server.calls() > calls + 3).await;
    assert_eq!(server.requested(), [of_one.connection].into());
    drop(one);
    until("the second asks", async || server.requested().contains(&of_two.connection)).await;
}

#[tokio::test]
async fn up_34_a_server_that_answers_and_dies_is_tried_less_and_less() {
    let mut soonest = u128::MAX;
    for _ in 0..3 {
        let pauses = pauses_of_a_server_that_dies().await;
        for (pause, least) in pauses.iter().zip([50, 100, 200, 400, 800]) {
            assert!(*pause >= least, "{pauses:?}");
        }
        soonest = soonest.min(pauses[0]); // a busy machine is sometimes late
        if soonest < 400 {
            return;
        }
    }
    panic!("the first time it is tried again after {soonest} ms");
}

/// Returns the milliseconds between the openings of a stream that the server answers once and then ends.
async fn pauses_of_a_server_that_dies() -> Vec<u128> {
    let mut server = Plane::answering(Answers::Status(12)).await;
    let backoff = "backoff: {initial: 50ms, factor: 2, max: 10s, jitter: 0}";
    let mut view = View::of(&connector(server.address, backoff));
    let mut ends = Vec::new();
    for _ in 0..6 {
        view.opened().await;
        ends.push(Instant::now());
        let stream = server.stream().await;
        stream.send(response("a"));
        view.answered().await;
        drop(stream);
        assert!(view.ended().await.1);
    }
    ends.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect()
}

#[tokio::test]
async fn fb_32_a_view_turns_from_a_server_that_hangs_to_the_next_and_the_metrics_show_it() {
    let mut hung = Plane::answering(Answers::Status(12)).await;
    let second = Server::start(Way::Gives("2")).await;
    let (first, next) = (hung.address, second.address);
    let times = "variant: delta, liveness: {interval: 300ms, timeout: 2s}, connect_timeout: 2s";
    let relay =
        relay_over(&format!("{{servers: [{{uri: 'http://{first}', {times}}}, {{uri: 'http://{next}'}}]}}")).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(EDS, &["held"], Some("web"));
    let stream = hung.stream().await;
    stream.send(of_type(EDS, "held"));
    assert_eq!(client.sent().await.set, ["held"]);
    hung.hang();
    client.ask(EDS, &["new"], None);
    assert_eq!(client.sent().await.set, ["held", "new"], "all that is asked for, of the second");
    let name = format!("weir_upstream_liveness_calls_unanswered_total{{server=\"http://{first}\"}}");
    assert!(metric(&relay, &name).await >= 2.0);
}
