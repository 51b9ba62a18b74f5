//! Checks of the services that a server has, and of events that a stream survives.

use anyhow::{Context, ensure};
use prost::Message;
use tonic::Code;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};

use super::{Check, EITHER, OWN, SOTW, Scene, scripted, unscripted};
use crate::content::{CDS, COLLECTION, EDS, Item, LDS, LEDS, UNKNOWN, VHDS};
use crate::wire::{Opening, Variant};

pub(super) const CHECKS: &[Check] = &[
    unscripted!("TRN-1", OWN, "a method that there is not is UNIMPLEMENTED", no_such_method),
    unscripted!("TRN-2", OWN, "the scoped routes service is plural", plural_service),
    unscripted!("TRN-3", OWN, "virtual hosts and locality endpoints have no SotW method", delta_only_methods),
    unscripted!("TRN-3", SOTW, "types of delta alone stay unanswered in SotW, and cost nothing else", delta_only_types),
    unscripted!("TRN-6 TRN-20", EITHER, "no type_url on ADS is INVALID_ARGUMENT", no_type),
    scripted!("TRN-11", EITHER, "later requests need no node, and the first may be of any type", node_once),
    unscripted!("TRN-12", EITHER, "a stream without any node is served or ended, and not left alone", no_node),
    scripted!("TRN-13 TRN-14 TRN-21", EITHER, "three streams of one node id do not touch each other", one_id),
    unscripted!("TRN-15", EITHER, "unknown fields and an unknown type do not end the stream", unknowns),
    scripted!("TRN-16", EITHER, "a set of clusters of 6 MB gets through", large),
    unscripted!("SOTW-23 DELTA-21", EITHER, "the first wildcard request is answered", first_wildcard),
    unscripted!("SOTW-19 DELTA-17", EITHER, "an ACK is not answered", ack_is_final),
    unscripted!("SOTW-1 DELTA-1", EITHER, "each response has a nonce of its own", nonces),
];

async fn rejected(scene: &Scene, variant: Variant, path: &str) -> anyhow::Result<()> {
    let mut client = scene.at(variant, path).connect().await?;
    match variant {
        Variant::Sotw => client.send_sotw(DiscoveryRequest::default()),
        Variant::Delta => client.send_delta(DeltaDiscoveryRequest::default()),
    }
    let code = client.ended().await.with_context(|| path.to_owned())?;
    ensure!(code == Code::Unimplemented, "{path} ended with {code:?}");
    Ok(())
}

async fn no_such_method(scene: Scene) -> anyhow::Result<()> {
    for path in [
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamEverything",
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/FetchAggregatedResources",
        "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamListeners",
        "/example.v1.Service/Method",
    ] {
        rejected(&scene, Variant::Sotw, path).await?;
    }
    Ok(())
}

async fn plural_service(scene: Scene) -> anyhow::Result<()> {
    for variant in [Variant::Sotw, Variant::Delta] {
        let method = if variant == Variant::Sotw { "StreamScopedRoutes" } else { "DeltaScopedRoutes" };
        rejected(&scene, variant, &format!("/envoy.service.route.v3.ScopedRouteDiscoveryService/{method}")).await?;
        let path = format!("/envoy.service.route.v3.ScopedRoutesDiscoveryService/{method}");
        let mut client = scene.at(variant, &path).connect().await?;
        client.want("", &["nobody"]);
        client.until_quiet(scene.quiet / 2).await.context(path)?;
    }
    Ok(())
}

async fn delta_only_methods(scene: Scene) -> anyhow::Result<()> {
    for path in [
        "/envoy.service.route.v3.VirtualHostDiscoveryService/StreamVirtualHosts",
        "/envoy.service.route.v3.VirtualHostDiscoveryService/FetchVirtualHosts",
        "/envoy.service.endpoint.v3.LocalityEndpointDiscoveryService/StreamLocalityEndpoints",
    ] {
        rejected(&scene, Variant::Sotw, path).await?;
    }
    Ok(())
}

async fn delta_only_types(scene: Scene) -> anyhow::Result<()> {
    let mut client = scene.client().await?;
    client.want(VHDS, &["route/host"]);
    client.want(LEDS, &["endpoint"]);
    client.receives_nothing(scene.quiet, "they exist in delta only").await?;
    client.want(CDS, &[]);
    client.sent(CDS).await?;
    Ok(())
}

