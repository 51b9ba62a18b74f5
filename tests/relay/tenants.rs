//! Tenants that share a relay: whatever one of them tries on any surface, and whatever it claims, it gets nothing of another tenant.

use std::time::Duration;

use prost_types::{Struct, Value, value::Kind};
use weir::config::Config;
use weir_core::proto::loads::LoadStatsRequest;
use weir_core::proto::node::Node;

use super::certificates::{Authority, Identity, NOTHING};
use super::client::PATIENCE;
use super::client_tls::{Connecting, VERSIONS, write_server};
use super::load_plane::{LoadClient, LoadPlane};
use super::poller::Poller;
use super::tls::server_config;
use super::*;
use weir_testkit::folder::Folder;

const SDS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
const SECRETS: &str = "/v3/discovery:secrets";
const PER_TYPE: &str = "/envoy.service.secret.v3.SecretDiscoveryService/DeltaSecrets";

const RESOURCES: &str = "
resources:
- {'@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, name: pay/key, generic_secret: {secret: {inline_string: a}}}
- {'@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, name: bill/key, generic_secret: {secret: {inline_string: b}}}
- {'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: pay-a}
- {'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster, name: bill-a}
";

/// Workloads belong to the tenant of their namespace. A relay may state the tenant `pay`.
pub(super) const RULES: &str = "views: {key: [cluster, tenant]}
permissions:
- name: workloads
  identities: [{spiffe: 'spiffe://prod/ns/{tenant}/*'}]
  node: {cluster: '{tenant}-*'}
  names: ['{tenant}-*']
  secrets: ['{tenant}/*']
- name: relays
  identities: [{spiffe: 'spiffe://prod/relay'}]
  node: {cluster: '{tenant}-*'}
  names: ['{tenant}-*']
  secrets: ['{tenant}/*']
  relays_for: [pay]
";

/// A relay in front of files or servers, and the authorities that sign certificates.
pub(super) struct World {
    relay: Relay,
    folder: Folder,
    own: Authority,
    prod: Authority,
}

impl World {
    async fn start(upstream: &str) -> Self {
        Self::start_beside(
            Folder::with_short_path("tls"),
            Authority::named("own"),
            Authority::named("prod"),
            upstream,
            RULES,
        )
        .await
        .0
    }

    pub(super) async fn start_beside(
        folder: Folder,
        own: Authority,
        prod: Authority,
        upstream: &str,
        rules: &str,
    ) -> (Self, weir::reload::PermissionsControl) {
        folder.write("resources.yaml", RESOURCES);
        folder.write("prod.pem", &prod.pem);
        write_server(&folder, &own.sign("localhost"));
        let config = text(upstream, rules);
        let config = Config::parse(&folder.0.join("relay.yaml"), &config).unwrap_or_else(|error| panic!("{error}"));
        let app = crate::bind(config).await.unwrap();
        let permissions = app.permissions();
        (Self { relay: run(app, std::future::pending()), folder, own, prod }, permissions)
    }

    pub(super) fn workload(&self, tenant: &str) -> Identity {
        self.prod.sign_uris(&[&format!("spiffe://prod/ns/{tenant}/web")], NOTHING)
    }

    async fn connection(&self, identity: Option<&Identity>) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
        let roots = self.own.pem.clone();
        let connecting = Connecting { roots, identity: identity.cloned(), versions: VERSIONS.to_vec(), alpn: "h2" };
        connecting.connect_to(self.relay.address).await.unwrap()
    }

    async fn poller(&self, identity: &Identity) -> Poller {
        let roots = self.own.pem.clone();
        let identity = Some(identity.clone());
        let connecting = Connecting { roots, identity, versions: VERSIONS.to_vec(), alpn: "http/1.1" };
        Poller::over(connecting.connect_to(self.relay.address).await.unwrap()).await
    }

    /// Opens a stream of either variant.
    pub(super) async fn client(&self, identity: Option<&Identity>, variant: Variant) -> Client {
        Client::over_as(self.connection(identity).await, variant).await.expect("no stream")
    }
}

fn text(upstream: &str, rules: &str) -> String {
    let limits = if rules.contains("\nlimits:") { "" } else { "limits: {resource_timer: 200ms}\n" };
    let tls = "{certificate: server.pem, key: server.key, client_auth: optional, \
               trust_domains: [{name: prod, bundle: prod.pem}]}";
    format!(
        "listen: [{{address: '127.0.0.1:0', tls: {tls}}}]\nadmin: {{address: '127.0.0.1:0'}}\n\
         upstream: {{{upstream}}}\n{limits}{rules}"
    )
}

fn stating(cluster: &str, tenant: &str) -> Node {
    let value = Value { kind: Some(Kind::StringValue(tenant.into())) };
    let metadata = Struct { fields: [("weir.tenant".to_owned(), value)].into_iter().collect() };
    Node { id: "test".into(), cluster: cluster.into(), metadata: Some(metadata), ..Node::default() }
}

/// Returns the names in responses, until as many as expected have arrived and the stream has been quiet for a while.
async fn heard(client: &mut Client, expected: usize) -> Vec<String> {
    let mut names = Vec::new();
    while names.len() < expected {
        names.extend(client.sent().await.set);
    }
    while let Ok(told) = tokio::time::timeout(Duration::from_millis(500), client.sent()).await {
        names.extend(told.set);
    }
    names.sort();
    names
}

#[tokio::test]
async fn a_tenant_gets_its_own_on_every_surface_and_nothing_of_another() {
    let world = World::start("files: resources.yaml").await;
    for (own, other) in [("pay", "bill"), ("bill", "pay")] {
        let identity = world.workload(own);
        let cluster = format!("{own}-web");
        let secrets = [format!("{own}/key"), format!("{other}/key")];
        let wanted: Vec<_> = secrets.iter().map(String::as_str).collect();
        for variant in BOTH {
            let mut client = world.client(Some(&identity), variant).await;
            client.ask(SDS, &wanted, Some(&cluster));
            assert_eq!(heard(&mut client, 1).await, [secrets[0].clone()], "{variant:?}");
            let mut client = world.client(Some(&identity), variant).await;
            client.ask(CDS, &[], Some(&cluster));
            assert_eq!(heard(&mut client, 1).await, [format!("{own}-a")], "{variant:?}, of a wildcard");
        }
        let mut client =
            Client::over_at(world.connection(Some(&identity)).await, Variant::Delta, PER_TYPE).await.unwrap();
        client.ask(SDS, &wanted, Some(&cluster));
        assert_eq!(heard(&mut client, 1).await, [secrets[0].clone()]);
        let mut poller = world.poller(&identity).await;
        let names = |names: &[&str]| serde_json::json!({"resource_names": names});
        let answer = poller.polled(SECRETS, &cluster, names(&[&secrets[0]])).await;
        assert_eq!(answer.status, 200);
        let answer = poller.poll(SECRETS, &cluster, names(&wanted)).await;
        let body = String::from_utf8_lossy(&answer.body);
        assert!(!body.contains(&secrets[1]), "{body}");
    }
}

#[tokio::test]
async fn a_tenant_has_what_its_limits_say_over_all_its_clients_and_others_have_their_own() {
    let limits = "limits: {streams_per_tenant: 3, names_per_tenant: 5, views_per_tenant: 2, resource_timer: 200ms}\n";
    let (folder, own, prod) = (Folder::with_short_path("tls"), Authority::named("own"), Authority::named("prod"));
    let world = World::start_beside(folder, own, prod, "files: resources.yaml", &format!("{RULES}{limits}")).await.0;
    let (pay, bill) = (world.workload("pay"), world.workload("bill"));
    let ended = async |client: &mut Client, text: &str| {
        let end = client.end().await;
        assert!(end.0 == Code::ResourceExhausted && end.1.contains(text), "{end:?}");
    };
    let mut one = world.client(Some(&pay), Variant::Delta).await;
    one.ask(SDS, &["pay/key", "pay/2", "pay/3"], Some("pay-web"));
    assert_eq!(one.sent().await.set, ["pay/key"]);
    let mut two = world.client(Some(&pay), Variant::Sotw).await;
    two.ask(SDS, &["pay/key"], Some("pay-api"));
    assert_eq!(two.sent().await.set, ["pay/key"]);
    let mut third_view = world.client(Some(&pay), Variant::Delta).await;
    third_view.ask(SDS, &["pay/key"], Some("pay-other"));
    ended(&mut third_view, "too many views of one tenant: the limit is 2 (limits.views_per_tenant)").await;
    let mut three = world.client(Some(&pay), Variant::Delta).await;
    three.ask(SDS, &["pay/key"], Some("pay-web"));
    assert_eq!(three.sent().await.set, ["pay/key"]);
    let mut four = world.client(Some(&pay), Variant::Sotw).await;
    four.ask(SDS, &["pay/key"], Some("pay-web"));
    ended(&mut four, "too many streams of one tenant: the limit is 3 (limits.streams_per_tenant)").await;
    let answer = world.poller(&pay).await.poll(SECRETS, "pay-web", serde_json::json!({})).await;
    assert_eq!(answer.status, 429);
    three.ask(SDS, &["pay/4"], None);
    ended(&mut three, "too many names of one tenant: the limit is 5 (limits.names_per_tenant)").await;

    let mut other = world.client(Some(&bill), Variant::Delta).await;
    other.ask(SDS, &["bill/key"], Some("bill-web"));
    assert_eq!(other.sent().await.set, ["bill/key"]);
    drop((one, two));
    until("the tenant has room again", async || {
        let mut again = world.client(Some(&pay), Variant::Delta).await;
        again.ask(SDS, &["pay/key", "pay/2", "pay/3", "pay/4"], Some("pay-other"));
        again.next_forever().await.is_ok()
    })
    .await;
    let metrics = get(world.relay.admin, "/metrics").await;
    for limit in ["streams", "names", "views"] {
        let series = format!("weir_limit_reached_total{{limit=\"limits.{limit}_per_tenant\"}}");
        assert!(metrics.lines().any(|line| line.starts_with(&series) && !line.ends_with(" 0")), "{series}");
    }
}

#[tokio::test]
async fn another_rate_of_requests_counts_at_once_for_streams_that_wait_by_the_one_before() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let address = plane.address;
    let text = |rate: usize| {
        format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\n\
             upstream: {{servers: [{{uri: 'http://{address}', variant: delta}}]}}\nviews: {{key: [cluster, tenant]}}\n\
             permissions: [{{name: all, identities: [{{network: 127.0.0.0/8}}], tenant: all, free: [cluster]}}]\n\
             limits: {{tenant_requests_per_second: {rate}}}\n"
        )
    };
    let world = super::reload::World::start("tenant-rate", &text(1)).await;
    let mut clients = Client::connect_many(world.relay.address, 150).await;
    clients.iter().for_each(|client| client.ask(CDS, &[], Some("web")));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let limit = "limits.tenant_requests_per_second";
    until("most of them wait for longer than the test", async || reached(&world.relay, limit).await > 120).await;
    assert_eq!(world.change(&text(1000)).await.changed, [limit]);
    let are_served = async {
        for client in &mut clients {
            assert_eq!(client.sent().await.set, ["a", "b"]);
        }
    };
    tokio::time::timeout(PATIENCE, are_served).await.expect("they still wait by the rate before");
}

#[tokio::test]
async fn explain_says_that_permissions_keep_a_name_from_a_client() {
    let world = World::start("files: resources.yaml").await;
    let pay = world.workload("pay");
    let client = world.client(Some(&pay), Variant::Delta).await;
    client.ask(SDS, &["pay/key", "bill/key"], Some("pay-web"));
    let path = "/explain?client=test&type=secrets&name=bill/key";
    until("it is said", async || get(world.relay.admin, path).await.contains("\"verdict\": \"not_allowed\"")).await;
    let page: serde_json::Value = serde_json::from_str(&get(world.relay.admin, path).await).unwrap();
    let sentence = "permissions or access rules do not allow this client to have it";
    super::explain::situation(&page[0], "Permissions hide it", "not_allowed", sentence);
}

#[tokio::test]
async fn a_lie_in_the_first_node_or_in_a_later_one_ends_the_stream_and_names_the_field() {
    let world = World::start("files: resources.yaml").await;
    let pay = world.workload("pay");
    for variant in BOTH {
        let mut client = world.client(Some(&pay), variant).await;
        client.ask(SDS, &["bill/key"], Some("bill-web"));
        let (code, message) = client.end().await;
        assert_eq!(code, Code::PermissionDenied, "{message}");
        let expected = r#"node.cluster is "bill-web": rule workloads of permissions permits "pay-*""#;
        assert_eq!(message, expected);

        let mut client = world.client(Some(&pay), variant).await;
        client.ask(SDS, &["pay/key"], Some("pay-web"));
        assert_eq!(client.sent().await.set, ["pay/key"]);
        client.ask(SDS, &["pay/key", "bill/key"], Some("bill-web"));
        assert_eq!(client.end().await, (Code::PermissionDenied, expected.into()), "later");

        let mut client = world.client(Some(&pay), variant).await;
        client.ask_as(&stating("pay-web", "bill"), SDS, &["bill/key"]);
        let (code, message) = client.end().await;
        assert_eq!(code, Code::PermissionDenied);
        assert!(message.starts_with(r#"node.metadata.weir.tenant is "bill": only a relay may"#), "{message}");

        let mut client = world.client(None, variant).await;
        client.ask(SDS, &["pay/key"], Some("pay-web"));
        let (code, message) = client.end().await;
        assert_eq!(code, Code::Unauthenticated);
        assert!(message.starts_with("no rule of permissions is for 127.0.0.1:"), "{message}");
    }
    let answer = world.poller(&pay).await.poll(SECRETS, "bill-web", serde_json::json!({})).await;
    assert_eq!(answer.status, 403);
    assert!(String::from_utf8_lossy(&answer.body).contains("node.cluster is"));
    let metrics = get(world.relay.admin, "/metrics").await;
    let denied = metrics.lines().find(|line| line.contains("reason=\"denied\"")).unwrap();
    assert!(denied.ends_with(" 7"), "{denied}");
}

#[tokio::test]
async fn load_reports_are_judged_as_streams_are_also_those_that_pass_undecoded() {
    let mut plane = LoadPlane::start().await;
    let world = World::start(&format!("servers: [{{uri: 'http://{}'}}]", plane.address)).await;
    let pay = world.workload("pay");
    let report = |node: Option<Node>| LoadStatsRequest {
        node: node.map(|node| prost::Message::encode_to_vec(&node).into()),
        ..Default::default()
    };
    let of = |cluster: &str| Some(Node { cluster: cluster.into(), ..Node::default() });
    let mut client = LoadClient::over(world.connection(Some(&pay)).await).await;
    client.report(&report(of("bill-web"))).await;
    assert_eq!(client.ended().await.code(), Code::PermissionDenied);

    // Decoders merge a node that is given twice.
    let mut client = LoadClient::over(world.connection(Some(&pay)).await).await;
    let parts = [report(of("bill-web")), report(of("")), report(of("pay-web"))];
    let [lie, empty, truth] = parts.map(|part| prost::Message::encode_to_vec(&part));
    client.send(&[lie.clone(), empty].concat()).await;
    assert_eq!(client.ended().await.code(), Code::PermissionDenied);

    let mut client = LoadClient::over(world.connection(Some(&pay)).await).await;
    client.send(&truth).await;
    let mut stream = plane.stream().await;
    stream.message().await.unwrap();
    client.send(&lie).await;
    assert_eq!(client.ended().await.code(), Code::PermissionDenied, "later");
}

#[tokio::test]
async fn load_reports_of_a_tenant_are_sent_with_its_credentials() {
    let mut plane = LoadPlane::start().await;
    let lower = World::start(&format!("servers: [{{uri: 'http://{}'}}]", plane.address)).await;
    let (folder, own, certificate) = (Folder::with_short_path("tls"), Authority::named("own"), lower.workload("pay"));
    folder.write("lower.pem", &lower.own.pem);
    folder.write("pay.pem", &certificate.certificate);
    folder.write("pay.key", &certificate.key);
    let upstream = format!(
        "servers: [{{uri: 'https://localhost:{}', tls: {{ca: lower.pem}}, \
         tenants: [{{names: [pay], certificate: pay.pem, key: pay.key}}]}}]",
        lower.relay.address.port()
    );
    let (upper, _) = World::start_beside(folder, own, Authority::named("prod"), &upstream, RULES).await;
    let client = LoadClient::over(upper.connection(Some(&upper.workload("pay"))).await).await;
    let node = Node { cluster: "pay-web".into(), ..Node::default() };
    let report = LoadStatsRequest { node: Some(prost::Message::encode_to_vec(&node).into()), ..Default::default() };
    client.report(&report).await;
    // The lower relay accepts clients that prove their identity, and no others.
    assert_eq!(plane.stream().await.report().await, report);
}

/// Missing credentials of one owner do not delay clients of others.
#[tokio::test]
async fn a_relay_is_ready_although_some_credentials_towards_the_server_are_not_there_yet() {
    let lower = World::start("files: resources.yaml").await;
    let port = lower.relay.address.port();
    for (own, of_pay) in [("", "missing"), (", certificate: missing.pem, key: missing.key", "pay")] {
        let (folder, authority, certificate) =
            (Folder::with_short_path("tls"), Authority::named("own"), lower.workload("pay"));
        folder.write("lower.pem", &lower.own.pem);
        folder.write("pay.pem", &certificate.certificate);
        folder.write("pay.key", &certificate.key);
        let tenants = format!("[{{names: [pay], certificate: {of_pay}.pem, key: {of_pay}.key}}]");
        let server = format!("{{uri: 'https://localhost:{port}', tls: {{ca: lower.pem{own}}}, tenants: {tenants}}}");
        let upstream = format!("servers: [{server}]");
        let (upper, _) = World::start_beside(folder, authority, Authority::named("prod"), &upstream, RULES).await;
        until("it is ready", async || probe(upper.relay.admin, "/ready").await.0 == 200).await;
    }
}

#[tokio::test]
async fn a_changed_rule_ends_those_whom_it_concerns_and_no_others() {
    let world = World::start_beside(
        Folder::with_short_path("tls"),
        Authority::named("own"),
        Authority::named("prod"),
        "files: resources.yaml",
        RULES,
    );
    let (world, permissions) = world.await;
    let (pay, relay) = (world.workload("pay"), world.prod.sign_uris(&["spiffe://prod/relay"], NOTHING));
    let mut of_pay = world.client(Some(&pay), Variant::Delta).await;
    of_pay.ask(SDS, &["pay/key"], Some("pay-web"));
    assert_eq!(of_pay.sent().await.set, ["pay/key"]);
    let mut of_relay = world.client(Some(&relay), Variant::Delta).await;
    of_relay.ask_as(&stating("pay-web", "pay"), CDS, &[]);
    assert_eq!(of_relay.sent().await.set, ["pay-a"]);

    let narrowed = RULES.replacen("  secrets: ['{tenant}/*']\n", "", 1);
    let config = Config::parse(&world.folder.0.join("relay.yaml"), &text("files: resources.yaml", &narrowed)).unwrap();
    assert_eq!(permissions.replace(config.views.permissions), Ok(true));
    let (code, message) = of_pay.end().await;
    assert_eq!(
        (code, &*message),
        (Code::Unavailable, "the rule of permissions for this client has changed; reconnect")
    );
    let mut back = world.client(Some(&pay), Variant::Delta).await;
    back.ask(SDS, &["pay/key"], Some("pay-web"));
    back.ask(CDS, &[], None);
    assert_eq!(heard(&mut back, 1).await, ["pay-a"], "it comes back under the new rule");
    of_relay.ask(SDS, &["pay/key"], None);
    assert_eq!(of_relay.sent().await.set, ["pay/key"], "its rule is the same");
}

#[tokio::test]
async fn through_a_tier_a_tenant_gets_its_own_and_the_lower_relay_trusts_the_upper_for_its_tenants_alone() {
    let lower = World::start("files: resources.yaml").await;
    // The upper relay would accept `bill`, but its own certificate may only state the tenant `pay`.
    let (folder, own) = (Folder::with_short_path("tls"), Authority::named("own"));
    let certificate = lower.prod.sign_uris(&["spiffe://prod/relay"], NOTHING);
    folder.write("lower.pem", &lower.own.pem);
    folder.write("relay.pem", &certificate.certificate);
    folder.write("relay.key", &certificate.key);
    let port = lower.relay.address.port();
    let tls = "{ca: lower.pem, certificate: relay.pem, key: relay.key}";
    let upstream = format!("servers: [{{uri: 'https://localhost:{port}', variant: delta, tls: {tls}}}]");
    let prod = Authority::named("prod");
    let (upper, _) = World::start_beside(folder, own, prod, &upstream, RULES).await;
    for variant in BOTH {
        let mut client = upper.client(Some(&upper.workload("pay")), variant).await;
        client.ask(SDS, &["pay/key", "bill/key"], Some("pay-web"));
        assert_eq!(heard(&mut client, 1).await, ["pay/key"], "{variant:?}");
        let mut client = upper.client(Some(&upper.workload("bill")), variant).await;
        client.ask(SDS, &["bill/key", "pay/key"], Some("bill-web"));
        assert_eq!(heard(&mut client, 0).await, [""; 0], "{variant:?}");
    }
    until("the reason is shown", async || {
        get(upper.relay.admin, "/upstreams").await.contains("rule relays of permissions relays for")
    })
    .await;
}

#[tokio::test]
async fn a_server_is_shown_each_tenants_credentials_on_connections_of_their_own() {
    let lower = World::start("files: resources.yaml").await;
    let (folder, own) = (Folder::with_short_path("tls"), Authority::named("own"));
    folder.write("lower.pem", &lower.own.pem);
    for tenant in ["pay", "bill"] {
        let certificate = lower.workload(tenant);
        folder.write(&format!("{tenant}.pem"), &certificate.certificate);
        folder.write(&format!("{tenant}.key"), &certificate.key);
    }
    let port = lower.relay.address.port();
    let tenants =
        "[{names: [pay], certificate: pay.pem, key: pay.key}, {names: ['bil*'], certificate: bill.pem, key: bill.key}]";
    let upstream = format!(
        "servers: [{{uri: 'https://localhost:{port}', variant: delta, tls: {{ca: lower.pem}}, tenants: {tenants}}}]"
    );
    let (upper, _) = World::start_beside(folder, own, Authority::named("prod"), &upstream, RULES).await;
    // Workloads may not state a tenant. The lower relay identifies each by its credentials if the upper relay states no tenant.
    let mut clients = Vec::new();
    for tenant in ["pay", "bill", "else"] {
        let identity = upper.workload(tenant);
        let client = upper.client(Some(&identity), Variant::Delta).await;
        client.ask(SDS, &[&format!("{tenant}/key")], Some(&format!("{tenant}-web")));
        clients.push(client);
    }
    for tenant in ["pay", "bill"] {
        let expected = format!("node.metadata.weir.tenant is \\\"{tenant}\\\": only a relay may state a tenant");
        until("the lower relay's word", async || get(upper.relay.admin, "/upstreams").await.contains(&expected)).await;
    }
    until("the third has no credentials", async || {
        get(upper.relay.admin, "/upstreams").await.contains("no rule of permissions is for")
    })
    .await;
}

#[tokio::test]
async fn fb_20_i8_a_server_that_a_tenant_cannot_reach_without_its_certificate_is_the_first_choice_of_others() {
    let (folder, own) = (Folder::with_short_path("tls"), Authority::named("own"));
    folder.write("own.pem", &own.pem);
    let versions = [&rustls::version::TLS13];
    let tls = server_config(&versions, &own.sign("localhost"), None, b"h2");
    let (mut first, mut second) = (Plane::start_with_tls(tls.clone()).await, Plane::start_with_tls(tls).await);
    let [one, two] =
        [&first, &second].map(|at| format!("uri: 'https://localhost:{}', tls: {{ca: own.pem}}", at.address.port()));
    let tenants = "[{names: [pay], certificate: missing.pem, key: missing.key}]";
    let upstream = format!("servers: [{{{one}, tenants: {tenants}}}, {{{two}}}]");
    let (world, _) = World::start_beside(folder, own, Authority::named("prod"), &upstream, RULES).await;
    let of_pay = world.client(Some(&world.workload("pay")), Variant::Delta).await;
    of_pay.ask(CDS, &[], Some("pay-web"));
    let _stream_of_pay = second.stream().await; // it has fallen back

    let mut of_bill = world.client(Some(&world.workload("bill")), Variant::Delta).await;
    of_bill.ask(CDS, &[], Some("bill-web"));
    let mut stream = first.stream().await;
    stream.request().await;
    let fallbacks = get(world.relay.admin, "/upstreams").await.matches("\"fallbacks\": 1").count();
    assert_eq!(fallbacks, 1, "of the tenant without its certificate");
    let set = [("bill-a", "1")];
    say(&stream, "1", &set, &set, &[]);
    assert_eq!(of_bill.sent().await.set, ["bill-a"]);
    assert!(second.streams.try_recv().is_err(), "no stream for the other tenant");
}

#[tokio::test]
async fn a_server_is_shown_each_tenants_header_and_no_others() {
    let (folder, own) = (Folder::with_short_path("tls"), Authority::named("own"));
    folder.write("own.pem", &own.pem);
    let versions = [&rustls::version::TLS13];
    let mut plane = Plane::start_with_tls(server_config(&versions, &own.sign("localhost"), None, b"h2")).await;
    let tenants = "[{names: [pay], headers: {x-token: {value: of-pay}}}, {names: ['bil*'], headers: {x-other: {value: of-bill}}}]";
    let upstream = format!(
        "servers: [{{uri: 'https://localhost:{}', variant: delta, tls: {{ca: own.pem}}, headers: {{x-token: {{value: of-all}}}}, \
         tenants: {tenants}}}]",
        plane.address.port()
    );
    let (world, _) = World::start_beside(folder, own, Authority::named("prod"), &upstream, RULES).await;
    let mut clients = Vec::new();
    for (tenant, shown) in
        [("pay", [Some("of-pay"), None]), ("bill", [None, Some("of-bill")]), ("else", [Some("of-all"), None])]
    {
        let client = world.client(Some(&world.workload(tenant)), Variant::Delta).await;
        client.ask(CDS, &[], Some(&format!("{tenant}-web")));
        let stream = plane.stream().await;
        let headers = ["x-token", "x-other"].map(|name| stream.headers.get(name).map(|value| value.to_str().unwrap()));
        assert_eq!(headers, shown, "{tenant}");
        clients.push((client, stream));
    }
    // The same holds for every other call, some of which are for no view.
    let calls = plane.calls.lock().unwrap();
    assert!(calls.len() >= clients.len());
    let all = [[Some("of-pay"), None], [None, Some("of-bill")], [Some("of-all"), None]];
    for call in calls.iter() {
        let headers = ["x-token", "x-other"].map(|name| call.headers.get(name).map(|value| value.to_str().unwrap()));
        let expected = match call.cluster.as_deref() {
            Some("pay-web") => &all[..1],
            Some("bill-web") => &all[1..2],
            Some("else-web") => &all[2..],
            _ => &all[..],
        };
        assert!(expected.contains(&headers), "{}: {headers:?}", call.path);
    }
}
