//! `weir key --against`: compares what a scripted control plane sends to nodes with one key.

use prost::Message;
use serde_json::{Value, json};
use weir_core::proto::node::Node;

use super::asking::{SDS, deltas, made};
use super::refused_types::ROUTES;
use super::status::weir;
use super::*;
use weir_testkit::folder::Folder;

/// Resources, by type.
type Content = Vec<(&'static str, Vec<(&'static str, Any)>)>;

/// Answers the first request of each type on a stream, by the content for its node.
fn serve(mut stream: Stream, content: impl Fn(&str) -> Content + Send + 'static) {
    tokio::spawn(async move {
        let (mut all, mut sent): (Option<Content>, Vec<&str>) = (None, Vec::new());
        while let Some(request) = stream.requests.recv().await {
            if let Some(node) = request.node() {
                let id = Node::decode(node.clone()).unwrap().id;
                all.get_or_insert_with(|| content(&id));
            }
            let found = all.iter().flatten().find(|(kind, _)| *kind == request.type_url());
            if let Some((kind, set)) = found
                && !sent.contains(kind)
            {
                sent.push(*kind);
                stream.respond(&deltas(kind, "1", set.clone(), &[]));
            }
        }
    });
}

fn cluster(name: &str) -> Any {
    made(CDS, json!({"name": name, "type": "EDS", "edsClusterConfig": {"edsConfig": {"ads": {}}}}))
}

fn listener(prefix: &str) -> Any {
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "statPrefix": prefix,
        "rds": {"routeConfigName": "r", "configSource": {"ads": {}}},
    });
    let tls = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "commonTlsContext": {"tlsCertificateSdsSecretConfigs": [{"name": "s", "sdsConfig": {"ads": {}}}]},
    });
    let chain = json!({
        "filters": [{"name": "hcm", "typedConfig": manager}],
        "transportSocket": {"name": "tls", "typedConfig": tls},
    });
    made(LDS, json!({"name": "l", "filterChains": [chain]}))
}

fn content(prefix: &str, word: &str) -> Content {
    let secret = made(SDS, json!({"name": "s", "genericSecret": {"secret": {"inlineString": word}}}));
    vec![
        (CDS, vec![("c", cluster("c"))]),
        (EDS, vec![("c", made(EDS, json!({"clusterName": "c"})))]),
        (LDS, vec![("l", listener(prefix))]),
        (ROUTES, vec![("r", made(ROUTES, json!({"name": "r"})))]),
        (SDS, vec![("s", secret)]),
    ]
}

/// Creates a folder with a configuration, and with nodes that differ in their names, and in these clusters.
fn world(clusters: [&str; 2]) -> Folder {
    let folder = Folder::with_short_path("tls");
    let text = "listen: [{address: '127.0.0.1:0'}]\nupstream: {servers: [{uri: 'http://127.0.0.1:1'}]}\n\
                views: {key: [cluster]}\n";
    folder.write("relay.yaml", text);
    let node = |number: usize, cluster: &str| {
        let name = format!("gw-{number}");
        format!("{}\n", json!({"id": name, "cluster": cluster, "metadata": {"NAME": name, "APP": "shop"}}))
    };
    folder.write("nodes", &[node(1, clusters[0]), node(2, clusters[1])].concat());
    folder
}

/// Starts the program with a server, and with a short quiet period.
fn compare(folder: &Folder, server: &str, more: &[&str]) -> tokio::task::JoinHandle<(i32, String, String)> {
    let path = |name: &str| folder.0.join(name).display().to_string();
    let (config, nodes) = (path("relay.yaml"), path("nodes"));
    let own = ["key", "--config", &config, &nodes, "--against", server, "--quiet-period", "100ms"];
    let line: Vec<_> = own.iter().chain(more).map(ToString::to_string).collect();
    tokio::spawn(async move { weir(&line.iter().map(String::as_str).collect::<Vec<_>>()).await })
}

