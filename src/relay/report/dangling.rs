//! Clusters that routing refers to and that do not exist, with the resources that refer to them, for operators.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use weir_core::protocol::view::Snapshot;
use weir_core::xds::Name;

/// A cluster that does not exist in a view.
#[derive(Debug, Serialize)]
pub(crate) struct Dangling {
    /// The hash of the sharing key.
    pub(crate) view: String,
    pub(crate) cluster: String,
    /// For how long it has been dangling.
    pub(crate) seconds: u64,
    /// The resources that refer to it, as `type name`: the first few, and how many there are.
    pub(crate) from: Vec<String>,
    pub(crate) from_count: usize,
}

/// The dangling clusters of a view as its task knows them. The search for what refers to them runs outside of the task.
pub(crate) struct DanglingClusters {
    pub(crate) view: String,
    pub(crate) clusters: Vec<(Name, u64)>,
    pub(crate) state: Arc<Snapshot>,
}

impl DanglingClusters {
    pub(crate) fn explained(self) -> Vec<Dangling> {
        let Self { view, clusters, state } = self;
        let row = |(cluster, seconds): &(Name, u64)| Dangling {
            view: view.clone(),
            cluster: cluster.to_string(),
            seconds: *seconds,
            from: Vec::new(),
            from_count: 0,
        };
        let mut rows: Vec<_> = clusters.iter().map(row).collect();
        let places: BTreeMap<_, _> = clusters.iter().enumerate().map(|(at, (name, _))| (name, at)).collect();
        if rows.is_empty() {
            return rows;
        }
        for (kind, resource) in state.referring() {
            for at in resource.body.clusters(kind).iter().filter_map(|cluster| places.get(cluster)) {
                let row = &mut rows[*at];
                row.from_count += 1;
                if row.from.len() < NAMED {
                    row.from.push(format!("{} {}", kind.name(), resource.name));
                }
            }
        }
        rows
    }
}

/// How many of the resources that refer to a cluster are named.
const NAMED: usize = 10;
