//! A slow set does not count as complete just because time has passed: clients do not lose resources that exist.

use std::collections::BTreeSet;

use super::failover::standing;
use super::holder::{ALL_CLUSTERS, Holder, Record};
use super::pieces::Pieces;
use super::*;

/// The pause between two resources.
const PACE: Duration = Duration::from_millis(50);

/// Returns the configuration of the servers, first choice first, each with these further keys.
pub(super) fn servers(addresses: &[SocketAddr], each: &str) -> String {
    let servers: Vec<_> = addresses.iter().map(|at| format!("{{uri: 'http://{at}'{each}}}")).collect();
    format!("{{servers: [{}]}}", servers.join(", "))
}

/// Makes the time after which a set counts as settled shorter than the one in which a slow server sends its thirty resources.
fn hurry(options: &mut ProtocolOptions) {
    options.upstream.settle_stated = Duration::from_millis(300);
}

async fn hasty_relay(addresses: &[SocketAddr]) -> Relay {
    hasty_relay_to(addresses, "").await
}

async fn hasty_relay_to(addresses: &[SocketAddr], each: &str) -> Relay {
    relay_with_options(&servers(addresses, each), "", hurry).await
}

fn thirty() -> Vec<String> {
    (0..30).map(|number| format!("c{number:02}")).collect()
}

fn has_heard(names: &[String]) -> impl Fn(&Record) -> bool {
    let names: BTreeSet<_> = names.iter().cloned().collect();
    move |record| record.heard.is_superset(&names)
}

/// Waits longer than a set has to be quiet, and shorter than the second silence.
async fn a_long_pause() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn xlat_12_a_delta_client_gets_each_cluster_as_it_comes_and_loses_none_of_those_to_come() {
    let names = thirty();
    let plane = Pieces::start(&names).await;
    let relay = hasty_relay(&[plane.address]).await;
    let client = Holder::of(relay.address, Variant::Delta, ALL_CLUSTERS, &names).await;
    for said in 1..=names.len() {
        plane.reaches(said);
        client.until("each piece comes before the next", has_heard(&names[..said])).await;
        client.has_lost_nothing();
        tokio::time::sleep(PACE).await;
    }
    a_long_pause().await;
    client.has_lost_nothing();
}

#[tokio::test]
async fn xlat_12_a_sotw_client_with_a_version_that_nobody_knows_gets_no_set_before_all_of_it_is_there() {
    let names = thirty();
    let plane = Pieces::start(&names).await;
    let relay = hasty_relay(&[plane.address]).await;
    let client = Holder::of(relay.address, Variant::Sotw, ALL_CLUSTERS, &names).await;
    for said in 1..=names.len() {
        plane.reaches(said);
        tokio::time::sleep(PACE).await;
        client.has_lost_nothing();
    }
    client.until("the set", has_heard(&names)).await;
    client.has_lost_nothing();
    assert_eq!(client.record().responses, 1);
}

#[tokio::test]
async fn xlat_12_a_pause_between_two_pieces_is_no_end_of_the_set() {
    let names = thirty();
    let plane = Pieces::start(&names).await;
    let relay = hasty_relay(&[plane.address]).await;
    let delta = Holder::of(relay.address, Variant::Delta, ALL_CLUSTERS, &names).await;
    let sotw = Holder::of(relay.address, Variant::Sotw, ALL_CLUSTERS, &names).await;
    plane.reaches(15);
    delta.until("the first half", has_heard(&names[..15])).await;
    a_long_pause().await;
    delta.has_lost_nothing();
    sotw.has_lost_nothing();
    plane.reaches_all();
    for client in [&delta, &sotw] {
        client.until("all of it", has_heard(&names)).await;
        client.has_lost_nothing();
    }
}

