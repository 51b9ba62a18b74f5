//! Checks of the translation from one variant to the other, and of what the relay must not change.

use anyhow::ensure;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, ResourceLocator};

use super::{Check, EITHER, SOTW, Scene, scripted};
use crate::content::{CDS, COLLECTION, EDS, Item, LDS, SRDS, UNKNOWN};
use crate::wire::Variant;

pub(super) const CHECKS: &[Check] = &[
    scripted!("WIRE-1 WIRE-2 XLAT-24", EITHER, "bodies pass byte for byte, whatever is in them", bytes_pass),
    scripted!("WIRE-9 COLL-3", EITHER, "a collection of two entries arrives whole", two_entries),
    scripted!("WIRE-14", EITHER, "locators are names, and no empty list", locators),
    scripted!("TYPE-1 TRN-10", EITHER, "a type is told by the URL that the client has for it", spelling),
    scripted!("TYPE-3", SOTW, "scoped routes are told all together", scopes),
    scripted!("TYPE-4 COLL-3 XLAT-26", SOTW, "what has no name of its own comes in a wrapper", wrapped),
    scripted!("COLL-5", EITHER, "an empty collection is there", empty_collection),
    scripted!("TYPE-7 TRN-15", EITHER, "a type that nobody knows is served by name", unknown_type),
    scripted!("XLAT-3", EITHER, "versions of upstream's are no changes, and no sign that there are none", versions),
    scripted!("XLAT-10 XLAT-11", EITHER, "one changed and one gone of many are told as such", change_and_removal),
    scripted!("XLAT-12", SOTW, "a first set that comes in pieces is told when it is whole", pieces),
    scripted!("XLAT-13", EITHER, "what only a name shows is not seen under a wildcard", separate),
    scripted!("XLAT-14 SOTW-31", EITHER, "each client gets what it asked for, and no more", filtered),
];

async fn bytes_pass(scene: Scene) -> anyhow::Result<()> {
    // An unknown field, an unknown load balancing policy, and fields in an order that is not canonical.
    let strange = Item::new(CDS, "strange", "unknown").with(536_870_911, b"\x00\xff").with(6, b"\xff\xff").with(2, b"");
    scene.world.set(std::slice::from_ref(&strange));
    for names in [&[][..], &["strange"]] {
        let mut client = scene.client().await?;
        client.want(CDS, names);
        let sent = client.takes(CDS).await?;
        sent.sets(&["strange"])?;
        sent.has(&strange)?;
        ensure!(scene.variant == Variant::Delta || !sent.entries[0].wrapped, "it came in a wrapper for no reason");
    }
    Ok(())
}

/// Returns a collection with these entries inline, each with a name.
fn collection(name: &str, entries: &[&str]) -> Item {
    let bare = Item::new(COLLECTION, name, "");
    entries.iter().fold(bare, |item, entry| {
        let inline = Item::new(CDS, entry, "").body; // only for its field 1
        let entry = Item::new(COLLECTION, "", "").with(2, &inline).body;
        item.with(1, &entry)
    })
}

async fn two_entries(scene: Scene) -> anyhow::Result<()> {
    let item = collection("ends", &["one", "two"]);
    scene.world.set(std::slice::from_ref(&item));
    let mut client = scene.client().await?;
    client.want(COLLECTION, &["ends"]);
    client.takes(COLLECTION).await?.has(&item)
}

async fn locators(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&["a", "b"].map(|name| Item::new(CDS, name, "1")));
    let mut client = scene.client().await?;
    let locators = vec![ResourceLocator { name: "a".into(), ..Default::default() }];
    match scene.variant {
        Variant::Sotw => client.send_sotw(DiscoveryRequest {
            type_url: CDS.into(),
            resource_locators: locators,
            ..Default::default()
        }),
        Variant::Delta => client.send_delta(DeltaDiscoveryRequest {
            type_url: CDS.into(),
            resource_locators_subscribe: locators,
            ..Default::default()
        }),
    }
    client.sent(CDS).await?.sets(&["a"])
}

async fn spelling(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(CDS, "a", "1")]);
    for url in ["envoy.config.cluster.v3.Cluster", "types.example.org/v9/envoy.config.cluster.v3.Cluster", CDS] {
        let mut client = scene.client().await?;
        client.want(url, &[]);
        client.takes(url).await?.sets(&["a"])?;
    }
    Ok(())
}

async fn scopes(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&["a", "b"].map(|name| Item::new(SRDS, name, "1")));
    let mut client = scene.client().await?;
    client.want(SRDS, &[]);
    client.takes(SRDS).await?.sets(&["a", "b"])?;
    scene.world.set(&[Item::new(SRDS, "b", "2")]);
    client.takes(SRDS).await?.sets(&["a", "b"])?;
    scene.world.remove(SRDS, &["a"]);
    client.takes(SRDS).await?.sets(&["b"])
}

async fn wrapped(scene: Scene) -> anyhow::Result<()> {
    for text in ["1", "2"] {
        let item = collection("ends", &["one", text]);
        scene.world.set(std::slice::from_ref(&item));
        let mut client = scene.client().await?;
        client.want(COLLECTION, &["ends"]);
        client.until("the collection", |held| held.has(&item)).await?;
    }
    let mut client = scene.client().await?;
    client.want(COLLECTION, &["ends"]);
    let sent = client.takes(COLLECTION).await?;
    ensure!(sent.entry("ends")?.wrapped, "it came without a wrapper");
    Ok(())
}

