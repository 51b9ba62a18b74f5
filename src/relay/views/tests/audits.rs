//! Audits of a view while its clients come and go and its resources change, in virtual time. Nothing is found but what is planted.

use std::sync::atomic::{AtomicUsize, Ordering};

use prost::encoding::string;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use weir_core::proto::discovery::DiscoveryResponse;
use weir_core::proto::{Any, Response};
use weir_core::xds::KeyField;

use super::scripted::{SERVER, wants};
use super::*;
use crate::relay::audit::{AuditBoard, AuditResult, audit_views};
use crate::relay::link::{Connector, Link, LinkEvent, LinkReport};
use crate::relay::report::ExplainQuery;
use crate::relay::session_handle::SessionHandle;
use crate::transcode::{Descriptors, Transcoder};

const PORT: &str = "PORT";
const NAME: &str = "NAME";
/// How long a stream takes to be sent a change: what views and audits have differs for moments.
const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_millis(700), Duration::from_secs(2)];
const INTERVAL: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_secs(4);

/// What a server makes of a node.
type Makes = fn(&Node) -> String;

/// A server that makes clusters for each node, and sends them on SotW streams.
struct OfNodes {
    makes: Makes,
    /// How often its clusters have changed.
    changes: watch::Receiver<u64>,
    opened: AtomicUsize,
}

impl Connector for OfNodes {
    fn start(&self, link: Link) -> JoinHandle<()> {
        let pause = PAUSES[self.opened.fetch_add(1, Ordering::Relaxed) % PAUSES.len()];
        tokio::spawn(serve(link, self.makes, self.changes.clone(), pause))
    }

    fn describe(&self) -> String {
        SERVER.into()
    }

    fn variant(&self) -> Option<Variant> {
        Some(Variant::Sotw)
    }
}

