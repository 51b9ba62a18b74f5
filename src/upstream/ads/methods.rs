//! The paths of the methods that are called on a server.

pub(super) const SOTW_PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
pub(super) const DELTA_PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// On a path that gateways route like discovery. No server has this method.
pub(super) const LIFE_PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/WeirIsAnyoneThere";
/// Called with an empty request, for the server as a whole. For the liveness of a stream any status counts, even one of bad health: the server is
/// there.
pub(super) const HEALTH_PATH: &str = "/grpc.health.v1.Health/Check";
