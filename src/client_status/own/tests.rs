use std::sync::Arc;
use std::time::Duration;

use weir_core::proto::Any;
use weir_core::proto::discovery::Resource as Wrapper;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::view::{Class, InterestChange, Selector, SessionId, Update, View};
use weir_core::xds::{BodyStore, Resource, TypeTable};

use super::*;
use crate::relay::{AuthorityReport, MissingReport, StreamReport, TypeReport};

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const LISTENER: &str = "envoy.config.listener.v3.Listener";

fn authority(name: &str, missing: &[(&str, &str)]) -> AuthorityReport {
    let one = |(kind, name): &(&str, &str)| MissingReport { kind: (*kind).into(), name: (*name).into() };
    AuthorityReport {
        authority: name.into(),
        state: "active",
        server: None,
        state_seconds: 0,
        reason: None,
        missing: missing.iter().map(one).collect(),
        missing_count: missing.len(),
        fallbacks: 0,
        returns: 0,
    }
}

/// Returns a stream whose server has sent bad versions of these names of a type.
fn stream(kind: &str, rejected: &[&str]) -> StreamReport {
    let one = |name: &&str| RejectedReport { name: Some((*name).into()), version: None, reason: format!("bad {name}") };
    let of_type = TypeReport {
        kind: kind.into(),
        state: "REQUESTED",
        refusal: None,
        wildcard: true,
        names: 0,
        names_left_out: 0,
        cached: 0,
        completeness: None,
        requested_again: 0,
        name_mismatches: 0,
        rejected: rejected.iter().map(one).collect(),
        rejected_count: rejected.len(),
    };
    StreamReport {
        server: "http://one".into(),
        connected: true,
        variant: "delta",
        responses: 1,
        last_error: None,
        liveness_call: None,
        liveness_unrouted: None,
        types: vec![of_type],
    }
}

fn report(authorities: Vec<AuthorityReport>, streams: Vec<StreamReport>) -> ViewReport {
    ViewReport {
        view: "3f2a".into(),
        key_fields: BTreeMap::from([("cluster".into(), "web".into())]),
        node: String::new(),
        shown_client: None,
        clients: 1,
        cached: BTreeMap::new(),
        from_disk: None,
        authorities,
        streams,
        audit: None,
    }
}

/// A view whose servers have sent resources.
struct World {
    view: View,
    table: Arc<TypeTable>,
    store: BodyStore,
}

impl World {
    fn new(names: &[(&str, &str)]) -> Self {
        let table = Arc::new(TypeTable::new());
        let view = View::new(table.clone(), Arc::default());
        let mut world = Self { view, table, store: BodyStore::default() };
        names.iter().for_each(|(kind, name)| world.put(kind, name, None));
        world
    }

    fn put(&mut self, kind: &str, name: &str, ttl: Option<i64>) {
        let url = format!("type.googleapis.com/{kind}");
        let kind = self.table.resolve(&url);
        let change = InterestChange { kind: kind.clone(), selector: Selector::Name(name.into()), on: true };
        self.view.change_interest(SessionId(1), change, Moment::START);
        let body = [&[0x0a, u8::try_from(name.len()).unwrap()], name.as_bytes()].concat();
        let ttl = ttl.map(|seconds| prost_types::Duration { seconds, nanos: 0 });
        let resource = Some(Any { type_url: url, value: body.into() });
        let wrapper = Wrapper { name: name.into(), resource, ttl, ..Wrapper::default() };
        let resource = Arc::new(Resource::from_wrapper(0, wrapper, &kind, &self.store).unwrap());
        let update = Update::Upsert { kind, class: Class::Named, key: name.into(), resource };
        self.view.apply(vec![update], Moment::START);
    }

    /// Returns scope, name and status of each entry.
    fn shown(&mut self, report: &ViewReport) -> Vec<(String, String, ClientResourceStatus)> {
        self.view.publish();
        let (snapshot, now) = (self.view.snapshot().clone(), Moment::START);
        let view = ViewSnapshot { view: report.view.clone(), snapshot, servers: Arc::new([]), now };
        let mut rows = Rows::new(None);
        add(report, &view, &mut rows).unwrap();
        let all = rows.done().into_iter().flat_map(|config| {
            assert_eq!(config.node.unwrap().cluster, "web");
            let scope = config.client_scope.strip_prefix("view=3f2a authority=").unwrap().to_owned();
            let of = move |row: GenericXdsConfig| (scope.clone(), row.name.clone(), row.client_status());
            config.generic_xds_configs.into_iter().map(of)
        });
        all.collect()
    }
}

fn expected(rows: &[(&str, &str, ClientResourceStatus)]) -> Vec<(String, String, ClientResourceStatus)> {
    rows.iter().map(|(scope, name, status)| ((*scope).into(), (*name).into(), *status)).collect()
}

#[test]
fn what_was_rejected_is_shown_once_with_its_type_in_the_authority_of_its_name() {
    use ClientResourceStatus::{Acked, Nacked, Requested};
    let new_style = "xdstp://x/envoy.config.cluster.v3.Cluster/a";
    let other = "xdstp://x/envoy.config.cluster.v3.Cluster/b";
    let mut world = World::new(&[(CLUSTER, "a"), (LISTENER, "a"), (CLUSTER, new_style)]);
    let authorities = vec![authority("", &[(CLUSTER, "c"), (LISTENER, "d")]), authority("x", &[])];
    let streams = vec![stream(LISTENER, &["a", "d"]), stream(CLUSTER, &[other, "d", new_style])];
    let shown = world.shown(&report(authorities, streams));
    let rows = [
        ("", "a", Acked),
        ("", "a", Nacked),
        ("", "c", Requested),
        ("", "d", Nacked),
        ("", "d", Nacked),
        ("x", new_style, Nacked),
        ("x", other, Nacked),
    ];
    assert_eq!(shown, expected(&rows), "the cluster d is another than the listener");
}

#[test]
fn authorities_without_resources_are_shown_and_each_has_what_it_misses() {
    use ClientResourceStatus::Requested;
    let name = "xdstp://y/envoy.config.cluster.v3.Cluster/a";
    let authorities = vec![authority("", &[(CLUSTER, "*")]), authority("y", &[(CLUSTER, name)])];
    let shown = World::new(&[]).shown(&report(authorities, Vec::new()));
    assert_eq!(shown, expected(&[("", "*", Requested), ("y", name, Requested)]));
}

/// After its TTL, a resource is unknown: it is missing until its server sends it again.
#[test]
fn a_resource_that_has_expired_is_shown_once_as_requested() {
    let mut world = World::new(&[(CLUSTER, "kept")]);
    world.put(CLUSTER, "a", Some(5));
    world.view.on_time(Moment::START + Duration::from_secs(6));
    let missing: Vec<_> = world.view.wants().missing().map(|(_, wanted)| wanted).collect();
    assert_eq!(missing, [Selector::Name("a".into())]);
    let shown = world.shown(&report(vec![authority("", &[(CLUSTER, "a")])], Vec::new()));
    let rows = [("", "a", ClientResourceStatus::Requested), ("", "kept", ClientResourceStatus::Acked)];
    let mut sorted = shown.clone();
    sorted.sort_by(|one, other| one.1.cmp(&other.1));
    assert_eq!(sorted, expected(&rows), "{shown:?}");
}
