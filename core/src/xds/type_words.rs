//! The short names of types.

use super::nearest::nearest;
use super::types::{Type, TypeTable};

/// The word names no type. The message suggests one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown type {text:?}: {hint}")]
pub struct UnknownType {
    text: String,
    hint: String,
}

/// Returns a type by a short name, its message name, or its URL. A URL, or a name with a dot, that is not in the table is a type of the
/// user's own, unless it looks misspelt.
pub fn type_by_word(table: &TypeTable, text: &str) -> Result<Type, UnknownType> {
    let lower = text.to_lowercase();
    if let Some((_, name)) = WORDS.iter().find(|(words, _)| words.contains(&lower.as_str())) {
        return Ok(table.resolve(name));
    }
    let own = text.rsplit_once('/').map_or(text, |(_, name)| name);
    if own.contains('.') || own.len() < text.len() {
        let near = if table.knows(own) { None } else { nearest(own, table.names(), 3) };
        return match near {
            None => Ok(table.resolve(text)),
            Some(known) => Err(UnknownType { text: text.to_owned(), hint: format!("did you mean {known}?") }),
        };
    }
    let words = WORDS.iter().flat_map(|(words, _)| words.iter().copied());
    let hint = match nearest(&lower, words, lower.len() / 3) {
        Some(word) => format!("did you mean {word}?"),
        None => {
            let known: Vec<_> = WORDS.iter().map(|(words, _)| words[..2].join(" or ")).collect();
            format!("expected {}, or a full type URL", known.join(", "))
        }
    };
    Err(UnknownType { text: text.to_owned(), hint })
}

/// Returns the usual short name of a type, such as CDS, or the last part of its message name.
pub fn short_type_name(name: &str) -> String {
    match WORDS.iter().find(|(_, known)| *known == name) {
        Some((words, _)) => words[0].to_uppercase(),
        None => name.rsplit('.').next().unwrap_or_default().to_owned(),
    }
}

/// The words of each type, of which the first two are printed, and its message name.
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
    (&["nds", "name-tables", "name-table"], "istio.networking.nds.v1.NameTable"),
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
                assert_eq!(type_by_word(&table, &word.to_uppercase()).unwrap().name(), *name);
            }
        }
    }

    #[test]
    fn a_type_in_full_needs_no_word_and_of_an_unknown_word_the_nearest_is_named() {
        let table = TypeTable::new();
        for text in [
            "type.googleapis.com/my.Own",
            "my.Own",
            "istio.io/debug",
            "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        ] {
            assert!(type_by_word(&table, text).is_ok(), "{text}");
        }
        let error = |text| type_by_word(&table, text).unwrap_err().to_string();
        assert!(error("pods").contains("expected lds or listeners"), "{}", error("pods"));
        assert_eq!(error("clutsers"), "unknown type \"clutsers\": did you mean clusters?");
        assert_eq!(
            error("envoy.config.cluster.v3.Clustr"),
            "unknown type \"envoy.config.cluster.v3.Clustr\": did you mean envoy.config.cluster.v3.Cluster?"
        );
    }
}
