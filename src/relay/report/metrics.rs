//! The metrics of a view.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::SystemTime;

use weir_core::protocol::ladder::Switches;
use weir_core::protocol::view::Forgotten;

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ViewMetrics {
    /// The hash of its sharing key; none for views without series of their own.
    pub(crate) label: Option<Arc<str>>,
    pub(crate) sessions: usize,
    /// Sessions that are blocked without a time limit, and sessions over `limits.absent_names_per_stream`.
    pub(crate) blocked: usize,
    pub(crate) over_absent_limit: usize,
    /// Cached resources, counted once for the wildcard set and once for names.
    pub(crate) cached: usize,
    /// What the view has of each type. Unknown types count as one, since clients can invent them.
    pub(crate) by_type: BTreeMap<String, TypeSize>,
    /// Resources that were loaded from disk, and not confirmed by a server since.
    pub(crate) from_disk: usize,
    pub(crate) ladders: Vec<LadderMetrics>,
    pub(crate) servers: Vec<ServerMetrics>,
    /// Clusters that routing refers to and that do not exist.
    pub(crate) dangling: usize,
    pub(crate) order: OrderMetrics,
    pub(crate) removals: RemovalMetrics,
}

/// The removals that a view remembers for clients that are behind.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemovalMetrics {
    pub(crate) bytes: usize,
    /// How many were forgotten because of their age, and how many because all together took too much memory.
    pub(crate) forgotten: Forgotten,
}

/// Cached resources of one type, and the length of their bodies.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TypeSize {
    pub(crate) resources: usize,
    pub(crate) bytes: usize,
}

/// Cases in which the order of changes could not be kept.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OrderMetrics {
    /// Clusters that were removed while routing referred to them.
    pub(crate) removals: u64,
    /// Clusters that a routing change refers to and that did not arrive in time.
    pub(crate) waits: u64,
    /// Bodies that were too large to search for references.
    pub(crate) too_large: u64,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct LadderMetrics {
    /// Empty for `*` and old-style names.
    pub(crate) authority: String,
    pub(crate) state: &'static str,
    pub(crate) state_seconds: u64,
    /// The first choice first.
    pub(crate) servers: Vec<String>,
    /// The active server, by its place in `servers`.
    pub(crate) active: Option<usize>,
    pub(crate) switches: Switches,
}

/// One server in a view, summed over all streams to it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ServerMetrics {
    pub(crate) server: String,
    /// Streams that are wanted, and those that are connected.
    pub(crate) streams: usize,
    pub(crate) connected: usize,
    pub(crate) last_response: Option<SystemTime>,
    pub(crate) totals: Totals,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) opened: u64,
    pub(crate) ended: u64,
    pub(crate) responses: u64,
    /// Responses that the relay rejected, in part or as a whole.
    pub(crate) nacks: u64,
    /// About how many bytes the responses had.
    pub(crate) bytes: u64,
}

impl ViewMetrics {
    /// Adds the metrics of another view.
    pub(crate) fn absorb(&mut self, other: Self) {
        let Self {
            label: _,
            sessions,
            blocked,
            over_absent_limit,
            cached,
            by_type,
            from_disk,
            ladders,
            servers,
            dangling,
            order,
            removals,
        } = other;
        self.sessions += sessions;
        self.blocked += blocked;
        self.over_absent_limit += over_absent_limit;
        self.cached += cached;
        for (kind, size) in by_type {
            *self.by_type.entry(kind).or_default() += size;
        }
        self.from_disk += from_disk;
        self.dangling += dangling;
        self.removals.bytes += removals.bytes;
        self.removals.forgotten.by_age += removals.forgotten.by_age;
        self.removals.forgotten.by_bytes += removals.forgotten.by_bytes;
        self.order.removals += order.removals;
        self.order.waits += order.waits;
        self.order.too_large += order.too_large;
        // Ladders of one authority are not merged: each has a state and an active server.
        self.ladders.extend(ladders);
        for server in servers {
            match self.servers.iter_mut().find(|known| known.server == server.server) {
                Some(known) => known.absorb(&server),
                None => self.servers.push(server),
            }
        }
    }

