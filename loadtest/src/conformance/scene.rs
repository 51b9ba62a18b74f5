//! The context of a check: its control plane, clients and time limits.

use std::time::Duration;

use weir_core::proto::node::Node;

use super::Options;
use crate::content::Item;
use crate::wire::{Client, Opening, Plane, Variant, World};

pub struct Scene {
    /// The resources that the control plane serves to the clients of this check. Without a scripted control plane this has no effect.
    pub world: World,
    pub variant: Variant,
    /// The silence after which a check takes it that nothing arrives.
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

    /// Returns a time after which a name without a response from a SotW upstream counts as absent.
    pub fn beyond_the_timer(&self) -> Duration {
        self.resource_timer + self.patience
    }

    /// Loads these items into the relay's cache: the returned client has requested them by name and stays connected.
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
