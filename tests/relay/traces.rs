//! Spans that reach a collector, and a relay whose collector is unreachable.

use weir::telemetry::Traces;

use super::*;
use crate::certificates::Authority;
use crate::collector::{Collector, Received};
use crate::poller::{CLUSTERS, Poller};
use weir_testkit::folder::Folder;

/// Longer than a pause of the machine: those that answer do so within it.
const SHORT: Duration = Duration::from_secs(5);
/// Longer than any answer takes.
const LONG: Duration = Duration::from_secs(60);

/// Configures traces by variables in addition to the endpoint, with immediate export.
fn traces(endpoint: &str, bound: Duration, variables: &[(&str, &str)]) -> Traces {
    let always = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint), ("OTEL_BSP_SCHEDULE_DELAY", "1")];
    let find = |name: &str| variables.iter().chain(&always).find(|(known, _)| *known == name);
    Traces::from_variables(&|name| find(name).map(|(_, value)| value.to_string()), bound)
}

async fn relay(plane: &Plane, traces: &Traces) -> Relay {
    let config = config(plane.address, "", "views: {key: [cluster]}\n");
    run(crate::bind(config).await.unwrap().with_traces(traces), std::future::pending())
}

async fn span(collector: &Collector, name: &str, is: impl Fn(&Received) -> bool) -> Received {
    until(name, async || collector.spans(name).iter().any(&is)).await;
    collector.spans(name).into_iter().find(|span| is(span)).unwrap()
}

fn has(attribute: &str, value: &str) -> impl Fn(&Received) -> bool {
    move |span| span.attributes[attribute] == value
}

fn counts(span: &Received) -> [&str; 5] {
    ["", ".sent", ".acked", ".nacked", ".left"].map(|what| span.attributes[&format!("weir.clients{what}")].as_str())
}

const FIRST: [(&str, &str); 1] = [("a", "one")];
const SECOND_SET: [(&str, &str); 1] = [("a", "two")];

/// Returns three clients that have the first version and have ACKed it.
async fn three(plane: &mut Plane, relay: &Relay, variant: Variant) -> (Vec<Client>, Stream) {
    let mut clients = Vec::new();
    for _ in 0..3 {
        let client = Client::connect(relay.address, variant).await;
        client.ask(CDS, &[], Some("fleet"));
        clients.push(client);
    }
    let stream = plane.stream().await;
    say(&stream, "1", &FIRST, &FIRST, &[]);
    for client in &mut clients {
        let sent = client.sent().await;
        client.ack(CDS, &[], &sent);
    }
    (clients, stream)
}

#[tokio::test]
async fn a_change_is_a_span_from_its_response_to_the_last_ack_and_a_stream_one_to_its_first_set() {
    for variant in BOTH {
        let (mut plane, collector) = (Plane::start(&BOTH).await, Collector::start().await);
        let traces = traces(&format!("http://{}", collector.address), LONG, &[]);
        let relay = relay(&plane, &traces).await;
        let (mut clients, stream) = three(&mut plane, &relay, variant).await;
        say(&stream, "2", &SECOND_SET, &SECOND_SET, &[]);
        for client in &mut clients {
            let sent = client.sent().await;
            client.ack(CDS, &[], &sent);
        }
        let change = span(&collector, "upstream change", has("weir.version", "2")).await;
        assert_eq!(counts(&change), ["3", "3", "3", "0", "0"]);
        assert_eq!(change.attributes["weir.complete"], "true");
        assert_eq!(change.attributes["weir.type"], "envoy.config.cluster.v3.Cluster");
        assert_eq!(change.attributes["weir.server"], format!("http://{}", plane.address));
        assert_eq!(change.attributes["weir.response.resources"], "1");
        assert!(change.lasted < LONG, "{change:?}");
        until("each stream has a span", async || collector.spans("client stream start").len() == 3).await;
        let start = &collector.spans("client stream start")[0];
        assert_eq!((&*start.attributes["weir.node"], &*start.attributes["weir.complete"]), ("test", "true"));
        assert_eq!(start.attributes["weir.stream.replies"], "1");
        assert_eq!(start.attributes["weir.view"], change.attributes["weir.view"]);
        assert_eq!(collector.resource()["service.name"], "weir");
        // One span for each of the two versions, and no other.
        let versions: Vec<_> = collector.spans("upstream change");
        assert_eq!(versions.len(), 2, "{versions:#?}");
        until("they are counted", async || {
            get(relay.admin, "/metrics").await.contains("weir_trace_spans_exported_total 5")
        })
        .await;
    }
}

