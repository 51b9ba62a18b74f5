//! What a server has sent to one node that subscribes like an Envoy: to all listeners and clusters, and to what these refer to. Resources that are no
//! longer referred to do not count. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use weir_core::proto::{Request, Response};
use weir_core::protocol::session::Variant;
use weir_core::xds::{Name, TypeTable, short_type_name};

use super::references::References;
use super::referred::{CLUSTERS, LISTENERS, Referred, add_referred};
use crate::cli::printer::plain;
use crate::cli::query_state::{Change, NameStatus, QueryState, Question, ReceivedResource};
use crate::cli::xds_client::Query;
use crate::transcode::{Transcoder, UnknownAny};

pub(super) struct NodeQuery {
    /// The encoded node.
    node: Bytes,
    transcoder: Arc<Transcoder>,
    variant: Option<Variant>,
    /// The queries, by the name of the type.
    types: BTreeMap<String, QueryState>,
    references: References,
}

impl NodeQuery {
    pub(crate) fn new(node: Bytes, transcoder: Arc<Transcoder>) -> Self {
        let types = [CLUSTERS, LISTENERS].map(|kind| (kind.to_owned(), asking(kind, Vec::new(), node.clone())));
        Self { node, transcoder, variant: None, types: types.into(), references: References::default() }
    }

    /// Whether every resource that the node takes is known to be present or absent.
    pub(crate) fn is_complete(&self) -> bool {
        self.types.iter().all(|(kind, query)| self.is_known(kind, query))
    }

    fn is_known(&self, kind: &str, query: &QueryState) -> bool {
        match query.is_open_ended() {
            true => query.is_known() || !self.references.take_type(kind),
            false => self.names_that_are(kind, query, NameStatus::Unknown).is_empty(),
        }
    }

    /// Returns the names and types whose state is unknown, by type.
    pub(crate) fn missing(&self) -> Vec<String> {
        let unknown = self.types.iter().filter(|(kind, query)| !self.is_known(kind, query));
        unknown.map(|(kind, query)| described(kind, &self.names_that_are(kind, query, NameStatus::Unknown))).collect()
    }

    /// Returns the names for which the server reports errors, by type.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let types = self.types.iter();
        let names = types.map(|(kind, query)| (kind, self.names_that_are(kind, query, NameStatus::Trouble)));
        names.filter(|(_, names)| !names.is_empty()).map(|(kind, names)| described(kind, &names)).collect()
    }

    /// Returns the types and names of the received resources that the node takes.
    pub(crate) fn received(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.types.iter().flat_map(|(kind, query)| query.received().iter().map(move |of| (kind, of)));
        let taken = all.filter(move |(kind, (name, received))| self.takes(kind, name, received));
        taken.map(|(kind, (name, _))| (kind.as_str(), name.as_str()))
    }

    fn takes(&self, kind: &str, name: &str, received: &ReceivedResource) -> bool {
        let mut names = received.aliases.iter().map(String::as_str).chain([name]).map(Name::canonical);
        names.any(|name| self.references.take(kind, &name))
    }

    /// Returns a resource: `Some(Some)` if it is present, `Some(None)` if it is absent or the node does not take it, `None` if that is unknown.
    pub(crate) fn resource(&self, kind: &str, name: &str) -> Option<Option<&ReceivedResource>> {
        let Some(query) = self.types.get(kind) else { return self.is_complete().then_some(None) };
        let received = query.received().get(name).filter(|received| self.takes(kind, name, received));
        if received.is_some() {
            return Some(received);
        }
        let name = Name::canonical(name);
        let is_absent = match query.statuses().get(&name).filter(|_| self.references.take(kind, &name)) {
            Some(status) => *status == NameStatus::Absent,
            None if query.is_open_ended() => self.is_known(kind, query),
            None => self.is_complete(), // no resource refers to it
        };
        is_absent.then_some(None)
    }

    fn names_that_are(&self, kind: &str, query: &QueryState, wanted: NameStatus) -> Vec<String> {
        let of_status = query.statuses().iter().filter(|(_, status)| **status == wanted);
        let taken = of_status.filter(|(name, _)| self.references.take(kind, name));
        taken.map(|(name, _)| plain(name.as_str())).collect()
    }

    /// Requests names of a type, or the whole type.
    fn request(&mut self, kind: &str, names: BTreeSet<String>) -> Option<Request> {
        if let Some(query) = self.types.get_mut(kind) {
            return query.also(names);
        }
        let mut query = asking(kind, names.into_iter().collect(), self.node.clone());
        let request = self.variant.map(|variant| query.open(variant));
        self.types.insert(kind.to_owned(), query);
        request
    }
}

