//! The cost of ordering between types for a change that waits for nothing: the same changes go through two relays in turn, one of which does not
//! order types (docs/record/performance.md).
//!
//! `cargo test --release --test relay -- --ignored --nocapture order_pace` measures; without `--ignored` the test only checks that it
//! works.

use std::time::Instant;

use super::void::listener;
use super::*;

const ROUNDS: usize = 500;

/// A relay with a control plane of its own, and a client that has a cluster, endpoints, and a listener that refers to the cluster.
struct Pair {
    _plane: Plane,
    stream: Stream,
    _relay: Relay,
    client: Client,
    said: usize,
}

/// The types, each with the name of its only resource.
const TYPES: [(&str, &str); 3] = [(CDS, "c"), (EDS, "e"), (LDS, "l")];

impl Pair {
    async fn new(hold: &str) -> Self {
        let mut plane = Plane::start(&[Variant::Delta]).await;
        let rest = format!("limits: {{reference_hold: {hold}}}");
        let config = config(plane.address, protocol_of(Variant::Delta), &rest);
        let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
        let mut client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(CDS, &[], Some("web"));
        let mut stream = plane.stream().await;
        for (url, name) in TYPES {
            if url != CDS {
                client.ask(url, if url == EDS { &["e"] } else { &[] }, None);
            }
            while stream.request().await.type_url() != url {}
            say_changed(&stream, url, name, "0");
            let sent = client.sent().await;
            assert_eq!(sent.set, [name]);
            client.ack(url, &[], &sent);
        }
        Self { _plane: plane, stream, _relay: relay, client, said: 0 }
    }

    /// Returns the time from the control plane's response with a change until the client has it. With `churn`, endpoints change just before.
    async fn change(&mut self, (url, name): (&str, &str), churn: bool) -> Duration {
        self.said += 1;
        let version = self.said.to_string();
        if churn {
            say_changed(&self.stream, EDS, "e", &format!("churn {version}"));
        }
        let since = Instant::now();
        say_changed(&self.stream, url, name, &version);
        loop {
            let sent = self.client.sent().await;
            let passed = since.elapsed();
            let (of, _) = TYPES.into_iter().find(|(_, name)| sent.set == [*name]).unwrap();
            self.client.ack(of, &[], &sent);
            if of == url {
                return passed;
            }
        }
    }
}

fn say_changed(stream: &Stream, url: &str, name: &str, content: &str) {
    let resource = match url {
        LDS => listener(name, "c", content),
        _ => Resource {
            name: name.into(),
            resource: Some(Any { type_url: url.into(), ..cluster(name, content) }),
            ..Default::default()
        },
    };
    let resources = vec![Resource { version: content.into(), ..resource }];
    let (type_url, nonce) = (url.into(), content.into());
    stream.respond(&Response::Delta(DeltaDiscoveryResponse { type_url, nonce, resources, ..Default::default() }));
}

/// Returns the quartiles in microseconds.
fn quartiles(mut times: Vec<Duration>) -> [u128; 3] {
    times.sort_unstable();
    [1, 2, 3].map(|quarter| times[times.len() * quarter / 4].as_micros())
}

async fn compare(rounds: usize) {
    let (mut with, mut without) = (Pair::new("5s").await, Pair::new("0s").await);
    for of in [TYPES[0], TYPES[2]] {
        for churn in [false, true] {
            let (mut kept, mut not) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                kept.push(with.change(of, churn).await);
                not.push(without.change(of, churn).await);
            }
            let (kept, not) = (quartiles(kept), quartiles(not));
            let ratio = kept[1] as f64 / not[1] as f64;
            let kind = of.0.rsplit('.').next().unwrap();
            let endpoints = if churn { ", endpoints changing" } else { "" };
            println!("{kind}{endpoints}: {kept:?} us with the order, {not:?} without; median {ratio:.3}");
        }
    }
}

#[tokio::test]
async fn order_pace_can_be_measured() {
    compare(4).await;
}

#[tokio::test]
#[ignore = "means something only in a release build on a quiet machine"]
async fn figures_of_the_order_between_types() {
    compare(ROUNDS).await;
}
