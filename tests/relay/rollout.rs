//! A rollout while the control plane is down: relays with a cache stay until others can serve.

use super::holder::{ALL_CLUSTERS, Holder, UNKNOWN};
use super::warm_start::{Stoppable, is_saved, state_in};
use super::*;
use weir_testkit::folder::Folder;
use weir_testkit::script::Way;
use weir_testkit::server::Server;

/// The number of clients of the three relays together.
const CLIENTS: usize = 200;
/// The configuration of a replacement relay, without a drain for which a test would wait.
const COLD: &str = "views: {key: [cluster]}\ndrain: {grace: 0s, spread: 0s}\n";

async fn is_ready(relay: &Relay) -> bool {
    probe(relay.admin, "/ready").await.0 == 200
}

fn variant(number: usize) -> Variant {
    if number.is_multiple_of(2) { Variant::Delta } else { Variant::Sotw }
}

async fn holders(relay: &Stoppable, count: usize) -> Vec<Holder> {
    let mut holders = Vec::new();
    for number in 0..count {
        holders.push(Holder::new(relay.0.address, variant(number), ALL_CLUSTERS).await);
    }
    holders
}

/// Connects the clients to another relay, with the resources that they have.
async fn moved(holders: Vec<Holder>, relay: &Stoppable) -> Vec<Holder> {
    let mut moved = Vec::new();
    for (number, holder) in holders.iter().enumerate() {
        holder.has_lost_nothing();
        let record = holder.record();
        let holds: Vec<_> = record.holds.into_iter().collect();
        assert_eq!(holds, ["a", "b"]);
        let version = if variant(number) == Variant::Sotw { &record.version } else { UNKNOWN };
        moved.push(Holder::with(relay.0.address, variant(number), ALL_CLUSTERS, &holds, version).await);
    }
    let all = format!("\"open\": {}", holders.len());
    until("all have come", async || get(relay.0.admin, "/clients?limit=1").await.contains(&all)).await;
    let late = Holder::new(relay.0.address, Variant::Delta, ALL_CLUSTERS).await;
    late.until("who comes now is served", |record| record.holds.len() == 2).await;
    moved
}

#[tokio::test]
async fn a_rollout_in_an_outage_keeps_the_relays_that_have_a_cache_and_nobody_loses_anything() {
    let folder = Folder::with_short_path("rollout");
    let mut plane = Plane::start(&BOTH).await;
    let (warm, delta) = (state_in(&folder, ""), ", variant: delta");
    let mut relays = Vec::new();
    for rest in [&*warm, COLD, COLD] {
        let relay = Stoppable::start(plane.address, delta, rest).await;
        let clients = holders(&relay, CLIENTS.div_ceil(3)).await;
        let stream = plane.stream().await;
        say(&stream, "1", &TWO, &TWO, &[]);
        for client in &clients {
            client.until("it has all", |record| record.holds.len() == 2).await;
        }
        relays.push((relay, clients, stream));
    }
    is_saved(&relays[0].0.0).await;
    let address = plane.kill().await;

    // The relay with a state file stops first, as in a StatefulSet, and its successor has its resources.
    let (first, clients, _) = relays.remove(0);
    first.stop().await;
    let first = Stoppable::start(address, delta, &warm).await;
    assert!(is_ready(&first.0).await, "by its warm state");
    let of_first = moved(clients, &first).await;

    // The others have nothing on disk: their replacements are not ready, so they stay.
    let mut next = Vec::new();
    for _ in &relays {
        let relay = Stoppable::start(address, delta, COLD).await;
        until("it says why", async || probe(relay.0.admin, "/ready").await.1.contains("no answer from a server yet"))
            .await;
        next.push(relay);
    }
    for (old, clients, _) in &relays {
        assert!(is_ready(&old.0).await, "it has a cache");
        clients.iter().for_each(Holder::has_lost_nothing);
        let late = Holder::new(old.0.address, Variant::Delta, ALL_CLUSTERS).await;
        late.until("who comes now is served", |record| record.holds.len() == 2).await;
    }

    // The control plane is up again, and the rollout continues.
    let server = Server::start_at(address, Way::GivesOnly(&TWO)).await;
    let mut served = of_first;
    for ((old, clients, _), relay) in relays.into_iter().zip(std::mem::take(&mut next)) {
        until("it is ready", async || is_ready(&relay.0).await).await;
        let moved = moved(clients, &relay).await;
        old.stop().await;
        served.extend(moved);
        next.push(relay); // it continues to serve
    }
    server.turn(Way::GivesOnly(&THREE));
    for holder in &served {
        holder.until("what is new", |record| record.holds.contains("c")).await;
        holder.has_lost_nothing();
    }
    assert!(served.len() >= CLIENTS);
}

const THREE: [(&str, &str); 3] = [TWO[0], TWO[1], ("c", "1")];
