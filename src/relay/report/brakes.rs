//! What brakes hold, as reported, and what an operator releases.

use std::collections::BTreeMap;

use serde::Serialize;

use weir_core::protocol::moment::Moment;
use weir_core::protocol::view::{NotReleased, View};
use weir_core::xds::Type;

/// Everything that brakes hold.
#[derive(Debug, Default, Serialize)]
pub(crate) struct BrakesReport {
    /// Summed over views, since one push concerns many of them.
    pub(crate) servers: Vec<ServerBrakes>,
    /// The first sets, and how many there are.
    pub(crate) sets: Vec<SetBrakeReport>,
    pub(crate) sets_count: usize,
}

/// What brakes hold of the removals of one server.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ServerBrakes {
    pub(crate) server: String,
    pub(crate) views: usize,
    pub(crate) held: usize,
    /// The generation that a release of all of it has to name.
    pub(crate) generation: u64,
}

/// The brake of one set of one view.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SetBrakeReport {
    pub(crate) view: String,
    #[serde(rename = "type")]
    pub(crate) type_name: String,
    /// `*`, or the glob of a collection.
    pub(crate) set: String,
    pub(crate) servers: Vec<String>,
    /// For how long it has held anything.
    pub(crate) seconds: u64,
    pub(crate) generation: u64,
    pub(crate) held: usize,
    /// The size of the set at the start of the window.
    pub(crate) of: usize,
    /// Additions and changes that wait with the removals.
    pub(crate) changes: usize,
    pub(crate) reason: &'static str,
    /// In how many seconds the first held removal is released, and the last. Missing while the server has not stated its set again.
    pub(crate) first_release_seconds: Option<u64>,
    pub(crate) last_release_seconds: Option<u64>,
    /// The first names.
    pub(crate) names: Vec<String>,
}

impl BrakesReport {
    pub(crate) fn of(mut sets: Vec<SetBrakeReport>) -> Self {
        let mut servers: BTreeMap<String, ServerBrakes> = BTreeMap::new();
        let mut views: BTreeMap<String, std::collections::BTreeSet<&str>> = BTreeMap::new();
        for set in &sets {
            for server in &set.servers {
                let sum = servers.entry(server.clone()).or_default();
                sum.server.clone_from(server);
                sum.held += set.held;
                sum.generation = sum.generation.max(set.generation);
                views.entry(server.clone()).or_default().insert(&set.view);
            }
        }
        for (server, views) in views {
            servers.entry(server).or_default().views = views.len();
        }
        let (servers, sets_count) = (servers.into_values().collect(), sets.len());
        sets.truncate(MAX_SETS);
        Self { servers, sets, sets_count }
    }
}

/// Which held changes an operator releases.
#[derive(Debug, Clone)]
pub(crate) struct ReleaseQuery {
    /// One view, or all.
    pub(crate) view: Option<String>,
    pub(crate) kind: Option<Type>,
    /// Only removals by this server; `None`: by any.
    pub(crate) server: Option<String>,
    /// Only what was held up to this generation.
    pub(crate) generation: u64,
}

impl ReleaseQuery {
    /// Releases what is meant in one view. Servers are known by their names, in the order of the plan.
    pub(crate) fn release(
        &self,
        view_id: &str,
        view: &mut View,
        mut servers: impl Iterator<Item = String>,
        now: Moment,
    ) -> Released {
        if self.view.as_ref().is_some_and(|meant| meant != view_id) {
            return Released::default();
        }
        let server = match &self.server {
            None => None,
            Some(name) => match servers.position(|server| server == *name) {
                Some(at) => Some(u16::try_from(at).unwrap_or(u16::MAX)),
                None => return Released::default(),
            },
        };
        let is_meant = |kind: &Type| self.kind.as_ref().is_none_or(|meant| meant == kind);
        let sets = view.holds().brakes(0).into_iter().filter(|brake| is_meant(&brake.kind));
        let sets: Vec<_> = sets.map(|brake| (brake.kind, brake.of)).collect();
        let mut released = Released::default();
        for (kind, of) in sets {
            match view.release_brakes(Some((&kind, &of)), server, self.generation, now) {
                Ok(count) => released.removals += count,
                Err(NotReleased::Later) => released.later = 1,
                Err(NotReleased::NothingHeld) => {}
            }
        }
        released.views = usize::from(released.removals > 0);
        released
    }
}

/// The result of a release.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Released {
    pub(crate) removals: usize,
    pub(crate) views: usize,
    /// Views in which all matching changes were held after the generation of the release.
    pub(crate) later: usize,
}

/// How many sets are shown.
const MAX_SETS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn set(view: &str, servers: &[&str], held: usize, generation: u64) -> SetBrakeReport {
        SetBrakeReport {
            view: view.into(),
            type_name: "a.B".into(),
            set: "*".into(),
            servers: servers.iter().map(ToString::to_string).collect(),
            seconds: 1,
            generation,
            held,
            of: 100,
            changes: 0,
            reason: "too much of the set would go",
            first_release_seconds: None,
            last_release_seconds: None,
            names: Vec::new(),
        }
    }

    #[test]
    fn what_is_held_is_summed_by_server_over_views_that_count_once_with_the_latest_generation() {
        let mut sets = vec![set("v1", &["one"], 5, 9), set("v1", &["one"], 7, 3), set("v2", &["one", "two"], 2, 4)];
        let report = BrakesReport::of(sets.clone());
        let sums: Vec<_> =
            report.servers.iter().map(|of| (of.server.as_str(), of.views, of.held, of.generation)).collect();
        assert_eq!(sums, [("one", 2, 14, 9), ("two", 1, 2, 4)]);
        assert_eq!((report.sets.len(), report.sets_count), (3, 3));
        sets = vec![sets.remove(0); MAX_SETS + 1];
        let report = BrakesReport::of(sets);
        assert_eq!((report.sets.len(), report.sets_count, report.servers[0].held), (1000, 1001, 5005));
    }
}
