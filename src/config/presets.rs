//! The presets of `views`.

use std::num::NonZeroUsize;

use weir_core::xds::{IdPart, KeyField};

use super::form::{Form, as_written};
use super::raw::PresetName;

/// The content of a preset.
#[derive(Debug, Clone)]
pub(crate) struct Preset {
    name: String,
    /// The fields in place of `views.key`.
    pub(super) key: Vec<KeyField>,
    /// Whether proxies share a view although the server makes resources for one proxy. Such a view has to show the server the node of a real client
    /// (`views.node: member`).
    pub(super) member: bool,
    /// Whether the file has to configure the audit of such sharing or switch it off (`views.audit`).
    pub(super) needs_audit: bool,
    /// The versions with which the preset was tried.
    pub(super) tried: &'static str,
}

impl Preset {
    pub(super) fn of(name: PresetName) -> Self {
        let (key, tried) = match name {
            PresetName::IstioGateway => (
                istio_gateway(),
                "tried with Istiod at eed52ebb66ad of August 2026 (gateways from files, delta) and Envoy 1.40.0",
            ),
            PresetName::EnvoyGateway => {
                (fields(&["cluster"]), "tried with Envoy Gateway 1.9.1 (delta) and Envoy 1.40.0")
            }
            PresetName::GoControlPlane => (
                fields(&["cluster"]),
                "tried with go-control-plane 0.14.0 (snapshot cache by cluster in delta, linear cache in SotW) and Envoy 1.40.0",
            ),
            PresetName::JavaControlPlane => (
                fields(&["cluster"]),
                "tried with java-control-plane 1.0.49 (groups by cluster, delta and SotW) and Envoy 1.40.0",
            ),
            PresetName::IstioProxy => (
                fields(&["id", "cluster", "locality", "metadata"]),
                "tried with Istiod at eed52ebb66ad of August 2026 (gateway from files, delta and SotW) and Envoy 1.40.0",
            ),
            PresetName::Consul => (
                fields(&["id", "cluster", "metadata", "user_agent"]),
                "tried with Consul 1.21.0 (mesh without ACLs, delta) and Envoy 1.40.0",
            ),
        };
        let word = name.json().as_ref().map(as_written).unwrap_or_default();
        let shares_one_proxy = name == PresetName::IstioGateway;
        Self { name: word, key, member: shares_one_proxy, needs_audit: shares_one_proxy, tried }
    }

    /// Returns what `weir check` shows of the preset beside its key.
    pub(crate) fn words(&self) -> String {
        let node = if self.member { "; with node: member" } else { "" };
        format!("{}: {}{node}", self.name, self.tried)
    }
}

/// The default key without what identifies one pod of a deployment. In addition: the proxy's kind and domain, which are parts of its id, and the
/// tenant, since gateways are given secrets.
fn istio_gateway() -> Vec<KeyField> {
    let of_id = |number| NonZeroUsize::new(number).and_then(|number| IdPart::new(number, "~")).map(KeyField::IdPart);
    let mut key: Vec<_> = [1, 4].into_iter().filter_map(of_id).collect();
    key.extend(fields(&["cluster", "locality"]));
    let pod = ["NAME", "INSTANCE_IPS"].into_iter().filter_map(KeyField::metadata_path).collect();
    key.push(KeyField::metadata_except(pod));
    key.extend(fields(&["user_agent", "extensions", "client_features", "dynamic_parameters", "unknown", "tenant"]));
    key
}

fn fields(names: &[&str]) -> Vec<KeyField> {
    names.iter().filter_map(|name| KeyField::parse(name)).collect()
}

#[cfg(test)]
mod tests {
    use weir_core::xds::KeyRule;

    use super::*;

    #[test]
    fn each_preset_has_the_key_that_the_documents_have() {
        for (name, expected) in [
            (
                PresetName::IstioGateway,
                "id part 1 of ~, id part 4 of ~, cluster, locality, metadata except INSTANCE_IPS, NAME, user_agent, \
                 extensions, client_features, dynamic_parameters, unknown, tenant",
            ),
            (PresetName::EnvoyGateway, "cluster"),
            (PresetName::GoControlPlane, "cluster"),
            (PresetName::JavaControlPlane, "cluster"),
            (PresetName::IstioProxy, "id, cluster, locality, metadata"),
            (PresetName::Consul, "id, cluster, metadata, user_agent"),
        ] {
            let key = Preset::of(name).key;
            assert_eq!(key.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "), expected, "{name:?}");
        }
    }

    #[test]
    fn a_preset_that_shares_has_every_field_of_the_default_key() {
        let key = Preset::of(PresetName::IstioGateway).key;
        let is_in = |field: &KeyField| match field {
            KeyField::Metadata => key.iter().any(|of| matches!(of, KeyField::MetadataExcept(_))),
            field => key.contains(field),
        };
        assert!(KeyRule::default().fields().iter().all(is_in));
        assert!(key.contains(&KeyField::Tenant), "gateways have secrets");
    }
}
