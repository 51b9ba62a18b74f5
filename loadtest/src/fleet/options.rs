//! The clients of a fleet.

use std::collections::BTreeSet;
use std::time::Duration;

use super::behaviour::Behaviour;
use super::node::NodeTemplate;
use crate::checks::Check;
use crate::link::{Target, Tls};
use crate::wire::Variant;

#[derive(Clone)]
pub struct FleetOptions {
    /// The servers over which the connections are spread. A lost connection is opened again to the next server.
    pub targets: Vec<Target>,
    pub tls: Option<Tls>,
    pub groups: Vec<Group>,
    pub checks: BTreeSet<Check>,
    /// Connections that are opened per second; `None` is as fast as possible.
    pub connect_rate: Option<u32>,
}

/// Clients of one kind.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    pub behaviour: Behaviour,
    #[serde(default = "one")]
    pub count: usize,
    /// The variant, for behaviours that support both.
    pub variant: Option<Variant>,
    /// Clients that share a connection, each with streams of its own.
    #[serde(default = "one")]
    pub clients_per_connection: usize,
    #[serde(default)]
    pub node: NodeTemplate,
    /// Names that gRPC clients start with.
    #[serde(default)]
    pub listeners: Vec<String>,
    /// The period of flappers and of subscription churn.
    #[serde(default = "second", with = "crate::scenario::duration")]
    pub period: Duration,
    /// The pause between clients that connect one after another, beginning with the step `join`. `None`: all connect at the start.
    #[serde(default, with = "crate::scenario::duration::optional")]
    pub joins: Option<Duration>,
    /// The HTTP/2 window in bytes. Slow readers have 65,535 by default.
    pub window: Option<u32>,
}

impl Group {
    pub fn new(behaviour: Behaviour, count: usize) -> Self {
        Self {
            behaviour,
            count,
            variant: None,
            clients_per_connection: 1,
            node: NodeTemplate::default(),
            listeners: Vec::new(),
            period: second(),
            joins: None,
            window: None,
        }
    }

    pub fn window(&self) -> Option<u32> {
        let slow = (self.behaviour == Behaviour::SlowReader).then_some(65_535);
        self.window.or(slow)
    }
}

fn one() -> usize {
    1
}

fn second() -> Duration {
    Duration::from_secs(1)
}
