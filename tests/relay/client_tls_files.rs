//! TLS files that change while clients are connected: which clients notice, and which do not.

use std::time::Duration;

use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;
use tonic::Code;

use crate::certificates::*;
use crate::client::Client;
use crate::client_tls::{Connecting, World, config, write_server};
use crate::plane::Plane;
use crate::poller::{CLUSTERS, Poller};
use crate::{BOTH, until};
use weir_testkit::folder::Folder;

/// The time limit for the effect of a change: two checks of the files, the spread, and what a slow machine needs.
const BOUND: Duration = Duration::from_secs(18);

/// Returns the certificate that the relay presents to new clients.
async fn shown(world: &World, roots: &Authority) -> Option<Vec<u8>> {
    let connecting = Connecting { roots: roots.pem.clone(), ..world.client(None) };
    let stream: TlsStream<TcpStream> = world.connect(&connecting).await.ok()?;
    Some(stream.get_ref().1.peer_certificates()?[0].to_vec())
}

#[tokio::test]
#[ignore = "keeps the processors busy: a thousand handshakes"]
async fn night_a_renewed_certificate_is_for_new_clients_and_ends_no_stream() {
    let mut world = World::with(Folder::with_short_path("tls"), "", "").await;
    let mut clients = Vec::new();
    for _ in 0..1_000 {
        clients.push(world.served(None).await);
    }
    let before = shown(&world, &world.own).await.unwrap();
    let other = Authority::named("other");
    for (round, authority) in [("2", &world.own), ("3", &other)] {
        let renewed = authority.sign("localhost");
        write_server(&world.folder, &renewed);
        let renewed = certificate(&renewed.certificate).to_vec();
        until("the new one is shown", async || shown(&world, authority).await.as_ref() == Some(&renewed)).await;
        assert_ne!(renewed, before);
        world.change(round);
        for client in &mut clients {
            assert_eq!(client.sent().await.set, ["a"]);
        }
    }
    assert_eq!(world.metric("weir_tls_reload_failures_total").await, 0);
}

/// Replaces a file in one step, so that it is never seen half written.
fn replace(folder: &Folder, name: &str, content: &str) {
    folder.write("next", content);
    std::fs::rename(folder.0.join("next"), folder.0.join(name)).unwrap();
}

#[tokio::test]
async fn a_pair_that_is_half_written_or_does_not_match_changes_nothing_and_is_counted() {
    let mut world = World::with(Folder::with_short_path("tls"), "", "").await;
    let before = shown(&world, &world.own).await;
    let (expires, mut client) =
        (world.metric("weir_tls_certificate_expires_timestamp_seconds").await, world.served(None).await);
    assert_eq!(expires, 4_102_444_800, "the year 2100");
    let good = world.own.sign_until("localhost", 2090);
    // One file in each step: a check between the writes of two files would see and count another state.
    let bad = [
        ("server.key", world.own.sign("localhost").key), // of another certificate
        ("server.pem", good.certificate[..good.certificate.len() / 2].to_owned()),
        ("server.pem", String::new()),
        ("server.pem", good.certificate.clone()),
        ("server.key", "none".to_owned()),
    ];
    let is_counted = async |before: u64| {
        // The two metrics do not change at the same moment.
        let [failures, outdated] = ["weir_tls_reload_failures_total", "weir_tls_files_outdated"];
        until("it is counted", async || world.metric(failures).await > before && world.metric(outdated).await == 1)
            .await;
        assert_eq!(world.metric(failures).await, before + 1, "once");
        before + 1
    };
    let mut count = 0;
    for (file, content) in bad {
        replace(&world.folder, file, &content);
        count = is_counted(count).await;
        assert_eq!(shown(&world, &world.own).await, before);
        assert_eq!(world.metric("weir_tls_certificate_expires_timestamp_seconds").await, expires);
    }
    std::fs::remove_file(world.folder.0.join("server.key")).unwrap();
    is_counted(count).await;
    write_server(&world.folder, &good);
    until("they are good again", async || world.metric("weir_tls_files_outdated").await == 0).await;
    assert_eq!(shown(&world, &world.own).await, Some(certificate(&good.certificate).to_vec()));
    assert_eq!(world.metric("weir_tls_certificate_expires_timestamp_seconds").await, 3_786_912_000, "the year 2090");
    world.change("2");
    assert_eq!(client.sent().await.set, ["a"]);
}

