//! The parameters of each benchmark on the command line. The defaults are those of the gates.

use std::time::Duration;

use clap::Args;

use super::Bench;
use super::apart::Apart;
use super::connect::Connect;
use super::fanout::Fanout;
use super::front::Front;
use super::idle::{Added, Idle};
use super::ingest::Ingest;
use super::mixed::Mixed;
use super::neighbour::{LargeSets, LargeUpdates};
use super::reconnect::Reconnect;
use super::restart::Restart;
use super::scale::{ScaleClients, ScaleResources};
use super::size::parse_size;
use super::stall::Stall;
use super::storm::Storm;
use crate::wire::Variant;

type Benches = Vec<Box<dyn Bench>>;

fn boxed<B: Bench + 'static>(benches: impl IntoIterator<Item = B>) -> Benches {
    benches.into_iter().map(|bench| Box::new(bench) as _).collect()
}

#[derive(Debug, Args)]
pub struct FanoutArgs {
    #[arg(long, alias = "clients", default_value_t = 2000)]
    connections: usize,
    /// Streams of each connection
    #[arg(long, default_value_t = 1)]
    streams: usize,
    /// Bytes that change in a round
    #[arg(long, value_parser = parse_size, default_value = "1KiB")]
    size: usize,
    /// Number of resources that the bytes are divided into
    #[arg(long, default_value_t = 1)]
    resources: usize,
    /// [default: as many as give 100,000 deliveries or 10 GiB, and at least 5]
    #[arg(long)]
    rounds: Option<u32>,
}

impl FanoutArgs {
    pub fn benches(&self, variant: Variant) -> Benches {
        let Self { connections, streams, size, resources, rounds } = *self;
        boxed([Fanout::new(variant, connections, streams, size, resources, rounds)])
    }
}

#[derive(Debug, Args)]
pub struct MixedArgs {
    #[arg(long, alias = "clients", default_value_t = 1000)]
    connections: usize,
    #[arg(long, default_value_t = 5000)]
    resources: usize,
    /// How many of them each client subscribes to
    #[arg(long, default_value_t = 20)]
    subset: usize,
    /// Changes per second in total
    #[arg(long, default_value_t = 1000)]
    per_second: u32,
    #[arg(long, default_value_t = 5)]
    seconds: u32,
}

impl MixedArgs {
    pub fn benches(&self, variant: Variant) -> Benches {
        let Self { connections, resources, subset, per_second, seconds } = *self;
        boxed([Mixed { variant, connections, resources, subset, per_second, seconds }])
    }
}

#[derive(Debug, Args)]
pub struct StormArgs {
    #[arg(long, alias = "clients", default_value_t = 2000)]
    connections: usize,
    #[arg(long, default_value_t = 1000)]
    resources: usize,
    /// Bytes of each resource
    #[arg(long, value_parser = parse_size, default_value = "2KiB")]
    resource_size: usize,
}

#[derive(Debug, Args)]
pub struct ConnectArgs {
    #[arg(long, alias = "clients", default_value_t = 10_000)]
    connections: usize,
    #[arg(long, default_value_t = 3)]
    resources: usize,
    /// Bytes of each resource
    #[arg(long, value_parser = parse_size, default_value = "1KiB")]
    resource_size: usize,
}

#[derive(Debug, Args)]
pub struct ColdArgs {
    #[arg(long, alias = "clients")]
    connections: Option<usize>,
    #[arg(long)]
    resources: Option<usize>,
    /// Bytes of each resource
    #[arg(long, value_parser = parse_size)]
    resource_size: Option<usize>,
}

#[derive(Debug, Args)]
pub struct IdleArgs {
    #[arg(long, alias = "clients")]
    connections: Option<usize>,
    /// Streams of each connection; then memory of a further stream is measured
    #[arg(long)]
    streams: Option<usize>,
}

impl StormArgs {
    pub fn benches(&self, variant: Variant) -> Benches {
        let Self { connections, resources, resource_size: size } = *self;
        boxed([Storm { variant, connections, resources, size, warm: true }])
    }
}

impl ConnectArgs {
    pub fn benches(&self, variant: Variant) -> Benches {
        let Self { connections, resources, resource_size: size } = *self;
        boxed([Connect { variant, connections, resources, size }])
    }
}