#[tokio::test]
async fn a_change_of_a_name_concerns_those_who_request_that_name() {
    let (mut plane, collector) = (Plane::start(&[Variant::Delta]).await, Collector::start().await);
    let traces = traces(&format!("http://{}", collector.address), LONG, &[]);
    let relay = relay(&plane, &traces).await;
    let mut one = Client::connect(relay.address, Variant::Delta).await;
    one.ask(CDS, &["a"], Some("fleet"));
    let mut other = Client::connect(relay.address, Variant::Delta).await;
    other.ask(CDS, &["b"], Some("fleet"));
    let stream = plane.stream().await;
    let both = [("a", "one"), ("b", "one")];
    say(&stream, "1", &both, &both, &[]);
    for client in [&mut one, &mut other] {
        let sent = client.sent().await;
        client.ack(CDS, &[], &sent);
    }
    say(&stream, "2", &[], &SECOND_SET, &[]);
    let sent = one.sent().await;
    one.ack(CDS, &[], &sent);
    let change = span(&collector, "upstream change", has("weir.version", "2")).await;
    assert_eq!(counts(&change), ["1", "1", "1", "0", "0"]);
}

#[tokio::test]
async fn a_change_that_a_client_does_not_answer_ends_at_the_bound_and_a_nack_has_its_trace_in_the_log() {
    let (mut plane, collector) = (Plane::start(&BOTH).await, Collector::start().await);
    let (lines, _guard) = log_lines::Lines::of_this_thread();
    let traces = traces(&format!("http://{}", collector.address), SHORT, &[]);
    let relay = relay(&plane, &traces).await;
    let (mut clients, stream) = three(&mut plane, &relay, Variant::Delta).await;
    say(&stream, "2", &SECOND_SET, &SECOND_SET, &[]);
    let mut sent = Vec::new();
    for client in &mut clients {
        sent.push(client.sent().await);
    }
    clients[0].ack(CDS, &[], &sent[0]);
    clients[1].refuse(CDS, &sent[1]);
    let change = span(&collector, "upstream change", has("weir.version", "2")).await;
    assert_eq!(counts(&change), ["3", "3", "1", "1", "0"]);
    assert_eq!((&*change.attributes["weir.complete"], change.lasted), ("false", SHORT));
    let nacks = lines.with("client NACKed a response");
    assert!(nacks[0].1.contains(&format!("trace_id={:?}", change.trace)), "{nacks:?}");
    // A client that disconnects need not answer.
    let third = [("a", "three")];
    say(&stream, "3", &third, &third, &[]);
    for client in &mut clients {
        let sent = client.sent().await;
        client.ack(CDS, &[], &sent);
    }
    let fourth = [("a", "four")];
    say(&stream, "4", &fourth, &fourth, &[]);
    let last = clients.pop().unwrap();
    for client in &mut clients {
        let sent = client.sent().await;
        client.ack(CDS, &[], &sent);
    }
    drop(last);
    let change = span(&collector, "upstream change", has("weir.version", "4")).await;
    assert_eq!((&*change.attributes["weir.clients.left"], &*change.attributes["weir.complete"]), ("1", "true"));
}

#[tokio::test]
async fn a_poll_is_a_span_and_what_is_not_sampled_is_none() {
    for (sampler, spans) in [("always_on", 1), ("always_off", 0)] {
        let (mut plane, collector) = (Plane::start(&BOTH).await, Collector::start().await);
        let sampler = [("OTEL_TRACES_SAMPLER", sampler)];
        let traces = traces(&format!("http://{}", collector.address), LONG, &sampler);
        let relay = relay(&plane, &traces).await;
        let (clients, _stream) = three(&mut plane, &relay, Variant::Sotw).await;
        let mut poller = Poller::connect(relay.address).await;
        let answer = poller.poll(CLUSTERS, "fleet", serde_json::json!({})).await;
        drop(clients);
        until("they are exported", async || {
            (collector.spans("client poll").len(), collector.spans("client stream start").len()) == (spans, 3 * spans)
        })
        .await;
        traces.finish().await;
        assert_eq!(collector.spans("client poll").len(), spans);
        assert_eq!(collector.spans("client stream start").len(), 3 * spans, "a poll is no stream");
        assert_eq!(collector.exports() > 0, spans > 0, "{sampler:?}");
        if let Some(poll) = collector.spans("client poll").first() {
            assert_eq!(poll.attributes["http.response.status_code"], answer.status.as_str());
            assert_eq!(poll.attributes["url.path"], CLUSTERS);
        }
    }
}