async fn empty_collection(scene: Scene) -> anyhow::Result<()> {
    let item = collection("none", &[]);
    scene.world.set(std::slice::from_ref(&item));
    let mut client = scene.client().await?;
    client.want(COLLECTION, &["none"]);
    let sent = client.takes(COLLECTION).await?;
    sent.sets(&["none"])?;
    sent.removes(&[])?;
    sent.has(&item)
}

async fn unknown_type(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(UNKNOWN, "a", "1")]);
    let mut client = scene.client().await?;
    client.want(UNKNOWN, &["a"]);
    client.takes(UNKNOWN).await?.has(&Item::new(UNKNOWN, "a", "1"))?;
    scene.world.set(&[Item::new(UNKNOWN, "a", "2")]);
    client.takes(UNKNOWN).await?.has(&Item::new(UNKNOWN, "a", "2"))
}

async fn versions(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(CDS, "a", "1"), Item::new(EDS, "e", "1")]);
    let mut client = scene.client().await?;
    client.want(CDS, &[]);
    client.takes(CDS).await?;
    client.want(EDS, &["e"]);
    client.takes(EDS).await?;
    for (url, name) in [(CDS, "a"), (EDS, "e")] {
        scene.world.repeat(url);
        client.receives_nothing(scene.quiet, "only upstream's version has changed").await?;
        for text in ["2", "3"] {
            scene.world.say(url, &[Item::new(url, name, text)], "always the same version");
            client.takes(url).await?.has(&Item::new(url, name, text))?;
        }
    }
    Ok(())
}

async fn change_and_removal(scene: Scene) -> anyhow::Result<()> {
    let names: Vec<_> = (10..60).map(|number| format!("l{number}")).collect();
    let items: Vec<_> = names.iter().map(|name| Item::new(LDS, name, "1")).collect();
    scene.world.set(&items);
    let mut client = scene.client().await?;
    client.want(LDS, &[]);
    client.until("all of them", |held| held.names(LDS).len() == names.len()).await?;
    let all: Vec<_> = names.iter().map(String::as_str).collect();
    scene.world.set(&[Item::new(LDS, "l20", "2")]);
    client.takes(LDS).await?.sets(if scene.variant == Variant::Sotw { &all } else { &["l20"] })?;
    scene.world.remove(LDS, &["l30"]);
    let sent = client.takes(LDS).await?;
    if scene.variant == Variant::Delta {
        sent.sets(&[])?;
        return sent.removes(&["l30"]);
    }
    let left: Vec<_> = all.into_iter().filter(|name| *name != "l30").collect();
    sent.sets(&left)
}

async fn pieces(scene: Scene) -> anyhow::Result<()> {
    scene.world.in_pieces(3);
    scene.world.set(&["a", "b", "c", "d", "e", "f"].map(|name| Item::new(CDS, name, "1")));
    let mut client = scene.client().await?;
    client.want(CDS, &[]);
    client.takes(CDS).await?.sets(&["a", "b", "c", "d", "e", "f"])
}

async fn separate(scene: Scene) -> anyhow::Result<()> {
    let (seen, hidden) = (Item::new(CDS, "seen", "1"), Item::new(CDS, "hidden", "1"));
    scene.world.set(std::slice::from_ref(&seen));
    scene.world.set_named(std::slice::from_ref(&hidden));
    let (mut all, mut one) = (scene.client().await?, scene.client().await?);
    all.want(CDS, &[]);
    all.takes(CDS).await?.sets(&["seen"])?;
    all.until_quiet(scene.quiet).await?;
    one.want(CDS, &["hidden"]);
    let sent = one.takes(CDS).await?;
    sent.sets(&["hidden"])?;
    sent.removes(&[])?;
    scene.world.set_named(&[Item::new(CDS, "hidden", "2")]);
    one.takes(CDS).await?.sets(&["hidden"])?;
    all.receives_nothing(scene.quiet, "its wildcard does not show the other").await?;
    scene.world.set(&[Item::new(CDS, "seen", "2")]);
    all.takes(CDS).await?.sets(&["seen"])?;
    one.receives_nothing(scene.quiet, "it asked for another").await
}

async fn filtered(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&["a", "b", "c"].map(|name| Item::new(LDS, name, "1")));
    scene.world.set(&["a", "b", "c"].map(|name| Item::new(EDS, name, "1")));
    let mut clients = Vec::new();
    for names in [["a", "b"], ["b", "c"]] {
        let mut client = scene.client().await?;
        for url in [LDS, EDS] {
            client.want(url, &names);
        }
        client.until("its two", |held| [LDS, EDS].iter().all(|url| held.names(url) == names)).await?;
        clients.push((names, client));
    }
    scene.world.set(&["a", "b", "c"].map(|name| Item::new(LDS, name, "2")));
    scene.world.set(&["a", "b", "c"].map(|name| Item::new(EDS, name, "2")));
    for (names, client) in &mut clients {
        let expected: Vec<_> =
            [LDS, EDS].iter().flat_map(|url| names.iter().map(|name| Item::new(url, name, "2"))).collect();
        client.until("the new ones", |held| expected.iter().all(|item| held.has(item))).await?;
        ensure!([LDS, EDS].iter().all(|url| client.held.names(url) == *names), "it holds {}", client.held);
    }
    Ok(())
}
