use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use prost::Message;
use prost_types::{Struct, Value, value::Kind};

use super::*;
use crate::proto::node::Locality;
use crate::xds::name_pattern::NamePattern;
use crate::xds::network::Network;
use crate::xds::peer::{CertificateNames, PeerProof};
use crate::xds::{Name, TypeTable};

fn spiffe(id: &str) -> Peer {
    let names = CertificateNames { spiffe: Some(id.into()), ..CertificateNames::default() };
    Peer { connection: 1, address: "10.0.0.1:9".parse().ok(), proven: Some(PeerProof::Certificate(names)) }
}

fn unproved() -> Peer {
    Peer::at("10.0.0.1:9".parse().unwrap())
}

fn node(cluster: &str, metadata: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| Value { kind: Some(Kind::StringValue(text.into())) };
    let fields = metadata.iter().map(|(key, value)| ((*key).into(), text(value))).collect();
    Node { cluster: cluster.into(), metadata: Some(Struct { fields }), ..Node::default() }.encode_to_vec()
}

fn templates(texts: &[&str]) -> Vec<Template> {
    texts.iter().map(|text| Template::parse(text).unwrap()).collect()
}

/// Returns the rule by which workloads may be clusters of their namespace, and have its secrets.
fn by_namespace() -> PermissionRule {
    PermissionRule {
        share: 1,
        name: "workloads".into(),
        identities: vec![IdentityPattern::Spiffe(SegmentPattern::uri("spiffe://prod/ns/{ns}/*").unwrap())],
        node: vec![NodeField { field: KeyField::Cluster, values: templates(&["{ns}/*", "shared"]) }],
        types: None,
        names: Vec::new(),
        secrets: templates(&["{ns}/*"]),
        tenant: Some(Template::parse("{ns}").unwrap()),
        relays_for: Vec::new(),
        client_status: false,
    }
}

fn permit(permissions: &Permissions, peer: &Peer, node: &[u8]) -> Permit {
    permissions.judge(peer, node).unwrap().unwrap()
}

#[test]
fn the_status_of_all_clients_is_for_the_rules_that_say_so() {
    let sees = PermissionRule { client_status: true, ..by_namespace() };
    let web = spiffe("spiffe://prod/ns/web/a");
    assert!(Permissions::of(vec![sees.clone()]).let_see_status(&web));
    assert!(!Permissions::of(vec![by_namespace(), sees]).let_see_status(&web), "the first rule counts");
    assert!(!Permissions::default().let_see_status(&web));
}

#[test]
fn dns_names_of_certificates_match_in_whatever_case() {
    let pattern = IdentityPattern::Dns(SegmentPattern::dns("{name}.oncall.example").unwrap());
    for (name, is_one) in [("ann.oncall.example", true), ("Ann.OnCall.Example", true), ("Ann.Example", false)] {
        let names = CertificateNames { dns: vec![name.into()], ..CertificateNames::default() };
        let peer = Peer { connection: 1, address: None, proven: Some(PeerProof::Certificate(names)) };
        assert_eq!(pattern.is_of(&peer), is_one, "{name}");
    }
}

#[test]
fn a_client_is_treated_as_another_if_rule_tenant_and_captures_are_the_same() {
    let by_network = PermissionRule {
        name: "network".into(),
        identities: vec![IdentityPattern::Network(Network::parse("10.0.0.0/8").unwrap())],
        tenant: None,
        ..by_namespace()
    };
    let named = PermissionRule { tenant: Some(Template::parse("all").unwrap()), ..by_network.clone() };
    let (web, pay) = (spiffe("spiffe://prod/ns/web/a"), spiffe("spiffe://prod/ns/pay/a"));
    let treat = |rules: &[PermissionRule], one: &Peer, other: &Peer| {
        let permissions = Permissions::of(rules.to_vec());
        let both = [permissions.treat_as(one, other), permissions.treat_as(other, one)];
        assert_eq!(both[0], both[1]);
        both[0]
    };
    assert!(treat(&[], &web, &unproved()), "without rules all are alike");
    assert!(treat(&[by_namespace()], &web, &spiffe("spiffe://prod/ns/web/b")));
    assert!(!treat(&[by_namespace()], &web, &pay), "other captures");
    assert!(!treat(&[by_namespace()], &web, &unproved()), "no rule");
    assert!(!treat(&[by_namespace(), named.clone()], &web, &unproved()), "another rule");
    assert!(treat(&[named], &web, &unproved()));
    assert!(!treat(&[by_network], &web, &unproved()), "each identity is a tenant of its own");
}

