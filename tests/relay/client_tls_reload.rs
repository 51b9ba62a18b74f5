//! TLS settings that a reload changes: a connected client is treated as by a restart with the same file.

use std::time::Duration;

use nix::unistd::Uid;
use serde_json::json;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};
use tonic::Code;
use tracing::subscriber::DefaultGuard;
use weir_core::protocol::session::Variant;

use crate::certificates::{Authority, Identity};
use crate::client::Client;
use crate::client_tls::{Connecting, VERSIONS};
use crate::log_lines::Lines;
use crate::plane::{Plane, Stream};
use crate::poller::{CLUSTERS, Poller};
use crate::reload::{World, text};
use crate::{BOTH, CDS, TWO, say, until};
use weir_testkit::folder::Folder;

/// The time limit for the effect of a change: the spread, and what a slow machine needs.
const BOUND: Duration = Duration::from_secs(16);

const NONE: &str = "";
const OPTIONAL: &str = ", client_auth: optional, client_ca: clients.pem";
const REQUIRED: &str = ", client_auth: required, client_ca: clients.pem";
const OPTIONAL_BY_OTHERS: &str = ", client_auth: optional, client_ca: others.pem";

/// A relay with a TLS address, a plain address and a Unix socket, and clients of each kind.
struct Crowd {
    world: World,
    rules: String,
    plane: Plane,
    stream: Stream,
    version: u32,
    /// Clients that have shown a certificate.
    named: Vec<Client>,
    named_poller: Poller,
    /// Clients that have shown no certificate.
    unnamed: Vec<Client>,
    unnamed_poller: Poller,
    /// Clients at the plain address and at the Unix socket.
    beside: Vec<Client>,
    lines: Lines,
    _guard: DefaultGuard,
}

impl Crowd {
    /// Connects all clients. They show a certificate only if the listener asks for one.
    async fn new(name: &str, tls: &str, rules: &str) -> Self {
        let (lines, _guard) = Lines::of_this_thread();
        let mut plane = Plane::start(&BOTH).await;
        let folder = Folder::with_short_path(&format!("tls-reload-{name}"));
        let [own, clients, others] = ["own", "clients", "others"].map(Authority::named);
        let Identity { certificate, key, .. } = own.sign("localhost");
        let files = [("server.pem", &certificate), ("server.key", &key)];
        for (file, text) in files.into_iter().chain([("clients.pem", &clients.pem), ("others.pem", &others.pem)]) {
            std::fs::write(folder.0.join(file), text).unwrap();
        }
        let world = World::start_in(folder, &config(&plane, tls, rules)).await;
        let identity = clients.sign("b.example");
        let connect = async |identity: Option<&Identity>, alpn| {
            let (roots, identity) = (own.pem.clone(), identity.cloned());
            let connecting = Connecting { roots, identity, versions: VERSIONS.to_vec(), alpn };
            connecting.connect_to(world.relay.address).await.unwrap()
        };
        let (mut named, mut unnamed) = (Vec::new(), Vec::new());
        for variant in [Variant::Sotw, Variant::Delta, Variant::Delta] {
            named.push(Client::over_as(connect(Some(&identity), "h2").await, variant).await.unwrap());
            unnamed.push(Client::over_as(connect(None, "h2").await, variant).await.unwrap());
        }
        let socket = UnixStream::connect(world.folder.socket()).await.unwrap();
        let mut beside = vec![
            Client::connect(world.addresses[1], Variant::Delta).await,
            Client::over_as(socket, Variant::Delta).await.unwrap(),
        ];
        named.iter().chain(&unnamed).chain(&beside).for_each(|client| client.ask(CDS, &[], Some("web")));
        let stream = plane.stream().await;
        say(&stream, "1", &TWO, &TWO, &[]);
        for client in named.iter_mut().chain(&mut unnamed).chain(&mut beside) {
            let sent = client.sent().await;
            assert_eq!(sent.set, ["a", "b"]);
            client.ack(CDS, &[], &sent);
        }
        let mut pollers = Vec::new();
        for identity in [Some(&identity), None] {
            let mut poller = Poller::over(connect(identity, "http/1.1").await).await;
            assert_eq!(poller.polled(CLUSTERS, "web", json!({})).await.status, 200);
            pollers.push(poller);
        }
        let [named_poller, unnamed_poller] = <[Poller; 2]>::try_from(pollers).ok().unwrap();
        let (rules, version) = (rules.to_owned(), 1);
        Self {
            world,
            rules,
            plane,
            stream,
            version,
            named,
            named_poller,
            unnamed,
            unnamed_poller,
            beside,
            lines,
            _guard,
        }
    }

