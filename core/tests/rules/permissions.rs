//! What a rule of the permissions lets a client have, in addition to the access rules.

use std::sync::Arc;

use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Client, CloseReason, Step, Variant};
use weir_core::xds::{
    Access, CertificateNames, IdentityPattern, KeyField, NodeField, Peer, PeerProof, PermissionRule, Permissions,
    Permit, SegmentPattern, Template,
};

use super::support::{Bench, CDS, EDS, LDS, SDS};

/// Returns the permit of a workload of namespace `pay`.
fn permit(types: Option<&[&str]>, names: &[&str], secrets: &[&str]) -> Arc<Permit> {
    let templates = |texts: &[&str]| texts.iter().map(|text| Template::parse(text).unwrap()).collect::<Vec<_>>();
    let rule = PermissionRule {
        share: 1,
        name: "workloads".into(),
        identities: vec![IdentityPattern::Spiffe(SegmentPattern::uri("spiffe://prod/ns/{ns}/*").unwrap())],
        node: vec![NodeField { field: KeyField::Cluster, values: templates(&[""]) }],
        types: types.map(|types| types.iter().map(|name| (*name).into()).collect()),
        names: templates(names),
        secrets: templates(secrets),
        tenant: None,
        relays_for: Vec::new(),
        client_status: false,
    };
    let spiffe = Some("spiffe://prod/ns/pay/web".into());
    let proven = Some(PeerProof::Certificate(CertificateNames { spiffe, ..CertificateNames::default() }));
    let peer = Peer { connection: 1, address: None, proven };
    Arc::new(Permissions::of(vec![rule]).judge(&peer, &[]).unwrap().unwrap())
}

fn client(variant: Variant, permit: Arc<Permit>) -> Client {
    let clearance = Access::default().clearance(None).with_permit(Some(permit));
    Client { errors: true, clearance, ..Client::plain(variant) }
}

#[test]
fn key_11_a_secret_is_for_whom_a_rule_names_it() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new();
        let of_pay = bench.add(client(variant, permit(None, &[], &["{ns}/*"])));
        let of_none = bench.add(client(variant, permit(None, &[], &[])));
        bench.set(SDS, &[("pay/key", "1"), ("bill/key", "1")]);
        for id in [of_pay, of_none] {
            match variant {
                Variant::Sotw => bench.sotw(id, SDS, &["pay/key", "bill/key"], ""),
                Variant::Delta => bench.delta(id, SDS, &["pay/key", "bill/key"], &[]),
            }
        }
        let removed = |names: &str| if variant == Variant::Sotw { String::new() } else { format!(" -{names}") };
        bench.set(SDS, &[("pay/key", "1"), ("bill/key", "1")]);
        assert_eq!(bench.said(of_pay), [format!("S !bill/key:7,pay/key{}", removed("bill/key"))], "{variant:?}");
        let said = bench.said(of_none);
        assert!(said.iter().all(|reply| !reply.contains(",") || reply.contains("!bill/key:7,!pay/key:7")), "{said:?}");
        bench.later(1_000);
        bench.set(SDS, &[("bill/key", "2"), ("pay/key", "2")]);
        assert_eq!(bench.said(of_pay), ["S pay/key"]);
        assert_eq!(bench.said(of_none), [""; 0], "nor later");
    }
}

/// A type of the table is known by its message name under any prefix. The client gets back its own spelling.
#[test]
fn key_11_no_spelling_of_a_type_evades_what_is_decided_by_type() {
    const SPELT: &str = "x/envoy.extensions.transport_sockets.tls.v3.Secret";
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::with(ProtocolOptions::default());
        let id = bench.add(client(variant, permit(None, &[], &["{ns}/*"])));
        bench.set(SDS, &[("pay/key", "1"), ("bill/key", "1")]);
        match variant {
            Variant::Sotw => bench.sotw(id, SPELT, &["pay/key", "bill/key"], ""),
            Variant::Delta => bench.delta(id, SPELT, &["pay/key", "bill/key"], &[]),
        }
        bench.set(SDS, &[("pay/key", "1"), ("bill/key", "1")]);
        let replies: Vec<_> = std::iter::from_fn(|| bench.poll(id)).collect();
        assert!(replies.iter().any(|reply| reply.errors.iter().any(|(_, error)| error.code == 7)), "{variant:?}");
        assert!(replies.iter().all(|reply| *reply.spelling == *SPELT), "{variant:?}");
    }
}

#[test]
fn key_11_a_wildcard_gives_no_secret_beside_those_of_the_rule() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new();
        let [of_pay, of_none, of_all] =
            [&["{ns}/*"][..], &[], &["*"]].map(|secrets| bench.add(client(variant, permit(None, &[], secrets))));
        let said = |bench: &mut Bench| [of_pay, of_none, of_all].map(|id| bench.said(id).concat());
        for id in [of_pay, of_none, of_all] {
            match variant {
                Variant::Sotw => bench.sotw(id, SDS, &["*"], ""),
                Variant::Delta => bench.delta(id, SDS, &["*"], &[]),
            }
        }
        bench.whole(SDS, &[("pay/key", "1"), ("bill/key", "1")]);
        let empty = if variant == Variant::Delta { "S " } else { "" };
        assert_eq!(said(&mut bench), ["S pay/key", empty, "S bill/key,pay/key"], "{variant:?}");
        bench.later(1_000);
        bench.set(SDS, &[("bill/key", "2"), ("pay/key", "2")]);
        assert_eq!(said(&mut bench), ["S pay/key", "", "S bill/key,pay/key"], "{variant:?}");
        bench.later(1_000);
        bench.remove(SDS, "bill/key");
        let gone = if variant == Variant::Delta { "S  -bill/key" } else { "" };
        assert_eq!(said(&mut bench), ["", "", gone], "{variant:?}");
    }
}

#[test]
fn names_beside_those_of_the_rule_do_not_exist_and_are_not_requested_upstream() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new();
        let id = bench.add(client(variant, permit(None, &["{ns}-*"], &[])));
        match variant {
            Variant::Sotw => bench.sotw(id, CDS, &["*"], ""),
            Variant::Delta => bench.delta(id, CDS, &["*"], &[]),
        }
        bench.whole(CDS, &[("pay-a", "1"), ("bill-a", "1")]);
        assert_eq!(bench.said(id), ["C pay-a"], "{variant:?}");
        bench.asked_upstream();
        match variant {
            Variant::Sotw => bench.sotw(id, EDS, &["pay-a", "bill-a"], ""),
            Variant::Delta => bench.delta(id, EDS, &["pay-a", "bill-a"], &[]),
        }
        assert_eq!(bench.asked_upstream(), ["+pay-a"]);
    }
}

#[test]
fn a_type_that_is_not_permitted_ends_the_stream_and_empties_nobody() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new();
        let id = bench.add(client(variant, permit(Some(&["envoy.config.cluster.v3.Cluster"]), &[], &[])));
        match variant {
            Variant::Sotw => bench.sotw(id, LDS, &["*"], ""),
            Variant::Delta => bench.delta(id, LDS, &["*"], &[]),
        }
        let Step::End(end) = bench.step(id) else { panic!("it goes on") };
        assert!(matches!(end, CloseReason::BadRequest(_)));
        assert_eq!(
            end.to_string(),
            "type envoy.config.listener.v3.Listener is not permitted: rule workloads of permissions lists others"
        );
    }
}
