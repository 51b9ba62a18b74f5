//! The effects of an ACK, a NACK or a missing answer of a client, and what a server with a cold cache may send (SOTW-7, DELTA-16).

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::ensure;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};

use super::{Check, DELTA, EITHER, Scene, scripted};
use crate::content::{CDS, EDS, Item};
use crate::wire::Variant;

pub(super) const CHECKS: &[Check] = &[
    scripted!("SOTW-7 DELTA-16", EITHER, "a cold cache says nothing until upstream has answered", cold),
    scripted!("SOTW-12 SOTW-14 DELTA-6", EITHER, "what was refused is not sent again until it changes", rejected),
    scripted!("SOTW-15 DELTA-4", EITHER, "a refusal costs no subscription", refusal_keeps_names),
    scripted!("SOTW-12", EITHER, "an empty error is a refusal too, and an old version is none", what_a_refusal_is),
    scripted!("DELTA-6", DELTA, "what was refused and is asked for again is sent", refused_and_asked),
    scripted!("SOTW-16 DELTA-7", EITHER, "who never answers for endpoints gets all the same what changes", silent),
];

async fn cold(scene: Scene) -> anyhow::Result<()> {
    scene.world.hush();
    scene.world.set(&[Item::new(CDS, "a", "1")]);
    let mut client = scene.client().await?;
    match scene.variant {
        Variant::Sotw => client.send_sotw(DiscoveryRequest {
            type_url: CDS.into(),
            version_info: "of another server".into(),
            ..Default::default()
        }),
        Variant::Delta => client.send_delta(DeltaDiscoveryRequest {
            type_url: CDS.into(),
            initial_resource_versions: BTreeMap::from([("a".into(), "0".into()), ("old".into(), "1".into())]),
            ..Default::default()
        }),
    }
    client.receives_nothing(scene.quiet, "upstream has said nothing").await?;
    scene.world.serve();
    if scene.variant == Variant::Sotw {
        return client.takes(CDS).await?.sets(&["a"]);
    }
    let all = client.until_removed(CDS, &["old"]).await?;
    client.until("a", |held| held.names(CDS) == ["a"]).await?;
    let first = all.iter().find(|sent| !sent.entries.is_empty());
    ensure!(first.is_none_or(|sent| sent.names() == ["a"]), "it was sent {all:?}");
    Ok(())
}

async fn rejected(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(CDS, "a", "1"), Item::new(EDS, "e", "1")]);
    let mut client = scene.client().await?;
    for (url, name, names) in [(CDS, "a", &[][..]), (EDS, "e", &["e"])] {
        client.want(url, names);
        let sent = client.sent(url).await?;
        client.nack(&sent);
        client.receives_nothing(scene.quiet, "it refused just this").await?;
        scene.world.repeat(url);
        client.receives_nothing(scene.quiet, "it refused just this, and only upstream's version has changed").await?;
        scene.world.set(&[Item::new(url, name, "2")]);
        client.takes(url).await?.has(&Item::new(url, name, "2"))?;
    }
    Ok(())
}

async fn refusal_keeps_names(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(EDS, "a", "1"), Item::new(EDS, "b", "1")]);
    let mut client = scene.client().await?;
    client.want(EDS, &["a", "b"]);
    let first = client.sent(EDS).await?;
    client.nack(&first);
    while client.held.names(EDS).len() < 2 {
        client.takes(EDS).await?;
    }
    for name in ["b", "a"] {
        scene.world.set(&[Item::new(EDS, name, "2")]);
        let sent = client.sent(EDS).await?;
        sent.sets(&[name])?;
        client.nack(&sent);
    }
    Ok(())
}

async fn what_a_refusal_is(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(CDS, "a", "1")]);
    let mut client = scene.client().await?;
    client.want(CDS, &[]);
    let sent = client.sent(CDS).await?;
    let error_detail = Some(Default::default());
    match scene.variant {
        Variant::Sotw => client.send_sotw(DiscoveryRequest {
            type_url: CDS.into(),
            version_info: sent.version.clone(),
            response_nonce: sent.nonce,
            error_detail,
            ..Default::default()
        }),
        Variant::Delta => client.send_delta(DeltaDiscoveryRequest {
            type_url: CDS.into(),
            response_nonce: sent.nonce,
            error_detail,
            ..Default::default()
        }),
    }
    client.receives_nothing(scene.quiet, "it refused just this").await?;
    scene.world.set(&[Item::new(CDS, "a", "2")]);
    let sent = client.takes(CDS).await?;
    sent.has(&Item::new(CDS, "a", "2"))?;
    if scene.variant == Variant::Sotw {
        client.send_sotw(DiscoveryRequest {
            type_url: CDS.into(),
            version_info: "an older one".into(),
            response_nonce: sent.nonce,
            ..Default::default()
        });
        client.receives_nothing(scene.quiet, "it has answered").await?;
    }
    Ok(())
}

async fn refused_and_asked(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(EDS, "a", "1")]);
    let mut client = scene.client().await?;
    client.want(EDS, &["a"]);
    let sent = client.sent(EDS).await?;
    client.nack(&sent);
    client.receives_nothing(scene.quiet, "it refused just this").await?;
    client.send_delta(DeltaDiscoveryRequest {
        type_url: EDS.into(),
        resource_names_subscribe: vec!["a".into()],
        ..Default::default()
    });
    client.takes(EDS).await?.sets(&["a"])
}

async fn silent(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(CDS, "a", "1"), Item::new(EDS, "e", "1")]);
    let mut client = scene.client().await?;
    client.want(CDS, &[]);
    client.takes(CDS).await?;
    client.want(EDS, &["e"]);
    client.sent(EDS).await?;
    for text in ["2", "3"] {
        let start = Instant::now();
        scene.world.set(&[Item::new(CDS, "a", text)]);
        client.takes(CDS).await?.has(&Item::new(CDS, "a", text))?;
        ensure!(start.elapsed() < AT_ONCE, "the clusters took {:?}", start.elapsed());
        scene.world.set(&[Item::new(EDS, "e", text)]);
        client.sent(EDS).await?.has(&Item::new(EDS, "e", text))?;
    }
    Ok(())
}

/// A limit far above what an undelayed change takes on a busy machine.
const AT_ONCE: std::time::Duration = std::time::Duration::from_secs(2);
