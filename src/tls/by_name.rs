//! Which of its certificates a listener shows, by the name that a client asks for.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::files::OwnPair;

/// The certificates of a listener by their names. An exact name counts before a wildcard, and the first certificate of all is for other names.
///
/// Several certificates with different kinds of keys may have the same name: then the first that the client can verify counts.
#[derive(Debug)]
pub(super) struct ByName {
    hosts: HashMap<String, Vec<Arc<CertifiedKey>>>,
    parents: HashMap<String, Vec<Arc<CertifiedKey>>>,
    all: Vec<Arc<CertifiedKey>>,
}

impl ByName {
    pub(super) fn new(pairs: &[OwnPair]) -> Self {
        let (mut hosts, mut parents) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for own in pairs {
            for (names, by_name) in [(&own.names.hosts, &mut hosts), (&own.names.parents, &mut parents)] {
                for name in names {
                    by_name.entry(name.clone()).or_default().push(own.pair.clone());
                }
            }
        }
        Self { hosts, parents, all: pairs.iter().map(|own| own.pair.clone()).collect() }
    }

    fn choose(&self, name: Option<&str>, fits: impl Fn(&CertifiedKey) -> bool) -> Option<Arc<CertifiedKey>> {
        let first = |all: &[Arc<CertifiedKey>]| all.iter().find(|pair| fits(pair)).cloned();
        let of_name = name.and_then(|name| {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            let exact = self.hosts.get(&name).and_then(|pairs| first(pairs));
            exact.or_else(|| first(self.parents.get(name.split_once('.')?.1)?))
        });
        of_name.or_else(|| first(&self.all)).or_else(|| self.all.first().cloned())
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        self.choose(hello.server_name(), |pair| pair.key.choose_scheme(schemes).is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SignatureAlgorithm};
    use rustls::SignatureAlgorithm as Kind;

    use super::*;
    use crate::tls::certificate::{self, Validity};
    use crate::tls::server_names::ServerNames;
    use crate::tls::{OwnCertificate, pem};

    fn own(names: &[&str], kind: &'static SignatureAlgorithm) -> OwnPair {
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let key = KeyPair::generate_for(kind).unwrap();
        let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let files = OwnCertificate { certificate: "c".into(), key: "k".into() };
        let pair = pem::pair(&files, certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap();
        let names = ServerNames::of(certificate::read(&pair.cert[0]).unwrap());
        let (from, until) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH);
        OwnPair { files, pair: Arc::new(pair), validity: Validity { from, until }, names }
    }

    #[test]
    fn the_exact_name_counts_before_a_wildcard_and_the_first_certificate_is_for_all_others() {
        let pairs = [&["first.example"][..], &["*.b.example"], &["x.b.example", "Two.Example"], &["*.b.example"]]
            .map(|names| own(names, &PKCS_ECDSA_P256_SHA256));
        let by_name = ByName::new(&pairs);
        let shown = |name| {
            let chosen = by_name.choose(name, |_| true).unwrap();
            pairs.iter().position(|own| Arc::ptr_eq(&own.pair, &chosen)).unwrap()
        };
        for (name, expected) in [
            (Some("first.example"), 0),
            (Some("x.b.example"), 2),
            (Some("X.B.Example"), 2),
            (Some("two.example"), 2),
            (Some("two.example."), 2),
            (Some("y.b.example"), 1),   // the first of two
            (Some("y.x.b.example"), 0), // a wildcard stands for only one label
            (Some("b.example"), 0),
            (Some("*.b.example"), 1),
            (Some("unknown"), 0),
            (Some(""), 0),
            (Some("."), 0),
            (None, 0),
        ] {
            assert_eq!(shown(name), expected, "{name:?}");
        }
        assert_eq!(pairs[2].names.all(), ["x.b.example", "two.example"]);
        assert_eq!(pairs[1].names.all(), ["*.b.example"]);
    }

    #[test]
    fn of_several_for_one_name_the_first_counts_that_the_client_can_verify() {
        let [one, other, third] =
            [&PKCS_ED25519, &PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P256_SHA256].map(|kind| own(&["a.example"], kind));
        let by_name = ByName::new(&[one.clone(), other.clone(), third]);
        for name in [Some("a.example"), None] {
            let shown = |kind| by_name.choose(name, |pair| pair.key.algorithm() == kind).unwrap();
            assert!(Arc::ptr_eq(&shown(Kind::ECDSA), &other.pair));
            assert!(Arc::ptr_eq(&shown(Kind::ED25519), &one.pair));
            assert!(Arc::ptr_eq(&shown(Kind::RSA), &one.pair), "the handshake fails by what the client can verify");
        }
    }
}