#[test]
fn without_rules_everybody_may_be_anything() {
    assert_eq!(Permissions::default().judge(&unproved(), &[0xff]), Ok(None));
}

#[test]
fn with_a_rule_who_is_in_none_is_refused() {
    let permissions = Permissions::of(vec![by_namespace()]);
    let refused = |peer: &Peer| permissions.judge(peer, &node("pay/web", &[])).unwrap_err().to_string();
    assert_eq!(refused(&unproved()), "no rule of permissions is for 10.0.0.1:9");
    assert_eq!(
        refused(&spiffe("spiffe://other/ns/pay/x")),
        "no rule of permissions is for 10.0.0.1:9 (spiffe://other/ns/pay/x)"
    );
}

#[test]
fn a_lie_is_refused_with_the_field_and_what_would_be_permitted() {
    let permissions = Permissions::of(vec![by_namespace()]);
    let peer = spiffe("spiffe://prod/ns/pay/web");
    assert_eq!(permit(&permissions, &peer, &node("pay/web", &[])).tenant.as_deref(), Some("pay"));
    assert!(permissions.judge(&peer, &node("shared", &[])).is_ok());
    let lie = permissions.judge(&peer, &node("billing/web", &[])).unwrap_err();
    assert_eq!(
        lie.to_string(),
        r#"node.cluster is "billing/web": rule workloads of permissions permits "pay/*" or "shared""#
    );
    assert!(matches!(permissions.judge(&peer, &[0x0a, 9]), Err(Denied::Node(_))));
}

#[test]
fn a_field_that_is_missing_or_no_text_is_not_the_permitted_one() {
    let field = KeyField::parse("metadata.tenant").unwrap();
    let rule = PermissionRule { node: vec![NodeField { field, values: templates(&["*"]) }], ..by_namespace() };
    let permissions = Permissions::of(vec![rule]);
    let peer = spiffe("spiffe://prod/ns/pay/web");
    assert!(permissions.judge(&peer, &node("x", &[("tenant", "any")])).is_ok());
    assert!(permissions.judge(&peer, &node("x", &[])).is_err());
    let number = Value { kind: Some(Kind::NumberValue(5.0)) };
    let fields = [("tenant".to_owned(), number)].into_iter().collect();
    let odd = Node { metadata: Some(Struct { fields }), ..Node::default() }.encode_to_vec();
    assert!(permissions.judge(&peer, &odd).is_err());
}

#[test]
fn only_a_relay_states_a_tenant_and_only_its_own() {
    let relay = PermissionRule {
        name: "relays".into(),
        identities: vec![IdentityPattern::Spiffe(SegmentPattern::uri("spiffe://prod/relay").unwrap())],
        node: Vec::new(),
        relays_for: vec![NamePattern::parse("pay"), NamePattern::parse("team-*")],
        ..by_namespace()
    };
    let relay = PermissionRule { tenant: None, secrets: templates(&["{tenant}/*"]), ..relay };
    let permissions = Permissions::of(vec![by_namespace(), relay]);
    let of = |tenant: &str| node("pay/web", &[("weir.tenant", tenant)]);
    let peer = spiffe("spiffe://prod/relay");
    assert_eq!(permit(&permissions, &peer, &of("pay")).tenant.as_deref(), Some("pay"));
    assert_eq!(permit(&permissions, &peer, &of("team-7")).tenant.as_deref(), Some("team-7"));
    assert_eq!(permit(&permissions, &peer, &node("x", &[])).tenant.as_deref(), Some("spiffe://prod/relay"));
    let secret = TypeTable::new().resolve("envoy.extensions.transport_sockets.tls.v3.Secret");
    let may = |tenant: &str, name: &str| permit(&permissions, &peer, &of(tenant)).allows(&secret, &Name::from(name));
    assert!(may("pay", "pay/key") && !may("pay", "team-7/key") && may("team-7", "team-7/key"), "those of the tenant");
    let refused = permissions.judge(&peer, &of("billing")).unwrap_err().to_string();
    assert_eq!(
        refused,
        r#"node.metadata.weir.tenant is "billing": rule relays of permissions relays for "pay" or "team-*""#
    );
    let workload = spiffe("spiffe://prod/ns/pay/web");
    assert!(matches!(permissions.judge(&workload, &of("pay")), Err(Denied::StatesTenant { .. })), "also the true one");
}

