//! Make before break: before and after each response, the client has the clusters to which its routes refer.

use std::collections::BTreeMap;

use crate::subscription::{Name, ReceivedVersion};

/// Returns a route that refers to a missing cluster, and that cluster.
pub fn missing_cluster<'a>(
    routes: impl IntoIterator<Item = &'a BTreeMap<Name, ReceivedVersion>>,
    clusters: &BTreeMap<Name, ReceivedVersion>,
) -> Option<(&'a Name, &'a Name)> {
    let routes = routes.into_iter().flatten();
    let mut led = routes.flat_map(|(route, held)| held.refers_to.iter().map(move |cluster| (route, cluster)));
    led.find(|(_, cluster)| !clusters.contains_key(*cluster))
}