    /// Reloads with other TLS settings, and waits until all clients were judged. Returns how many of them have to end.
    async fn reload(&self, tls: &str) -> usize {
        let judged = || self.lines.with("clients judged again");
        let before = judged().len();
        let report = self.world.change(&config(&self.plane, tls, &self.rules)).await;
        assert_eq!((report.changed, report.pending), (vec!["listen.tls".to_owned()], vec![]));
        until("the clients are judged", async || judged().len() > before).await;
        let line = judged().pop().unwrap().1;
        let after = line.split("ended=").nth(1).unwrap();
        after.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Checks that the clients without a certificate end with this status.
    async fn unnamed_end(&mut self, expected: (Code, &str)) {
        end(&mut self.unnamed, &mut self.unnamed_poller, expected).await;
        self.unnamed.clear();
    }

    /// Checks that the clients with a certificate end with this status.
    async fn named_end(&mut self, expected: (Code, &str)) {
        end(&mut self.named, &mut self.named_poller, expected).await;
        self.named.clear();
    }

    /// Checks that a change reaches all remaining clients.
    async fn are_served(&mut self) {
        self.version += 1;
        let (version, a) = (self.version.to_string(), self.version.to_string());
        say(&self.stream, &version, &[("a", &a), ("b", "1")], &[("a", &a)], &[]);
        let names = [(&mut self.named, &mut self.named_poller), (&mut self.unnamed, &mut self.unnamed_poller)];
        for (clients, poller) in names {
            for client in clients.iter_mut() {
                let sent = client.sent().await;
                assert!(sent.set.contains(&"a".to_owned()), "{sent:?}");
                client.ack(CDS, &[], &sent);
            }
            if !clients.is_empty() {
                assert_eq!(poller.polled(CLUSTERS, "web", json!({})).await.status, 200);
            }
        }
        for client in &mut self.beside {
            assert_eq!(client.sent().await.set, ["a"]);
        }
    }
}

async fn end(clients: &mut [Client], poller: &mut Poller, (code, message): (Code, &str)) {
    let began = Instant::now();
    for client in clients {
        let status = timeout(BOUND, client.next_forever()).await.expect("it is not ended");
        let status = status.expect_err("it is sent something, or ended without a reason");
        assert_eq!((status.code(), status.message()), (code, message));
    }
    let Poller::Http1(poller) = poller else { panic!() };
    let closed = async {
        while poller.ready().await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(BOUND, closed).await.expect("the poller is still connected");
    assert!(began.elapsed() < BOUND);
}

fn config(plane: &Plane, tls: &str, rules: &str) -> String {
    let tls = format!("tls: {{certificate: server.pem, key: server.key{tls}}}");
    let listen = format!(
        "listen: [{{address: '127.0.0.1:0', {tls}}}, {{address: '127.0.0.1:0'}}, {{address: 'unix:weir.sock'}}]"
    );
    text(&[plane.address], rules).replacen("listen: [{address: '127.0.0.1:0'}]", &listen, 1)
}

/// Clients with a certificate come under another rule than clients without one.
fn by_name() -> String {
    format!(
        "permissions:\n- {{name: named, identities: [{{dns: b.example}}], node: {{cluster: web}}}}\n\
         - {{name: all, identities: [{{network: 127.0.0.0/8}}, {{uid: {}}}], node: {{cluster: web}}, tenant: all}}\n",
        Uid::effective()
    )
}

/// All clients come under one rule, as one tenant.
fn for_all() -> String {
    by_name().replace("name: named, identities: [{dns: b.example}]", "name: other, identities: [{dns: other.example}]")
}

/// All clients come under one rule, and each identity is a tenant.
fn for_each() -> String {
    for_all().replace(", tenant: all", "")
}

const NO_CERTIFICATE: (Code, &str) = (Code::Unauthenticated, "no client certificate");
const ANOTHER: (Code, &str) = (Code::Unavailable, "what counts of this client's certificate has changed; reconnect");

#[tokio::test]
async fn where_certificates_become_required_clients_without_one_end_and_no_others() {
    for (name, rules) in [("required", String::new()), ("required-rules", by_name())] {
        let mut crowd = Crowd::new(name, OPTIONAL, &rules).await;
        assert_eq!(crowd.reload(REQUIRED).await, 4);
        crowd.unnamed_end(NO_CERTIFICATE).await;
        crowd.are_served().await;
        assert_eq!(crowd.reload(OPTIONAL).await, 0);
        crowd.are_served().await;
    }
}

/// The listener had not asked for a certificate, so clients that have one have not shown it.
#[tokio::test]
async fn where_nobody_was_asked_for_a_certificate_all_end_once_it_is_required_and_nobody_while_it_is_optional() {
    let mut crowd = Crowd::new("none", NONE, "").await;
    assert_eq!(crowd.reload(OPTIONAL).await, 0);
    crowd.are_served().await;
    assert_eq!(crowd.reload(REQUIRED).await, 8);
    crowd.unnamed_end(NO_CERTIFICATE).await;
    crowd.named_end(NO_CERTIFICATE).await;
    crowd.are_served().await;
}

#[tokio::test]
async fn where_nobody_is_asked_any_more_clients_stay_if_they_have_the_same_without_a_certificate() {
    for (name, rules) in [("taken-away", String::new()), ("taken-away-rules", for_all())] {
        let mut crowd = Crowd::new(name, OPTIONAL, &rules).await;
        assert_eq!(crowd.reload(NONE).await, 0);
        crowd.are_served().await;
        assert_eq!(crowd.reload(OPTIONAL).await, 0);
        crowd.are_served().await;
        // The certificates from long ago count again, and are not trusted now.
        assert_eq!(crowd.reload(OPTIONAL_BY_OTHERS).await, 4);
        let ca = crowd.world.folder.0.join("others.pem");
        let reason = format!("client certificate not signed by any CA in {}", ca.display());
        crowd.named_end((Code::Unauthenticated, &reason)).await;
        crowd.are_served().await;
    }
}

#[tokio::test]
async fn where_nobody_is_asked_any_more_clients_end_whose_certificate_gave_them_their_rule_or_their_tenant() {
    for (name, rules) in [("own-rule", by_name()), ("own-tenant", for_each())] {
        let mut crowd = Crowd::new(name, OPTIONAL, &rules).await;
        assert_eq!(crowd.reload(NONE).await, 4);
        crowd.named_end(ANOTHER).await;
        crowd.are_served().await;
    }
}
