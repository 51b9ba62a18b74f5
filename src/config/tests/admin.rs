//! Where operators and probes connect, and which of them may do what.

use std::path::Path;

use crate::config::load::review;

/// Returns the faults, without file, line and column.
fn faults(keys: &str) -> Vec<String> {
    let text = format!("listen: [{{address: '127.0.0.1:1'}}]\nupstream: {{files: x}}\n{keys}\n");
    let review = review(Path::new("relay.yaml"), &text, &|_| None, false);
    review.faults.iter().map(|one| format!("{}: {}", one.at, one.reason)).collect()
}

fn of_tls(keys: &str) -> Vec<String> {
    faults(&format!("admin: {{address: ':2', tls: {{certificate: c, key: k, {keys}}}}}"))
}

#[test]
fn an_address_that_other_machines_reach_needs_certificates_and_the_fault_names_probes() {
    for open in ["0.0.0.0:2", "10.1.2.3:2", "'[::]:2'"] {
        let found = faults(&format!("admin: {{address: {open}}}"));
        assert!(found.len() == 1 && found[0].starts_with("admin.address: address "), "{found:?}");
        assert!(found[0].contains("expected a loopback address, or admin.tls"), "{found:?}");
        assert!(found[0].contains("/healthz, /ready and /metrics in plain text there is probes.address"), "{found:?}");
        let tls = "tls: {certificate: c, key: k, client_ca: ca, may_read: [{dns: a.b}]}";
        assert_eq!(faults(&format!("admin: {{address: {open}, {tls}}}")), [""; 0]);
        assert_eq!(faults(&format!("probes: {{address: {open}}}")), [""; 0]);
    }
    for own in ["':2'", "127.0.0.1:2", "127.7.7.7:2", "'[::1]:2'"] {
        assert_eq!(faults(&format!("admin: {{address: {own}}}")), [""; 0], "{own}");
    }
}

#[test]
fn every_fault_of_certificates_towards_operators_is_reported() {
    let missing = "admin.tls: missing client_ca or trust_domains: by which are certificates judged?";
    assert_eq!(of_tls(""), [missing, "admin.tls: missing may_read, may_change or may_tap: who may do anything?"]);
    assert_eq!(of_tls("client_ca: ca, may_change: [{dns: a.b}]"), [""; 0]);
    assert_eq!(
        of_tls("client_ca: ca, may_read: [{spiffe: 'spiffe://a/b'}, {}, {dns: a.b, uri: 'x://y'}]"),
        [
            "admin.tls.may_read[0]: no certificate can prove this: admin.tls has no trust_domains",
            "admin.tls.may_read[1]: expected exactly one of spiffe, uri, dns",
            "admin.tls.may_read[2]: expected exactly one of spiffe, uri, dns",
        ]
    );
    let found = of_tls("trust_domains: [{name: a, bundle: b}], may_change: [{dns: a.b}, {spiffe: x}]");
    assert!(found[0].contains("may_change[0]: no certificate can prove this: admin.tls has no client_ca"), "{found:?}");
    assert!(found[1].contains("may_change[1].spiffe: invalid SPIFFE id"), "{found:?}");
    let socket_alone = "admin: {socket: /a, tls: {certificate: c, key: k, client_ca: ca, may_read: [{dns: a.b}]}}";
    assert_eq!(faults(socket_alone), ["admin.tls: has no effect without address"]);
}

#[test]
fn probes_have_an_address_of_their_own() {
    assert_eq!(faults("admin: {address: ':2'}\nprobes: {address: ':3'}"), [""; 0]);
    let found = faults("admin: {address: ':2'}\nprobes: {address: ':2'}");
    let expected = "probes.address: address [::]:2 overlaps 127.0.0.1:2, which is admin.address in line 3";
    assert_eq!(found, [expected]);
    assert!(faults("probes: {}")[0].starts_with("probes: missing key \"address\""), "{:?}", faults("probes: {}"));
}