#[test]
fn secrets_are_given_by_name_alone_and_other_names_as_the_rule_says() {
    let table = TypeTable::new();
    let secret = table.resolve("envoy.extensions.transport_sockets.tls.v3.Secret");
    let old = table.resolve("envoy.api.v2.auth.Secret");
    let cluster = table.resolve("envoy.config.cluster.v3.Cluster");
    let may = |rule: PermissionRule, kind, name: &str| {
        let permissions = Permissions::of(vec![rule]);
        permit(&permissions, &spiffe("spiffe://prod/ns/pay/web"), &node("pay/web", &[])).allows(kind, &Name::from(name))
    };
    for kind in [&secret, &old] {
        assert!(may(by_namespace(), kind, "pay/key") && !may(by_namespace(), kind, "billing/key"));
        let none = PermissionRule { secrets: Vec::new(), ..by_namespace() };
        assert!(!may(none, kind, "pay/key"));
        // All types and names are permitted, and still no secret.
        let named = PermissionRule { names: templates(&["*"]), secrets: Vec::new(), ..by_namespace() };
        assert!(!may(named, kind, "pay/key"));
    }
    assert!(may(by_namespace(), &cluster, "anything"));
    let narrow = || PermissionRule { names: templates(&["{ns}-*"]), ..by_namespace() };
    assert!(may(narrow(), &cluster, "pay-1") && !may(narrow(), &cluster, "billing-1"));
    let typed = |types: &[&str]| PermissionRule {
        types: Some(types.iter().map(|name| (*name).into()).collect()),
        ..by_namespace()
    };
    assert!(may(typed(&["envoy.config.cluster.v3.Cluster"]), &cluster, "a"));
    assert!(!may(typed(&["envoy.config.listener.v3.Listener"]), &cluster, "a"));
    let v2 = table.resolve("envoy.api.v2.Cluster");
    assert!(may(typed(&["envoy.config.cluster.v3.Cluster"]), &v2, "a"), "the type's older name");
    assert!(may(typed(&["envoy.config.cluster.v3.Cluster"]), &secret, "pay/key"), "secrets have a list of their own");
}

#[test]
fn key_11_names_that_refer_to_a_tenant_are_none_for_a_client_without_one() {
    let cluster = TypeTable::new().resolve("envoy.config.cluster.v3.Cluster");
    let of_a_network = |names: &[&str]| {
        let identities = vec![IdentityPattern::Network(Network::parse("10.0.0.0/8").unwrap())];
        let (node, names) = (Vec::new(), templates(names));
        let rule = PermissionRule { identities, node, names, secrets: Vec::new(), tenant: None, ..by_namespace() };
        permit(&Permissions::of(vec![rule]), &unproved(), &self::node("any", &[]))
    };
    let [without, own, shared] = [&[][..], &["{tenant}/*"], &["{tenant}/*", "shared"]].map(of_a_network);
    for (name, expected) in [("pay/web", [true, false, false]), ("shared", [true, false, true])] {
        let allowed = [&without, &own, &shared].map(|permit| permit.allows(&cluster, &name.into()));
        assert_eq!(allowed, expected, "{name}");
    }
    assert_eq!([without, own, shared].map(|permit| permit.restricts(&cluster)), [false, true, true]);
}

