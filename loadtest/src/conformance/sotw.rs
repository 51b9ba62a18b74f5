//! Checks of SotW towards clients. Rules that hold for both variants are checked in both.

use anyhow::ensure;
use prost::Message;
use weir_core::proto::discovery::DiscoveryRequest;

use super::{Check, EITHER, SOTW, Scene, scripted};
use crate::content::{CDS, EDS, Item, LDS};
use crate::wire::{Received, SeenRequest, Variant};

pub(super) const CHECKS: &[Check] = &[
    scripted!("SOTW-38 SOTW-41 SOTW-43", SOTW, "the document's sequence of wildcards", wildcards),
    scripted!("SOTW-2", SOTW, "a nonce of another stream makes a first request no stale one", foreign_nonce),
    scripted!("SOTW-3 SOTW-4", SOTW, "names are answered whatever version a client comes with", version_with_names),
    scripted!("SOTW-6", SOTW, "who comes back with the current version hears of the next change", current_version),
    scripted!("SOTW-10", SOTW, "a node that is repeated means nothing", repeated_node),
    scripted!("SOTW-20 XLAT-11", SOTW, "one changed cluster is told with all the others", complete_set),
    scripted!("SOTW-21 SOTW-22 DELTA-29", EITHER, "a removed listener is told, and so is the last one", removal),
    scripted!("SOTW-21 SOTW-22 DELTA-29", EITHER, "the same of listeners that were named", named_removal),
    scripted!("SOTW-23 DELTA-21", EITHER, "an empty set is an answer to a wildcard", empty_set),
    scripted!("SOTW-26", SOTW, "an added name is answered, though nothing has changed", added_name),
    scripted!("SOTW-28", SOTW, "a name that was left and asked for again is answered", added_again),
    scripted!("SOTW-27", SOTW, "a shorter list of names needs no answer where absence means nothing", fewer_names),
    scripted!("SOTW-39", SOTW, "an empty list of endpoints is no wildcard", no_legacy_wildcard),
    scripted!("SOTW-40", EITHER, "gRPC's empty list is no wildcard", grpc_wildcard),
    scripted!("SOTW-43", EITHER, "who left all names hears nothing", all_left),
    scripted!("SOTW-45", SOTW, "a stale request still carries its names", stale_names),
    scripted!("SOTW-47 SOTW-59", SOTW, "names that change before the first answer are one subscription", early_names),
    scripted!("SOTW-60", SOTW, "names are a set, and an empty one is none", name_set),
];

async fn wildcards(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(CDS, "a", "1"), Item::new(CDS, "b", "1")]);
    let mut client = scene.client().await?;
    client.want(CDS, &[]);
    client.takes(CDS).await?.sets(&["a", "b"])?;
    client.want(CDS, &["*", "a"]);
    client.takes(CDS).await?.sets(&["a", "b"])?;
    client.until_quiet(scene.quiet).await?;
    client.want(CDS, &["a"]);
    client.takes(CDS).await?.sets(&["a"])?;
    client.want(CDS, &[]);
    client.receives_nothing(scene.quiet, "it left all names").await?;
    scene.world.set(&[Item::new(CDS, "a", "2"), Item::new(CDS, "b", "2")]);
    client.receives_nothing(scene.quiet, "it asks for nothing").await
}

async fn foreign_nonce(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(CDS, "a", "1")]);
    let mut client = scene.client().await?;
    client.send_sotw(DiscoveryRequest { type_url: CDS.into(), response_nonce: "77".into(), ..Default::default() });
    client.sent(CDS).await?.sets(&["a"])
}

async fn version_with_names(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(EDS, "a", "1"), Item::new(EDS, "b", "1")]);
    let mut before = scene.client().await?;
    before.want(EDS, &["a"]);
    let sent = before.takes(EDS).await?;
    let mut client = scene.client().await?;
    client.send_sotw(DiscoveryRequest {
        type_url: EDS.into(),
        version_info: sent.version,
        resource_names: vec!["a".into(), "b".into()],
        ..Default::default()
    });
    client.until("a and b", |held| held.names(EDS) == ["a", "b"]).await?;
    Ok(())
}

async fn current_version(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(CDS, "a", "1"), Item::new(CDS, "b", "1")]);
    let mut before = scene.client().await?;
    before.want(CDS, &[]);
    let version_info = before.takes(CDS).await?.version;
    let mut client = scene.client().await?;
    client.send_sotw(DiscoveryRequest { type_url: CDS.into(), version_info, ..Default::default() });
    for sent in client.until_quiet(scene.quiet).await? {
        sent.sets(&["a", "b"])?;
    }
    scene.world.set(&[Item::new(CDS, "b", "2")]);
    let sent = client.takes(CDS).await?;
    sent.sets(&["a", "b"])?;
    sent.has(&Item::new(CDS, "b", "2"))
}

