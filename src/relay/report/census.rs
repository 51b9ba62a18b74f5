//! All clients in one summary: how many are in which state, by type and by view, and which have been behind for longest.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Add;

use serde::Serialize;
use weir_core::protocol::moment::Moment;
use weir_core::xds::Type;

use super::SyncState;

#[derive(Debug)]
pub(crate) struct Census {
    pub(crate) clients: usize,
    /// By the hash of the sharing key.
    pub(crate) views: BTreeMap<String, StateCounts>,
    pub(crate) types: BTreeMap<Type, Spread>,
    /// Clients that lack something, by how long: up to each of [`LAGS`], and more.
    pub(crate) lags: [usize; LAGS.len() + 1],
    /// The sessions that have been behind for longest, by milliseconds; the shortest on top.
    behind: BinaryHeap<Reverse<(u64, u64)>>,
    /// How many of these sessions are kept.
    limit: usize,
}

/// Clients by the worst state of their types.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) struct StateCounts {
    pub(crate) synced: usize,
    pub(crate) not_sent: usize,
    pub(crate) stale: usize,
    pub(crate) nacked: usize,
}

/// How far the newest state of a type has spread.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    /// Clients that subscribe to the type.
    pub(crate) clients: usize,
    /// Clients that were sent the newest state.
    pub(crate) sent: usize,
    /// Clients that acknowledged the newest state.
    pub(crate) acked: usize,
    pub(crate) nacked: usize,
    /// For how long the clients that have not acknowledged it have lacked something, at most.
    pub(crate) behind_seconds: Option<f64>,
}

/// One type of one client.
#[derive(Debug)]
pub(crate) struct TypeGlance<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) state: SyncState,
    pub(crate) has_unsent: bool,
    pub(crate) behind_since: Option<Moment>,
}

impl Census {
    /// Returns an empty census that keeps so many of the sessions that are behind.
    pub(crate) fn with_laggards(limit: usize) -> Self {
        let (views, types, lags, behind) = Default::default();
        Self { clients: 0, views, types, lags, behind, limit }
    }

    /// Counts one client.
    pub(crate) fn add<'a>(
        &mut self,
        session: u64,
        view: &str,
        types: impl Iterator<Item = TypeGlance<'a>>,
        now: Moment,
    ) {
        let (mut worst, mut longest) = (SyncState::Synced, None::<f64>);
        for TypeGlance { kind, state, has_unsent, behind_since } in types {
            let behind = behind_since.map(|since| (now - since).as_secs_f64());
            worst = worst.max(state);
            longest = longest.into_iter().chain(behind).reduce(f64::max);
            let spread = match self.types.get_mut(kind) {
                Some(spread) => spread,
                None => self.types.entry(kind.clone()).or_default(),
            };
            spread.add(state, has_unsent, behind);
        }
        self.clients += 1;
        let of_view = match self.views.get_mut(view) {
            Some(of_view) => of_view,
            None => self.views.entry(view.to_owned()).or_default(),
        };
        *of_view.of(worst) += 1;
        if let Some(seconds) = longest {
            self.lags[LAGS.iter().take_while(|limit| seconds > **limit).count()] += 1;
            self.behind.push(Reverse(((seconds * 1000.0) as u64, session)));
            if self.behind.len() > self.limit {
                self.behind.pop();
            }
        }
    }

    /// Returns the sessions that have been behind for longest, the longest first.
    pub(crate) fn laggards(&self) -> Vec<u64> {
        let mut all: Vec<_> = self.behind.iter().map(|Reverse(entry)| *entry).collect();
        all.sort_unstable_by(|one, other| other.cmp(one));
        all.into_iter().map(|(_, session)| session).collect()
    }
}

impl Spread {
    fn add(&mut self, state: SyncState, has_unsent: bool, behind: Option<f64>) {
        self.clients += 1;
        let is_unsent = matches!(state, SyncState::NotSent | SyncState::NotAsked | SyncState::Refused);
        self.sent += usize::from(!has_unsent && !is_unsent);
        self.acked += usize::from(state == SyncState::Synced);
        self.nacked += usize::from(state == SyncState::Nacked);
        self.behind_seconds = self.behind_seconds.into_iter().chain(behind).reduce(f64::max);
    }
}

impl Add for StateCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            synced: self.synced + other.synced,
            not_sent: self.not_sent + other.not_sent,
            stale: self.stale + other.stale,
            nacked: self.nacked + other.nacked,
        }
    }
}

impl StateCounts {
    fn of(&mut self, state: SyncState) -> &mut usize {
        match state {
            SyncState::Synced => &mut self.synced,
            SyncState::NotSent | SyncState::NotAsked | SyncState::Refused => &mut self.not_sent,
            SyncState::Stale => &mut self.stale,
            SyncState::Nacked => &mut self.nacked,
        }
    }
}

/// The upper bounds of the lags, in seconds.
pub(crate) const LAGS: [f64; 4] = [0.1, 1.0, 10.0, 60.0];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_core::xds::{TypeTable, type_by_word};

    use super::*;

    #[test]
    fn clients_are_counted_by_view_type_and_lag_and_the_slowest_are_kept() {
        let table = TypeTable::default();
        let [clusters, routes] = ["clusters", "routes"].map(|word| type_by_word(&table, word).unwrap());
        let now = Moment::START + Duration::from_secs(100);
        let mut census = Census::with_laggards(2);
        let glance = |kind, state, has_unsent, behind: Option<u64>| TypeGlance {
            kind,
            state,
            has_unsent,
            behind_since: behind.map(|millis| Moment::START + Duration::from_millis(100_000 - millis)),
        };
        census.add(1, "one", [glance(&clusters, SyncState::Synced, false, None)].into_iter(), now);
        let late = [
            glance(&clusters, SyncState::Stale, true, Some(500)),
            glance(&routes, SyncState::Nacked, false, Some(20_000)),
        ];
        census.add(2, "one", late.into_iter(), now);
        census.add(3, "two", [glance(&clusters, SyncState::Stale, false, Some(70_000))].into_iter(), now);
        census.add(4, "two", [glance(&clusters, SyncState::NotSent, true, Some(50))].into_iter(), now);

        assert_eq!(census.clients, 4);
        let one = StateCounts { synced: 1, nacked: 1, ..StateCounts::default() };
        let two = StateCounts { stale: 1, not_sent: 1, ..StateCounts::default() };
        assert_eq!(census.views, BTreeMap::from([("one".into(), one), ("two".into(), two)]));
        let of_clusters = Spread { clients: 4, sent: 2, acked: 1, nacked: 0, behind_seconds: Some(70.0) };
        let of_routes = Spread { clients: 1, sent: 1, acked: 0, nacked: 1, behind_seconds: Some(20.0) };
        assert_eq!(census.types, BTreeMap::from([(clusters, of_clusters), (routes, of_routes)]));
        assert_eq!(census.lags, [1, 0, 0, 1, 1]);
        assert_eq!(census.laggards(), [3, 2], "of three that are behind, and the longest first");
    }
}
