//! Permissions: how they are interpreted, and rules that would protect less than they seem to.

use std::path::Path;

use weir_core::xds::{CertificateNames, Peer, PeerProof};

use crate::config::load::review;

const START: &str = "listen: [{address: '127.0.0.1:18000'}]\nupstream: {servers: [{uri: 'http://cp:1'}]}\n";
const KEY: &str = "views: {key: [cluster, tenant]}\n";

#[track_caller]
fn says(rule: &str, expected: &[&str]) {
    let text = format!("{START}{KEY}permissions: [{{{rule}}}]\n");
    let review = review(Path::new("relay.yaml"), &text, &|_| None, false);
    let found: Vec<_> = review.faults.iter().map(|fault| format!("{}: {}", fault.at, fault.reason)).collect();
    assert_eq!(found, expected, "{rule}");
}

const RULE: &str = "name: a, identities: [{spiffe: 'spiffe://prod/ns/{ns}/*'}], node: {cluster: '{ns}-*'}";

#[test]
fn a_rule_is_understood() {
    says(RULE, &[]);
    let text = format!("{START}{KEY}permissions: [{{{RULE}, secrets: ['{{ns}}/*'], tenant: '{{ns}}'}}]\n");
    let config = review(Path::new("relay.yaml"), &text, &|_| None, false).config.unwrap();
    let names = CertificateNames { spiffe: Some("spiffe://prod/ns/pay/x".into()), ..CertificateNames::default() };
    let peer = Peer { connection: 1, address: None, proven: Some(PeerProof::Certificate(names)) };
    let node = |cluster: &[u8]| [&[0x12, cluster.len() as u8], cluster].concat();
    let permit = config.views.permissions.judge(&peer, &node(b"pay-web")).unwrap().unwrap();
    assert_eq!(permit.tenant.as_deref(), Some("pay"));
    assert!(config.views.permissions.judge(&peer, &node(b"bill-web")).is_err());
}

#[test]
fn each_kind_of_identity_is_who_it_says_and_nobody_else() {
    let certificate = |names| Some(PeerProof::Certificate(names));
    let peer = |address: &str, proven| Peer { connection: 1, address: address.parse().ok(), proven };
    let peers = [
        peer("", certificate(CertificateNames { spiffe: Some("spiffe://p/a".into()), ..Default::default() })),
        peer("", certificate(CertificateNames { uris: ["x://p/a".into()].into(), ..Default::default() })),
        peer("", certificate(CertificateNames { dns: ["a.p".into()].into(), ..Default::default() })),
        peer("", Some(PeerProof::Process { uid: 7, gid: 1 })),
        peer("", Some(PeerProof::Process { uid: 1, gid: 8 })),
        peer("10.1.2.3:4", None),
    ];
    let rules = ["spiffe: 'spiffe://p/a'", "uri: 'x://p/a'", "dns: a.p", "uid: 7", "gid: 8", "network: 10.0.0.0/8"];
    for (number, rule) in rules.iter().enumerate() {
        let text = format!("{START}{KEY}permissions: [{{name: a, identities: [{{{rule}}}], free: [cluster]}}]\n");
        let config = review(Path::new("relay.yaml"), &text, &|_| None, false).config.unwrap();
        let judge = |peer: &Peer| config.views.permissions.judge(peer, &[]).is_ok();
        let found: Vec<_> = peers.iter().enumerate().filter(|(_, peer)| judge(peer)).map(|(at, _)| at).collect();
        assert_eq!(found, [number], "{rule}");
    }
}

#[test]
fn each_field_of_the_key_is_judged_or_free() {
    let open = |fields: &str| {
        format!(
            "permissions[0]: fields of views.key that are neither in node nor in free: {fields}; a client could state \
             what it likes there"
        )
    };
    says("name: a, identities: [{uid: 1}]", &[&open("cluster")]);
    says("name: a, identities: [{uid: 1}], free: [cluster]", &[]);
    let text = format!("{START}permissions: [{{{RULE}, free: [metadata, unknown]}}]\n");
    let faults = review(Path::new("relay.yaml"), &text, &|_| None, false).faults;
    let reasons: Vec<_> = faults.iter().map(|fault| format!("{}: {}", fault.at, fault.reason)).collect();
    assert_eq!(reasons, [open("locality, user_agent, extensions, client_features, dynamic_parameters")]);
}

