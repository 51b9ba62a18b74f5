//! Checks of delta towards clients.

use std::collections::BTreeMap;

use anyhow::ensure;
use weir_core::proto::discovery::DeltaDiscoveryRequest;

use super::{Check, DELTA, Scene, scripted};
use crate::content::{CDS, EDS, Item};
use crate::wire::Client;

pub(super) const CHECKS: &[Check] = &[
    scripted!("DELTA-18 DELTA-26", DELTA, "the document's sequence of wildcards", wildcards),
    scripted!("DELTA-3", DELTA, "a name is answered whatever nonce comes with it", foreign_nonce),
    scripted!("DELTA-8 DELTA-20", DELTA, "everything asked for and left in one breath is nothing", star_and_not),
    scripted!("DELTA-10", DELTA, "a name that is asked for again is sent again", asked_again),
    scripted!("DELTA-11", DELTA, "a name is sent also to who says that it has it", stated_name),
    scripted!("DELTA-13", DELTA, "what a client comes with and is gone is removed", stated_and_gone),
    scripted!("DELTA-12", DELTA, "what a client says later that it came with is not listened to", stated_late),
    scripted!("DELTA-14 XLAT-2", DELTA, "what a client comes with and has changed is sent", stated),
    scripted!("DELTA-15", DELTA, "what a client came with and does not ask for is its own business", stated_unasked),
    scripted!("DELTA-23 DELTA-25", DELTA, "leaving a name is answered with nothing", left),
    scripted!("DELTA-24", DELTA, "a name that is left under a wildcard is sent or removed", left_under_star),
    scripted!("DELTA-28 XLAT-10", DELTA, "one changed cluster of a thousand is told alone", one_of_many),
];

fn ask(client: &mut Client, url: &str, on: &[&str], off: &[&str]) {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    client.send_delta(DeltaDiscoveryRequest {
        type_url: url.into(),
        resource_names_subscribe: names(on),
        resource_names_unsubscribe: names(off),
        ..Default::default()
    });
}

fn clusters(names: &[&str], text: &str) -> Vec<Item> {
    names.iter().map(|name| Item::new(CDS, name, text)).collect()
}

async fn wildcards(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&clusters(&["a", "b"], "1"));
    let mut client = scene.client().await?;
    ask(&mut client, CDS, &[], &[]);
    client.until("a and b", |held| held.names(CDS) == ["a", "b"]).await?;
    ask(&mut client, CDS, &["a"], &[]);
    client.takes(CDS).await?.sets(&["a"])?;
    client.until_quiet(scene.quiet).await?;
    scene.world.set(&clusters(&["b"], "2"));
    client.takes(CDS).await?.sets(&["b"])?;
    ask(&mut client, CDS, &[], &["*"]);
    client.receives_nothing(scene.quiet, "leaving the wildcard removes nothing").await?;
    scene.world.set(&clusters(&["a", "b"], "3"));
    client.takes(CDS).await?.sets(&["a"])?;
    ask(&mut client, CDS, &[], &["a"]);
    client.receives_nothing(scene.quiet, "it only left a name").await?;
    scene.world.set(&clusters(&["a", "b"], "4"));
    client.receives_nothing(scene.quiet, "it asks for nothing").await
}

async fn foreign_nonce(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(EDS, "x", "1"), Item::new(EDS, "y", "1")]);
    let mut client = scene.client().await?;
    for name in ["x", "y"] {
        client.send_delta(DeltaDiscoveryRequest {
            type_url: EDS.into(),
            resource_names_subscribe: vec![name.into()],
            response_nonce: "bogus".into(),
            ..Default::default()
        });
        client.takes(EDS).await?.sets(&[name])?;
    }
    Ok(())
}

async fn star_and_not(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&clusters(&["a"], "1"));
    let mut client = scene.client().await?;
    ask(&mut client, CDS, &["*"], &["*"]);
    client.until_quiet(scene.quiet).await?;
    ask(&mut client, CDS, &[], &[]);
    client.until_quiet(scene.quiet).await?;
    ensure!(client.held.names(CDS).is_empty(), "it asked for nothing, and holds {}", client.held);
    ask(&mut client, CDS, &["a"], &[]);
    client.takes(CDS).await?.sets(&["a"])
}

async fn asked_again(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(EDS, "a", "1"), Item::new(EDS, "b", "1")]);
    let mut client = scene.client().await?;
    ask(&mut client, EDS, &["a", "b"], &[]);
    client.until("a and b", |held| held.names(EDS) == ["a", "b"]).await?;
    client.until_quiet(scene.quiet).await?;
    for _ in 0..2 {
        ask(&mut client, EDS, &["a"], &[]);
        client.takes(EDS).await?.sets(&["a"])?;
    }
    client.receives_nothing(scene.quiet, "a was told").await
}

/// Returns the versions of these clusters or endpoints for a client of this check.
async fn versions(scene: &Scene, url: &str, names: &[&str]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut before = scene.client().await?;
    ask(&mut before, url, names, &[]);
    let mut versions = BTreeMap::new();
    while versions.len() < names.len() {
        let sent = before.takes(url).await?;
        versions.extend(sent.entries.into_iter().map(|entry| (entry.name, entry.version)));
    }
    ensure!(!versions.values().any(String::is_empty), "a resource without a version: {versions:?}");
    Ok(versions)
}

