//! What a check works with.

use std::time::Duration;

use weir_core::proto::node::Node;

use super::Options;
use crate::content::Item;
use crate::wire::{Client, Opening, Plane, Variant, World};

pub struct Scene {
    /// What upstream serves to the clients of this check; without a scripted control plane it has no effect.
    pub world: World,
    pub variant: Variant,
    /// How long to wait before silence counts.
    pub quiet: Duration,
    pub patience: Duration,
    pub resource_timer: Duration,
    target: String,
    cluster: String,
}

impl Scene {
    pub fn new(options: &Options, plane: Option<&Plane>, cluster: String, variant: Option<Variant>) -> Self {
        Self {
            world: plane.map(|plane| plane.world(&cluster)).unwrap_or_default(),
            variant: variant.unwrap_or(Variant::Sotw),
            quiet: options.quiet,
            patience: options.patience,
            resource_timer: options.resource_timer,
            target: options.target.clone(),
            cluster,
        }
    }

    /// Connects a client with an aggregated stream of this run's variant.
    pub async fn client(&self) -> anyhow::Result<Client> {
        self.opening().connect().await
    }

    pub fn opening(&self) -> Opening {
        self.aggregated(self.variant)
    }

    pub fn aggregated(&self, variant: Variant) -> Opening {
        let method = match variant {
            Variant::Sotw => "StreamAggregatedResources",
            Variant::Delta => "DeltaAggregatedResources",
        };
        self.at(variant, &format!("/envoy.service.discovery.v3.AggregatedDiscoveryService/{method}"))
    }

    pub fn at(&self, variant: Variant, path: &str) -> Opening {
        Opening {
            target: self.target.clone(),
            path: path.into(),
            variant,
            node: Some(self.node()),
            window: None,
            patience: self.patience,
        }
    }

    /// Returns the node of an Envoy in this check.
    pub fn node(&self) -> Node {
        Node {
            id: "conformance".into(),
            cluster: self.cluster.clone(),
            user_agent_name: "envoy".into(),
            ..Node::default()
        }
    }

    /// Returns a time longer than the resource timer of a SotW upstream.
    pub fn beyond_the_timer(&self) -> Duration {
        self.resource_timer + self.patience
    }

    /// Loads resources into the relay's cache, by name: a client requests them and stays connected.
    pub async fn warm(&self, items: &[Item]) -> anyhow::Result<Client> {
        self.world.set(items);
        let mut keeper = self.aggregated(Variant::Delta).connect().await?;
        for run in items.chunk_by(|one, next| one.url == next.url) {
            keeper.want(run[0].url, &run.iter().map(|item| item.name.as_str()).collect::<Vec<_>>());
        }
        keeper.until("what upstream has", |held| items.iter().all(|item| held.has(item))).await?;
        Ok(keeper)
    }
}