#[tokio::test]
async fn a_collector_that_is_away_or_hangs_costs_a_counter_and_the_end_is_bounded() {
    let hung = Collector::start_hung().await;
    for (endpoint, reason) in
        [("http://127.0.0.1:1".to_owned(), "export_failed"), (format!("http://{}", hung.address), "queue_full")]
    {
        let mut plane = Plane::start(&BOTH).await;
        // An export that hangs does not end by itself.
        let (hour, small) = ("3600000", ("OTEL_BSP_MAX_QUEUE_SIZE", "1"));
        let variables = [small, ("OTEL_EXPORTER_OTLP_TIMEOUT", hour), ("OTEL_BSP_EXPORT_TIMEOUT", hour)];
        let traces = traces(&endpoint, LONG, &variables);
        let relay = relay(&plane, &traces).await;
        let (mut clients, stream) = three(&mut plane, &relay, Variant::Delta).await;
        for number in 0..20 {
            let (content, version) = (format!("content {number}"), format!("{}", number + 2));
            let set = [("a", content.as_str())];
            say(&stream, &version, &set, &set, &[]);
            for client in &mut clients {
                let sent = client.sent().await;
                client.ack(CDS, &[], &sent);
            }
        }
        let counted = format!("weir_trace_spans_dropped_total{{reason=\"{reason}\"}}");
        until(reason, async || {
            let page = get(relay.admin, "/metrics").await;
            let line = page.lines().find(|line| line.starts_with(&counted)).unwrap().to_owned();
            line.rsplit(' ').next().unwrap() != "0"
        })
        .await;
        // It takes a second; a single export takes an hour.
        tokio::time::timeout(Duration::from_secs(9), traces.finish()).await.expect("the end has no bound");
    }
}

#[tokio::test]
async fn a_collector_is_trusted_by_its_certificate() {
    let authority = Authority::new();
    let tls = tls::server_config(&[&rustls::version::TLS13], &authority.sign("localhost"), None, b"h2");
    let collector = Collector::start_with_tls(tls).await;
    let folder = Folder::with_short_path("tls");
    folder.write("ca.pem", &authority.pem);
    let path = folder.0.join("ca.pem");
    let endpoint = format!("https://localhost:{}", collector.address.port());
    let traces = traces(&endpoint, LONG, &[("OTEL_EXPORTER_OTLP_CERTIFICATE", path.to_str().unwrap())]);
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(&plane, &traces).await;
    let _clients = three(&mut plane, &relay, Variant::Sotw).await;
    span(&collector, "upstream change", has("weir.version", "1")).await;
}

#[tokio::test]
async fn a_collector_with_a_certificate_of_another_authority_gets_nothing() {
    let tls = tls::server_config(&[&rustls::version::TLS13], &Authority::new().sign("localhost"), None, b"h2");
    let collector = Collector::start_with_tls(tls).await;
    let folder = Folder::with_short_path("tls");
    folder.write("ca.pem", &Authority::new().pem);
    let path = folder.0.join("ca.pem");
    let endpoint = format!("https://localhost:{}", collector.address.port());
    let traces = traces(&endpoint, LONG, &[("OTEL_EXPORTER_OTLP_CERTIFICATE", path.to_str().unwrap())]);
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(&plane, &traces).await;
    let _clients = three(&mut plane, &relay, Variant::Sotw).await;
    until("the export has failed", async || {
        let page = get(relay.admin, "/metrics").await;
        page.lines().any(|line| {
            let counted = line.strip_prefix("weir_trace_spans_dropped_total{reason=\"export_failed\"} ");
            counted.is_some_and(|count| count != "0")
        })
    })
    .await;
    assert_eq!(collector.exports(), 0);
}
