//! `weir diff --server`: compares the resources of a view with those that the view's server sends to its node.

use prost::Message;
use serde_json::json;
use weir_core::proto::node::Node;

use super::asking::{SDS, deltas, made};
use super::status::weir;
use super::*;

/// Answers the first request of each type on a stream.
fn answer_all(mut stream: Stream, answers: Vec<(&'static str, Vec<(&'static str, Any)>)>) {
    tokio::spawn(async move {
        let mut sent = Vec::new();
        while let Some(request) = stream.requests.recv().await {
            let Some((kind, set)) = answers.iter().find(|(kind, _)| *kind == request.type_url()) else { continue };
            if !sent.contains(kind) {
                sent.push(*kind);
                stream.respond(&deltas(kind, "1", set.clone(), &[]));
            }
        }
    });
}

fn cluster_of(name: &str, timeout: &str) -> Any {
    made(CDS, json!({"name": name, "connectTimeout": timeout}))
}

fn secret(word: &str) -> Any {
    made(SDS, json!({"name": "s", "genericSecret": {"secret": {"inlineString": word}}}))
}

#[tokio::test]
async fn what_the_relay_has_is_compared_with_what_its_server_says_to_the_node_of_the_view() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    client.ask(SDS, &["s"], None);
    let clusters = || vec![("a", cluster_of("a", "1s")), ("b", cluster_of("b", "1s"))];
    let of_relay = plane.stream().await;
    answer_all(of_relay, vec![(CDS, clusters()), (SDS, vec![("s", secret("hush-one"))])]);
    for _ in 0..2 {
        client.sent().await;
    }
    let (admin, uri) = (relay.admin.to_string(), format!("http://{}", plane.address));
    let compare = |more: &[&'static str]| {
        let (admin, more) = (admin.clone(), more.to_vec());
        tokio::spawn(async move {
            let line = [&["diff", "--admin", &*admin], &more[..]].concat();
            weir(&line).await
        })
    };
    // The program opens one stream for each type.
    let mut answered = Vec::new();
    let asked = compare(&["--client", "test", "--server"]);
    for _ in 0..2 {
        let mut stream = plane.stream().await;
        let request = stream.request().await;
        let node = Node::decode(request.node().unwrap().clone()).unwrap();
        assert!(node.id.starts_with("weir-") && node.cluster == "web", "{node:?}");
        let same = if request.type_url() == CDS { clusters() } else { vec![("s", secret("hush-one"))] };
        stream.respond(&deltas(request.type_url(), "7", same, &[]));
        answered.push(stream); // otherwise the stream would end
    }
    let (code, out, error) = asked.await.unwrap();
    assert_eq!((code, &*out), (0, &*format!("the relay and {uri} have the same: 3 resources of 2 types\n")), "{error}");

    let asked = compare(&["--view", "cluster=web", "--server"]);
    for _ in 0..2 {
        let changed = vec![("b", cluster_of("b", "2s")), ("c", cluster_of("c", "1s"))];
        answer_all(plane.stream().await, vec![(CDS, changed), (SDS, vec![("s", secret("hush-two"))])]);
    }
    let (code, out, _) = asked.await.unwrap();
    assert!(code == 1 && out.starts_with(&format!("--- the relay\n+++ {uri}\n@@ ")), "{out}");
    for line in ["-CDS a: {", "-  \"connect_timeout\": \"1s\",", "+  \"connect_timeout\": \"2s\",", "+CDS c: {"] {
        assert!(out.lines().any(|of| of == line), "no {line}: {out}");
    }
    assert!(out.contains("by what is not shown") && !out.contains("hush"), "{out}");

    let asked = compare(&["--client", "test", "--server", "-o", "json"]);
    for _ in 0..2 {
        let changed = vec![("b", cluster_of("b", "2s"))];
        answer_all(plane.stream().await, vec![(CDS, changed), (SDS, vec![("s", secret("hush-one"))])]);
    }
    let (code, out, _) = asked.await.unwrap();
    let page: serde_json::Value = serde_json::from_str(&out).unwrap();
    let names: Vec<_> = page["differences"].as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect();
    assert_eq!((code, names, &page["same"]), (1, vec!["a", "b"], &json!(1)), "{page:#}");
    let of_b = &page["differences"][1];
    assert_eq!(
        (&of_b["subscription"], &of_b["type"]),
        (&json!("wildcard"), &json!(&CDS["type.googleapis.com/".len()..]))
    );
    let timeout = |side: &str| &of_b[side]["body"]["connect_timeout"];
    assert_eq!((timeout("first"), timeout("second")), (&json!("1s"), &json!("2s")), "{page:#}");
    assert!(page["differences"][0]["second"].is_null() && page["errors"] == json!([]), "{page:#}");

    let asked = compare(&["--client", "test", "--server", "--timeout", "6s"]);
    let _silent = [plane.stream().await, plane.stream().await];
    let (code, out, error) = asked.await.unwrap();
    assert!(code == 2 && error.contains("no response within 6s"), "{error}");
    assert!(out.is_empty(), "what is unknown is no difference: {out}");
    let asked = compare(&["--client", "test", "--server", "--timeout", "6s", "-o", "json"]);
    let _silent = [plane.stream().await, plane.stream().await];
    let (code, out, _) = asked.await.unwrap();
    let page: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &page["differences"], page["errors"].as_array().unwrap().len()), (2, &json!([]), 2), "{page:#}");
}

#[tokio::test]
async fn what_cannot_be_compared_is_named() {
    let plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let admin = relay.admin.to_string();
    for (line, expected) in [
        (&["--client", "nobody", "--server"][..], "no such client"),
        (&["--view", "none", "--server"], "the relay has no view none"),
        (&["--client", "a", "--client", "b", "--server"], "expected --client once with --server"),
        (&["--client", "a"], "expected --client twice, or --server"),
        (&["--client", "a", "--view", "b", "--server"], "cannot be used with"),
        (&["--client", "a", "--client", "b", "--server-ca", "x"], "--server"),
    ] {
        let (code, _, error) = weir(&[&["diff", "--admin", &admin], line].concat()).await;
        assert!(code == 2 && error.contains(expected), "{line:?}: {error}");
    }
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    until("its stream is open", async || get(relay.admin, "/clients").await.contains("\"open\": 1")).await;
    let plain = ["diff", "--admin", &admin, "--client", "test", "--server", "http://127.0.0.1:1", "--server-ca", "x"];
    let (code, _, error) = weir(&plain).await;
    assert!(code == 2 && error.contains("--server-ca requires TLS: expected --server https://…"), "{error}");
    let named = ["--server", "https://127.0.0.1:1", "--server-certificate-name", "no name"];
    let (code, _, error) = weir(&[&["diff", "--admin", &admin, "--client", "test"], &named[..]].concat()).await;
    let expected = "error: invalid --server-certificate-name \"no name\": expected a host name or an address";
    assert!(code == 2 && error.contains(expected), "{error}");
    let away = ["diff", "--admin", &admin, "--client", "test", "--server", "http://127.0.0.1:1"];
    let (code, _, error) = weir(&away).await;
    assert!(code == 2 && error.contains("error: http://127.0.0.1:1: CDS: "), "{error}");
    drop(client);
}
