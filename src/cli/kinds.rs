//! What people call the types: in short, in the plural, or in full.

use crate::xds::{Type, TypeTable};

/// A type by one of its words, its message name, or its URL.
pub(super) fn kind_of(table: &TypeTable, text: &str) -> Result<Type, String> {
    let lower = text.to_lowercase();
    if let Some((_, name)) = WORDS.iter().find(|(words, _)| words.contains(&lower.as_str())) {
        return Ok(table.resolve(name));
    }
    if text.contains('.') {
        return Ok(table.resolve(text));
    }
    let words: Vec<_> = WORDS.iter().map(|(words, _)| words[..2].join(" or ")).collect();
    Err(format!("{text:?} is no type; there are {}, and full type URLs", words.join(", ")))
}

/// The first two are shown to people.
#[rustfmt::skip]
const WORDS: &[(&[&str], &str)] = &[
    (&["lds", "listeners", "listener"], "envoy.config.listener.v3.Listener"),
    (&["rds", "routes", "route"], "envoy.config.route.v3.RouteConfiguration"),
    (&["srds", "scoped-routes", "scoped-route"], "envoy.config.route.v3.ScopedRouteConfiguration"),
    (&["vhds", "virtual-hosts", "virtual-host"], "envoy.config.route.v3.VirtualHost"),
    (&["cds", "clusters", "cluster"], "envoy.config.cluster.v3.Cluster"),
    (&["eds", "endpoints", "endpoint"], "envoy.config.endpoint.v3.ClusterLoadAssignment"),
    (&["leds", "lb-endpoints", "lb-endpoint"], "envoy.config.endpoint.v3.LbEndpoint"),
    (&["sds", "secrets", "secret"], "envoy.extensions.transport_sockets.tls.v3.Secret"),
    (&["rtds", "runtimes", "runtime"], "envoy.service.runtime.v3.Runtime"),
    (&["ecds", "extensions", "extension"], "envoy.config.core.v3.TypedExtensionConfig"),
    (&["fcds", "filter-chains", "filter-chain"], "envoy.config.listener.v3.FilterChain"),
    (&["rls", "rate-limits", "rate-limit"], "ratelimit.config.ratelimit.v3.RateLimitConfig"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_word_means_one_type_that_the_table_knows() {
        let table = TypeTable::new();
        let mut seen = BTreeSet::new();
        for (words, name) in WORDS {
            assert!(table.knows(name), "{name}");
            for word in *words {
                assert!(seen.insert(word), "{word} twice");
                assert_eq!(kind_of(&table, &word.to_uppercase()).unwrap().name(), *name);
            }
        }
    }

    #[test]
    fn a_type_in_full_needs_no_word_and_a_word_that_is_none_is_told_which_there_are() {
        let table = TypeTable::new();
        for text in ["type.googleapis.com/my.Own", "my.Own"] {
            assert_eq!(kind_of(&table, text).unwrap().name(), "my.Own");
        }
        let told = kind_of(&table, "pods").unwrap_err();
        assert!(told.contains("\"pods\" is no type") && told.contains("lds or listeners"), "{told}");
    }
}
