//! Checks of the order between types and between clients.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};

use super::{Check, EITHER, Scene, scripted};
use crate::content::{CDS, EDS, Item, RDS};
use crate::wire::{Client, ClientCache};

pub(super) const CHECKS: &[Check] = &[
    scripted!("ORD-4", EITHER, "a route never comes before the cluster that it refers to", routes_behind_clusters),
    scripted!("ORD-7", EITHER, "a client that slept through a move never has a route to nowhere", merged),
    scripted!("ORD-5 ORD-6", EITHER, "a cluster goes after the route that led to it has moved", removal_last),
    scripted!("ORD-9", EITHER, "endpoints and routes are answered though no clusters are asked for", no_clusters),
    scripted!("SOTW-57 SOTW-58", EITHER, "who stops reading delays nobody, and then gets the newest", stalled),
];

fn route_to(cluster: &str) -> Item {
    Item::new(RDS, "route", &format!("to {cluster}"))
}

/// A cluster that is so large that the server stops if its client does not read.
fn large_cluster(name: &str, text: &str) -> Item {
    Item::eds_cluster(name, &format!("{text} {}", "x".repeat(PADDING)))
}

/// Checks that the client's route refers to a cluster that the client has.
fn leads_somewhere(held: &ClientCache) -> anyhow::Result<()> {
    for cluster in ["x", "y"] {
        let broken = held.has(&route_to(cluster)) && !held.has_name(CDS, cluster);
        ensure!(!broken, "the route refers to {cluster}, which is not there; held: {held}");
    }
    Ok(())
}

async fn asks_for_all(scene: &Scene, window: Option<u32>) -> anyhow::Result<Client> {
    let mut opening = scene.opening();
    opening.window = window;
    let mut client = opening.connect().await?;
    client.want(CDS, &[]);
    client.want(EDS, &["x", "y"]);
    client.want(RDS, &["route"]);
    Ok(client)
}

async fn starts_at_x(scene: &Scene, window: Option<u32>) -> anyhow::Result<Client> {
    scene.world.set(&[large_cluster("x", "1"), Item::new(EDS, "x", "1"), route_to("x")]);
    let mut client = asks_for_all(scene, window).await?;
    let settled = |held: &ClientCache| held.names(CDS) == ["x"] && held.has_name(EDS, "x") && held.has(&route_to("x"));
    client.until("a route to x", settled).await?;
    client.until_quiet(scene.quiet).await?;
    Ok(client)
}

/// Reads responses until the client has the expected state, and checks the route after each of them.
async fn follows_to(client: &mut Client, patience: Duration, to: &str) -> anyhow::Result<()> {
    let start = Instant::now();
    while !(client.held.has(&route_to(to)) && client.held.names(CDS) == [to]) {
        ensure!(start.elapsed() < patience, "never came to have a route to {to}, and only that; held: {}", client.held);
        if let Ok(next) = tokio::time::timeout(patience, client.next()).await {
            let sent = next.map_err(|status| anyhow::anyhow!("the stream ended: {status:?}"))??;
            leads_somewhere(&client.held)?;
            client.ack(&sent);
        }
    }
    Ok(())
}

/// Moves the route from one cluster to the other in the safe order.
fn move_over(scene: &Scene, from: &str, to: &str, text: &str) {
    scene.world.set(&[large_cluster(to, text), Item::new(EDS, to, text), route_to(to)]);
    scene.world.remove(CDS, &[from]);
}

async fn routes_behind_clusters(scene: Scene) -> anyhow::Result<()> {
    let mut client = starts_at_x(&scene, Some(SMALL_WINDOW)).await?;
    let moves = async {
        for number in 1..=MOVES {
            let (from, to) = if number % 2 == 1 { ("x", "y") } else { ("y", "x") };
            move_over(&scene, from, to, &format!("move {number}"));
            tokio::time::sleep(BETWEEN_MOVES).await;
        }
    };
    let last = large_cluster("x", &format!("move {MOVES}"));
    let reads = async {
        while !(client.held.has(&last) && client.held.names(CDS) == ["x"] && client.held.has(&route_to("x"))) {
            let sent = client.next().await.map_err(|status| anyhow::anyhow!("the stream ended: {status:?}"))??;
            leads_somewhere(&client.held)?;
            client.ack(&sent);
            tokio::time::sleep(BETWEEN_MOVES).await; // a slow client
        }
        anyhow::Ok(())
    };
    // On a busy machine a slow client needs long for so many moves.
    let patience = scene.patience * 3;
    let (_, read) = tokio::join!(moves, tokio::time::timeout(patience, reads));
    match read {
        Ok(followed) => followed,
        Err(_) => bail!("it never came to have the last move alone; held: {}", client.held),
    }
}