    /// Adds the metrics of an earlier view of the same key. The state of its ladders is dropped.
    pub(crate) fn absorb_earlier(&mut self, mut earlier: Self) {
        for LadderMetrics { authority, switches, .. } in std::mem::take(&mut earlier.ladders) {
            match self.ladders.iter_mut().find(|known| known.authority == authority) {
                Some(known) => known.switches += switches,
                None => self.ladders.push(LadderMetrics { authority, switches, ..LadderMetrics::default() }),
            }
        }
        self.absorb(earlier);
    }

    /// Keeps only counters, with one ladder for each authority.
    pub(crate) fn into_counters(self) -> Self {
        let mut ladders: Vec<LadderMetrics> = Vec::new();
        for LadderMetrics { authority, switches, .. } in self.ladders {
            match ladders.iter_mut().find(|known| known.authority == authority) {
                Some(known) => known.switches += switches,
                None => ladders.push(LadderMetrics { authority, switches, ..LadderMetrics::default() }),
            }
        }
        let counted = |server: ServerMetrics| ServerMetrics { streams: 0, connected: 0, ..server };
        let servers = self.servers.into_iter().map(counted).collect();
        let removals = RemovalMetrics { bytes: 0, ..self.removals };
        Self { ladders, servers, order: self.order, removals, ..Self::default() }
    }
}

impl AddAssign for TypeSize {
    fn add_assign(&mut self, other: Self) {
        self.resources += other.resources;
        self.bytes += other.bytes;
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.opened += other.opened;
        self.ended += other.ended;
        self.responses += other.responses;
        self.nacks += other.nacks;
        self.bytes += other.bytes;
    }
}

impl ServerMetrics {
    fn absorb(&mut self, other: &Self) {
        self.streams += other.streams;
        self.connected += other.connected;
        self.last_response = self.last_response.max(other.last_response);
        self.totals += other.totals;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The metrics of one view: each number is different, and is multiplied by a factor.
    fn of_view(times: usize) -> ViewMetrics {
        let counter = |number: usize| (number * times) as u64;
        let totals = Totals {
            opened: counter(1),
            ended: counter(2),
            responses: counter(3),
            nacks: counter(4),
            bytes: counter(21),
        };
        ViewMetrics {
            label: None,
            sessions: 5 * times,
            blocked: 6 * times,
            over_absent_limit: 7 * times,
            cached: 8 * times,
            by_type: [("T".into(), TypeSize { resources: 9 * times, bytes: 10 * times })].into(),
            from_disk: 11 * times,
            ladders: Vec::new(),
            servers: vec![ServerMetrics {
                server: "http://one".into(),
                streams: 12 * times,
                connected: 13 * times,
                last_response: None,
                totals,
            }],
            dangling: 14 * times,
            order: OrderMetrics { removals: counter(15), waits: counter(16), too_large: counter(17) },
            removals: RemovalMetrics {
                bytes: 18 * times,
                forgotten: Forgotten { by_age: counter(19), by_bytes: counter(20) },
            },
        }
    }

    #[test]
    fn the_metrics_of_views_that_share_series_add_up_and_of_those_that_are_gone_the_counters_stay() {
        let mut sum = of_view(1);
        sum.absorb(of_view(100));
        assert_eq!(sum, of_view(101));
        let gone = of_view(1).into_counters();
        let ViewMetrics { order, servers, removals, .. } = of_view(1);
        let servers = servers.into_iter().map(|server| ServerMetrics { streams: 0, connected: 0, ..server }).collect();
        let removals = RemovalMetrics { bytes: 0, ..removals };
        assert_eq!(gone, ViewMetrics { order, servers, removals, ..ViewMetrics::default() });
    }
}
