//! What a check has to play with.

use std::time::Duration;

use weir::proto::node::Node;

use super::Options;
use crate::content::Item;
use crate::wire::{Client, Opening, Plane, Variant, World};

pub struct Scene {
    /// What upstream has for the clients of this check; without a scripted control plane nothing comes of it.
    pub world: World,
    pub variant: Variant,
    /// How long nothing is waited for.
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

    /// A client on an aggregated stream of the variant of this run.
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

    /// An Envoy of this check.
    pub fn node(&self) -> Node {
        Node {
            id: "conformance".into(),
            cluster: self.cluster.clone(),
            user_agent_name: "envoy".into(),
            ..Node::default()
        }
    }

    /// Longer than a SotW upstream may be silent about a name before that means something.
    pub fn beyond_the_timer(&self) -> Duration {
        self.resource_timer + self.patience
    }

    /// Brings resources into the relay's cache, by name: they are requested by a client that stays.
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