#[tokio::test]
async fn a_relay_does_not_start_with_files_that_cannot_be_used() {
    let (folder, plane, own) = (Folder::with_short_path("tls"), Plane::start(&BOTH).await, Authority::new());
    let refused = async |tls: &str| match crate::bind(config(&folder, &plane, tls, "")).await {
        Ok(_) => panic!("it starts with {tls}"),
        Err(error) => format!("{error:#}"),
    };
    let says = |error: String, parts: &[&str]| {
        assert!(
            error.contains("cannot listen on 127.0.0.1:0") && parts.iter().all(|part| error.contains(part)),
            "{error}"
        );
    };
    says(refused("").await, &["cannot read", "server.pem"]);
    write_server(&folder, &Identity { key: own.sign("a").key, ..own.sign("a") });
    says(refused("").await, &["the key in", "server.key", "does not belong to the certificate in", "server.pem"]);
    write_server(&folder, &own.sign("a"));
    says(refused("client_ca: ca.pem").await, &["cannot read", "ca.pem"]);
    folder.write("ca.pem", "none");
    says(refused("client_ca: ca.pem").await, &["there is no certificate in", "ca.pem"]);
    folder.write("ca.pem", &own.pem);
    folder.write("ca.crl", "none");
    says(refused("client_ca: ca.pem, crl: ca.crl").await, &["there is no revocation list in", "ca.crl"]);
    folder.write("ca.crl", &(own.revoke(&[], 2100) + &own.revoke(&[1], 2100)));
    says(refused("client_ca: ca.pem, crl: ca.crl").await, &["two revocation lists", "of one issuer"]);
    folder.write("ca.crl", &own.revoke(&[], 2021)); // an expired list: logged, but in use
    assert!(crate::bind(config(&folder, &plane, "client_ca: ca.pem, crl: ca.crl", "")).await.is_ok());
}

/// Clients of each kind, by whether they have to end.
struct Crowd {
    concerned: Vec<Client>,
    poller: Poller,
    others: Vec<Client>,
    other_poller: Poller,
}

impl Crowd {
    async fn new(world: &mut World, concerned: &Identity, other: &Identity, anonymous: bool) -> Self {
        let (mut leaving, mut staying) = (Vec::new(), Vec::new());
        for _ in 0..6 {
            leaving.push(world.served(Some(concerned)).await);
            staying.push(world.served(Some(other)).await);
            if anonymous {
                staying.push(world.served(None).await);
            }
        }
        let mut pollers = Vec::new();
        for identity in [concerned, other] {
            let connecting = Connecting { alpn: "http/1.1", ..world.client(Some(identity)) };
            let mut poller = Poller::over(world.connect(&connecting).await.unwrap()).await;
            assert_eq!(poller.polled(CLUSTERS, "web", json!({})).await.status, 200);
            pollers.push(poller);
        }
        let (Some(other_poller), Some(poller)) = (pollers.pop(), pollers.pop()) else { panic!() };
        Self { concerned: leaving, poller, others: staying, other_poller }
    }

    /// Checks that the affected clients end for this reason within the bound, and that the others are served.
    async fn part(mut self, world: &World, reason: &str) {
        let began = Instant::now();
        let mut ends = Vec::new();
        for client in &mut self.concerned {
            let status = tokio::time::timeout(BOUND, client.next_forever()).await.expect("it is not ended");
            let status = status.expect_err("it is sent something, or ended without a reason");
            assert_eq!((status.code(), status.message()), (Code::Unauthenticated, reason));
            ends.push(began.elapsed());
        }
        let Poller::Http1(poller) = &mut self.poller else { panic!() };
        tokio::time::timeout(BOUND, async {
            while poller.ready().await.is_ok() {
                tokio::task::yield_now().await
            }
        })
        .await
        .expect("the poller is still connected");
        assert!(began.elapsed() < BOUND, "{ends:?}");
        world.change("2");
        for client in &mut self.others {
            assert_eq!(client.sent().await.set, ["a"]);
        }
        assert_eq!(self.other_poller.polled(CLUSTERS, "web", json!({})).await.status, 200);
    }
}

