//! Plants secrets of every kind in the built program, and checks that nothing that it shows has any of them.
//!
//! Each surface has to be read and to have its usual content: an empty one proves nothing. New pages are found in the index.

mod planted;
mod surfaces;
mod world;

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tonic::Request as Call;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;
use weir::proto::status::{ClientStatusRequest, ClientStatusResponse};
use weir::transcode::{Strictness, Transcoder};
use weir_core::proto::discovery::{DeltaDiscoveryResponse, Resource};
use weir_core::proto::{Any, Request, Response};
use weir_core::protocol::session::Variant;
use weir_testkit::certificates::{Authority, Identity, certificate};
use weir_testkit::client::{Client, PATIENCE, channel_over, exchange};
use weir_testkit::collector::Collector;
use weir_testkit::folder::Folder;
use weir_testkit::plane::{Plane, Stream};
use weir_testkit::program::{Program, field};
use weir_testkit::wait::until;

use crate::WEIR;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const LDS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
const SDS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";

use planted::*;
use surfaces::*;
use world::*;

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_shown_on_any_surface() {
    let mut world = World::start(true).await;
    let _clients = clients(&world).await;
    until("the NACKs are known", async || {
        world.ask("GET", "/nacks?nacked", "").await.1.matches("\"reason\"").count() >= 3
            && world.ask("GET", "/problems", "").await.1.contains("[redacted]")
    })
    .await;
    pages(&world).await;
    metrics_and_live(&world).await;
    taps(&world).await;
    client_status(&world).await;
    polls(&world).await;
    refused_configurations(&world).await;
    commands(&world).await;
    traces(&world).await;

    until("the NACKs are logged", async || !world.relay.logged("[redacted]").is_empty()).await;
    // Everything that was logged until now, at the finest level.
    let log = world.relay.logged("").join("\n");
    assert!(log.contains("TRACE"), "it logs at the finest level");
    for expected in ["weir started", "NACK", "invalid configuration", "[redacted]"] {
        world.secrets.are_not_in("log", log.as_bytes(), expected);
    }
    let state = world.folder.0.join("state");
    until("the state is saved", async || has(&std::fs::read(&state).unwrap(), b"cert-of-web")).await;
    world.relay.signal("-TERM");
    tokio::task::block_in_place(|| {
        assert!(world.relay.has_succeeded(PATIENCE));
        world.relay.says("SIGTERM", PATIENCE); // what is left of its log may not be read yet
    });
    world.secrets.are_not_in("log", world.relay.logged("").join("\n").as_bytes(), "SIGTERM");
    world.secrets.are_not_in("state file", &std::fs::read(&state).unwrap(), "cert-of-web");
    let (state, key) = (world.path("state"), world.path("state.key"));
    world.shows(&["snapshot", "show", "--state", &state, "--key", &key], "cert-of-web");
    assert!(!world.run(&["snapshot", "show", "--state", &state]).status.success());
    world.shows(&["snapshot", "show", "--state", &state], "key");
}

/// docs/warm-start.md: without a key no secrets are written. Secrets within other types are written, so the test does not search for those.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_file_without_a_key_has_no_secrets() {
    let mut world = World::start(false).await;
    let _clients = clients(&world).await;
    let state = world.folder.0.join("state");
    let is_saved = async || {
        let state = std::fs::read(&state).unwrap();
        has(&state, b"shop") && has(&state, OF_STRUCT.as_bytes())
    };
    until("it is saved", is_saved).await;
    world.relay.signal("-TERM");
    tokio::task::block_in_place(|| assert!(world.relay.has_succeeded(PATIENCE)));
    world.secrets.0.retain(|(what, _)| !["key in a cluster", "secret in a typed struct"].contains(what));
    let state = std::fs::read(&state).unwrap();
    world.secrets.are_not_in("state file", &state, "shop");
    assert!(has(&state, OF_STRUCT.as_bytes()), "it has the other resources as they are");
}
/// Tests the search: it finds a secret as it is, and in the usual encodings.
#[test]
fn secrets_are_found_in_each_form() {
    let secrets = Secrets::of(&[("one", b"hush-hush-hush".as_slice()), ("other", OF_STATE.as_slice())]);
    let base64 = STANDARD.encode("hush-hush-hush and more");
    let hex: String = OF_STATE.iter().map(|byte| format!("{byte:02x}")).collect();
    for (text, found) in
        [("a hush-hush-hush b", Some("one")), (&base64, Some("one")), (&hex, Some("other")), ("hush", None)]
    {
        assert_eq!(secrets.found_in(text.as_bytes()), found, "{text}");
    }
}
