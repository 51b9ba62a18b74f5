use futures_util::FutureExt;
use rustls::pki_types::ServerName;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use weir_core::proto::Response;
use weir_core::proto::discovery::{DeltaDiscoveryResponse, DiscoveryResponse, ResourceError, Status as ErrorDetail};
use weir_core::protocol::upstream::{ReceivedResponse, ResponseMessage};
use weir_core::xds::{BodyStore, TypeTable};

use super::*;
use crate::relay::ShownValues;
use crate::tls::OwnCertificate;
use crate::upstream::server::{LifeMethod, LifeTimes, TenantCredentials};
use crate::upstream::tls::{TlsFiles, TlsWords};

const SHORT: Duration = Duration::from_secs(29);

fn shared() -> Shared {
    let life = LifeTimes { interval: None, timeout: Duration::from_secs(1), method: LifeMethod::Call };
    Shared::new(life, Arc::new(Semaphore::new(1)))
}

impl<'a> Retry<'a> {
    /// With waits that double, without jitter.
    fn doubling(shared: &'a Shared) -> Self {
        let backoff = Backoff::new(BackoffTimes { factor: 2.0, jitter: 0.0, ..BackoffTimes::default() });
        let (stage, least, waited) = (AttemptStage::Unreached, Duration::ZERO, Waited::Out);
        Self { shared, backoff, stage, least, unproductive: backoff, waited }
    }
}

#[test]
fn up_33_a_stream_that_was_merely_opened_resets_no_wait_and_one_with_a_response_does() {
    let shared = shared();
    let mut retry = Retry::doubling(&shared);
    for (stage, seconds) in [
        (AttemptStage::Unreached, 1),
        (AttemptStage::Rejected, 2),
        (AttemptStage::Rejected, 4),
        (AttemptStage::Unreached, 8),
        (AttemptStage::Rejected, 16),
        (AttemptStage::Answered, 1),
        (AttemptStage::Rejected, 2),
    ] {
        retry.ended(stage, SHORT);
        assert_eq!(retry.backoff.next(0.5).as_secs(), seconds, "{stage:?}");
    }
}

#[test]
fn early_attempts_that_fail_are_made_less_and_less_until_one_has_a_response() {
    let shared = shared();
    let mut retry = Retry::doubling(&shared);
    retry.waited = Waited::Woken;
    let stages = [
        AttemptStage::Unreached,
        AttemptStage::Rejected,
        AttemptStage::Rejected,
        AttemptStage::Answered,
        AttemptStage::Unreached,
    ];
    let leasts = stages.map(|stage| {
        retry.ended(stage, SHORT);
        retry.least.as_secs()
    });
    assert_eq!(leasts, [1, 2, 4, 0, 1]);
}

/// A server with credentials of its own, and with others for tenants.
fn with_tenants() -> AdsServer {
    let own = |name: &str| OwnCertificate { certificate: name.into(), key: "key".into() };
    let server_name = ServerName::try_from("cp").unwrap();
    let tls = TlsFiles { ca: Some("ca".into()), own: Some(own("all")), server_name, words: TlsWords::CONFIGURATION };
    let entry = |names: &[&str], own: Option<OwnCertificate>, tokens: &[&str]| TenantCredentials {
        tenants: names.iter().map(|name| NamePattern::parse(name)).collect(),
        own,
        tokens: tokens.iter().map(Into::into).collect(),
        headers: Vec::new(),
    };
    let tenants = vec![entry(&["pay"], Some(own("pay")), &[]), entry(&["bill", "p*"], None, &["token"])];
    AdsServer { tls: Some(tls), tokens: vec!["own token".into()], tenants, ..AdsServer::undialed() }
}