impl Query for NodeQuery {
    fn open(&mut self, variant: Variant) -> Vec<Request> {
        self.variant = Some(variant);
        self.types.values_mut().map(|query| query.open(variant)).collect()
    }

    fn apply(&mut self, response: Response) -> (Vec<Change>, Vec<Request>) {
        let type_url = match &response {
            Response::Sotw(response) => response.type_url.clone(),
            Response::Delta(response) => response.type_url.clone(),
        };
        let kind = TypeTable::new().resolve(&type_url);
        let Some(query) = self.types.get_mut(kind.name()) else {
            return (vec![Change::Unasked { type_url }], Vec::new());
        };
        let (changes, answer) = query.apply(response);
        let mut referred = Referred::new();
        for change in &changes {
            match change {
                Change::Set { name, .. } => {
                    let Some(resource) = query.received().get(name) else { continue };
                    let mut own = Referred::new();
                    let json = self.transcoder.to_json(kind.name(), &resource.resource.value, UnknownAny::Wrap);
                    // A resource that cannot be read refers to nothing, for an Envoy too.
                    if let Ok(json) = json {
                        add_referred(kind.name(), &json, &mut own);
                    }
                    for (kind, names) in &own {
                        referred.entry(*kind).or_default().extend(names.iter().cloned());
                    }
                    self.references.set(kind.name(), name, &resource.aliases, own);
                }
                Change::Removed { name, .. } => self.references.remove(kind.name(), name),
                _ => {}
            }
        }
        if !changes.is_empty() {
            self.references.follow();
        }
        let more: Vec<_> = referred.into_iter().filter_map(|(kind, names)| self.request(kind, names)).collect();
        (changes, answer.into_iter().chain(more).collect())
    }
}

fn asking(kind: &str, names: Vec<String>, node: Bytes) -> QueryState {
    let kind = TypeTable::new().resolve(kind);
    QueryState::new(Question { type_url: kind.url().into_owned(), kind, names, node })
}

/// Returns the short name of a type, with some names.
fn described(kind: &str, names: &[String]) -> String {
    let shown = names.iter().take(SHOWN_NAMES).cloned().collect::<Vec<_>>().join(", ");
    let kind = short_type_name(kind);
    match names.len().saturating_sub(SHOWN_NAMES) {
        0 if shown.is_empty() => kind,
        0 => format!("{kind} {shown}"),
        more => format!("{kind} {shown} and {more} more"),
    }
}

