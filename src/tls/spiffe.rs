//! SPIFFE ids: which URIs are SPIFFE ids, and which trust domain they belong to.

/// A valid id of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpiffeId<'a> {
    pub(super) domain: &'a str,
}

/// Whether a URI claims to be a SPIFFE id. An invalid id does so too, and must never count as another kind of name.
pub(super) fn claims_to_be_one(uri: &str) -> bool {
    uri.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
}

impl<'a> SpiffeId<'a> {
    /// Parses an id by the rules of the SPIFFE-ID standard. A workload's id has a path.
    pub(super) fn parse(uri: &'a str) -> Option<Self> {
        let rest = uri.strip_prefix(SCHEME)?.strip_prefix("//").filter(|_| uri.len() <= LONGEST)?;
        let (domain, path) = rest.split_once('/')?;
        let segments_are_valid = path.split('/').all(|segment| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            !matches!(segment, "" | "." | "..") && segment.bytes().all(plain)
        });
        (is_trust_domain(domain) && segments_are_valid).then_some(Self { domain })
    }
}

/// Whether a text may be the name of a trust domain.
pub(crate) fn is_trust_domain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.');
    (1..=LONGEST_DOMAIN).contains(&name.len()) && name.bytes().all(plain)
}

const SCHEME: &str = "spiffe:";
const LONGEST: usize = 2048;
const LONGEST_DOMAIN: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_workloads_have_a_domain_and_a_path_of_plain_segments() {
        for (id, domain) in [
            ("spiffe://prod.example/ns/pay", "prod.example"),
            ("spiffe://a/b", "a"),
            ("spiffe://a_b-1.c/A.z_-/...", "a_b-1.c"),
        ] {
            assert_eq!(SpiffeId::parse(id), Some(SpiffeId { domain }), "{id}");
        }
        let long = format!("spiffe://a/{}", "x".repeat(2048));
        let long_domain = format!("spiffe://{}/x", "x".repeat(256));
        for not in [
            "spiffe://prod.example",
            "spiffe://prod.example/",
            "spiffe://prod.example/a/",
            "spiffe://prod.example//a",
            "spiffe://prod.example/./a",
            "spiffe://prod.example/a/..",
            "spiffe://prod.example/a%2fb",
            "spiffe://prod.example/a?b",
            "spiffe://prod.example/a#b",
            "spiffe://prod.example/ä",
            "spiffe://prod.example:80/a",
            "spiffe://user@prod.example/a",
            "spiffe://Prod.example/a",
            "SPIFFE://prod.example/a",
            "spiffe:///a",
            "spiffe:/prod.example/a",
            "https://prod.example/a",
            &long,
            &long_domain,
        ] {
            assert_eq!(SpiffeId::parse(not), None, "{not}");
        }
        assert!(SpiffeId::parse(&long[..2048]).is_some());
    }

    #[test]
    fn whatever_looks_like_an_id_claims_to_be_one() {
        for uri in ["spiffe://a/b", "SPIFFE://a/b", "spiffe:a", "Spiffe:"] {
            assert!(claims_to_be_one(uri), "{uri}");
        }
        assert!(!["https://spiffe://a", "", "spiffé:", "spiff"].iter().any(|uri| claims_to_be_one(uri)));
    }
}
