//! Clients of a shard whose requests, replies and polls have thousands of names: each name is served, whichever thread works on them. Which one does
//! is shown where that is decided, in `src/downstream/rest/mod.rs` and `src/downstream/encoded.rs`.

use std::collections::BTreeSet;

use serde_json::json;

use super::client::node;
use super::poller::{CLUSTERS, Poller};
use super::services::fetch;
use super::*;

const NAMES: usize = 3000;
/// A longer poll is not parsed on the shard.
const LONG: usize = 64 << 10;
const ON_ONE_SHARD: &str = "views: {key: [cluster]}\nrest: {timeout: 1m}\nlimits: {fetch_timeout: 1m}\nshards: 1\n";
const FETCH: &str = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters";

/// Responds to each stream with all clusters that it requests by name.
async fn give_what_is_requested(mut plane: Plane) {
    while let Some(mut stream) = plane.streams.recv().await {
        tokio::spawn(async move {
            let (mut version, mut given) = (0, 0);
            while let Some(Request::Sotw(request)) = stream.requests.recv().await {
                if request.resource_names.len() > given {
                    (version, given) = (version + 1, request.resource_names.len());
                    let of_name = |name: &String| rest::cluster(name, "1");
                    stream.respond(&Response::Sotw(DiscoveryResponse {
                        version_info: version.to_string(),
                        resources: request.resource_names.iter().map(of_name).collect(),
                        type_url: request.type_url,
                        nonce: version.to_string(),
                        ..Default::default()
                    }));
                }
            }
        });
    }
}

#[tokio::test]
async fn polls_and_fetches_of_thousands_of_names_are_answered() {
    let _turn = super::HEAVY.lock().await;
    let plane = Plane::start(&BOTH).await;
    let config = config(plane.address, ", variant: sotw", ON_ONE_SHARD);
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    tokio::spawn(give_what_is_requested(plane));
    let names: Vec<_> = (0..NAMES).map(|number| format!("one-of-thousands-{number}")).collect();

    let request = DiscoveryRequest { node: node("fetches"), resource_names: names.clone(), ..Default::default() };
    assert_eq!(fetch(&relay, FETCH, request).await.unwrap().resources.len(), NAMES);

    let mut poller = Poller::connect(relay.address).await;
    let asked = json!({"resource_names": names});
    assert!(asked.to_string().len() > LONG, "it would be parsed on the shard");
    for _ in 0..2 {
        let answer = poller.poll(CLUSTERS, "polls", asked.clone()).await;
        assert_eq!(answer.clusters().len(), NAMES);
    }
}

#[tokio::test]
async fn a_set_of_thousands_of_resources_is_sent_to_each_client() {
    let _turn = super::HEAVY.lock().await;
    let names: Vec<_> = (0..NAMES).map(|number| format!("c{number}")).collect();
    let set = |content| names.iter().map(|name| (name.as_str(), content)).collect::<Vec<_>>();
    let all: BTreeSet<_> = names.iter().cloned().collect();
    for variant in BOTH {
        let mut plane = Plane::start(&BOTH).await;
        let config = config(plane.address, ", variant: sotw", ON_ONE_SHARD);
        let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
        let mut clients = Vec::new();
        for _ in 0..3 {
            let client = Client::connect(relay.address, variant).await;
            client.ask(CDS, &[], Some("web"));
            clients.push(client);
        }
        let stream = plane.stream().await;
        for version in ["1", "2"] {
            say(&stream, version, &set(version), &[], &[]);
            for client in &mut clients {
                let mut received = BTreeSet::new();
                while received != all {
                    let sent = client.sent().await;
                    client.ack(CDS, &[], &sent);
                    received.extend(sent.set);
                }
            }
        }
    }
}

/// Another thread encodes so many resources. The stream has its turn to end as soon as the reply is made, and is sent the reply all the same.
#[tokio::test]
async fn trn_19_a_client_of_thousands_of_clusters_is_sent_them_before_the_relay_goes() {
    let _turn = super::HEAVY.lock().await;
    let mut plane = Plane::start(&BOTH).await;
    let rest = format!("{ON_ONE_SHARD}drain: {{grace: 20s, spread: 50ms}}\n");
    let config = config(plane.address, ", variant: sotw", &rest);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let relay = run(crate::bind(config).await.unwrap(), async move { drop(stopped.await) });
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    stop.send(()).unwrap();
    let gone = async { while Client::try_connect(relay.address, Variant::Delta).await.is_some() {} };
    tokio::time::timeout(super::client::PATIENCE, gone).await.expect("the relay still takes clients on");
    tokio::time::sleep(Duration::from_millis(200)).await; // its stream has had its turn by then
    let names: Vec<_> = (0..NAMES).map(|number| format!("c{number}")).collect();
    let whole: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    say(&stream, "1", &whole, &[], &[]);
    let mut received = BTreeSet::new();
    while received.len() < NAMES {
        received.extend(client.sent().await.set);
    }
    assert_eq!(client.ended().await, Code::Unavailable);
}
