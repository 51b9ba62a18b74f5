//! The consequences for secrets if nodes share a key.

use std::collections::BTreeSet;

use weir_core::xds::{KeyRule, Permissions};

use crate::config::may_mix_secrets;

/// Returns a note if some of these nodes share a key that tells apart neither tenants nor credentials; otherwise an empty text.
pub fn about_secrets(rule: &KeyRule, permissions: &Permissions, text: &str) -> String {
    let Ok(nodes) = super::read(rule, text) else { return String::new() };
    let keys: BTreeSet<_> = nodes.iter().filter_map(|node| rule.key(node).ok()).collect();
    match keys.len() < nodes.len() && may_mix_secrets(rule, permissions) {
        true => NOTE.to_owned(),
        false => String::new(),
    }
}

const NOTE: &str = "
Clients of one key get the same secrets. If the control plane sends any, they need tenant or header.<name> in views.key,
or permissions of which no rule gives secrets. No rule holds back private keys in other resources, such as listeners.
";

#[cfg(test)]
mod tests {
    use weir_core::xds::KeyField;

    use super::*;

    #[test]
    fn nodes_that_share_without_a_tenant_or_a_credential_in_the_key_are_warned_of_their_secrets() {
        let (node, other) = (r#"{"id": "1", "cluster": "a"}"#, r#"{"id": "2", "cluster": "a"}"#);
        let said = |fields: &[&str], nodes: &[&str]| {
            let rule = KeyRule::of(fields.iter().map(|field| KeyField::parse(field).unwrap()).collect());
            !about_secrets(&rule, &Permissions::default(), &nodes.join("\n")).is_empty()
        };
        assert!(said(&["cluster"], &[node, other]));
        assert!(!said(&["cluster"], &[node]));
        for tells_apart in ["id", "tenant", "header.x-token"] {
            assert!(!said(&["cluster", tells_apart], &[node, node]), "{tells_apart}");
        }
    }
}
