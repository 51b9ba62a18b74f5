//! Random rules, identities and nodes: what the rules decide is compared with a plain reading of them.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use prost::Message;
use prost_types::{Struct, Value, value::Kind};

use super::*;
use crate::xds::name_pattern::NamePattern;
use crate::xds::network::Network;
use crate::xds::peer::{CertificateNames, PeerProof};
use crate::xds::{Name, TypeTable};

/// The clients that a rule is for.
#[derive(Debug, Clone)]
enum RuleSubject {
    /// Workloads of one namespace. `None` means any namespace, which is then the tenant.
    Spiffe {
        domain: char,
        namespace: Option<char>,
    },
    Uid(u32),
    Network(u8),
}

/// A text of a rule: `p`, `p*`, `{tenant}` or `{tenant}*`.
#[derive(Debug, Clone)]
struct Text {
    own: Option<char>,
    open: bool,
}

#[derive(Debug, Clone)]
struct Rule {
    who: Vec<RuleSubject>,
    cluster: Option<Text>,
    names: Vec<Text>,
    secrets: Vec<Text>,
    tenant: Option<char>,
    relays_for: Vec<Text>,
}

#[derive(Debug, Clone)]
struct Asker {
    spiffe: Option<(char, char)>,
    uid: Option<u32>,
    network: u8,
    cluster: String,
    states: Option<String>,
}

impl RuleSubject {
    fn is(&self, asker: &Asker) -> bool {
        match self {
            Self::Spiffe { domain, namespace } => {
                asker.spiffe.is_some_and(|(of, ns)| of == *domain && namespace.is_none_or(|own| own == ns))
            }
            Self::Uid(uid) => asker.spiffe.is_none() && asker.uid == Some(*uid),
            Self::Network(network) => asker.network == *network,
        }
    }
}

impl Text {
    fn text(&self) -> String {
        let start = self.own.map_or("{tenant}".into(), String::from);
        if self.open { start + "*" } else { start }
    }

    fn permits(&self, tenant: Option<&str>, value: &str) -> bool {
        let own = self.own.map(String::from);
        let Some(start) = own.as_deref().or(tenant) else { return false };
        if self.open { value.starts_with(start) } else { value == start }
    }
}

impl Rule {
    fn built(&self, at: usize) -> PermissionRule {
        let template = |text: &Text| Template::parse(&text.text()).unwrap();
        let identity = |who: &RuleSubject| match who {
            RuleSubject::Spiffe { domain, namespace } => {
                let namespace = namespace.map_or("{tenant}".into(), String::from);
                IdentityPattern::Spiffe(SegmentPattern::uri(&format!("spiffe://{domain}/ns/{namespace}/*")).unwrap())
            }
            RuleSubject::Uid(uid) => IdentityPattern::Uid(*uid),
            RuleSubject::Network(network) => {
                IdentityPattern::Network(Network::parse(&format!("{network}.0.0.0/8")).unwrap())
            }
        };
        let field = |text: &Text| NodeField { field: KeyField::Cluster, values: vec![template(text)] };
        PermissionRule {
            share: 1,
            name: format!("rule{at}").into(),
            identities: self.who.iter().map(identity).collect(),
            node: self.cluster.iter().map(field).collect(),
            types: None,
            names: self.names.iter().map(template).collect(),
            secrets: self.secrets.iter().map(template).collect(),
            tenant: self.tenant.map(|tenant| Template::parse(&tenant.to_string()).unwrap()),
            relays_for: self.relays_for.iter().map(|text| NamePattern::parse(&text.text())).collect(),
            client_status: false,
        }
    }

    /// Returns the tenant of an asker that states none, by the first identity that matches the asker.
    fn tenant_of(&self, asker: &Asker) -> Option<String> {
        let by = self.who.iter().find(|who| who.is(asker))?;
        let segment = match by {
            RuleSubject::Spiffe { namespace: None, .. } => asker.spiffe.map(|(_, namespace)| namespace.to_string()),
            _ => None,
        };
        let own = self.tenant.map(String::from).or(segment);
        own.or_else(|| asker.spiffe.map(|(domain, namespace)| format!("spiffe://{domain}/ns/{namespace}/w")))
            .or_else(|| asker.uid.map(|uid| format!("uid:{uid}")))
    }
}

/// The tenant of an asker, and which of the names that it asked for it may have, as clusters and as secrets.
type Given = (Option<String>, [Vec<String>; 2]);