/// I9: rules with secrets need proof. So a key with a tenant keeps their clients apart, even if the rule names no tenant.
#[test]
fn i9_whoever_proves_something_has_a_tenant_under_a_rule_that_names_none() {
    let identities = vec![
        IdentityPattern::Spiffe(SegmentPattern::uri("spiffe://prod/ns/{ns}/*").unwrap()),
        IdentityPattern::Dns(SegmentPattern::dns("{ns}.prod").unwrap()),
        IdentityPattern::Uid(7),
    ];
    let rule =
        PermissionRule { identities, node: Vec::new(), secrets: templates(&["a"]), tenant: None, ..by_namespace() };
    let permissions = Permissions::of(vec![rule]);
    let dns = |name: &str| CertificateNames { dns: vec![name.into()], ..CertificateNames::default() };
    let proving = |proven| Peer { proven: Some(proven), ..unproved() };
    let peers = [
        spiffe("spiffe://prod/ns/pay/a"),
        spiffe("spiffe://prod/ns/pay/b"),
        proving(PeerProof::Certificate(dns("pay.prod"))),
        proving(PeerProof::Certificate(dns("bill.prod"))),
        proving(PeerProof::Process { uid: 7, gid: 8 }),
    ];
    let tenants: Vec<_> =
        peers.iter().map(|peer| permit(&permissions, peer, &node("any", &[])).tenant.unwrap()).collect();
    for (at, tenant) in tenants.iter().enumerate() {
        assert!(!tenants[..at].contains(tenant), "{tenants:?}");
    }
}

/// I9: what certificates have in common, or have first, is no tenant of a rule that is for another name.
#[test]
fn i9_a_certificate_with_several_names_is_of_the_tenant_that_its_rule_matches() {
    let (dns, uri) = (|text: &str| SegmentPattern::dns(text).unwrap(), |text: &str| SegmentPattern::uri(text).unwrap());
    let by = |identities: Vec<IdentityPattern>| {
        let rule = PermissionRule { identities, node: Vec::new(), tenant: None, ..by_namespace() };
        Permissions::of(vec![rule])
    };
    let certificate = |spiffe: Option<&str>, uris: &[&str], dns: &[&str]| {
        let texts = |texts: &[&str]| texts.iter().map(|text| Box::<str>::from(*text)).collect::<Vec<_>>();
        let names = CertificateNames { spiffe: spiffe.map(Into::into), uris: texts(uris), dns: texts(dns) };
        Peer { proven: Some(PeerProof::Certificate(names)), ..unproved() }
    };
    let tenant = |permissions: &Permissions, peer: &Peer| {
        let permit = permit(permissions, peer, &node("any", &[]));
        assert_eq!(permissions.owner_of(peer).tenant, permit.tenant, "as limits see it");
        permit.tenant.unwrap().to_string()
    };
    let all = certificate(Some("spiffe://prod/ns/pay/a"), &["urn:x", "urn:pay"], &["shared.prod", "Pay.example"]);
    let of_dns = by(vec![IdentityPattern::Dns(dns("{name}.example"))]);
    let of_uri = by(vec![IdentityPattern::Uri(uri("urn:pay"))]);
    let of_spiffe = by(vec![IdentityPattern::Spiffe(uri("spiffe://prod/ns/{ns}/*"))]);
    let of_network = by(vec![IdentityPattern::Network(Network::parse("10.0.0.0/8").unwrap())]);
    let tenants = [&of_dns, &of_uri, &of_spiffe, &of_network].map(|permissions| tenant(permissions, &all));
    assert_eq!(tenants, ["dns:Pay.example", "uri:urn:pay", "spiffe://prod/ns/pay/a", "spiffe://prod/ns/pay/a"]);
    let either = by(vec![IdentityPattern::Uri(uri("urn:y")), IdentityPattern::Dns(dns("{name}.example"))]);
    assert_eq!(tenant(&either, &all), "dns:Pay.example", "the first entry that matches");

    let [pay, bill] = ["pay.example", "bill.example"].map(|name| certificate(None, &[], &["shared.prod", name]));
    assert_ne!(tenant(&of_dns, &pay), tenant(&of_dns, &bill), "they have the first name in common");
    let reissued = certificate(None, &[], &["pay.example", "shared.prod"]);
    assert_eq!(tenant(&of_dns, &pay), tenant(&of_dns, &reissued), "in whatever order");
}

#[test]
fn a_network_is_for_whoever_is_in_it_and_proves_nothing() {
    let rule = PermissionRule {
        identities: vec![IdentityPattern::Network(Network::parse("10.0.0.0/8").unwrap())],
        node: Vec::new(),
        secrets: Vec::new(),
        tenant: None,
        ..by_namespace()
    };
    assert!(!rule.identities[0].is_proof());
    let permissions = Permissions::of(vec![rule]);
    assert_eq!(permit(&permissions, &unproved(), &node("any", &[])).tenant, None);
    let unix = Peer { connection: 1, address: None, proven: Some(PeerProof::Process { uid: 7, gid: 8 }) };
    assert!(permissions.judge(&unix, &node("any", &[])).is_err(), "a Unix socket is in no network");
}

