//! I9 where servers are shown clients: whatever a client states, no client gets the secrets of another identity.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use prost_types::{Struct, Value, value::Kind};

use super::*;
use crate::protocol::session::Identity;
use crate::xds::{
    CertificateNames, HeaderHashes, IdentityPattern, NodeField, Peer, PeerProof, PermissionRule, Permissions,
    SegmentPattern, SharingKey, Template,
};

/// A client: the namespace of its certificate, the namespace that it states, the tenant that it claims, and its id.
type Stated = (String, String, Option<String>, String);

const NAMESPACE: &str = "NAMESPACE";

fn peer(namespace: &str) -> Arc<Peer> {
    let names = CertificateNames {
        spiffe: Some(format!("spiffe://prod/ns/{namespace}/a").into()),
        ..CertificateNames::default()
    };
    Arc::new(Peer { connection: 1, address: None, proven: Some(PeerProof::Certificate(names)) })
}

fn encoded((_, namespace, claim, id): &Stated) -> Vec<u8> {
    let text = |text: &str| Value { kind: Some(Kind::StringValue(text.into())) };
    let stated = [(NAMESPACE, Some(namespace)), ("weir.tenant", claim.as_ref())];
    let fields = stated.into_iter().filter_map(|(field, value)| Some((field.to_owned(), text(value?)))).collect();
    Node { id: id.clone(), metadata: Some(Struct { fields }), ..Node::default() }.encode_to_vec()
}

/// Each workload belongs to the tenant of its namespace. If the rule binds the node, a workload can state no other namespace.
fn permissions(binds: bool) -> Permissions {
    let template = |text: &str| Template::parse(text).unwrap();
    let field = KeyField::MetadataPath(vec![NAMESPACE.into()]);
    let bound = NodeField { field, values: vec![template("{ns}")] };
    Permissions::of(vec![PermissionRule {
        share: 1,
        name: "workloads".into(),
        identities: vec![IdentityPattern::Spiffe(SegmentPattern::uri("spiffe://prod/ns/{ns}/*").unwrap())],
        node: binds.then_some(bound).into_iter().collect(),
        types: None,
        names: Vec::new(),
        secrets: Vec::new(),
        tenant: Some(template("{ns}")),
        relays_for: Vec::new(),
        client_status: false,
    }])
}

/// Returns the namespace whose secrets a control plane gives for a node: the namespace that the node states. If the relay shows the credentials
/// of a namespace, the node has to state that namespace. Without them, any namespace is accepted.
fn secrets_of(node: &[u8], credentials: Option<&str>) -> Option<String> {
    let metadata = Node::decode(node).unwrap().metadata?;
    let Some(Kind::StringValue(namespace)) = &metadata.fields.get(NAMESPACE)?.kind else { return None };
    credentials.is_none_or(|of| of == namespace).then(|| namespace.clone())
}

/// Lets clients share views by a key, and shows each of them for a while. Returns a client that got the secrets of another namespace.
fn leak(clients: &[Stated], fields: &[KeyField], binds: bool, by_tenant: bool) -> Option<Stated> {
    let rule = Arc::new(KeyRule::of(fields.to_vec()));
    let mut views = BTreeMap::<SharingKey, (Members, Vec<(SessionId, &Stated)>)>::new();
    for (session, client) in (0..).map(SessionId).zip(clients) {
        let (node, headers) = (encoded(client), HeaderHashes::default());
        let identity = Identity::of(rule.clone(), permissions(binds), peer(&client.0), headers, &node);
        let Ok(identity) = identity else { continue };
        let (members, sharing) = views.entry(identity.key().clone()).or_default();
        members.join(session, identity.key().member_node(&node).unwrap(), at(session.0), at(session.0));
        sharing.push((session, client));
    }
    for (key, (mut members, sharing)) in views {
        let tenant = key.tenant();
        for (session, _) in &sharing {
            let shown = members.shown().unwrap().encoded();
            let given = secrets_of(&shown, tenant.as_deref().filter(|_| by_tenant));
            let is_others = |(_, (own, ..)): &&(SessionId, &Stated)| given.as_ref().is_some_and(|given| given != own);
            if let Some((_, client)) = sharing.iter().find(is_others) {
                return Some((*client).clone());
            }
            members.leave(*session, at(60_000));
            members.show_next();
        }
    }
    None
}

fn client() -> impl Strategy<Value = Stated> {
    ("[ab]", "[ab]", prop::option::of("[ab]"), "[xyz]")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Default::default() })]
    #[test]
    fn i9_a_client_that_states_the_namespace_of_another_gets_none_of_its_secrets(
        clients in prop::collection::vec(client(), 1..8),
    ) {
        let by_tenant = [KeyField::Cluster, KeyField::Tenant];
        // Permissions bind what is stated, or the control plane compares it with the credentials of the tenant.
        prop_assert_eq!(leak(&clients, &by_tenant, true, true), None);
        prop_assert_eq!(leak(&clients, &by_tenant, true, false), None);
        prop_assert_eq!(leak(&clients, &by_tenant, false, true), None);
    }
}

/// Without a tenant in the key, or if nothing binds what clients state, this test sees the leak.
#[test]
fn a_key_without_the_identity_leaks_and_that_is_seen() {
    let [honest, lying]: [Stated; 2] =
        [("a", "a"), ("b", "a")].map(|(own, stated)| (own.into(), stated.into(), None, own.into()));
    let honest_other: Stated = ("b".into(), "b".into(), None, "b".into());
    assert!(leak(&[honest.clone(), honest_other], &[KeyField::Cluster], true, true).is_some());
    assert!(leak(&[honest, lying], &[KeyField::Cluster, KeyField::Tenant], false, false).is_some());
}