/// Answers the first request, and then sends every change after a pause.
async fn serve(link: Link, makes: Makes, mut changes: watch::Receiver<u64>, pause: Duration) {
    let Link { id, reports, .. } = link;
    let (requests, mut requested) = mpsc::channel(64);
    let event = LinkEvent::Opened { variant: Variant::Sotw, requests, life: Arc::default() };
    if reports.send(LinkReport { id, event }).await.is_err() {
        return;
    }
    let Some(first) = requested.recv().await else { return };
    let node = Node::decode(&**first.node().unwrap()).unwrap();
    loop {
        let change = *changes.borrow_and_update();
        let event = LinkEvent::Response(Box::new(clusters(&makes(&node), change)));
        if reports.send(LinkReport { id, event }).await.is_err() {
            return;
        }
        loop {
            tokio::select! {
                changed = changes.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                request = requested.recv() => if request.is_none() {
                    return;
                },
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// One cluster that is made for the node, one that changes, and one that comes and goes.
fn clusters(made: &str, change: u64) -> Response {
    let type_url = format!("type.googleapis.com/{CLUSTER}");
    let cluster = |name: &str, content: &str| {
        let mut value = Vec::new();
        string::encode(1, &name.to_owned(), &mut value);
        string::encode(28, &content.to_owned(), &mut value); // alt_stat_name
        Any { type_url: type_url.clone(), value: value.into() }
    };
    let version = change.to_string();
    let mut resources = vec![cluster("made", made), cluster("changing", &version)];
    if !change.is_multiple_of(3) {
        resources.push(cluster("at times", ""));
    }
    Response::Sotw(DiscoveryResponse {
        version_info: version.clone(),
        nonce: version,
        resources,
        type_url: type_url.clone(),
        ..DiscoveryResponse::default()
    })
}

/// All clients are given the same.
fn soundly(_: &Node) -> String {
    "of all".into()
}

/// The cluster depends on a field that the key leaves out.
fn by_port(node: &Node) -> String {
    let port = node.metadata.as_ref().and_then(|metadata| metadata.fields.get(PORT)?.kind.clone());
    let Some(Kind::StringValue(port)) = port else { panic!("each client has a port") };
    port
}

/// Views whose clients share whatever their names and ports are, and the audits of them.
struct Audited {
    views: Arc<Views>,
    changes: watch::Sender<u64>,
    clients: Vec<Arc<SessionHandle>>,
    joined: usize,
}

impl Audited {
    fn begin(makes: Makes, interval: Duration) -> Self {
        let (changes, receiver) = watch::channel(1);
        let left_out = [NAME, PORT].into_iter().filter_map(KeyField::metadata_path).collect();
        let rule = KeyRule::of(vec![KeyField::Cluster, KeyField::metadata_except(left_out)]);
        let plan = Plan::single(Variant::Sotw, ServerQuirks::default());
        let server = OfNodes { makes, changes: receiver, opened: AtomicUsize::new(0) };
        let options = ViewsOptions { rule, shows_members: true, plan, ..options() };
        let views = Arc::new(Views::new(options, vec![Arc::new(server)]));
        let number = views.incidents().audits.number();
        views.incidents().audits.follow(number, &[SERVER.to_owned()]);
        let audited = views.clone();
        let descriptors: Descriptors = Arc::new(Transcoder::envoy);
        tokio::spawn(async move { audit_views(&audited, number, interval, &descriptors).await });
        Self { views, changes, clients: Vec::new(), joined: 0 }
    }

    fn board(&self) -> &AuditBoard {
        &self.views.incidents().audits
    }

    fn count(&self, result: AuditResult) -> u64 {
        self.board().ends().find(|(of, _)| *of == result).map_or(0, |(_, count)| count)
    }

    /// A client joins, which subscribes to every cluster. Each second client has another port.
    async fn join(&mut self) {
        self.join_as(self.joined).await;
        self.joined += 1;
    }

    async fn join_as(&mut self, number: usize) {
        let text = |text: String| Value { kind: Some(Kind::StringValue(text)) };
        let (name, port) = (format!("proxy-{number}"), format!("port {}", number % 2));
        let fields = [(NAME.to_owned(), text(name.clone())), (PORT.to_owned(), text(port))].into();
        let metadata = Some(Struct { fields });
        let node = Node { id: name, cluster: "gateways".into(), metadata, ..Node::default() };
        let node = Some(node.encode_to_vec().into());
        let first = Request::Delta(DeltaDiscoveryRequest { node, ..DeltaDiscoveryRequest::default() });
        let client = open_session(&self.views, &first, visit()).await.unwrap();
        client.handle_request(wants(CLUSTER, "*")).await;
        self.clients.push(client);
    }

    async fn leave(&mut self, place: usize) {
        self.clients.remove(place).leave().await;
    }

    /// Clients come and go and clusters change, until something holds.
    async fn churn(&mut self, until: impl Fn(&Self) -> bool) {
        for _ in 0..5 {
            self.join().await;
        }
        for step in 0..5_000 {
            if until(self) {
                return;
            }
            match step % 4 {
                0 => self.join().await,
                2 => self.leave(step * 7 / 4 % self.clients.len()).await,
                _ => self.changes.send_modify(|changes| *changes += 1),
            }
            tokio::time::sleep(STEP).await;
        }
        panic!("never: {:?}", self.board().ends().collect::<Vec<_>>());
    }

    /// Whether `explain` says of the first client that an audit has found something.
    async fn is_explained(&self) -> bool {
        let (sessions, kind) = (vec![self.clients[0].client().id.0], self.views.types().resolve(CLUSTER));
        let query = ExplainQuery { sessions, kind, name: Name::from("made") };
        let explained = questions::explain(&self.views, &query).await;
        explained[0].reasons.iter().any(|reason| reason.code == "audit_differs")
    }

    /// Waits until something holds, for so long at most.
    async fn holds(&self, within: Duration, what: impl Fn(&AuditBoard) -> bool) -> bool {
        let looking = async {
            while !what(self.board()) {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::time::timeout(within, looking).await.is_ok()
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_audits_of_equal_clients_during_churn_find_nothing() {
    let mut audited = Audited::begin(soundly, INTERVAL);
    audited.churn(|of| of.count(AuditResult::Equal) >= 100 || of.count(AuditResult::Differs) > 0).await;
    assert_eq!((audited.count(AuditResult::Differs), audited.board().findings()), (0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_field_that_counts_and_is_left_out_of_the_key_is_found_during_churn() {
    let mut audited = Audited::begin(by_port, INTERVAL);
    audited.churn(|of| of.count(AuditResult::Differs) > 0).await;
    let findings = audited.board().findings();
    let [(_, report)] = &findings[..] else { panic!("{findings:?}") };
    let places: Vec<_> = report.differences.iter().map(|of| (of.name.as_str(), of.path.as_str())).collect();
    assert_eq!(places, [("made", "alt_stat_name")], "and nothing that only changes");
    assert!(report.node_fields.iter().any(|field| field == "metadata.PORT"), "{report:?}");
}

/// The next audit is an hour away, and has no member to ask for.
#[tokio::test(start_paused = true)]
async fn a_finding_is_over_at_once_when_one_client_is_left_with_several_streams() {
    const HOUR: Duration = Duration::from_secs(3600);
    let mut audited = Audited::begin(by_port, HOUR);
    audited.join().await;
    audited.join().await;
    assert!(!audited.is_explained().await);
    assert!(audited.holds(HOUR, |board| !board.findings().is_empty()).await);
    assert!(audited.is_explained().await);
    audited.join_as(0).await;
    audited.leave(1).await;
    assert!(audited.holds(Duration::from_secs(10), |board| board.findings().is_empty()).await);
    assert!(!audited.is_explained().await);
}
