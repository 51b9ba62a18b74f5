//! Checks of the endpoints of a changed cluster, for which Envoy waits (SOTW-33, DELTA-45).

use anyhow::ensure;
use weir_core::proto::discovery::DiscoveryRequest;

use super::{Check, EITHER, SOTW, Scene, scripted};
use crate::content::{CDS, EDS, Item};
use crate::wire::Client;

pub(super) const CHECKS: &[Check] = &[
    scripted!("SOTW-33 DELTA-45 XLAT-32", EITHER, "endpoints follow a changed cluster at no cost upstream", follow),
    scripted!("SOTW-33", SOTW, "they do so once when they are asked for as well", follow_when_asked),
    scripted!("SOTW-34", SOTW, "endpoints asked for again without need are not sent", no_need),
];

/// Returns a client that has a cluster and its endpoints, and has ACKed both.
async fn settled(scene: &Scene) -> anyhow::Result<Client> {
    scene.world.set(&[Item::eds_cluster("c", "1"), Item::new(EDS, "c", "1")]);
    let mut client = scene.client().await?;
    client.want(CDS, &[]);
    client.takes(CDS).await?;
    client.want(EDS, &["c"]);
    client.takes(EDS).await?.sets(&["c"])?;
    client.until_quiet(scene.quiet).await?;
    Ok(client)
}

async fn follow(scene: Scene) -> anyhow::Result<()> {
    let mut client = settled(&scene).await?;
    let requested = |scene: &Scene| scene.world.heard().iter().filter(|heard| heard.is_of(EDS)).count();
    let before = requested(&scene);
    for text in ["2", "3"] {
        scene.world.set(&[Item::eds_cluster("c", text)]);
        client.takes(CDS).await?.sets(&["c"])?;
        let sent = client.takes(EDS).await?;
        sent.has(&Item::new(EDS, "c", "1"))?;
        client.receives_nothing(scene.quiet, "the endpoints have followed").await?;
    }
    ensure!(requested(&scene) == before, "upstream was asked for endpoints: {:?}", scene.world.heard());
    Ok(())
}

/// Sends the request of an Envoy that warms a cluster: it repeats the names with the latest version and the latest nonce.
fn ask_again(client: &mut Client, version: &str, nonce: &str) {
    client.send_sotw(DiscoveryRequest {
        type_url: EDS.into(),
        version_info: version.into(),
        response_nonce: nonce.into(),
        resource_names: vec!["c".into()],
        ..Default::default()
    });
}

async fn follow_when_asked(scene: Scene) -> anyhow::Result<()> {
    let mut client = settled(&scene).await?;
    let (mut version, mut nonce) = client.last(EDS);
    for text in ["2", "3"] {
        scene.world.set(&[Item::eds_cluster("c", text)]);
        client.takes(CDS).await?;
        ask_again(&mut client, &version, &nonce);
        let sent = client.takes(EDS).await?;
        sent.sets(&["c"])?;
        client.receives_nothing(scene.quiet, "the endpoints have followed").await?;
        (version, nonce) = client.last(EDS);
    }
    Ok(())
}

async fn no_need(scene: Scene) -> anyhow::Result<()> {
    let mut client = settled(&scene).await?;
    let (version, nonce) = client.last(EDS);
    for _ in 0..3 {
        ask_again(&mut client, &version, &nonce);
    }
    client.receives_nothing(scene.quiet, "no cluster has changed").await
}
