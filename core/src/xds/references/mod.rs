//! The names of other resources in a resource, found by a bounded scan of its encoded body.

mod clusters;
mod endpoints;

pub(crate) use clusters::{ClusterReferences, cluster_references, may_refer};
pub(crate) use endpoints::has_usable_host;

use super::name::Name;
use super::type_info::References;
use super::wire;

/// Returns the resource that `body` makes a client request next, if its type has such references.
pub(crate) fn referred(references: References, own_name: &str, body: &[u8]) -> Option<Name> {
    match references {
        References::None => None,
        References::ClusterEndpoints => endpoints_of_cluster(own_name, body),
        References::VirtualHosts => wire::last_bytes(body, ROUTES_VHDS).map(|_| own_name.into()),
    }
}

/// Returns the EDS name of a cluster whose endpoints come over the same stream (NAME-28, NAME-29). If a cluster has another source for its
/// endpoints, Weir does not warm it.
fn endpoints_of_cluster(own_name: &str, body: &[u8]) -> Option<Name> {
    let eds = wire::last_bytes(body, CLUSTER_EDS_CONFIG)?;
    let source = wire::last_bytes(eds, EDS_CONFIG_SOURCE)?;
    let same_stream = [CONFIG_SOURCE_ADS, CONFIG_SOURCE_SELF];
    if !same_stream.iter().any(|field| wire::last_bytes(source, *field).is_some()) {
        return None;
    }
    Some(wire::last_text(eds, EDS_SERVICE_NAME).unwrap_or(own_name).into())
}

const CLUSTER_EDS_CONFIG: u32 = 3;
const EDS_CONFIG_SOURCE: u32 = 1;
const EDS_SERVICE_NAME: u32 = 2;
const CONFIG_SOURCE_ADS: u32 = 3;
const CONFIG_SOURCE_SELF: u32 = 5;
const ROUTES_VHDS: u32 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(source: &[u8], service: &str) -> Vec<u8> {
        let mut eds = vec![0x0a, source.len() as u8];
        eds.extend(source);
        if !service.is_empty() {
            eds.extend([0x12, service.len() as u8]);
            eds.extend(service.bytes());
        }
        let mut body = vec![0x0a, 1, b'c', 0x1a, eds.len() as u8];
        body.extend(eds);
        body
    }

    #[test]
    fn name_28_the_service_name_wins_over_the_cluster_name() {
        let ads = [0x1a, 0];
        let found = |body: &[u8]| referred(References::ClusterEndpoints, "c", body);
        assert_eq!(found(&cluster(&ads, "svc")), Some("svc".into()));
        assert_eq!(found(&cluster(&ads, "")), Some("c".into()));
    }

    #[test]
    fn endpoints_from_another_source_are_not_ours_to_warm() {
        let path = [0x0a, 2, b'/', b'x'];
        assert_eq!(referred(References::ClusterEndpoints, "c", &cluster(&path, "svc")), None);
        assert_eq!(referred(References::ClusterEndpoints, "c", &[0x0a, 1, b'c']), None);
    }
}