#[test]
fn rules_that_protect_less_than_they_seem_to_are_faults() {
    says(
        "name: a, identities: [{network: 10.0.0.0/8}], free: [cluster], secrets: [x]",
        &[
            "permissions[0].secrets: requires identities that are proved: network:10.0.0.0/8 is any client that connects from there",
        ],
    );
    says(
        "name: a, identities: [{spiffe: 'spiffe://prod*'}], free: [cluster]",
        &[
            "permissions[0].identities[0].spiffe: invalid pattern \"spiffe://prod*\": expected no * in the trust domain, \
           nor in a DNS name; {name} matches one segment",
        ],
    );
    says(
        "name: a, identities: [{uri: 'spiffe://prod/a'}], free: [cluster]",
        &[
            "permissions[0].identities[0].uri: a SPIFFE id counts only under its own trust domain: expected the key spiffe",
        ],
    );
    says(
        "name: a, identities: [{dns: '*.a.example'}], free: [cluster]",
        &[
            "permissions[0].identities[0].dns: invalid pattern \"*.a.example\": expected no * in the trust domain, nor in a \
           DNS name; {name} matches one segment",
        ],
    );
    says(
        "name: a, identities: [{uid: 1, gid: 2}], free: [cluster]",
        &["permissions[0].identities[0]: expected exactly one of spiffe, uri, dns, uid, gid, network"],
    );
    says(
        "name: a, identities: [{spiffe: 'spiffe://p/{ns}/a'}, {uid: 1}], node: {cluster: '{ns}'}",
        &["permissions[0].node.cluster: {ns} in \"{ns}\" is neither a segment of every identity of the rule \
           nor tenant"],
    );
    says(
        "name: a, identities: [{uid: 1}], node: {cluster: 'a*b', locality: x}",
        &[
            "permissions[0].node.cluster: invalid text \"a*b\": expected * at the end only",
            "permissions[0].node.locality: invalid part of a node \"locality\": expected one that is a text: id, cluster, \
             locality.region, locality.zone, locality.sub_zone or metadata.<path>",
        ],
    );
    says(&format!("{RULE}}}, {{{RULE}"), &["permissions[1].name: duplicate name \"a\": another rule has it"]);
}

#[test]
fn identities_that_nobody_can_prove_and_certificates_without_rules_are_warnings() {
    let warnings = |listen: &str, rest: &str| {
        let text = format!("listen: [{{address: {listen}}}]\nupstream: {{servers: [{{uri: 'http://cp:1'}}]}}\n{rest}");
        let review = review(Path::new("relay.yaml"), &text, &|_| None, false);
        assert!(review.faults.is_empty(), "{:?}", review.faults);
        review.warnings.iter().map(|warning| format!("{}: {}", warning.at, warning.reason)).collect::<Vec<_>>()
    };
    let tls = |trust: &str| format!("':1', tls: {{certificate: c, key: k, {trust}}}");
    let rule = |identity: &str| {
        format!(
            "views: {{key: [cluster]}}\npermissions: [{{name: a, identities: [{{{identity}}}], free: [cluster]}}]\n"
        )
    };
    let (ca, domains) = (tls("client_ca: ca"), tls("trust_domains: [{name: a, bundle: b}]"));
    let spiffe = rule("spiffe: 'spiffe://a/b'");
    assert_eq!(warnings(&domains, &spiffe), [""; 0]);
    assert_eq!(
        warnings(&ca, &spiffe),
        ["permissions[0].identities[0].spiffe: no client can prove this: no listener has trust_domains"]
    );
    assert_eq!(warnings(&ca, &rule("dns: a.b")), [""; 0]);
    assert_eq!(
        warnings(&domains, &rule("dns: a.b")),
        ["permissions[0].identities[0].dns: no client can prove this: no listener has client_ca"]
    );
    assert_eq!(
        warnings("'127.0.0.1:1'", &rule("uid: 1")),
        ["permissions[0].identities[0].uid: no client can prove this: no listener has a Unix socket as its address"]
    );
    assert_eq!(warnings("'unix:/run/weir/a'", &rule("uid: 1")), [""; 0]);
    assert_eq!(
        warnings(&ca, ""),
        [
            "listen[0].tls: clients show certificates, and each of them gets everything: permissions say who may have what"
        ]
    );
}