async fn repeated_node(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(EDS, "a", "1")]);
    let mut client = scene.client().await?;
    client.want(EDS, &["a"]);
    let sent = client.sent(EDS).await?;
    for _ in 0..3 {
        client.send_sotw(DiscoveryRequest {
            node: Some(scene.node().encode_to_vec().into()),
            type_url: EDS.into(),
            version_info: sent.version.clone(),
            response_nonce: sent.nonce.clone(),
            resource_names: vec!["a".into()],
            ..Default::default()
        });
    }
    client.receives_nothing(scene.quiet, "it has answered").await?;
    scene.world.set(&[Item::new(EDS, "a", "2")]);
    client.takes(EDS).await?.has(&Item::new(EDS, "a", "2"))
}

async fn complete_set(scene: Scene) -> anyhow::Result<()> {
    let items: Vec<_> = (0..200).map(|number| Item::new(CDS, &format!("c{number}"), "1")).collect();
    scene.world.set(&items);
    let mut client = scene.client().await?;
    client.want(CDS, &[]);
    let first = client.takes(CDS).await?;
    ensure!(first.entries.len() == 200, "the first response has {} clusters", first.entries.len());
    let changed = Item::new(CDS, "c7", "2");
    scene.world.set(std::slice::from_ref(&changed));
    let second = client.takes(CDS).await?;
    ensure!(second.entries.len() == 200, "after one change, a response has {} clusters", second.entries.len());
    ensure!(second.version != first.version, "a change without a change of version");
    second.has(&changed)
}

async fn removal(scene: Scene) -> anyhow::Result<()> {
    removed_one_by_one(scene, &[]).await
}

async fn named_removal(scene: Scene) -> anyhow::Result<()> {
    removed_one_by_one(scene, &["a", "b"]).await
}

async fn removed_one_by_one(scene: Scene, names: &[&str]) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(LDS, "a", "1"), Item::new(LDS, "b", "1")]);
    let mut client = scene.client().await?;
    client.want(LDS, names);
    client.until("a and b", |held| held.names(LDS) == ["a", "b"]).await?;
    for (gone, left) in [("b", &["a"][..]), ("a", &[])] {
        scene.world.remove(LDS, &[gone]);
        let sent = client.takes(LDS).await?;
        match scene.variant {
            Variant::Sotw => sent.sets(left)?,
            Variant::Delta => {
                sent.sets(&[])?;
                sent.removes(&[gone])?;
            }
        }
    }
    client.receives_nothing(scene.quiet, "all was told").await
}

async fn empty_set(scene: Scene) -> anyhow::Result<()> {
    let mut client = scene.client().await?;
    client.want(LDS, &[]);
    let sent = client.takes(LDS).await?;
    sent.sets(&[])?;
    sent.removes(&[])?;
    client.receives_nothing(scene.quiet, "the empty set was told").await
}

async fn added_name(scene: Scene) -> anyhow::Result<()> {
    let _keeper = scene.warm(&[Item::new(EDS, "a", "1"), Item::new(EDS, "b", "1")]).await?;
    let mut client = scene.client().await?;
    client.want(EDS, &["a"]);
    client.takes(EDS).await?.sets(&["a"])?;
    client.want(EDS, &["a", "b"]);
    let sent = client.takes(EDS).await?;
    sent.entry("b")?;
    client.receives_nothing(scene.quiet, "both are told").await
}

async fn added_again(scene: Scene) -> anyhow::Result<()> {
    let _keeper = scene.warm(&[Item::new(EDS, "a", "1"), Item::new(EDS, "b", "1")]).await?;
    let mut client = scene.client().await?;
    client.want(EDS, &["a", "b"]);
    client.until("a and b", |held| held.names(EDS) == ["a", "b"]).await?;
    client.want(EDS, &["a"]);
    client.until_quiet(scene.quiet).await?;
    client.want(EDS, &["a", "b"]);
    client.takes(EDS).await?.entry("b")?;
    Ok(())
}

