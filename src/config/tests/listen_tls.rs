//! TLS towards clients, as the file configures it and as `weir check` finds its files.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod, KeyPair,
    SerialNumber,
};

use crate::config::load::review;
use crate::tls::{ClientAuth, ListenTls};

/// Returns the faults and the warnings of one listener, without file, line and column.
fn found(path: &Path, address: &str, tls: &str, opens_files: bool) -> (Vec<String>, Vec<String>) {
    let text = format!("listen: [{{address: '{address}'{tls}}}]\nupstream: {{servers: [{{uri: 'http://cp:1'}}]}}\n");
    let review = review(path, &text, &|_| None, opens_files);
    let bare = |all: &[crate::config::Diagnostic]| {
        all.iter().map(|one| format!("{}: {}", one.at, one.reason)).collect::<Vec<_>>()
    };
    let mut warnings = bare(&review.warnings);
    warnings.retain(|warning| !warning.contains("permissions say who may have what")); // there are none here
    (bare(&review.faults), warnings)
}

fn of_text(tls: &str) -> Vec<String> {
    let tls = format!(", tls: {{certificate: c.pem, key: k.pem{tls}}}");
    found(Path::new("relay.yaml"), "127.0.0.1:1", &tls, false).0
}

fn parsed(tls: &str) -> ListenTls {
    let text = format!(
        "listen: [{{address: ':1', tls: {{certificate: c.pem, key: k.pem{tls}}}}}]\n\
         upstream: {{servers: [{{uri: 'http://cp:1'}}]}}\n"
    );
    let review = review(Path::new("etc/relay.yaml"), &text, &|_| None, false);
    let config = review.config.unwrap_or_else(|| panic!("{:?}", review.faults));
    config.listen[0].tls.clone().unwrap()
}

#[test]
fn clients_must_show_a_certificate_where_there_is_something_to_judge_it_by() {
    assert_eq!(parsed("").client_auth, ClientAuth::None);
    let required = parsed(", client_ca: ca.pem");
    assert!(
        matches!(&required.client_auth, ClientAuth::Required(trust) if trust.client_ca == Some("etc/ca.pem".into()))
    );
    let optional =
        parsed(", client_auth: optional, trust_domains: [{name: a.b, bundle: b.pem}], crl: c.crl").client_auth;
    let ClientAuth::Optional(trust) = optional else { panic!("{optional:?}") };
    assert_eq!((&*trust.domains[0].name, &trust.domains[0].bundle), ("a.b", &PathBuf::from("etc/b.pem")));
    assert_eq!((trust.client_ca, trust.crl), (None, Some("etc/c.crl".into())));
}

#[test]
fn keys_that_contradict_each_other_or_have_no_effect_are_faults() {
    let (none, missing) = ("has no effect: client_auth is none", "missing client_ca or trust_domains");
    for (tls, place, reason) in [
        (", client_auth: required", "client_auth", missing),
        (", client_auth: optional, crl: c.crl", "client_auth", missing),
        (", client_auth: none, client_ca: ca.pem", "client_ca", none),
        (", client_auth: none, trust_domains: [{name: a, bundle: b}]", "trust_domains", none),
        (", client_auth: none, crl: c.crl", "crl", none),
        (", crl: c.crl", "crl", "has no effect without client_ca or trust_domains"),
        (", trust_domains: []", "trust_domains", "empty list"),
        (", trust_domains: '${WEIR_IS_NOT_SET}'", "trust_domains", "undefined environment variable"),
        (", trust_domains: [{name: a}]", "trust_domains[0]", "missing key \"bundle\""),
        (", trust_domains: [{name: A.b, bundle: b}]", "trust_domains[0].name", "invalid trust domain \"A.b\""),
        (", trust_domains: [{name: 'spiffe://a', bundle: b}]", "trust_domains[0].name", "invalid trust domain"),
        (
            ", trust_domains: [{name: a, bundle: b}, {name: a, bundle: c}]",
            "trust_domains[1].name",
            "duplicate trust domain a",
        ),
    ] {
        let faults = of_text(tls);
        let start = format!("listen[0].tls.{place}: {reason}");
        assert!(faults.len() == 1 && faults[0].starts_with(&start), "{tls}: {faults:?}");
    }
}

fn shown_by(tls: &str) -> Vec<String> {
    found(Path::new("relay.yaml"), "127.0.0.1:1", &format!(", tls: {{{tls}}}"), false).0
}

#[test]
fn there_is_one_certificate_or_a_list_of_them_and_each_once() {
    let several = "certificates: [{certificate: a.pem, key: a.key}, {certificate: b.pem, key: b.key}]";
    assert_eq!(shown_by(several), [""; 0]);
    let parsed = {
        let text = format!(
            "listen: [{{address: ':1', tls: {{{several}}}}}]\nupstream: {{servers: [{{uri: 'http://cp:1'}}]}}\n"
        );
        let review = review(Path::new("etc/relay.yaml"), &text, &|_| None, false);
        review.config.unwrap().listen[0].tls.clone().unwrap().own
    };
    let paths: Vec<_> = parsed.iter().map(|own| [&own.certificate, &own.key]).collect();
    assert_eq!(paths, [["etc/a.pem", "etc/a.key"], ["etc/b.pem", "etc/b.key"]].map(|pair| pair.map(Path::new)));
    for (tls, fault) in [
        ("client_auth: none", "tls: missing certificate and key: expected both of them, or certificates"),
        ("certificate: a.pem", "tls.certificate: missing key: certificate and key go together"),
        ("key: a.key", "tls.key: missing certificate: certificate and key go together"),
        ("certificates: []", "tls.certificates: empty list: expected at least one item"),
        ("certificates: [{certificate: a.pem}]", "tls.certificates[0]: missing key \"key\""),
        (
            "certificate: a.pem, key: a.key, certificates: [{certificate: b.pem, key: b.key}]",
            "tls.certificates: certificate and key are there too",
        ),
        (
            "certificates: [{certificate: a.pem, key: a.key}, {certificate: a.pem, key: b.key}]",
            "tls.certificates[1].certificate: duplicate certificate a.pem: expected each of them once",
        ),
    ] {
        let faults = shown_by(tls);
        assert!(faults.len() == 1 && faults[0].starts_with(&format!("listen[0].{fault}")), "{tls}: {faults:?}");
    }
}