#[tokio::test]
async fn xlat_12_a_message_on_its_way_for_long_is_no_end_of_the_set_and_no_reason_to_ask_again() {
    let names = thirty();
    let plane = Pieces::start(&names).await;
    let relay = hasty_relay(&[plane.address]).await;
    let delta = Holder::of(relay.address, Variant::Delta, ALL_CLUSTERS, &names).await;
    let sotw = Holder::of(relay.address, Variant::Sotw, ALL_CLUSTERS, &names).await;
    plane.reaches_into(15);
    delta.until("the first half", has_heard(&names[..15])).await;
    a_long_pause().await;
    delta.has_lost_nothing();
    sotw.has_lost_nothing();
    assert_eq!(plane.seen().opened, 1, "it is talking");
    plane.reaches_all();
    for client in [&delta, &sotw] {
        client.until("all of it", has_heard(&names)).await;
        client.has_lost_nothing();
    }
    assert_eq!(plane.seen().nacks, [""; 0], "the message is whole in the end");
}

#[tokio::test]
async fn fb_9_fb_24_a_primary_that_comes_back_slowly_takes_nothing_away() {
    let names = thirty();
    let (first, second) = (any_address().await, Pieces::start(&names).await);
    second.reaches_all();
    let relay = hasty_relay(&[first, second.address]).await;
    let mut clients = Vec::new();
    for variant in BOTH {
        let client = Holder::new(relay.address, variant, ALL_CLUSTERS).await;
        client.until("all of the fallback server's", |record| record.holds.len() == names.len()).await;
        clients.push(client);
    }

    let primary = Pieces::start_at(first, &names).await;
    for said in 1..=names.len() {
        primary.reaches(said);
        tokio::time::sleep(PACE).await;
        if said == 1 {
            let active = format!("\"state\": \"active\",\n        \"server\": \"http://{first}\"");
            standing(&relay, &active).await;
        }
        clients.iter().for_each(Holder::has_lost_nothing);
    }
    a_long_pause().await;
    its_word_counts(&primary, &clients, &names[7]).await;
}

#[tokio::test]
async fn up_15_up_32_a_control_plane_that_restarts_and_comes_by_its_set_slowly_takes_nothing_away() {
    a_slow_restart("").await;
}

#[tokio::test]
async fn up_32_a_control_plane_that_is_not_sent_what_is_held_and_restarts_slowly_takes_nothing_away() {
    a_slow_restart(", supports_initial_resource_versions: false").await;
}

async fn a_slow_restart(server: &str) {
    let names = thirty();
    let plane = Pieces::start(&names).await;
    plane.reaches_all();
    let relay = hasty_relay_to(&[plane.address], server).await;
    let mut clients = Vec::new();
    for variant in BOTH {
        let client = Holder::new(relay.address, variant, ALL_CLUSTERS).await;
        client.until("all of it", |record| record.holds.len() == names.len()).await;
        clients.push(client);
    }
    a_long_pause().await; // after this the set counts as complete

    let address = plane.kill().await;
    let plane = Pieces::start_at(address, &names).await;
    plane.changes(&names[20], "2");
    until("the relay is back", async || plane.seen().open == 1).await;
    let before: Vec<_> = clients.iter().map(|client| client.record().responses).collect();
    for said in 1..=names.len() {
        plane.reaches(said);
        tokio::time::sleep(PACE).await;
        clients.iter().for_each(Holder::has_lost_nothing);
    }
    for (client, before) in clients.iter().zip(before) {
        client.until("what has changed meanwhile", |record| record.responses > before).await;
    }
    a_long_pause().await;
    its_word_counts(&plane, &clients, &names[7]).await;
}

/// Checks that clients have lost nothing so far, and that they lose what this server removes.
async fn its_word_counts(server: &Pieces, clients: &[Holder], name: &str) {
    clients.iter().for_each(Holder::has_lost_nothing);
    server.removes(name);
    for client in clients {
        client.until("what is removed goes", |record| !record.lost.is_empty()).await;
        assert_eq!(client.record().lost, [name]);
    }
}