#[tokio::test]
async fn types_are_tried_in_turn_at_a_server_for_all_tenants_and_what_each_credential_shows_is_kept_apart() {
    let connector = AdsConnector::new(with_tenants());
    let numbers = [None, Some("other"), Some("pay"), Some("bill"), Some("pool")];
    assert_eq!(numbers.map(|tenant| connector.credentials(tenant)), [0, 0, 1, 2, 2]);
    let _turn = connector.of_tenant(Some("pay")).shared().trial_turn().await;
    for tenant in [None, Some("bill")] {
        assert!(connector.of_tenant(tenant).shared().trial_turn().now_or_never().is_none(), "{tenant:?}");
    }
}

#[test]
fn a_tenant_is_shown_by_the_first_entry_that_is_for_it_and_by_nothing_of_what_others_show() {
    let connector = AdsConnector::new(with_tenants());
    let shown = |tenant: Option<&str>| {
        let server = &connector.of_tenant(tenant).server;
        let tls = server.tls.as_ref().unwrap();
        assert_eq!(
            (tls.ca.as_deref(), server.tenants.len()),
            (Some("ca".as_ref()), if tls.own == all() { 2 } else { 0 })
        );
        let certificate = tls.own.as_ref().map(|own| own.certificate.display().to_string());
        (
            certificate.unwrap_or_default(),
            server.tokens.iter().map(|file| file.display().to_string()).collect::<Vec<_>>(),
        )
    };
    let own = ("all".to_owned(), vec!["own token".to_owned()]);
    assert_eq!((shown(None), shown(Some("other"))), (own.clone(), own));
    assert_eq!(shown(Some("pay")), ("pay".to_owned(), vec![]), "both entries are for it");
    for tenant in ["bill", "pay-2"] {
        assert_eq!(shown(Some(tenant)), (String::new(), vec!["token".to_owned()]), "{tenant}");
    }
}

fn all() -> Option<OwnCertificate> {
    Some(OwnCertificate { certificate: "all".into(), key: "key".into() })
}