async fn fewer_names(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(EDS, "a", "1"), Item::new(EDS, "b", "1")]);
    let mut client = scene.client().await?;
    client.want(EDS, &["a", "b"]);
    client.until("a and b", |held| held.names(EDS) == ["a", "b"]).await?;
    client.want(EDS, &["a"]);
    client.receives_nothing(scene.quiet, "it only left a name").await?;
    scene.world.set(&[Item::new(EDS, "b", "2")]);
    client.receives_nothing(scene.quiet, "it left that name").await?;
    scene.world.set(&[Item::new(EDS, "a", "2")]);
    client.takes(EDS).await?.sets(&["a"])
}

async fn no_legacy_wildcard(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(EDS, "a", "1"), Item::new(CDS, "a", "1")]);
    let mut client = scene.client().await?;
    client.want(EDS, &[]);
    client.want(CDS, &[]);
    client.takes(CDS).await?;
    client.receives_nothing(scene.quiet, "it named no endpoints").await?;
    let requested = scene.world.heard().into_iter().find(|heard| heard.is_of(EDS));
    ensure!(requested.is_none(), "upstream was asked for endpoints that nobody named: {}", requested.unwrap());
    Ok(())
}

async fn grpc_wildcard(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(LDS, "a", "1")]);
    let mut opening = scene.opening();
    opening.node.as_mut().unwrap().user_agent_name = "gRPC Go".into();
    let mut client = opening.connect().await?;
    client.want(LDS, &[]);
    client.receives_nothing(scene.quiet, "gRPC names what it wants").await?;
    client.want(LDS, &["a"]);
    client.takes(LDS).await?.sets(&["a"])
}

async fn all_left(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(LDS, "a", "1")]);
    let mut client = scene.client().await?;
    client.want(LDS, &["a"]);
    client.takes(LDS).await?.sets(&["a"])?;
    client.want(LDS, &[]);
    client.receives_nothing(scene.quiet, "it left all names").await?;
    scene.world.set(&[Item::new(LDS, "a", "2"), Item::new(LDS, "b", "2")]);
    scene.world.remove(LDS, &["a"]);
    client.receives_nothing(scene.quiet, "it asks for nothing").await
}

async fn stale_names(scene: Scene) -> anyhow::Result<()> {
    let _keeper = scene.warm(&[Item::new(EDS, "a", "1"), Item::new(EDS, "b", "1")]).await?;
    let mut client = scene.client().await?;
    client.want(EDS, &["a"]);
    let first = client.sent(EDS).await?;
    scene.world.set(&[Item::new(EDS, "a", "2")]);
    let second = client.sent(EDS).await?; // the first was not ACKed, which must not delay changes for ever
    second.sets(&["a"])?;
    let answer = |sent: Received| DiscoveryRequest {
        type_url: EDS.into(),
        version_info: sent.version,
        response_nonce: sent.nonce,
        resource_names: vec!["a".into(), "b".into()],
        ..Default::default()
    };
    client.send_sotw(answer(first));
    let third = client.sent(EDS).await?;
    third.sets(&["b"])?;
    client.send_sotw(answer(second));
    client.send_sotw(answer(third));
    client.receives_nothing(scene.quiet, "b was told").await
}

async fn early_names(scene: Scene) -> anyhow::Result<()> {
    scene.world.hush();
    scene.world.set(&[Item::new(EDS, "a", "1"), Item::new(EDS, "b", "1")]);
    let mut client = scene.client().await?;
    client.want(EDS, &["a"]);
    client.want(EDS, &["a", "b"]);
    scene.world.hears("a and b", scene.patience, |heard| asks_for(heard, "a") && asks_for(heard, "b")).await?;
    scene.world.serve();
    let all = client.until("a and b", |held| held.names(EDS) == ["a", "b"]).await?;
    let sent: usize = all.iter().map(|sent| sent.entries.len()).sum();
    ensure!(sent == 2, "each is told once, and it was sent {all:?}");
    client.receives_nothing(scene.quiet, "each was told").await
}

fn asks_for(heard: &[SeenRequest], name: &str) -> bool {
    heard.iter().any(|heard| heard.names().iter().any(|requested| requested == name))
}

async fn name_set(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(EDS, "a", "1"), Item::new(LDS, "a", "1")]);
    let mut client = scene.client().await?;
    let names = ["a", "", "a"].map(String::from).to_vec();
    client.send_sotw(DiscoveryRequest { type_url: EDS.into(), resource_names: names, ..Default::default() });
    client.sent(EDS).await?.sets(&["a"])?;
    client.send_sotw(DiscoveryRequest { type_url: LDS.into(), resource_names: vec!["".into()], ..Default::default() });
    client.sent(LDS).await?.sets(&["a"])
}