impl ColdArgs {
    pub fn benches(&self, variant: Variant) -> Benches {
        let cold = |(connections, resources, size)| Storm { variant, connections, resources, size, warm: false };
        match (self.connections, self.resources, self.resource_size) {
            (None, None, None) => boxed([(2000, 10, 1024), (500, 10_000, 100)].map(cold)),
            (connections, resources, size) => {
                boxed([cold((connections.unwrap_or(2000), resources.unwrap_or(10), size.unwrap_or(1024)))])
            }
        }
    }
}

impl IdleArgs {
    pub fn benches(&self, variant: Variant) -> Benches {
        let idle = |(connections, added)| Idle { variant, connections, added };
        match (self.connections, self.streams) {
            (None, None) => {
                boxed([(2000, Added::SharedNames), (2000, Added::OwnNames), (100, Added::Streams(100))].map(idle))
            }
            (connections, Some(streams)) => boxed([idle((connections.unwrap_or(100), Added::Streams(streams.max(2))))]),
            (Some(connections), None) => {
                boxed([Added::SharedNames, Added::OwnNames].map(|added| idle((connections, added))))
            }
        }
    }
}

#[derive(Debug, Args)]
pub struct StallArgs {
    #[arg(long, alias = "clients", default_value_t = 1000)]
    connections: usize,
    #[arg(long, default_value_t = 10)]
    stalled_percent: usize,
    /// Bytes of each update
    #[arg(long, value_parser = parse_size, default_value = "2MB")]
    size: usize,
    #[arg(long, default_value_t = 6)]
    updates: u32,
    /// Bytes of the first update that the clients read before they stop
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    read_first: Option<usize>,
}

impl StallArgs {
    pub fn benches(&self, variant: Variant) -> Benches {
        let Self { connections, stalled_percent, size, updates, read_first } = *self;
        let read_first = read_first.unwrap_or_default();
        let stall = |differing| Stall { variant, connections, stalled_percent, size, updates, read_first, differing };
        boxed([false, true].map(stall))
    }
}

#[derive(Debug, Args)]
pub struct ScaleResourcesArgs {
    /// [default: 500, and then 50]
    #[arg(long, alias = "clients")]
    connections: Option<usize>,
    #[arg(long, default_value_t = 1000)]
    few: usize,
    #[arg(long, default_value_t = 100_000)]
    many: usize,
}

impl ScaleResourcesArgs {
    pub fn benches(&self, variant: Variant) -> Benches {
        let Self { connections, few, many } = *self;
        let scale = |connections: usize| {
            // In SotW each change sends the complete set: fewer clients and rounds are enough.
            let (connections, rounds) =
                if variant == Variant::Sotw { (connections / 10, 5) } else { (connections, 50) };
            ScaleResources { variant, connections: connections.max(1), few, many, rounds }
        };
        match connections {
            Some(connections) => boxed([scale(connections)]),
            None if variant == Variant::Sotw => boxed([scale(500)]),
            None => boxed([500, 50].map(scale)),
        }
    }
}

#[derive(Debug, Args)]
pub struct ScaleClientsArgs {
    /// Clients that subscribe to what changes
    #[arg(long, default_value_t = 10)]
    holders: usize,
    #[arg(long, default_value_t = 400)]
    few: usize,
    #[arg(long, default_value_t = 4000)]
    many: usize,
    #[arg(long, default_value_t = 2000)]
    rounds: u32,
}

impl ScaleClientsArgs {
    pub fn benches(&self, variant: Variant) -> Benches {
        let Self { holders, few, many, rounds } = *self;
        boxed([ScaleClients { variant, holders, few, many, rounds }])
    }
}