#[tokio::test]
async fn nodes_that_are_sent_the_same_share_and_the_field_that_is_not_the_same_is_named() {
    let mut plane = Plane::start(&BOTH).await;
    let (folder, uri) = (world(["gw", "gw"]), format!("http://{}", plane.address));
    let asked = compare(&folder, &uri, &[]);
    for _ in 0..2 {
        serve(plane.stream().await, |_| content("gw", "hush"));
    }
    let (code, out, error) = asked.await.unwrap();
    assert!(code == 0 && out.starts_with(&format!("{uri} sends the same to 2 nodes of key ")), "{out}{error}");
    let end = ": 5 resources of 5 types\nnode fields that differ: id, metadata.NAME\n\nClients of one key get the same secrets. ";
    assert!(out.contains(end), "{out}");

    // Each node has its own prefix, secret and clusters. The second node has one cluster more.
    let own = |id: &str| {
        let mut all = content(id, &format!("hush-{id}"));
        if id == "gw-2" {
            all[0].1.push(("more", cluster("more")));
            all[1].1.push(("more", made(EDS, json!({"clusterName": "more"}))));
        }
        all
    };
    let asked = compare(&folder, &uri, &[]);
    for _ in 0..2 {
        serve(plane.stream().await, own);
    }
    let (code, out, error) = asked.await.unwrap();
    assert!(code == 1 && out.contains("equal for all: 3 resources of 3 types\n"), "{out}{error}");
    for part in [
        "\nCDS more\n  gw-2 is sent it, and gw-1 is not\n",
        "\nEDS more\n  gw-2 is sent it, and gw-1 is not\n",
        "\nLDS l, gw-1 and gw-2\n  filter_chains[0].filters[0].typed_config.stat_prefix: \"gw-1\" and \"gw-2\"\n",
        "\nSDS s, gw-1 and gw-2\n  generic_secret.secret: two values that are not shown\n",
        "\nnode fields that differ: id, metadata.NAME\n",
    ] {
        assert!(out.contains(part), "no {part}: {out}");
    }
    assert!(!format!("{out}{error}").contains("hush"), "{out}{error}");

    let asked = compare(&folder, &uri, &["-o", "json"]);
    for _ in 0..2 {
        serve(plane.stream().await, own);
    }
    let (code, out, error) = asked.await.unwrap();
    assert!(
        error.starts_with("note: Clients of one key get the same secrets. ") && error.lines().count() == 1,
        "{error}"
    );
    let page: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &page["same"], &page["nodes"]), (1, &json!(3), &json!(["gw-1", "gw-2"])), "{page:#}");
    let found: Vec<_> = page["differences"].as_array().unwrap().iter().map(|of| (&of["name"], &of["only"])).collect();
    let (more, none) = (json!("gw-2"), Value::Null);
    let expected =
        [("more", &more), ("more", &more), ("l", &none), ("s", &none)].map(|(name, only)| (json!(name), only));
    assert_eq!(found, expected.iter().map(|(name, only)| (name, *only)).collect::<Vec<_>>(), "{page:#}");
    let path = "filter_chains[0].filters[0].typed_config.stat_prefix";
    let of_listener = json!({"path": path, "first": "gw-1", "second": "gw-2"});
    assert_eq!(page["differences"][2]["difference"], of_listener);
    assert!(page["errors"] == json!([]) && page["node_fields"] == json!(["id", "metadata.NAME"]), "{page:#}");
    assert!(!out.contains("hush"), "{out}");
}

#[tokio::test]
async fn what_is_not_complete_is_named_and_is_no_difference() {
    let mut plane = Plane::start(&BOTH).await;
    let (folder, uri) = (world(["gw", "gw"]), format!("http://{}", plane.address));
    let asked = compare(&folder, &uri, &["--timeout", "10s"]);
    for _ in 0..2 {
        let without_routes = |id: &str| {
            let mut all = content("gw", "hush");
            all.retain(|(kind, _)| *kind != ROUTES || id == "gw-1");
            all
        };
        serve(plane.stream().await, without_routes);
    }
    let (code, out, error) = asked.await.unwrap();
    assert!(code == 2 && out.is_empty(), "{out}{error}");
    assert_eq!(error, "error: gw-2: no response within 10s for RDS r\n");

    let asked = compare(&folder, &uri, &[]);
    let streams = [plane.stream().await, plane.stream().await];
    streams[0].end_with(7);
    let (code, out, error) = asked.await.unwrap();
    assert!(code == 2 && out.is_empty() && error.contains("PermissionDenied"), "{out}{error}");
}

#[tokio::test]
async fn nodes_that_do_not_share_are_not_compared() {
    let folder = world(["gw", "other"]);
    let (code, out, error) = compare(&folder, "127.0.0.1:1", &[]).await.unwrap();
    let expected = "error: the nodes have different keys, so they do not share a view: cluster splits them\n\
                    error: node fields that differ: cluster, id, metadata.NAME\n";
    assert_eq!((code, &*out, &*error), (2, "", expected));
    let folder = world(["gw", "gw"]);
    for (server, more, expected) in [
        ("127.0.0.1:1", &["--timeout", "9s"][..], "Connection refused"),
        ("127.0.0.1:65536", &["--timeout", "9s"], "--against: invalid URI"),
        ("127.0.0.1:1", &["--token-file", "t"], "--token-file requires TLS: expected --against https://…"),
        ("127.0.0.1:1", &["--ca", "ca.pem"], "--ca requires TLS: expected --against https://…"),
    ] {
        let (code, out, error) = compare(&folder, server, more).await.unwrap();
        assert!(code == 2 && out.is_empty() && error.contains(expected), "{server} {more:?}: {error}");
    }
}