const SHOWN_NAMES: usize = 5;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use weir_core::proto::Any;
    use weir_core::proto::discovery::{DeltaDiscoveryResponse, DiscoveryResponse, Resource};

    use super::*;
    use crate::transcode::Strictness;

    const ENDPOINTS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";

    fn any(kind: &str, json: &Value) -> Any {
        let value = Transcoder::envoy().from_json(kind, json, Strictness::Strict).unwrap();
        Any { type_url: format!("type.googleapis.com/{kind}"), value }
    }

    fn cluster(name: &str) -> Any {
        any(CLUSTERS, &json!({"name": name, "type": "EDS", "edsClusterConfig": {"edsConfig": {"ads": {}}}}))
    }

    fn assignment(name: &str) -> Any {
        any(ENDPOINTS, &json!({"clusterName": name}))
    }

    fn delta(kind: &str, set: Vec<(&str, Any)>, gone: &[&str]) -> Response {
        let wrap = |(name, any): (&str, Any)| Resource { name: name.into(), resource: Some(any), ..Default::default() };
        Response::Delta(DeltaDiscoveryResponse {
            type_url: format!("type.googleapis.com/{kind}"),
            resources: set.into_iter().map(wrap).collect(),
            removed_resources: gone.iter().map(ToString::to_string).collect(),
            ..Default::default()
        })
    }

    fn sotw(kind: &str, version: &str, resources: Vec<Any>) -> Response {
        Response::Sotw(DiscoveryResponse {
            type_url: format!("type.googleapis.com/{kind}"),
            version_info: version.into(),
            nonce: format!("n{version}"),
            resources,
            ..Default::default()
        })
    }

    fn query(variant: Variant) -> NodeQuery {
        let mut query = NodeQuery::new(Bytes::from_static(b"\x0a\x01a"), Transcoder::envoy());
        let first = query.open(variant);
        assert_eq!(first.len(), 2);
        assert!(first.iter().all(|request| request.node().is_some() && names(request).is_empty()));
        query
    }

    fn names(request: &Request) -> &[String] {
        match request {
            Request::Sotw(request) => &request.resource_names,
            Request::Delta(request) => &request.resource_names_subscribe,
        }
    }

    #[test]
    fn what_clusters_refer_to_is_subscribed_to_and_has_to_come() {
        let mut query = query(Variant::Delta);
        let (_, requests) = query.apply(delta(CLUSTERS, vec![("a", cluster("a")), ("b", cluster("b"))], &[]));
        assert_eq!((requests.len(), names(&requests[1])), (2, &["a".to_owned(), "b".to_owned()][..]));
        query.apply(delta(ENDPOINTS, vec![("a", assignment("a"))], &[]));
        assert_eq!(query.missing(), ["EDS b", "LDS"]);
        assert_eq!(query.resource(ENDPOINTS, "b"), None);
        query.apply(delta(LISTENERS, vec![], &[]));
        let (_, requests) = query.apply(delta(CLUSTERS, vec![("c", cluster("c"))], &[]));
        assert_eq!(names(&requests[1]), ["c"]);
        query.apply(delta(ENDPOINTS, vec![("c", assignment("c"))], &["b"]));
        assert!(query.is_complete() && query.missing().is_empty());
        assert_eq!((query.resource(ENDPOINTS, "b"), query.resource("acme.Own", "x")), (Some(None), Some(None)));
        assert!(query.resource(ENDPOINTS, "c").flatten().is_some());
        assert_eq!(query.received().count(), 5);
    }

    /// Removing a cluster leaves its endpoints without a reference, and the server need not remove them.
    #[test]
    fn what_nothing_refers_to_any_more_does_not_count() {
        let mut query = query(Variant::Delta);
        query.apply(delta(LISTENERS, vec![], &[]));
        query.apply(delta(CLUSTERS, vec![("a", cluster("a")), ("b", cluster("b")), ("c", cluster("c"))], &[]));
        query.apply(delta(ENDPOINTS, vec![("a", assignment("a")), ("b", assignment("b"))], &[]));
        assert_eq!((query.missing(), query.received().count()), (vec!["EDS c".to_owned()], 5));
        query.apply(delta(CLUSTERS, vec![], &["b", "c"]));
        assert_eq!(query.missing(), [""; 0]);
        assert!(query.is_complete());
        assert_eq!(query.received().collect::<Vec<_>>(), [(CLUSTERS, "a"), (ENDPOINTS, "a")]);
        assert_eq!((query.resource(ENDPOINTS, "b"), query.resource(ENDPOINTS, "c")), (Some(None), Some(None)));
        query.apply(delta(CLUSTERS, vec![("b", cluster("b"))], &[]));
        assert!(query.is_complete() && query.resource(ENDPOINTS, "b").flatten().is_some(), "it is subscribed to");
    }

    #[test]
    fn in_sotw_a_request_for_more_names_has_all_of_them_and_the_last_nonce() {
        let mut query = query(Variant::Sotw);
        query.apply(sotw(CLUSTERS, "1", vec![cluster("a")]));
        query.apply(sotw(ENDPOINTS, "1", vec![assignment("a")]));
        let (_, requests) = query.apply(sotw(CLUSTERS, "2", vec![cluster("a"), cluster("b")]));
        let Request::Sotw(more) = &requests[1] else { panic!("{requests:?}") };
        assert_eq!(more.resource_names, ["a", "b"]);
        assert_eq!((more.version_info.as_str(), more.response_nonce.as_str()), ("1", "n1"));
    }

    #[test]
    fn what_was_not_requested_is_ignored() {
        let mut query = query(Variant::Delta);
        let (changes, requests) = query.apply(delta("acme.Own", vec![], &[]));
        assert!(matches!(&changes[..], [Change::Unasked { .. }]) && requests.is_empty());
    }
}
