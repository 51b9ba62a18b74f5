//! Checks of absent resources and unknown ones.

use std::time::Instant;

use anyhow::ensure;

use super::{Check, DELTA, EITHER, SOTW, Scene, scripted};
use crate::content::{CDS, EDS, Item, LDS};
use crate::wire::Variant;

pub(super) const CHECKS: &[Check] = &[
    scripted!("SOTW-55 SOTW-29", SOTW, "what does not exist is not sent until it does", absent_in_sotw),
    scripted!("DELTA-30 DELTA-31", DELTA, "a name that does not exist is removed once, and sent when it does", absent),
    scripted!("XLAT-18", DELTA, "that a name does not exist is told at once to who asks later", absent_for_the_next),
    scripted!("DELTA-32 XLAT-16", EITHER, "what upstream has not spoken of yet is not absent", not_known),
    scripted!("XLAT-35 DELTA-32", EITHER, "what upstream cannot be asked for is not absent", not_reachable),
    scripted!("ORD-10", EITHER, "what is there does not wait for what is not", partial),
    scripted!("XLAT-9", EITHER, "a named listener that does not exist leaves the others", absent_listener),
];

async fn absent_in_sotw(scene: Scene) -> anyhow::Result<()> {
    let mut client = scene.client().await?;
    client.want(EDS, &["x"]);
    let waits = scene.resource_timer + scene.quiet;
    for sent in client.until_quiet(waits).await? {
        ensure!(sent.entries.is_empty() && !sent.errors.is_empty(), "x does not exist, and it was sent {sent:?}");
    }
    let item = Item::new(EDS, "x", "1");
    scene.world.set(std::slice::from_ref(&item));
    client.takes(EDS).await?.has(&item)
}

async fn absent(scene: Scene) -> anyhow::Result<()> {
    let mut client = scene.client().await?.patient(scene.beyond_the_timer());
    client.want(EDS, &["x"]);
    let sent = client.takes(EDS).await?;
    sent.sets(&[])?;
    sent.removes(&["x"])?;
    client.receives_nothing(scene.quiet, "that x does not exist was told").await?;
    let item = Item::new(EDS, "x", "1");
    scene.world.set(std::slice::from_ref(&item));
    client.takes(EDS).await?.has(&item)
}

async fn absent_for_the_next(scene: Scene) -> anyhow::Result<()> {
    let mut first = scene.client().await?.patient(scene.beyond_the_timer());
    first.want(EDS, &["x"]);
    first.takes(EDS).await?.removes(&["x"])?;
    let mut second = scene.client().await?;
    second.want(EDS, &["x"]);
    second.takes(EDS).await?.removes(&["x"])
}

async fn not_known(scene: Scene) -> anyhow::Result<()> {
    scene.world.hush();
    scene.world.set(&[Item::new(EDS, "x", "1")]);
    let mut client = scene.client().await?;
    client.want(EDS, &["x"]);
    let quiet = scene.quiet.min(scene.resource_timer / 2);
    client.receives_nothing(quiet, "upstream has said nothing").await?;
    scene.world.serve();
    client.takes(EDS).await?.sets(&["x"])
}

async fn not_reachable(scene: Scene) -> anyhow::Result<()> {
    scene.world.go_down();
    scene.world.set(&[Item::new(EDS, "x", "1"), Item::new(LDS, "l", "1")]);
    // The client waits longer, since attempts become less frequent while upstream is unreachable.
    let mut client = scene.client().await?.patient(scene.beyond_the_timer());
    client.want(EDS, &["x"]);
    client.want(LDS, &["l"]);
    client.receives_nothing(scene.resource_timer + scene.quiet, "no upstream is in reach").await?;
    scene.world.serve();
    client.until("both", |held| held.has_name(EDS, "x") && held.has_name(LDS, "l")).await?;
    Ok(())
}

async fn partial(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(EDS, "a", "1")]);
    let mut client = scene.client().await?;
    let start = Instant::now();
    client.want(EDS, &["a", "missing"]);
    client.until("a", |held| held.names(EDS) == ["a"]).await?;
    ensure!(start.elapsed() < scene.resource_timer, "a took {:?}", start.elapsed());
    Ok(())
}

async fn absent_listener(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(LDS, "a", "1"), Item::new(CDS, "c", "1")]);
    let mut client = scene.client().await?.patient(scene.beyond_the_timer());
    client.want(LDS, &["a", "missing"]);
    match scene.variant {
        Variant::Sotw => client.takes(LDS).await?.sets(&["a"])?,
        Variant::Delta => {
            let all = client.until_quiet(scene.resource_timer + scene.quiet).await?;
            let removed: Vec<_> = all.iter().flat_map(|sent| &sent.removed).collect();
            ensure!(removed == ["missing"] && client.held.names(LDS) == ["a"], "it was sent {all:?}");
        }
    }
    scene.world.set(&[Item::new(LDS, "missing", "1")]);
    client.until("both listeners", |held| held.names(LDS) == ["a", "missing"]).await?;
    Ok(())
}
