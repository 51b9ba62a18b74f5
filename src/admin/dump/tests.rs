use std::sync::Arc;

use serde_json::{Value as Json, json};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use weir_core::proto::Any;
use weir_core::proto::discovery::Resource as Wrapper;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::view::{Class, InterestChange, Retain, Selector, SessionId, Update, View};
use weir_core::xds::{BodyStore, Resource, Type, TypeTable};

use super::mask::Mask;
use super::writer::{Pieces, Source, Writer};
use super::{Wanted, sections};
use crate::transcode::{Strictness, Transcoder};

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const LISTENER: &str = "envoy.config.listener.v3.Listener";

/// A view to be dumped.
struct World {
    view: View,
    table: Arc<TypeTable>,
    store: BodyStore,
}

impl World {
    fn new() -> Self {
        let table = Arc::new(TypeTable::new());
        Self { view: View::new(table.clone(), Arc::default()), table, store: BodyStore::default() }
    }

    fn resource(&self, kind: &str, fields: &Json) -> Arc<Resource> {
        let body = Transcoder::envoy().from_json(kind, fields, Strictness::Strict).unwrap();
        let url = format!("type.googleapis.com/{kind}");
        let name = fields["name"].as_str().or(fields["id"].as_str()).unwrap().to_owned();
        let wrapper =
            Wrapper { name, resource: Some(Any { type_url: url.clone(), value: body }), ..Wrapper::default() };
        Arc::new(Resource::from_wrapper(0, wrapper, &self.table.resolve(&url), &self.store).unwrap())
    }

    /// Subscribes a client to this, and returns its type.
    fn wanted(&mut self, kind: &str, selector: Selector) -> Type {
        let kind = self.table.resolve(&format!("type.googleapis.com/{kind}"));
        let change = InterestChange { kind: kind.clone(), selector, on: true };
        self.view.change_interest(SessionId(1), change, Moment::START);
        kind
    }

    fn named(&mut self, kind: &str, fields: &Json) {
        let resource = self.resource(kind, fields);
        let key = resource.name.clone();
        let kind = self.wanted(kind, Selector::Name(key.clone()));
        self.view.apply(vec![Update::Upsert { kind, class: Class::Named, key, resource }], Moment::START);
    }

    fn whole(&mut self, kind: &str, all: &[Json]) {
        let resources = all.iter().map(|fields| self.resource(kind, fields)).collect();
        let kind = self.wanted(kind, Selector::Wildcard);
        self.view.apply(vec![Update::FullSet { kind, resources, retain: Retain::nothing() }], Moment::START);
    }

    async fn dump(&mut self, resource: Option<&str>, mask: Option<&str>) -> Json {
        self.view.publish();
        let source = Source { client: None, snapshot: self.view.snapshot().clone(), now: Moment::START };
        let resource = resource.map(str::to_owned);
        let wanted = Wanted { resource, mask: mask.map(Mask::parse), include_eds: false };
        let (to, mut from) = mpsc::channel(1);
        let mut pieces = Pieces::new(to, Handle::current());
        let writing = tokio::task::spawn_blocking(move || {
            Writer { transcoder: &Transcoder::envoy(), source: &source, wanted: &wanted }.write(&mut pieces)
        });
        let mut text = Vec::new();
        while let Some(piece) = from.recv().await {
            text.extend_from_slice(&piece);
        }
        assert_eq!(writing.await.unwrap(), Some(()));
        let dump: Json = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
        dump["configs"].clone()
    }
}

/// Returns the value at a pointer in each entry of a list.
fn each<'a>(list: &'a Json, pointer: &str) -> Vec<&'a str> {
    let all = list.as_array().unwrap_or_else(|| panic!("no list: {list}"));
    all.iter().map(|entry| entry.pointer(pointer).and_then(Json::as_str).unwrap_or("none")).collect()
}