#[tokio::test]
async fn clients_of_a_ca_that_is_removed_end_and_no_others() {
    let [leaving, staying] = ["leaving", "staying"].map(Authority::named);
    let folder = Folder::with_short_path("tls");
    folder.write("clients.pem", &(leaving.pem.clone() + &staying.pem));
    let mut world = World::with(folder, "client_auth: optional, client_ca: clients.pem", "").await;
    let (concerned, other) = (leaving.sign("a"), staying.sign("b"));
    let crowd = Crowd::new(&mut world, &concerned, &other, true).await;
    world.folder.write("clients.pem", &staying.pem);
    let ca = world.folder.0.join("clients.pem");
    crowd.part(&world, &format!("client certificate not signed by any CA in {}", ca.display())).await;
}

#[tokio::test]
async fn clients_whose_certificate_is_revoked_end_and_no_others() {
    let clients = Authority::named("clients");
    let folder = Folder::with_short_path("tls");
    folder.write("clients.pem", &clients.pem);
    folder.write("clients.crl", &clients.revoke(&[], 2100));
    let mut world = World::with(folder, "client_ca: clients.pem, crl: clients.crl", "").await;
    let (concerned, other) = (clients.sign("a"), clients.sign("b"));
    let crowd = Crowd::new(&mut world, &concerned, &other, false).await;
    world.folder.write("clients.crl", &clients.revoke(&[concerned.serial], 2100));
    crowd.part(&world, "client certificate revoked").await;
}

#[tokio::test]
async fn clients_of_a_bundle_that_is_changed_end_and_those_of_other_domains_do_not() {
    let [prod, next, dev] = ["prod", "next", "dev"].map(Authority::named);
    let folder = Folder::with_short_path("tls");
    folder.write("prod.pem", &prod.pem);
    folder.write("dev.pem", &dev.pem);
    let tls = "trust_domains: [{name: prod.example, bundle: prod.pem}, {name: dev.example, bundle: dev.pem}]";
    let mut world = World::with(folder, tls, "").await;
    let concerned = prod.sign_uris(&["spiffe://prod.example/a"], NOTHING);
    let other = dev.sign_uris(&["spiffe://dev.example/a"], NOTHING);
    let crowd = Crowd::new(&mut world, &concerned, &other, false).await;
    world.folder.write("prod.pem", &next.pem);
    let bundle = world.folder.0.join("prod.pem");
    let reason = "client certificate of spiffe://prod.example/a not signed by any CA of its trust domain, in";
    crowd.part(&world, &format!("{reason} {}", bundle.display())).await;
}

#[tokio::test]
async fn a_client_ends_with_its_certificate_and_no_other_does() {
    let clients = Authority::named("clients");
    let folder = Folder::with_short_path("tls");
    folder.write("clients.pem", &clients.pem);
    let mut world = World::with(folder, "client_ca: clients.pem", "").await;
    let (concerned, other) = (clients.sign_for("a", Duration::from_secs(12)), clients.sign("b"));
    let crowd = Crowd::new(&mut world, &concerned, &other, false).await;
    crowd.part(&world, "client certificate expired").await;
}

#[tokio::test]
async fn files_that_cannot_be_used_do_not_end_clients_and_do_not_keep_others_from_being_judged() {
    let clients = Authority::named("clients");
    let folder = Folder::with_short_path("tls");
    folder.write("clients.pem", &clients.pem);
    folder.write("clients.crl", &clients.revoke(&[], 2100));
    let mut world = World::with(folder, "client_ca: clients.pem, crl: clients.crl", "").await;
    let (concerned, other) = (clients.sign("a"), clients.sign("b"));
    let crowd = Crowd::new(&mut world, &concerned, &other, false).await;
    world.folder.write("clients.pem", "none");
    world.folder.write("server.key", "none");
    until("both are counted", async || world.metric("weir_tls_reload_failures_total").await == 2).await;
    world.folder.write("clients.crl", &clients.revoke(&[concerned.serial], 2100));
    crowd.part(&world, "client certificate revoked").await;
    assert_eq!(world.metric("weir_tls_files_outdated").await, 1);
}