async fn merged(scene: Scene) -> anyhow::Result<()> {
    let mut client = starts_at_x(&scene, Some(SMALL_WINDOW)).await?;
    scene.world.set(&[large_cluster("x", "2")]); // the server is sending this when the client stops reading
    let steps: [&(dyn Fn() + Sync); 4] = [
        &|| scene.world.set(&[large_cluster("y", "1")]),
        &|| scene.world.set(&[Item::new(EDS, "y", "1")]),
        &|| scene.world.set(&[route_to("y")]),
        &|| scene.world.remove(CDS, &["x"]),
    ];
    for step in steps {
        tokio::time::sleep(scene.quiet / 8).await;
        step();
    }
    tokio::time::sleep(scene.quiet).await;
    follows_to(&mut client, scene.patience, "y").await
}

async fn removal_last(scene: Scene) -> anyhow::Result<()> {
    let mut client = starts_at_x(&scene, None).await?;
    move_over(&scene, "x", "y", "1");
    follows_to(&mut client, scene.patience, "y").await?;
    client.until_quiet(scene.quiet).await?;
    ensure!(client.held.has(&Item::new(EDS, "y", "1")), "it has no endpoints of y: {}", client.held);
    Ok(())
}

async fn no_clusters(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::eds_cluster("c", "1"), Item::new(EDS, "c", "1"), Item::new(RDS, "r", "1")]);
    for (url, name) in [(EDS, "c"), (RDS, "r")] {
        let mut client = scene.client().await?;
        client.want(url, &[name]);
        client.takes(url).await?.sets(&[name])?;
    }
    Ok(())
}

async fn stalled(scene: Scene) -> anyhow::Result<()> {
    let mut late = Vec::new();
    for _ in 0..TRIES {
        match late_beside_a_stalled_client(&scene).await? {
            None => return Ok(()),
            Some(update) => late.push(update),
        }
    }
    bail!("in each try an update took too long: {late:?}")
}

/// Returns the first update that is late for a client that reads, and the time that it took.
async fn late_beside_a_stalled_client(scene: &Scene) -> anyhow::Result<Option<(usize, Duration)>> {
    let of = |number: usize| Item::new(CDS, "a", &format!("{number} {}", "x".repeat(PADDING)));
    scene.world.set(&[of(0)]);
    let mut opening = scene.opening();
    opening.window = Some(SMALL_WINDOW);
    let mut sleeper = opening.connect().await?;
    let mut reader = scene.client().await?;
    for client in [&mut sleeper, &mut reader] {
        client.want(CDS, &[]);
        client.until("the first form", |held| held.has(&of(0))).await?;
    }
    for number in 1..=UPDATES {
        let start = Instant::now();
        scene.world.set(&[of(number)]);
        reader.takes(CDS).await?.has(&of(number))?;
        let took = start.elapsed();
        if took >= IN_TIME {
            return Ok(Some((number, took)));
        }
    }
    let newest = of(UPDATES);
    let missed = sleeper.until("the newest", |held| held.has(&newest)).await?;
    ensure!(missed.len() < UPDATES / 4, "{} responses were kept for a client that did not read", missed.len());
    Ok(None)
}

const PADDING: usize = 40_000;
/// A window that is smaller than any response with a cluster.
const SMALL_WINDOW: u32 = 4_096;
const MOVES: u32 = 200;
const BETWEEN_MOVES: Duration = Duration::from_millis(5);
const UPDATES: usize = 200;
/// A limit far above what one update takes.
const IN_TIME: Duration = Duration::from_secs(1);
/// How often to try: a busy machine may be late sometimes, and a server that waits for a stalled client is late each time.
const TRIES: usize = 3;