async fn stated_name(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(EDS, "c1", "1")]);
    let initial_resource_versions = versions(&scene, EDS, &["c1"]).await?;
    let mut client = scene.client().await?;
    client.send_delta(DeltaDiscoveryRequest {
        type_url: EDS.into(),
        resource_names_subscribe: vec!["c1".into()],
        initial_resource_versions,
        ..Default::default()
    });
    client.takes(EDS).await?.sets(&["c1"])
}

async fn stated_and_gone(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&clusters(&["a"], "1"));
    let mut client = scene.client().await?;
    client.send_delta(DeltaDiscoveryRequest {
        type_url: CDS.into(),
        initial_resource_versions: BTreeMap::from([("old".into(), "v1".into())]),
        ..Default::default()
    });
    client.until_removed(CDS, &["old"]).await?;
    client.until("a", |held| held.names(CDS) == ["a"]).await?;
    Ok(())
}

async fn stated_late(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&clusters(&["a"], "1"));
    let mut client = scene.client().await?;
    ask(&mut client, CDS, &[], &[]);
    client.until("a", |held| held.names(CDS) == ["a"]).await?;
    client.send_delta(DeltaDiscoveryRequest {
        type_url: CDS.into(),
        initial_resource_versions: BTreeMap::from([("old".into(), "1".into())]),
        ..Default::default()
    });
    client.receives_nothing(scene.quiet, "only a first request says what a client came with").await
}

async fn stated_unasked(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(EDS, "a", "1")]);
    let mut client = scene.client().await?;
    client.send_delta(DeltaDiscoveryRequest {
        type_url: EDS.into(),
        resource_names_subscribe: vec!["a".into()],
        initial_resource_versions: BTreeMap::from([("other".into(), "1".into())]),
        ..Default::default()
    });
    let sent = client.takes(EDS).await?;
    sent.sets(&["a"])?;
    sent.removes(&[])?;
    client.receives_nothing(scene.quiet, "it did not ask for the other").await
}

async fn stated(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&clusters(&["a", "b"], "1"));
    let initial_resource_versions = versions(&scene, CDS, &["a", "b"]).await?;
    scene.world.set(&clusters(&["b"], "2"));
    let mut client = scene.client().await?;
    client.send_delta(DeltaDiscoveryRequest { type_url: CDS.into(), initial_resource_versions, ..Default::default() });
    let changed = Item::new(CDS, "b", "2");
    let all = client.until("the new b", |held| held.has(&changed)).await?;
    let removed = all.iter().flat_map(|sent| &sent.removed).count();
    ensure!(removed == 0, "both are there, and it was sent {all:?}");
    Ok(())
}

async fn left(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(EDS, "a", "1"), Item::new(EDS, "b", "1")]);
    let mut client = scene.client().await?;
    ask(&mut client, EDS, &["a", "b"], &[]);
    client.until("a and b", |held| held.names(EDS) == ["a", "b"]).await?;
    ask(&mut client, EDS, &[], &["a", "never asked for"]);
    client.receives_nothing(scene.quiet, "it only left names").await?;
    scene.world.remove(EDS, &["a"]);
    client.receives_nothing(scene.quiet, "it left that name").await?;
    scene.world.set(&[Item::new(EDS, "b", "2")]);
    client.takes(EDS).await?.sets(&["b"])
}

async fn left_under_star(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&clusters(&["a", "b"], "1"));
    scene.world.set_named(&clusters(&["hidden"], "1"));
    let mut client = scene.client().await?;
    ask(&mut client, CDS, &["*", "a", "hidden"], &[]);
    client.until("both and the hidden one", |held| held.names(CDS) == ["a", "b", "hidden"]).await?;
    client.until_quiet(scene.quiet).await?;
    ask(&mut client, CDS, &[], &["a"]);
    client.takes(CDS).await?.sets(&["a"])?;
    ask(&mut client, CDS, &[], &["hidden"]);
    client.takes(CDS).await?.removes(&["hidden"])?;
    scene.world.set(&clusters(&["a"], "2"));
    client.takes(CDS).await?.sets(&["a"])
}

async fn one_of_many(scene: Scene) -> anyhow::Result<()> {
    let items: Vec<_> = (0..1000).map(|number| Item::new(CDS, &format!("c{number}"), "1")).collect();
    scene.world.set(&items);
    let mut client = scene.client().await?;
    ask(&mut client, CDS, &[], &[]);
    client.until("a thousand clusters", |held| held.names(CDS).len() == 1000).await?;
    let changed = Item::new(CDS, "c500", "2");
    scene.world.set(std::slice::from_ref(&changed));
    let sent = client.takes(CDS).await?;
    sent.sets(&["c500"])?;
    sent.has(&changed)?;
    scene.world.remove(CDS, &["c501"]);
    let sent = client.takes(CDS).await?;
    sent.sets(&[])?;
    sent.removes(&["c501"])
}
