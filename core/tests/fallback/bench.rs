//! Benches with several servers, and what these say.

use std::sync::Arc;

use weir_core::proto::Response;
use weir_core::proto::discovery::{DeltaDiscoveryResponse, DiscoveryResponse};
use weir_core::protocol::ladder::{LadderState, Rule};
use weir_core::protocol::session::Variant;
use weir_core::protocol::sources::{AuthorityPlan, Plan, ServerPlan};

pub use super::support::streams::{ONE, TWO};
pub use super::support::{Bench, Extent, Set};
use super::support::{EDS, wrapper};

pub fn plan(servers: usize, variant: Variant, rule: Rule) -> Plan {
    let server = || ServerPlan::Streams { variant, quirks: Arc::default() };
    Plan {
        servers: (0..servers).map(|_| server()).collect(),
        top: AuthorityPlan { servers: (0..servers).collect(), rule },
        ..Plan::single(variant, Default::default())
    }
}

pub fn delta(url: &str, resources: &[(&str, &str)], removed: &[&str]) -> Response {
    let resources = resources.iter().map(|(name, content)| {
        let mut resource = wrapper(url, name, content);
        resource.version = "1".into();
        resource
    });
    Response::Delta(DeltaDiscoveryResponse {
        resources: resources.collect(),
        removed_resources: removed.iter().map(ToString::to_string).collect(),
        type_url: url.into(),
        nonce: "n".into(),
        ..Default::default()
    })
}

pub fn sotw(url: &str, version: &str, resources: &[(&str, &str)]) -> Response {
    let resources = resources.iter().filter_map(|(name, content)| wrapper(url, name, content).resource);
    let (version_info, type_url, nonce) = (version.to_owned(), url.to_owned(), "n".to_owned());
    Response::Sotw(DiscoveryResponse {
        resources: resources.collect(),
        version_info,
        type_url,
        nonce,
        ..Default::default()
    })
}

/// Returns two servers, the first of which has sent `a` of endpoints.
pub fn served(rule: Rule) -> Bench {
    let mut bench = Bench::with_servers(plan(2, Variant::Delta, rule));
    bench.want(EDS, "a", true);
    assert_eq!(bench.open(0), ["+[a] -[] {}"]);
    bench.say(0, delta(EDS, &[("a", "1")], &[]));
    assert_eq!(bench.standing(), LadderState::Active(0));
    bench
}