/// Reads the rules as the documentation describes them. `None` means that the asker is not served.
fn read(rules: &[Rule], asker: &Asker, asked: &[String]) -> Option<Given> {
    let rule = rules.iter().find(|rule| rule.who.iter().any(|who| who.is(asker)))?;
    let tenant = match &asker.states {
        Some(stated) => {
            let may = rule.relays_for.iter().any(|text| text.permits(Some("{tenant}"), stated));
            if !may {
                return None;
            }
            Some(stated.clone())
        }
        None => rule.tenant_of(asker),
    };
    if rule.cluster.as_ref().is_some_and(|text| !text.permits(tenant.as_deref(), &asker.cluster)) {
        return None;
    }
    let among = |list: &[Text], name: &String| list.iter().any(|text| text.permits(tenant.as_deref(), name));
    let clusters = asked.iter().filter(|name| rule.names.is_empty() || among(&rule.names, name));
    let secrets = asked.iter().filter(|name| among(&rule.secrets, name));
    let given = [clusters.cloned().collect(), secrets.cloned().collect()];
    Some((tenant, given))
}

fn peer(asker: &Asker) -> Peer {
    let names = |(domain, namespace): (char, char)| CertificateNames {
        spiffe: Some(format!("spiffe://{domain}/ns/{namespace}/w").into()),
        ..CertificateNames::default()
    };
    let certificate = asker.spiffe.map(|id| PeerProof::Certificate(names(id)));
    let process = asker.uid.map(|uid| PeerProof::Process { uid, gid: 0 });
    Peer { connection: 0, address: format!("{}.1.1.1:1", asker.network).parse().ok(), proven: certificate.or(process) }
}

fn node(asker: &Asker) -> Vec<u8> {
    let value = |text: &String| Value { kind: Some(Kind::StringValue(text.clone())) };
    let stated = asker.states.iter().map(|text| ("weir.tenant".to_owned(), value(text)));
    let metadata = asker.states.as_ref().map(|_| Struct { fields: stated.collect() });
    Node { cluster: asker.cluster.clone(), metadata, ..Node::default() }.encode_to_vec()
}

fn letter() -> impl Strategy<Value = char> {
    prop_oneof![Just('a'), Just('b')]
}

fn text() -> impl Strategy<Value = Text> {
    (option::of(letter()), any::<bool>()).prop_map(|(own, open)| Text { own, open })
}

fn who() -> impl Strategy<Value = RuleSubject> {
    prop_oneof![
        (letter(), option::of(letter())).prop_map(|(domain, namespace)| RuleSubject::Spiffe { domain, namespace }),
        (1..3_u32).prop_map(RuleSubject::Uid),
        (10..12_u8).prop_map(RuleSubject::Network),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let texts = || vec(text(), 0..3);
    let lists = (vec(who(), 1..3), option::of(text()), texts(), texts(), option::of(letter()), vec(text(), 0..2));
    lists.prop_map(|(who, cluster, names, secrets, tenant, relays_for)| {
        // A rule with a segment `{tenant}` has no `tenant` beside it.
        let has_segment = who.iter().any(|who| matches!(who, RuleSubject::Spiffe { namespace: None, .. }));
        Rule { who, cluster, names, secrets, tenant: tenant.filter(|_| !has_segment), relays_for }
    })
}

fn asker() -> impl Strategy<Value = Asker> {
    let proofs = (option::of((letter(), letter())), option::of(1..3_u32), 9..12_u8);
    (proofs, "[ab]{0,2}", option::of("[ab]{1,2}")).prop_map(|((spiffe, uid, network), cluster, states)| Asker {
        spiffe,
        uid,
        network,
        cluster,
        states,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(4096) })]

    #[test]
    fn each_client_gets_what_the_rules_say_and_nothing_else(rules in vec(rule(), 1..4), asker in asker()) {
        let permissions = Permissions::of(rules.iter().enumerate().map(|(at, rule)| rule.built(at)).collect());
        let asked = ["a", "b", "aa", "ab", "ba", "bb", "spiffe://a/ns/a/w", "uid:1"].map(String::from);
        let judged = permissions.judge(&peer(&asker), &node(&asker)).ok().flatten();
        let types = ["envoy.config.cluster.v3.Cluster", "envoy.extensions.transport_sockets.tls.v3.Secret"];
        let got = judged.map(|permit| {
            let given = types.map(|name| {
                let kind = TypeTable::new().resolve(name);
                let may = |name: &&String| permit.allows(&kind, &Name::from(name.as_str()));
                asked.iter().filter(may).cloned().collect::<Vec<_>>()
            });
            (permit.tenant.as_deref().map(String::from), given)
        });
        prop_assert_eq!(got, read(&rules, &asker, &asked));
    }
}
