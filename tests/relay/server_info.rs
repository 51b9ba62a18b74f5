//! What the relay reports of itself: process, configuration, certificates.

use serde_json::{Value, json};

use super::certificates::Authority;
use super::client_tls::write_server;
use super::examples::assert_documented;
use super::*;
use weir_testkit::folder::Folder;

async fn page(relay: &Relay, path: &str) -> Value {
    serde_json::from_str(&get(relay.admin, path).await).unwrap()
}

#[tokio::test]
async fn the_process_and_its_configuration_are_shown_without_secrets() {
    let plane = Plane::start(&BOTH).await;
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nprobes: {{address: '127.0.0.1:0'}}\n\
         upstream: {{servers: [{{uri: 'http://{}'}}]}}\nclients: {{control_plane_identifier: 'http://user:word@cp.example:1'}}\ndrain: {{delay: 20s}}\n",
        plane.address
    );
    let app = crate::bind(Config::parse(Path::new("test.yaml"), &text).unwrap()).await.unwrap();
    let (listen, probes) = (app.addresses()[0], app.probes_address().unwrap());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let relay = run(app, async { drop(stopped.await) });
    until("it is ready", async || page(&relay, "/server_info").await["state"] == "ready").await;
    let info = page(&relay, "/server_info").await;
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((info["state"].as_str(), info["uptime_seconds"].is_u64()), (Some("ready"), true));
    assert_eq!((&info["config"]["file"], info["config"]["sha256"].as_str().unwrap().len()), (&json!("test.yaml"), 64));
    assert_eq!(info["build"]["commit"], weir::build_facts::COMMIT);
    assert!(info["build"]["target"].as_str().unwrap().contains('-'), "{info:#}");
    let at = |whom: &str, address: SocketAddr| json!({"for": whom, "address": address.to_string(), "tls": false, "open": true});
    let listeners = info["listeners"].as_array().unwrap();
    for expected in [at("clients", listen), at("operators", relay.admin), at("probes", probes)] {
        assert!(listeners.contains(&expected), "{expected} in {listeners:?}");
    }
    let config = get(relay.admin, "/config").await;
    assert!(config.contains("http://[redacted]@cp.example:1") && !config.contains("user:word"), "{config}");
    let config: Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["config"]["limits"]["linger"], "30s", "a default");
    assert_eq!((&config["sha256"], &config["command_line"]), (&info["config"]["sha256"], &json!({})));
    drop(stop);
    until("it drains", async || page(&relay, "/server_info").await["state"] == "draining").await;
}

#[tokio::test]
async fn the_limit_of_connections_is_shown_that_is_in_force_since_a_reload() {
    let plane = Plane::start(&BOTH).await;
    let of = |connections| reload::text(&[plane.address], &format!("limits: {{connections: {connections}}}\n"));
    let world = reload::World::start("max-connections", &of(60)).await;
    let shown = async || page(&world.relay, "/server_info").await["max_connections"].clone();
    assert_eq!(shown().await, 60);
    assert_eq!(world.change(&of(50)).await.changed, ["limits.connections"]);
    assert_eq!(shown().await, 50);
}

#[tokio::test]
async fn certificates_are_shown_with_their_chains_and_without_keys() {
    let (own, folder, plane) = (Authority::named("own"), Folder::with_short_path("tls"), Plane::start(&BOTH).await);
    let server = own.sign("relay.example").with_chain(&own);
    write_server(&folder, &server);
    folder.write("both.pem", &format!("{}{}", server.key, server.certificate));
    let text = format!(
        "listen: [{{address: '127.0.0.1:0', tls: {{certificate: server.pem, key: server.key}}}}]
admin: {{address: '127.0.0.1:0'}}
upstream:
  servers:
  - {{uri: 'http://{}'}}
  - {{uri: 'https://cp.example:1', tls: {{certificate: both.pem, key: both.pem, ca: missing.pem}}}}
",
        plane.address
    );
    let config = Config::parse(&folder.0.join("relay.yaml"), &text).unwrap_or_else(|error| panic!("{error}"));
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let text = get(relay.admin, "/certs").await;
    let key_line = server.key.lines().nth(1).unwrap();
    assert!(!text.contains("PRIVATE") && !text.contains(key_line), "{text}");
    assert_documented("curl -s 127.0.0.1:19000/certs", &text);
    let certs: Value = serde_json::from_str(&text).unwrap();
    let listener = &certs["listeners"][0];
    assert_eq!((&listener["address"], &listener["outdated"]), (&json!(relay.address.to_string()), &json!(false)));
    let own = &listener["certificates"][0];
    let file = folder.0.join("server.pem");
    assert_eq!((own["file"].as_str(), &own["outdated"]), (file.to_str(), &json!(false)));
    assert_eq!(own["server_names"], json!(["relay.example"]));
    let chain = own["chain"].as_array().unwrap();
    assert_eq!((chain.len(), &chain[0]["names"]), (2, &json!(["dns:relay.example"])));
    assert_eq!((&chain[0]["issuer"], &chain[0]["not_after"]), (&json!("CN=own"), &json!("2100-01-01T00:00:00Z")));
    assert_eq!(chain[1]["subject"], "CN=own");
    assert!(!chain[0]["serial"].as_str().unwrap().is_empty());
    let upstream = &certs["upstreams"][0];
    assert_eq!(upstream["server"], "https://cp.example:1");
    assert_eq!((&upstream["certificate"]["chain"], upstream["certificate"].get("error")), (&own["chain"], None));
    assert!(upstream["ca"]["error"].as_str().unwrap().contains("No such file"), "{upstream:#}");
}
