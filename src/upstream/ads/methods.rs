//! The paths of the methods that are called on a server.

pub(super) const SOTW_PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
pub(super) const DELTA_PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// On a path that gateways route as they route discovery. No server has it.
pub(super) const LIFE_PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/WeirIsAnyoneThere";
/// With a request for the whole server, which is empty. What it says of its health counts no more for a stream than any other status: it is there.
pub(super) const HEALTH_PATH: &str = "/grpc.health.v1.Health/Check";