#[derive(Debug, Args)]
pub struct IngestArgs {
    #[arg(long, default_value_t = 100_000)]
    resources: usize,
    /// Bytes of each resource
    #[arg(long, value_parser = parse_size, default_value = "2KiB")]
    resource_size: usize,
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

impl IngestArgs {
    /// Ignores `variant`: the set arrives over SotW, and the client uses delta.
    pub fn benches(&self, variant: Variant) -> Benches {
        let Self { resources, resource_size: size, rounds } = *self;
        boxed((variant == Variant::Delta).then_some(Ingest { resources, size, rounds }))
    }
}

#[derive(Debug, Args)]
pub struct NeighbourArgs {
    /// Clients of the large sets
    #[arg(long, alias = "clients", default_value_t = 300)]
    connections: usize,
    /// Views that take in large updates
    #[arg(long, default_value_t = 6)]
    views: usize,
    /// New views beside them
    #[arg(long, default_value_t = 1000)]
    neighbours: usize,
}

impl NeighbourArgs {
    /// Ignores `variant`: the large updates are delta, the large sets SotW.
    pub fn benches(&self, variant: Variant) -> Benches {
        let connections = self.connections;
        let [views, neighbours] = [self.views, self.neighbours].map(|count| count.max(1));
        match variant {
            Variant::Delta => boxed([LargeUpdates { views, resources: 1000, size: 37 << 10, neighbours }]),
            Variant::Sotw => boxed([LargeSets { connections, resources: 10_000, size: 100, rounds: 5 }]),
        }
    }
}

#[derive(Debug, Args)]
pub struct ApartArgs {
    /// Clients of the large view
    #[arg(long, alias = "clients", default_value_t = 10_000)]
    connections: usize,
    /// Clients of the small one
    #[arg(long, default_value_t = 10)]
    few: usize,
    /// Changes for the large view
    #[arg(long, default_value_t = 20)]
    rounds: u32,
}

impl ApartArgs {
    pub fn benches(&self, variant: Variant) -> Benches {
        let Self { connections: many, few, rounds } = *self;
        boxed([Apart { variant, many, few, rounds }])
    }
}

#[derive(Debug, Args)]
pub struct FrontArgs {
    #[arg(long, alias = "clients", default_value_t = 2000)]
    connections: usize,
    /// Changes of one resource of 1 KiB
    #[arg(long, default_value_t = 100)]
    changes: u32,
    /// Clients that start while the control plane is away
    #[arg(long, default_value_t = 200)]
    starts: u32,
    /// How long it is away
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

impl FrontArgs {
    /// Ignores `variant`: the clients are delta.
    pub fn benches(&self, variant: Variant) -> Benches {
        let Self { connections, changes, starts, seconds } = *self;
        let outage = Duration::from_secs(seconds);
        boxed((variant == Variant::Delta).then_some(Front { connections, changes, starts, outage }))
    }
}

#[derive(Debug, Args)]
pub struct RestartArgs {
    #[arg(long, alias = "clients", default_value_t = 2000)]
    connections: usize,
    #[arg(long, default_value_t = 10_000)]
    resources: usize,
    /// Bytes of each resource
    #[arg(long, value_parser = parse_size, default_value = "1KiB")]
    resource_size: usize,
}

impl RestartArgs {
    /// Measures delta only: in SotW a client states one version for all resources.
    pub fn benches(&self, variant: Variant) -> Benches {
        let Self { connections, resources, resource_size: size } = *self;
        match variant {
            Variant::Delta => boxed([Restart { variant, connections, resources, size }]),
            Variant::Sotw => Vec::new(),
        }
    }
}

#[derive(Debug, Args)]
pub struct ReconnectArgs {
    #[arg(long, alias = "clients", default_value_t = 2000)]
    connections: usize,
    #[arg(long, default_value_t = 1000)]
    resources: usize,
    /// Bytes of each resource
    #[arg(long, value_parser = parse_size, default_value = "1KiB")]
    resource_size: usize,
    /// How many in a hundred change meanwhile [default: 0, and in delta also 5]
    #[arg(long)]
    changed_percent: Option<usize>,
}

impl ReconnectArgs {
    pub fn benches(&self, variant: Variant) -> Benches {
        let Self { connections, resources, resource_size: size, changed_percent } = *self;
        let of = |changed_percent| Reconnect { variant, connections, resources, size, changed_percent };
        match (changed_percent, variant) {
            (Some(percent), _) => boxed([of(percent)]),
            (None, Variant::Sotw) => boxed([of(0)]),
            (None, Variant::Delta) => boxed([0, 5].map(of)),
        }
    }
}