#[test]
fn tenants_need_rules_and_a_key_with_them() {
    let faults = |text: &str| {
        let review = review(Path::new("relay.yaml"), &format!("{START}{text}"), &|_| None, false);
        review.faults.iter().map(|fault| format!("{}: {}", fault.at, fault.reason)).collect::<Vec<_>>()
    };
    assert_eq!(faults(KEY), ["views.key[1]: requires permissions: they say whose a client is"]);
    let relays =
        "views: {key: [cluster]}\npermissions: [{name: a, identities: [{uid: 1}], free: [cluster], relays_for: [b]}]\n";
    assert_eq!(
        faults(relays),
        ["permissions[0].relays_for: requires tenant in views.key: without it, clients of all tenants share views"]
    );
}

#[test]
fn what_is_for_proved_identities_is_not_given_to_networks() {
    let text = "views: {key: [cluster]}\npermissions: [{name: a, identities: [{network: 10.0.0.0/8}], free: [cluster], \
                secrets: [s], client_status: true}]\n";
    let review = review(Path::new("relay.yaml"), &format!("{START}{text}"), &|_| None, false);
    let faults: Vec<_> = review.faults.iter().map(|fault| format!("{}: {}", fault.at, fault.reason)).collect();
    let reason = "requires identities that are proved: network:10.0.0.0/8 is any client that connects from there";
    assert_eq!(faults, ["secrets", "client_status"].map(|key| format!("permissions[0].{key}: {reason}")));
}

#[test]
fn a_tenant_is_one_that_is_said_once_and_what_is_switched_off_needs_no_proof() {
    says("name: a, identities: [{network: 10.0.0.0/8}], free: [cluster], client_status: false", &[]);
    says(
        "name: a, identities: [{spiffe: 'spiffe://p/{tenant}/x'}], free: [cluster], tenant: t",
        &["permissions[0].tenant: the identities have a segment {tenant}, which says it: expected one of both"],
    );
    says(
        "name: a, identities: [{uid: 1}], free: [cluster], tenant: 'a*'",
        &["permissions[0].tenant: invalid tenant \"a*\": expected no *"],
    );
    says("name: a, identities: [{uid: 1}], node: {cluster: '{tenant}-*'}, tenant: t", &[]);
    let of_a_network = "name: a, identities: [{network: 10.0.0.0/8}, {uid: 1}], free: [cluster], names: ['{tenant}-*']";
    let fault = "permissions[0].names[0]: {tenant} in \"{tenant}-*\" is neither a segment of every identity of the rule nor tenant";
    says(of_a_network, &[fault]);
    for whose in ["tenant: t", "relays_for: ['*']"] {
        says(&format!("{of_a_network}, {whose}"), &[]);
    }
    says(
        "name: a, identities: [{spiffe: 'spiffe://p/{ns}'}, {spiffe: 'spiffe://p/{ns}/{of}'}], node: {cluster: ['{ns}', '{of}']}",
        &[
            "permissions[0].node.cluster[1]: {of} in \"{of}\" is neither a segment of every identity of the rule nor tenant",
        ],
    );
}

#[test]
fn a_locality_is_judged_if_all_of_its_parts_are() {
    let faults = |node: &str| {
        let rule = format!("permissions: [{{name: a, identities: [{{uid: 1}}], node: {{{node}}}}}]");
        let text = format!("{START}views: {{key: [locality]}}\n{rule}\n");
        review(Path::new("relay.yaml"), &text, &|_| None, false).faults.len()
    };
    assert_eq!(faults("locality.region: r, locality.zone: z, locality.sub_zone: s"), 0);
    for lacking in [
        "locality.region: r, locality.zone: z",
        "locality.region: r, locality.sub_zone: s",
        "locality.zone: z, locality.sub_zone: s",
    ] {
        assert_eq!(faults(lacking), 1, "{lacking}");
    }
}
