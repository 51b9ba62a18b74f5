use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;
use weir_core::proto::discovery::DiscoveryRequest;
use weir_core::protocol::sources::StreamId;
use weir_core::protocol::upstream::BackoffTimes;

use super::wire::tests::{Does, Server, answer};
use super::*;
use crate::relay::{LinkId, ReportReceiver, report_channel};

const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

fn request(url: &str, names: &[&str]) -> Request {
    let resource_names = names.iter().map(ToString::to_string).collect();
    Request::Sotw(DiscoveryRequest { type_url: url.into(), resource_names, ..Default::default() })
}

/// A request that comes during a poll cannot be answered by that poll, so the poll's silence about it proves nothing.
#[test]
fn a_request_waits_if_its_type_is_being_polled_and_its_names_are_others() {
    let (refresh_delay, request_timeout) = (Duration::from_secs(5), Duration::from_secs(1));
    let server = RestServer { at: AdsServer::undialed(), refresh_delay, request_timeout };
    let connector = RestConnector::new(server, Arc::new(Transcoder::envoy), Arc::default());
    let mut polls = Polls::new(PollSchedule { refresh: refresh_delay, failures: 3 });
    assert_eq!(connector.take(&mut polls, request(EDS, &["a"])), None, "it is polled for at once");
    assert_eq!(polls.due(Instant::now()).len(), 1);
    assert_eq!(connector.take(&mut polls, request(EDS, &["a"])), None, "which is being polled for");
    assert_eq!(connector.take(&mut polls, request(EDS, &["a", "b"])), Some((EDS.into(), PollFailure::Waits)));
}

#[tokio::test]
async fn a_type_without_a_path_or_a_descriptor_is_reported_with_each_request() {
    let mut reports = link(Vec::new()).await;
    let LinkEvent::Opened { requests, .. } = next(&mut reports).await else { panic!("not opened") };
    for name in ["envoy.extensions.filters.network.thrift_proxy.v3.RouteConfiguration", "own.Type"] {
        let url = format!("type.googleapis.com/{name}");
        for names in [&["a"][..], &["a", "b"]] {
            requests.send(request(&url, names)).await.unwrap();
            let LinkEvent::PollFailed { type_url, failure } = next(&mut reports).await else { panic!("not reported") };
            assert_eq!((type_url, failure), (url.clone(), PollFailure::NoPath));
        }
    }
}

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(20);
const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// A link to a server with these answers, one to each poll.
async fn link(does: Vec<Does>) -> ReportReceiver<LinkReport> {
    let server = Server::that(does).await;
    link_to(server.address, Duration::from_millis(10))
}

fn link_to(address: SocketAddr, initial: Duration) -> ReportReceiver<LinkReport> {
    let backoff = BackoffTimes { initial, ..BackoffTimes::default() };
    let uri = format!("http://{address}").parse().unwrap();
    let at = AdsServer { uri, backoff, ..AdsServer::undialed() };
    let server = RestServer { at, refresh_delay: initial, request_timeout: PATIENCE };
    let (sender, reports) = report_channel(1);
    let id = LinkId { stream: StreamId { server: 0, at: 0 }, serial: 0 };
    let link = Link {
        id,
        variant: None,
        tenant: None,
        headers: Default::default(),
        reports: sender,
        reader: None,
        follows_another: false,
    };
    RestConnector::new(server, Arc::new(Transcoder::envoy), Arc::default()).start(link);
    reports
}

#[tokio::test]
async fn up_33_a_server_that_cannot_be_reached_is_tried_after_waits() {
    let bound = TcpSocket::new_v4().unwrap();
    bound.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap(); // and does not listen
    let start = Instant::now();
    let mut reports = link_to(bound.local_addr().unwrap(), Duration::from_millis(100));
    for _ in 0..4 {
        assert!(matches!(next(&mut reports).await, LinkEvent::Ended { answered: false, is_lost: true, .. }));
    }
    assert!(start.elapsed() >= Duration::from_millis(3 * 80), "{:?}", start.elapsed());
}

async fn next(reports: &mut ReportReceiver<LinkReport>) -> LinkEvent {
    tokio::time::timeout(PATIENCE, reports.recv()).await.expect("no event").expect("the link has ended").event
}

/// Waits until the server is reached, and requests clusters.
async fn opened(reports: &mut ReportReceiver<LinkReport>) -> mpsc::Sender<Request> {
    let LinkEvent::Opened { requests, .. } = next(reports).await else { panic!("not opened") };
    requests.send(request(CDS, &[])).await.unwrap();
    requests
}

fn broken() -> Vec<Does> {
    (0..3).map(|_| answer("503 Service Unavailable", "")).collect()
}

#[tokio::test]
async fn after_failures_a_server_is_back_once_it_answers_the_poll_that_tests_it_with_whatever_words() {
    let mut does = broken();
    does.extend([answer("503 Service Unavailable", ""), answer("404 Not Found", ""), answer("200 OK", "{}")]);
    let mut reports = link(does).await;
    let _requests = opened(&mut reports).await;
    for _ in 0..3 {
        assert!(matches!(next(&mut reports).await, LinkEvent::PollFailed { .. }));
    }
    for round in ["three polls have failed", "and so has the one that tests the server"] {
        let ended = next(&mut reports).await;
        assert!(matches!(ended, LinkEvent::Ended { answered: false, .. }), "{round}: {ended:?}");
    }
    let _requests = opened(&mut reports).await;
    assert!(matches!(next(&mut reports).await, LinkEvent::Response(_)));
}

#[tokio::test]
async fn a_server_that_has_refused_takes_who_polls_with_any_word_about_the_request() {
    let polls = ["403 Forbidden", "503 Service Unavailable", "429 Too Many Requests", "403 Forbidden", "404 Not Found"];
    let mut reports = link(polls.map(|status| answer(status, "")).into()).await;
    let _requests = opened(&mut reports).await;
    for poll in polls {
        match poll.split_once(' ').map(|(status, _)| status) {
            Some("403") => assert!(matches!(next(&mut reports).await, LinkEvent::Refused(_)), "{poll}"),
            Some("404") => assert!(matches!(next(&mut reports).await, LinkEvent::RefusedOtherwise), "{poll}"),
            _ => {}
        }
        assert!(matches!(next(&mut reports).await, LinkEvent::PollFailed { .. }), "{poll}");
    }
}

#[tokio::test]
async fn nothing_new_is_no_answer_to_a_poll_that_states_no_version() {
    let mut reports = link(vec![answer("304 Not Modified", ""), answer("200 OK", "{}")]).await;
    let _requests = opened(&mut reports).await;
    assert!(matches!(next(&mut reports).await, LinkEvent::PollFailed { type_url, .. } if type_url == CDS));
    assert!(matches!(next(&mut reports).await, LinkEvent::Response(_)));
}
