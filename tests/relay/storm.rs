//! All clients reconnect at once to a relay that was restarted, and state their resources (I3, I10).

use std::collections::BTreeMap;

use prost::Message;
use tokio::net::TcpStream;

use super::*;
use crate::flock::Flock;

const CLIENTS: usize = 200;
const CLUSTERS: usize = 2_000;

fn names() -> Vec<String> {
    (0..CLUSTERS).map(|number| format!("cluster-{number:05}")).collect()
}

/// Returns the names and versions that a client has after its first set.
async fn held(relay: &Relay) -> BTreeMap<String, String> {
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let Client::Delta(_, responses) = &mut client else { unreachable!() };
    let mut held = BTreeMap::new();
    while held.len() < CLUSTERS {
        let response = tokio::time::timeout(client::PATIENCE, responses.message()).await.unwrap();
        let resources = response.unwrap().unwrap().resources;
        held.extend(resources.into_iter().map(|resource| (resource.name, resource.version)));
    }
    held
}

/// Returns a first request for everything. Each client's map begins at another entry, as in real clients.
fn stating(held: &BTreeMap<String, String>, number: usize) -> Vec<u8> {
    let mut request =
        DeltaDiscoveryRequest { node: client::node("web"), type_url: CDS.into(), ..Default::default() }.encode_to_vec();
    for (name, version) in held.iter().cycle().skip(number * 7).take(held.len()) {
        let entry = [(name.clone(), version.clone())].into();
        let entry = DeltaDiscoveryRequest { initial_resource_versions: entry, ..Default::default() };
        request.extend(entry.encode_to_vec());
    }
    request
}

/// Returns the value of a metric, summed over its labels.
pub(super) async fn metric(relay: &Relay, name: &str) -> usize {
    let metrics = get(relay.admin, "/metrics").await;
    let values =
        metrics.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])));
    values.filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok()).sum()
}

async fn all_back(relay: &Relay, held: &BTreeMap<String, String>) -> Flock {
    let sockets = (0..CLIENTS).map(|_| TcpStream::connect(relay.address));
    let sockets = futures_util::future::try_join_all(sockets).await.unwrap();
    Flock::beginning_with(sockets, CDS, |number| stating(held, number))
}

#[tokio::test]
#[ignore = "keeps the processors busy: a fleet that states thousands of versions"]
async fn night_delta_13_a_fleet_that_returns_to_a_cold_relay_is_kept_once_and_is_sent_nothing_and_no_removal() {
    let _turn = super::HEAVY.lock().await;
    let names = names();
    let (before, changed) = (names.iter().map(|name| (name.as_str(), "1")).collect::<Vec<_>>(), ("cluster-00007", "2"));
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let first = relay(plane.address, "").await;
    let holder = tokio::spawn({
        let (address, admin) = (first.address, first.admin);
        async move { held(&Relay { address, admin, task: tokio::spawn(async {}) }).await }
    });
    say(&plane.stream().await, "1", &[], &before, &[]);
    let held = holder.await.unwrap();
    drop(first);

    let second = relay(plane.address, "").await;
    let flock = all_back(&second, &held).await;
    let stream = plane.stream().await;
    until("all streams are open", async || metric(&second, "weir_client_streams_open").await == CLIENTS).await;
    let one_copy = CLUSTERS * 128;
    let kept = metric(&second, "weir_stated_versions_bytes").await;
    assert!((1..one_copy).contains(&kept), "{kept} bytes for {CLIENTS} clients");

    // The set arrives in two parts. After the pause between them, the first part might have been all of it.
    say(&stream, "1", &[], &before[..CLUSTERS / 2], &[]);
    until("the second half is requested again", async || {
        metric(&second, "weir_upstream_streams_opened_total").await > 1
    })
    .await;
    assert_eq!(flock.received(), (0, 0));
    let stream = plane.stream().await;
    let mut after = before.clone();
    after[7] = changed;
    say(&stream, "2", &[], &after, &[]);
    flock.has(1).await;
    until("everything is judged", async || metric(&second, "weir_stated_versions_bytes").await == 0).await;
    say(&stream, "3", &[], &[("one-more", "1")], &[]);
    flock.has(2).await;
    assert_eq!(flock.received(), (2 * CLIENTS, 0), "the changed cluster, the new one, and no removal");
}