#[test]
fn an_address_that_others_can_reach_without_tls_is_a_warning() {
    let warnings = |address: &str, tls: &str| found(Path::new("relay.yaml"), address, tls, false).1;
    for address in [":1", "0.0.0.0:1", "10.0.0.1:1"] {
        let warned = warnings(address, "");
        assert!(warned.len() == 1 && warned[0].starts_with("listen[0].address: no TLS: "), "{address}: {warned:?}");
        assert_eq!(warnings(address, ", tls: {certificate: c, key: k}"), [""; 0]);
    }
    assert_eq!(warnings("127.0.0.1:1", ""), [""; 0]);
    assert_eq!(warnings("[::1]:1", ""), [""; 0]);
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

const DAY: Duration = Duration::from_secs(24 * 3600);

#[test]
fn weir_check_looks_at_the_files_and_warns_of_their_end() {
    let folder = Folder(std::env::temp_dir().join(format!("weir-listen-tls-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.0.join(name), text).unwrap();
    let path = folder.0.join("relay.yaml");
    let checked = || {
        let tls = ", tls: {certificate: c.pem, key: k.pem, client_ca: ca.pem, crl: ca.crl, \
                   trust_domains: [{name: a, bundle: b.pem}]}";
        found(&path, "127.0.0.1:1", tls, true)
    };
    assert_eq!(checked().0.len(), 5, "{:?}", checked().0);

    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = |from: Duration, until: Duration| {
        let mut params = CertificateParams::new(["a".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (epoch + from, epoch + until);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.self_signed(&key).unwrap().pem(), params)
    };
    let (good, params) = certificate(today - DAY, today + 100 * DAY);
    let issuer = Issuer::new(params, &key);
    let list = |until| {
        let list = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2020, 1, 1),
            next_update: rcgen::date_time_ymd(until, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&issuer).unwrap().pem().unwrap()
    };
    ["c.pem", "ca.pem", "b.pem"].iter().for_each(|name| write(name, &good));
    write("k.pem", &key.serialize_pem());
    write("ca.crl", &list(2100));
    assert_eq!(checked(), (Vec::new(), Vec::new()));

    let one = |found: &[String], part: &str| {
        assert!(found.len() == 1 && found[0].contains(part), "{part}: {found:?}");
    };
    write("ca.crl", &list(2021));
    one(&checked().0, "have expired at 2021-01-01T00:00:00Z");
    write("ca.crl", &(list(2100) + &list(2100)));
    one(&checked().0, "are of one issuer");
    write("ca.crl", &list(2100));
    write("k.pem", &KeyPair::generate().unwrap().serialize_pem());
    one(&checked().0, "does not belong to the certificate");
    write("k.pem", &key.serialize_pem());
    write("b.pem", "none");
    one(&checked().0, "listen[0].tls.trust_domains[0].bundle: ");
    write("b.pem", &good);
    // Each of several certificates is checked.
    let several = |text: &str| found(&path, "127.0.0.1:1", &format!(", tls: {{certificates: [{text}]}}"), true);
    let nameless = {
        let mut params = CertificateParams::new([]).unwrap();
        params.not_after = epoch + today + 100 * DAY;
        params.self_signed(&key).unwrap().pem()
    };
    write("nameless.pem", &nameless);
    let (faults, warnings) = several("{certificate: c.pem, key: k.pem}, {certificate: nameless.pem, key: k.pem}");
    assert_eq!(faults, [""; 0]);
    one(&warnings, "nameless.pem has no DNS name");
    assert_eq!(several("{certificate: nameless.pem, key: k.pem}, {certificate: c.pem, key: k.pem}").1, [""; 0]);
    let (faults, _) = several("{certificate: c.pem, key: none.key}, {certificate: none.pem, key: k.pem}");
    assert!(faults.len() == 2 && faults[0].contains("[0].key") && faults[1].contains("[1].certificate"), "{faults:?}");
    // Of a long lifetime the last thirty days count as the end, of a short one the last third.
    for (from, until, warned) in [
        (today - 300 * DAY, today + 29 * DAY, "renew it"),
        (today - 300 * DAY, today + 31 * DAY, ""),
        (today - 7 * DAY, today + 3 * DAY, "renew it"),
        (today - 6 * DAY, today + 4 * DAY, ""),
        (today - 6 * DAY, today - DAY, "has expired"),
        (today + DAY, today + 9 * DAY, "is not valid before"),
    ] {
        write("c.pem", &certificate(from, until).0);
        let (faults, warnings) = checked();
        assert_eq!(faults, [""; 0]);
        match warned {
            "" => assert_eq!(warnings, [""; 0]),
            warned => one(&warnings, warned),
        }
    }
}