#[tokio::test]
async fn a_resource_that_is_in_a_set_and_requested_by_name_is_listed_once_and_twice_if_it_differs() {
    let mut world = World::new();
    world.whole(CLUSTER, &[json!({"name": "a"}), json!({"name": "b", "alt_stat_name": "of the set"})]);
    for fields in [json!({"name": "a"}), json!({"name": "b", "alt_stat_name": "by name"}), json!({"name": "c"})] {
        world.named(CLUSTER, &fields);
    }
    let dump = world.dump(None, None).await;
    assert_eq!(dump.as_array().unwrap().len(), 1, "{dump:#}");
    let clusters = &dump[0]["dynamic_active_clusters"];
    let mut names = each(clusters, "/cluster/name");
    assert_eq!(names.len(), 4, "{dump:#}");
    let (of_set, by_name) = names.split_at_mut(2);
    of_set.sort_unstable();
    by_name.sort_unstable();
    assert_eq!((&*of_set, &*by_name), (&["a", "b"][..], &["b", "c"][..]), "the set is first");
    let of_b: Vec<_> = each(clusters, "/cluster/alt_stat_name").into_iter().filter(|of| *of != "none").collect();
    assert_eq!(of_b, ["of the set", "by name"]);
}

/// The version is the set's. Names that clients subscribe to do not change it.
#[tokio::test]
async fn a_part_has_the_version_of_its_set_unless_it_is_masked() {
    let mut world = World::new();
    world.whole(CLUSTER, &[json!({"name": "a"})]);
    let first = world.dump(None, None).await;
    world.named(CLUSTER, &json!({"name": "c"}));
    let named = world.dump(None, None).await;
    let version = |dump: &Json| dump[0]["version_info"].as_str().unwrap().to_owned();
    assert!(!version(&first).is_empty() && version(&first) == version(&named), "{named:#}");
    world.whole(CLUSTER, &[json!({"name": "a"}), json!({"name": "b"})]);
    assert_ne!(version(&world.dump(None, None).await), version(&first));

    let url = "type.googleapis.com/envoy.admin.v3.ClustersConfigDump";
    let only = world.dump(None, Some("version_info")).await;
    assert_eq!((only[0].as_object().unwrap().len(), &only[0]["@type"]), (2, &json!(url)), "{only:#}");
    assert!(only[0]["version_info"].is_string());
    let list = world.dump(None, Some("dynamic_active_clusters.cluster.name")).await;
    assert_eq!(list[0].get("version_info"), None, "{list:#}");
    assert_eq!(world.dump(None, Some("dynamic_listeners")).await, json!([]), "nothing of it is wanted");
}

#[tokio::test]
async fn types_that_envoy_does_not_dump_share_a_list_and_one_part_follows_another() {
    let mut world = World::new();
    world.whole("envoy.config.core.v3.Node", &[json!({"id": "one"}), json!({"id": "two"})]);
    world.named("envoy.config.trace.v3.Tracing.Http", &json!({"name": "three"}));
    world.whole(LISTENER, &[json!({"name": "l"})]);
    world.whole(CLUSTER, &[json!({"name": "a"})]);
    let dump = world.dump(None, None).await;
    let messages: Vec<_> = each(&dump, "/@type").iter().map(|url| url.rsplit('.').next().unwrap()).collect();
    assert_eq!(messages, ["ClustersConfigDump", "ListenersConfigDump", "ClientConfig"]);
    let mut names = each(&dump[2]["generic_xds_configs"], "/name");
    names.sort_unstable();
    assert_eq!(names, ["one", "three", "two"]);
    let one = world.dump(Some("generic_xds_configs"), Some("name")).await;
    assert_eq!(one.as_array().unwrap().len(), 3, "{one:#}");
    let entry = "type.googleapis.com/envoy.service.status.v3.ClientConfig.GenericXdsConfig";
    assert!(each(&one, "/@type").iter().all(|url| *url == entry), "{one:#}");
    assert_eq!(world.dump(Some(sections::ENDPOINTS), None).await, json!([]));
}

/// A dump waits if its reader has no room for a piece. What was written is never cut.
#[tokio::test]
async fn a_long_dump_comes_in_pieces() {
    let mut world = World::new();
    let long = "x".repeat(1000);
    let all: Vec<_> = (0..300).map(|at| json!({"name": format!("c{at}"), "alt_stat_name": long})).collect();
    world.whole(CLUSTER, &all);
    let dump = world.dump(None, None).await;
    assert_eq!(dump[0]["dynamic_active_clusters"].as_array().unwrap().len(), 300);
}