async fn no_type(scene: Scene) -> anyhow::Result<()> {
    let mut client = scene.client().await?;
    client.want("", &[]);
    let code = client.ended().await?;
    ensure!(code == Code::InvalidArgument, "ended with {code:?}");
    Ok(())
}

async fn node_once(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(CDS, "a", "1"), Item::new(EDS, "a", "1")]);
    let mut client = scene.client().await?;
    client.want(EDS, &["a"]);
    client.takes(EDS).await?.sets(&["a"])?;
    client.want(CDS, &[]);
    client.until("clusters, asked for without a node", |held| held.names(CDS) == ["a"]).await?;
    Ok(())
}

async fn no_node(scene: Scene) -> anyhow::Result<()> {
    let mut client = Opening { node: None, ..scene.opening() }.connect().await?;
    client.want(CDS, &[]);
    match tokio::time::timeout(scene.patience, client.next()).await? {
        Ok(sent) => drop(sent?),
        Err(status) => ensure!(status.code() == Code::InvalidArgument, "ended with {:?}", status.code()),
    }
    Ok(())
}

async fn one_id(scene: Scene) -> anyhow::Result<()> {
    let of = |name: &str, text: &str| Item::new(EDS, name, text);
    scene.world.set(&[of("a", "1"), of("b", "1"), of("c", "1")]);
    let mut clients = Vec::new();
    for name in ["a", "b", "c"] {
        let mut client = scene.client().await?;
        client.want(EDS, &[name]);
        client.takes(EDS).await?.sets(&[name])?;
        clients.push((name, client));
    }
    for round in ["2", "3"] {
        scene.world.set(&[of("a", round), of("b", round), of("c", round)]);
        for (name, client) in &mut clients {
            let sent = client.takes(EDS).await?;
            sent.sets(&[name])?;
            sent.has(&of(name, round))?;
        }
        clients.remove(0); // the end of one client must not affect another
    }
    Ok(())
}

async fn unknowns(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(LDS, "a", "1")]);
    let mut client = scene.client().await?;
    let node = Some(scene.node().encode_to_vec().into());
    let mut request = match scene.variant {
        Variant::Sotw => DiscoveryRequest { node, type_url: LDS.into(), ..Default::default() }.encode_to_vec(),
        Variant::Delta => DeltaDiscoveryRequest { node, type_url: LDS.into(), ..Default::default() }.encode_to_vec(),
    };
    request.extend(Item::new(COLLECTION, "", "a field of the next version").body);
    client.send_raw(request);
    client.want(UNKNOWN, &["something"]);
    client.want(CDS, &[]);
    client.until("listeners and clusters", |held| held.is_told_of(LDS) && held.is_told_of(CDS)).await?;
    Ok(())
}

async fn large(scene: Scene) -> anyhow::Result<()> {
    let text = "x".repeat(20_000);
    let items: Vec<_> = (0..300).map(|number| Item::new(CDS, &format!("c{number}"), &text)).collect();
    scene.world.set(&items);
    let mut client = scene.client().await?;
    client.want(CDS, &[]);
    client.until("300 clusters", |held| items.iter().all(|item| held.has(item))).await?;
    Ok(())
}

async fn first_wildcard(scene: Scene) -> anyhow::Result<()> {
    let mut client = scene.client().await?;
    client.want(CDS, &[]);
    client.sent(CDS).await?;
    Ok(())
}

async fn ack_is_final(scene: Scene) -> anyhow::Result<()> {
    let mut client = scene.client().await?;
    client.want(CDS, &[]);
    client.takes(CDS).await?;
    client.until_quiet(scene.quiet).await?;
    let again = client.until_quiet(scene.quiet).await?;
    ensure!(again.is_empty(), "nothing has changed, and yet it was sent {again:?}");
    Ok(())
}

async fn nonces(scene: Scene) -> anyhow::Result<()> {
    scene.world.set(&[Item::new(CDS, "a", "1"), Item::new(LDS, "a", "1")]);
    let mut client = scene.client().await?;
    for url in [CDS, LDS] {
        client.want(url, &[]); // the client itself checks each nonce
        client.takes(url).await?;
    }
    for text in ["2", "3", "4"] {
        scene.world.set(&[Item::new(CDS, "a", text)]);
        if scene.world.variant().is_some() {
            client.takes(CDS).await?;
        }
    }
    Ok(())
}
