//! Checks of the services for single types: streams that serve only one type, and single fetches.

use anyhow::{Context, ensure};
use tonic::Code;
use weir_core::proto::discovery::DiscoveryRequest;

use super::{Check, DELTA, EITHER, NotHere, OWN, Scene, scripted, unscripted};
use crate::content::{CDS, ECDS, EDS, Item, LDS, LEDS, RDS, RTDS, SDS, SRDS, VHDS};
use crate::wire::{Variant, fetch};

pub(super) const CHECKS: &[Check] = &[
    scripted!("TRN-1 TRN-2 TRN-5", EITHER, "each type's service serves it, and no type_url means it", each_serves),
    scripted!("TRN-3 TRN-5", DELTA, "the services of delta alone serve their types", delta_services),
    unscripted!("TRN-7", EITHER, "a foreign type on a type's own stream is INVALID_ARGUMENT", foreign_type),
    scripted!("TRN-22", OWN, "a single fetch is answered with what there is", fetches),
];

const SERVICES: [(&str, &str, &str); 8] = [
    ("listener.v3.ListenerDiscoveryService", "Listeners", LDS),
    ("cluster.v3.ClusterDiscoveryService", "Clusters", CDS),
    ("route.v3.RouteDiscoveryService", "Routes", RDS),
    ("route.v3.ScopedRoutesDiscoveryService", "ScopedRoutes", SRDS),
    ("endpoint.v3.EndpointDiscoveryService", "Endpoints", EDS),
    ("secret.v3.SecretDiscoveryService", "Secrets", SDS),
    ("runtime.v3.RuntimeDiscoveryService", "Runtime", RTDS),
    ("extension.v3.ExtensionConfigDiscoveryService", "ExtensionConfigs", ECDS),
];

const DELTA_SERVICES: [(&str, &str, &str); 2] = [
    ("route.v3.VirtualHostDiscoveryService", "VirtualHosts", VHDS),
    ("endpoint.v3.LocalityEndpointDiscoveryService", "LocalityEndpoints", LEDS),
];

fn path(service: &str, shape: &str, what: &str) -> String {
    format!("/envoy.service.{service}/{shape}{what}")
}

fn stream_path(variant: Variant, service: &str, what: &str) -> String {
    path(service, if variant == Variant::Sotw { "Stream" } else { "Delta" }, what)
}

async fn each_serves(scene: Scene) -> anyhow::Result<()> {
    for (service, what, url) in SERVICES {
        serves(&scene, service, what, url).await?;
    }
    Ok(())
}

async fn delta_services(scene: Scene) -> anyhow::Result<()> {
    let mut probe = scene.client().await?;
    probe.want(CDS, &[]);
    probe.takes(CDS).await?;
    if scene.world.variant() == Some(Variant::Sotw) {
        return Err(NotHere("a SotW upstream cannot have these types").into());
    }
    for (service, what, url) in DELTA_SERVICES {
        serves(&scene, service, what, url).await?;
    }
    Ok(())
}

async fn serves(scene: &Scene, service: &str, what: &str, url: &'static str) -> anyhow::Result<()> {
    let path = stream_path(scene.variant, service, what);
    let (first, second) = (Item::new(url, "r/a", "1"), Item::new(url, "r/a", "2"));
    scene.world.set(std::slice::from_ref(&first));
    let mut client = scene.at(scene.variant, &path).connect().await?;
    client.want("", &["r/a"]);
    let sent = client.takes(url).await.with_context(|| path.clone())?;
    sent.sets(&["r/a"])?;
    sent.has(&first)?;
    scene.world.set(std::slice::from_ref(&second));
    client.takes(url).await.context(path)?.has(&second)
}

async fn foreign_type(scene: Scene) -> anyhow::Result<()> {
    for (service, what, url) in SERVICES {
        let path = stream_path(scene.variant, service, what);
        let mut client = scene.at(scene.variant, &path).connect().await?;
        client.want(if url == CDS { LDS } else { CDS }, &["a"]);
        let code = client.ended().await.with_context(|| path.clone())?;
        ensure!(code == Code::InvalidArgument, "{path} ended with {code:?}");
    }
    Ok(())
}

async fn fetches(scene: Scene) -> anyhow::Result<()> {
    for (service, what, url) in SERVICES {
        let path = path(service, "Fetch", what);
        let item = Item::new(url, "a", "1");
        scene.world.set(std::slice::from_ref(&item));
        let node = Some(prost::Message::encode_to_vec(&scene.node()).into());
        let request = DiscoveryRequest { node, resource_names: vec!["a".into()], ..Default::default() };
        let sent = match fetch(&scene.at(Variant::Sotw, &path), request).await? {
            Ok(sent) => sent,
            Err(status) => anyhow::bail!("{path} failed: {:?} {}", status.code(), status.message()),
        };
        sent.sets(&["a"])?;
        sent.has(&item)?;
    }
    Ok(())
}