#[test]
fn calls_without_an_answer_are_counted_over_all_tenants() {
    let connector = AdsConnector::new(with_tenants());
    for tenant in [None, Some("pay"), Some("bill"), Some("pay")] {
        connector.of_tenant(tenant).shared.count_unanswered();
    }
    assert_eq!(connector.unanswered_calls(), Some(4));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_stream_that_moves_is_waited_for_after_that_of_its_requests_and_no_longer_than_a_second() {
    for (takes, waited) in [(Some(300), 300), (Some(1500), 1000), (None, 1000)] {
        let (half_close, begun) = (Notify::new(), Instant::now());
        let stream = async {
            half_close.notified().await;
            match takes {
                Some(millis) => sleep(Duration::from_millis(millis)).await,
                None => std::future::pending().await,
            }
        };
        stream::end_in_order(&half_close, stream).await;
        assert_eq!(begun.elapsed().as_millis(), waited);
    }
}

/// Neither the address nor the connection, which others use, is avoided because of the refusal.
#[test]
fn a_server_that_refuses_a_token_is_no_broken_one() {
    let (of_client, none) = (KeyHeaders::of_one("x-token", "hush-hush"), KeyHeaders::default());
    let end = |status| stream::End { is_of_server: true, ..stream::End::unreached(status) };
    for status in [Status::permission_denied("no"), Status::unauthenticated("no")] {
        assert!(end(status.clone()).refuses(&of_client));
        assert!(!end(status.clone()).refuses(&none), "nothing of a client was shown");
        assert!(!stream::End::unreached(status).refuses(&of_client), "a gateway has said it");
    }
    assert!(!end(Status::unavailable("no")).refuses(&of_client));
}

#[test]
fn errors_that_a_server_reports_for_resources_do_not_quote_what_it_was_shown() {
    let redaction = || KeyHeaders::of_one("x-token", "hush-hush").redaction(&ShownValues::default());
    let detail = ErrorDetail { code: 7, message: "hush-hush may not read it".into() };
    let error = ResourceError { error_detail: Some(detail), ..Default::default() };
    let sotw = DiscoveryResponse { resource_errors: vec![error.clone()], ..Default::default() };
    let delta = DeltaDiscoveryResponse { resource_errors: vec![error], ..Default::default() };
    for response in [Response::Sotw(sotw), Response::Delta(delta)] {
        let (message, table) = (ResponseMessage::Decoded(response.clone()), TypeTable::new());
        let received = ReceivedResponse::read(message, &table, &BodyStore::default()).unwrap();
        let received = LinkEvent::Received { response: Box::new(received), at: Instant::now(), turn: None };
        for event in [LinkEvent::Response(Box::new(response)), received] {
            let mut event = event.without_values(redaction);
            let errors = match &mut event {
                LinkEvent::Response(response) => response.resource_errors_mut(),
                LinkEvent::Received { response, .. } => response.resource_errors_mut(),
                _ => unreachable!(),
            };
            assert_eq!(errors[0].error_detail.as_ref().unwrap().message, "[redacted] may not read it");
        }
    }
}

#[test]
fn what_a_server_says_does_not_quote_what_it_was_shown() {
    let redaction = KeyHeaders::of_one("x-token", "hush-hush").redaction(&ShownValues::default());
    let status = Status::permission_denied("no rights: hush-hush");
    assert_eq!(stream::server_status(&status, &redaction).to_string(), "PERMISSION_DENIED: no rights: [redacted]");
    let end = stream::End { is_of_server: true, ..stream::End::unreached(status) };
    assert_eq!(end.by_server(&redaction).unwrap().message, "no rights: [redacted]");
}

#[test]
fn a_loss_is_ascribed_to_the_stream_before_only_where_the_server_itself_has_ended_the_next_one_soon() {
    let second = Duration::from_secs(1);
    let end = |stage, lived, is_silent| {
        stream::End { stage, lived, is_silent, ..stream::End::unreached(Status::ok("")) }.may_be_early()
    };
    assert!(end(AttemptStage::Rejected, Duration::ZERO, false) && end(AttemptStage::Rejected, 2 * second, false));
    assert!(!end(AttemptStage::Rejected, 3 * second, false), "it has had time to notice");
    assert!(!end(AttemptStage::Rejected, second, true), "it does not answer");
    assert!(!end(AttemptStage::Unreached, second, false) && !end(AttemptStage::Answered, second, false));
}

/// The address to which a stream has moved is not avoided because of the rejection.
#[test]
fn a_stream_that_is_rejected_for_the_one_before_it_does_not_count_against_the_address() {
    let end = |lived| stream::End {
        stage: AttemptStage::Rejected,
        lived,
        is_of_server: true,
        ..stream::End::unreached(Status::unknown("one stream for each node"))
    };
    let soon = end(Duration::from_millis(5));
    assert!(soon.is_of_address(false) && !soon.is_of_address(true));
    assert!(end(Duration::from_secs(3)).is_of_address(true), "it has had time to notice");
}

#[test]
fn up_34_only_after_a_stream_that_has_lasted_the_end_of_its_connection_is_no_reason_to_wait() {
    let is_replaced = |stage, lived, is_server_leaving, times| {
        stream::End { stage, lived, is_server_leaving, ..stream::End::unreached(Status::ok("")) }.is_replaced(times)
    };
    let (times, lasting) = (BackoffTimes::default(), Duration::from_secs(30));
    assert!(is_replaced(AttemptStage::Answered, lasting, true, times));
    assert!(
        !is_replaced(AttemptStage::Answered, SHORT, true, times),
        "a gateway may end each connection after a second"
    );
    assert!(
        !is_replaced(AttemptStage::Answered, lasting, false, times)
            && !is_replaced(AttemptStage::Rejected, lasting, true, times)
    );
    let times = BackoffTimes { reset_after: Duration::ZERO, ..times };
    assert!(!is_replaced(AttemptStage::Answered, Duration::from_millis(999), true, times));
}
