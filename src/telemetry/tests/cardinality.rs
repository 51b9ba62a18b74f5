//! The number of series stays limited, whatever clients state.

use std::net::Ipv4Addr;

use prost::Message;
use tokio::task::JoinHandle;
use weir_core::proto::Request;
use weir_core::proto::discovery::DeltaDiscoveryRequest;
use weir_core::proto::node::Node;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::sources::Plan;
use weir_core::protocol::upstream::ServerQuirks;
use weir_core::xds::type_by_word;
use weir_core::xds::{Access, KeyRule, Peer, Permissions};

use super::*;
use crate::memory::Budget;
use crate::relay::{ClientInfo, Connector, Link, TenantLimits, ViewsOptions, open_session, questions};

const NODES: u64 = 5_000;
const VIEWS: u64 = 500;
/// The default of `views.max_in_metrics`.
const IN_METRICS: usize = 100;
/// docs/metrics.md states these numbers.
const MAX_SERIES: usize = 6_000;
const MAX_BYTES: usize = 1 << 20;

/// A server that never answers.
struct Silent;

impl Connector for Silent {
    fn start(&self, link: Link) -> JoinHandle<()> {
        tokio::spawn(async move {
            let _link = link;
            std::future::pending().await
        })
    }

    fn describe(&self) -> String {
        "https://control-plane.example:18000".into()
    }

    fn variant(&self) -> Option<Variant> {
        None
    }
}

pub(super) fn views() -> Views {
    let options = ViewsOptions {
        rule: KeyRule::default(),
        header_hasher: None,
        shows_members: false,
        accept_missing_node: false,
        max_views: 10_000,
        max_views_per_connection: 0,
        max_views_per_identity: 0,
        max_views_per_tenant: 0,
        tenants: TenantLimits::default(),
        max_in_metrics: IN_METRICS,
        table: TypeTable::new(),
        access: Access::default(),
        permissions: Permissions::default(),
        protocol: ProtocolOptions::default(),
        stated_versions_bytes: 1 << 20,
        memory: Budget::unlimited(),
        plan: Plan::single(Variant::Delta, ServerQuirks::default()),
        panics_at: None,
    };
    Views::new(options, vec![Arc::new(Silent)])
}

pub(super) fn client() -> ClientInfo {
    ClientInfo {
        headers: Default::default(),
        variant: Variant::Delta,
        only: None,
        is_stream: true,
        peer: Arc::new(Peer::at((Ipv4Addr::LOCALHOST, 1).into())),
        quota: Arc::default(),
    }
}

/// Returns the first request of a client. Everything in it that a client can choose is random.
fn request(random: &mut u64) -> Request {
    let mut number = || {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        *random
    };
    let node = Node {
        id: format!("node-{:x}", number()),
        cluster: format!("cluster-{}", number() % VIEWS),
        user_agent_name: "envoy".into(),
        ..Node::default()
    };
    let kinds = ["envoy.config.cluster.v3.Cluster", "envoy.config.listener.v3.Listener"];
    let type_url = match number() % 3 {
        2 => format!("type.googleapis.com/made.up.T{:x}", number()),
        known => format!("type.googleapis.com/{}", kinds[known as usize]),
    };
    Request::Delta(DeltaDiscoveryRequest {
        node: Some(node.encode_to_vec().into()),
        resource_names_subscribe: vec!["*".into(), format!("name-{:x}", number())],
        type_url,
        ..DeltaDiscoveryRequest::default()
    })
}

#[tokio::test]
async fn five_thousand_random_nodes_in_five_hundred_views_make_a_bounded_number_of_series() {
    let (views, mut random, mut handles) = (views(), 1, Vec::new());
    let counters = views.counters();
    let lag = ReplyLag { change: Some(std::time::Duration::from_millis(1)), request: Some(std::time::Duration::ZERO) };
    for _ in 0..NODES {
        let request = request(&mut random);
        let kind = type_by_word(views.types(), request.type_url())
            .unwrap_or_else(|_| TypeTable::new().resolve(request.type_url()));
        let handle = open_session(&views, &request, client()).await.unwrap();
        handle.handle_request(request).await;
        counters.nack(Some(&kind));
        counters.deliveries.sent(counters.deliveries.place(&kind), 100, lag);
        handles.push(handle);
    }
    // Views have a second for their answers, and on a busy machine much to do before.
    let begun = std::time::Instant::now();
    let (view_count, metrics) = loop {
        let (view_count, metrics) = questions::metrics(&views).await;
        if metrics.iter().map(|view| view.sessions).sum::<usize>() as u64 == NODES {
            break (view_count, metrics);
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "some are left out");
    };
    assert_eq!((view_count as u64, metrics.len()), (VIEWS, IN_METRICS + 1));
    let probe = RuntimeProbe::start();
    let text = text(&MetricsSnapshot {
        view_count,
        key_values: views.values_by_field(),
        views: &metrics,
        waits: &questions::waits(&views, 0).await,
        counters,
        incidents: views.incidents(),
        buffered_load_bytes: 0,
        stated_versions_bytes: 0,
        cached_bytes: 0,
        book: Book::default(),
        unanswered: Vec::new(),
        connections: Vec::new(),
        nacking: questions::nacking_streams(&views),
        servers: views.servers().collect(),
        files: Vec::new(),
        tls: Vec::new(),
        state: None,
        config: &super::config_facts(),
        log_lines_dropped: 0,
        workers: &WorkerHealth::new(),
        probe: &probe,
    });
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    println!("{series} series, {} bytes", text.len());
    assert!(series <= MAX_SERIES && text.len() <= MAX_BYTES, "{series} series, {} bytes", text.len());
    for invented in ["node-", "made.up", "name-", "cluster-"] {
        assert!(!text.contains(invented), "{invented} is a label");
    }
    drop(handles);
}