#[test]
fn the_first_rule_for_an_identity_counts() {
    let strict = PermissionRule { name: "first".into(), ..by_namespace() };
    let lax = PermissionRule { name: "second".into(), node: Vec::new(), ..by_namespace() };
    let permissions = Permissions::of(vec![strict, lax]);
    let refused = permissions.judge(&spiffe("spiffe://prod/ns/pay/web"), &node("billing/web", &[]));
    assert!(matches!(refused, Err(Denied::Field { rule, .. }) if &*rule == "first"));
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..Default::default() })]

    /// A client of one namespace is never a cluster of another, and never has its secrets, whatever the client states.
    #[test]
    fn nobody_gets_what_is_of_another_namespace(
        own in "[a-c]{1,2}", cluster in "[a-c/]{0,6}", secret in "[a-c/]{0,6}", tenant in proptest::option::of("[a-c]{1,2}")
    ) {
        let permissions = Permissions::of(vec![by_namespace()]);
        let metadata: Vec<_> = tenant.iter().map(|tenant| ("weir.tenant", tenant.as_str())).collect();
        let judged = permissions.judge(&spiffe(&format!("spiffe://prod/ns/{own}/x")), &node(&cluster, &metadata));
        let prefix = format!("{own}/");
        prop_assert_eq!(judged.is_ok(), cluster.starts_with(&prefix) && tenant.is_none());
        let Ok(Some(permit)) = judged else { return Ok(()) };
        prop_assert_eq!(permit.tenant.as_deref(), Some(own.as_str()));
        let kind = TypeTable::new().resolve("envoy.extensions.transport_sockets.tls.v3.Secret");
        prop_assert_eq!(permit.allows(&kind, &Name::from(secret.as_str())), secret.starts_with(&prefix));
    }
}

#[test]
fn a_segment_tenant_says_whose_a_client_is() {
    let rule = PermissionRule {
        identities: vec![IdentityPattern::Spiffe(SegmentPattern::uri("spiffe://prod/ns/{tenant}/*").unwrap())],
        node: vec![NodeField { field: KeyField::Cluster, values: templates(&["{tenant}/*"]) }],
        tenant: None,
        ..by_namespace()
    };
    let permissions = Permissions::of(vec![rule]);
    let peer = spiffe("spiffe://prod/ns/pay/web");
    assert_eq!(permit(&permissions, &peer, &node("pay/web", &[])).tenant.as_deref(), Some("pay"));
    assert!(permissions.judge(&peer, &node("bill/web", &[])).is_err());
}

#[test]
fn a_rule_about_one_field_judges_that_field_and_no_other() {
    let place = Locality { region: "r".into(), zone: "z".into(), sub_zone: "s".into() };
    let deep = Value { kind: Some(Kind::StructValue(Struct { fields: [("b".to_owned(), word("deep"))].into() })) };
    let metadata = Some(Struct { fields: [("a".to_owned(), deep), ("b".to_owned(), word("flat"))].into() });
    let node = Node { id: "i".into(), cluster: "c".into(), locality: Some(place), metadata, ..Node::default() };
    let fields = [
        ("id", "i"),
        ("cluster", "c"),
        ("locality.region", "r"),
        ("locality.zone", "z"),
        ("locality.sub_zone", "s"),
        ("metadata.a.b", "deep"),
        ("metadata.b", "flat"),
    ];
    for (field, own) in fields {
        for (_, value) in fields {
            let field = NodeField { field: KeyField::parse(field).unwrap(), values: templates(&[value]) };
            let permissions = Permissions::of(vec![PermissionRule { node: vec![field.clone()], ..by_namespace() }]);
            let judged = permissions.judge(&spiffe("spiffe://prod/ns/web/a"), &node.encode_to_vec());
            assert_eq!(judged.is_ok(), value == own, "{} is {own:?} and may be {value:?}", field.field);
        }
    }
}

fn word(text: &str) -> Value {
    Value { kind: Some(Kind::StringValue(text.into())) }
}
