//! What a server has said of what it was asked for, by either variant. Pure: responses in, changes and the next request out.
//!
//! It takes everything as it comes and accepts all of it: whoever looks wants to see what is there, right or wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;

use crate::proto::code::NOT_FOUND;
use crate::proto::discovery::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource, ResourceError,
};
use crate::proto::{Any, Request, Response};
use crate::protocol::session::Variant;
use crate::xds::{Name, Type, WILDCARD, WRAPPER_TYPE, Xdstp, wire};

/// What is asked for.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(crate) kind: Type,
    pub(crate) type_url: String,
    /// None means everything.
    pub(crate) names: Vec<String>,
    /// Encoded.
    pub(crate) node: Bytes,
}

/// One resource as it was sent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Held {
    /// Its own, or that of the response where it has none.
    pub(crate) version: String,
    pub(crate) aliases: Vec<String>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) metadata: Option<Bytes>,
    pub(crate) resource: Any,
}

/// One thing that became different.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Change {
    Set {
        name: String,
        before: Option<Held>,
    },
    Removed {
        name: String,
        before: Held,
    },
    /// Asked for, and not there.
    Absent {
        name: String,
    },
    /// The server says what is wrong with a name.
    Trouble {
        name: String,
        reason: String,
    },
    /// The server speaks of a type that it was not asked for, which is passed over.
    Unasked {
        type_url: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameStatus {
    Unknown,
    There,
    Absent,
    Trouble,
}

#[derive(Debug)]
pub(super) struct QueryState {
    question: Question,
    /// Of the last stream; versions of one variant are nothing to the other.
    variant: Option<Variant>,
    held: BTreeMap<String, Held>,
    /// Each name that was asked for; not `*` and its like, of which nobody can say that they are known.
    standings: BTreeMap<Name, NameStatus>,
    answered: bool,
}

impl QueryState {
    pub(crate) fn new(question: Question) -> Self {
        let single = question.names.iter().filter(|name| !is_open_ended(name));
        let standings = single.map(|name| (Name::canonical(name), NameStatus::Unknown)).collect();
        Self { question, variant: None, held: BTreeMap::new(), standings, answered: false }
    }

    pub(crate) fn question(&self) -> &Question {
        &self.question
    }

    pub(crate) fn held(&self) -> &BTreeMap<String, Held> {
        &self.held
    }

    pub(crate) fn standings(&self) -> &BTreeMap<Name, NameStatus> {
        &self.standings
    }

    /// Whether more may come for ever, so that only a quiet time tells that all is there.
    pub(crate) fn is_open_ended(&self) -> bool {
        self.question.names.is_empty() || self.question.names.iter().any(|name| is_open_ended(name))
    }

    /// Every name is known to be there or not, and something was said where no name was asked for.
    pub(crate) fn is_known(&self) -> bool {
        let unknown = self.standings.values().any(|standing| *standing == NameStatus::Unknown);
        !unknown && (self.answered || !self.is_open_ended())
    }

    /// The first request of a stream. What is held from a stream before is not asked for again, where there is a way to say so.
    pub(crate) fn open(&mut self, variant: Variant) -> Request {
        let before = self.variant.replace(variant);
        let Question { type_url, node, .. } = self.question.clone();
        let (node, names) = (Some(node), self.wanted());
        match variant {
            Variant::Sotw => {
                Request::Sotw(DiscoveryRequest { node, type_url, resource_names: names, ..Default::default() })
            }
            Variant::Delta => {
                let versions = self.held.iter().filter(|(_, held)| before == Some(variant) && !held.version.is_empty());
                Request::Delta(DeltaDiscoveryRequest {
                    node,
                    type_url,
                    resource_names_subscribe: names,
                    initial_resource_versions: versions
                        .map(|(name, held)| (name.clone(), held.version.clone()))
                        .collect(),
                    ..Default::default()
                })
            }
        }
    }

    /// What a response changes, and the answer to it.
    pub(crate) fn hear(&mut self, response: Response) -> (Vec<Change>, Option<Request>) {
        let type_url = match &response {
            Response::Sotw(response) => &response.type_url,
            Response::Delta(response) => &response.type_url,
        };
        // A server of one type may leave the type out.
        if !type_url.is_empty() && type_name(type_url) != self.question.kind.name() {
            return (vec![Change::Unasked { type_url: type_url.clone() }], None);
        }
        self.answered = true;
        match response {
            Response::Sotw(response) => self.hear_sotw(response),
            Response::Delta(response) => self.hear_delta(response),
        }
    }

    fn hear_sotw(&mut self, response: DiscoveryResponse) -> (Vec<Change>, Option<Request>) {
        let mut changes = Vec::new();
        let mut named = BTreeSet::new();
        let only = response.resources.len() == 1;
        for (number, any) in response.resources.into_iter().enumerate() {
            let (name, held) = self.unwrapped(any, &response.version_info);
            let name = name.unwrap_or_else(|| self.name_of_nameless(only, number));
            named.insert(name.clone());
            self.set(name, held, Variant::Sotw, &mut changes);
        }
        if self.question.kind.info().full_state {
            let gone: Vec<_> = self.held.keys().filter(|name| !named.contains(*name)).cloned().collect();
            gone.iter().for_each(|name| self.gone(name, &mut changes));
            let there: BTreeSet<_> = named.iter().map(|name| Name::canonical(name)).collect();
            let absent: Vec<_> = self.standings.keys().filter(|name| !there.contains(*name)).cloned().collect();
            absent.iter().for_each(|name| self.gone(name.as_str(), &mut changes));
        }
        self.take_errors(response.resource_errors, &mut changes);
        let answer = DiscoveryRequest {
            version_info: response.version_info,
            resource_names: self.wanted(),
            type_url: self.question.type_url.clone(),
            response_nonce: response.nonce,
            ..Default::default()
        };
        (changes, Some(Request::Sotw(answer)))
    }

    fn hear_delta(&mut self, response: DeltaDiscoveryResponse) -> (Vec<Change>, Option<Request>) {
        let mut changes = Vec::new();
        for resource in response.resources {
            self.take(resource, &mut changes);
        }
        let others = response.removed_resource_names.into_iter().map(|name| name.name);
        for name in response.removed_resources.into_iter().chain(others) {
            self.gone(&name, &mut changes);
        }
        self.take_errors(response.resource_errors, &mut changes);
        let (type_url, response_nonce) = (self.question.type_url.clone(), response.nonce);
        (changes, Some(Request::Delta(DeltaDiscoveryRequest { type_url, response_nonce, ..Default::default() })))
    }

    fn take(&mut self, resource: Resource, changes: &mut Vec<Change>) {
        let name = wrapper_name(&resource);
        let aliases = resource.aliases.clone();
        match held_of(resource) {
            Some(held) => {
                let name = name.or_else(|| self.name_in(&held.resource));
                let name = name.unwrap_or_else(|| self.name_of_nameless(true, 0));
                self.set(name, held, Variant::Delta, changes);
            }
            // A body that is left out is the one that is held; or else there is none (DELTA-39).
            None => {
                for name in name.into_iter().chain(aliases) {
                    if !self.held.contains_key(&name) {
                        self.gone(&name, changes);
                    }
                }
            }
        }
    }

    fn set(&mut self, name: String, held: Held, variant: Variant, changes: &mut Vec<Change>) {
        for known in held.aliases.iter().chain([&name]) {
            self.mark(known, NameStatus::There);
        }
        let before = self.held.insert(name.clone(), held);
        let now = &self.held[&name];
        // In SotW a version is that of a whole set, and says nothing of one resource.
        let same = before.as_ref().is_some_and(|before| match variant {
            Variant::Delta => before == now,
            Variant::Sotw => *before == Held { version: before.version.clone(), ..now.clone() },
        });
        if !same {
            changes.push(Change::Set { name, before });
        }
    }

    fn gone(&mut self, name: &str, changes: &mut Vec<Change>) {
        let was_absent = self.mark(name, NameStatus::Absent) == Some(NameStatus::Absent);
        let by_alias = || self.held.iter().find(|(_, held)| held.aliases.iter().any(|alias| alias == name));
        let key = match self.held.contains_key(name) {
            true => Some(name.to_owned()),
            false => by_alias().map(|(key, _)| key.clone()),
        };
        match key.and_then(|key| self.held.remove_entry(&key)) {
            Some((name, before)) => changes.push(Change::Removed { name, before }),
            None if !was_absent => changes.push(Change::Absent { name: name.into() }),
            None => {}
        }
    }

    fn take_errors(&mut self, errors: Vec<ResourceError>, changes: &mut Vec<Change>) {
        for error in errors {
            let name = error.resource_name.unwrap_or_default().name;
            let status = error.error_detail.unwrap_or_default();
            if status.code == NOT_FOUND {
                self.gone(&name, changes);
            } else {
                self.mark(&name, NameStatus::Trouble);
                let reason = format!("{} ({:?})", status.message, tonic::Code::from_i32(status.code));
                changes.push(Change::Trouble { name, reason });
            }
        }
    }

    /// What a name was before, if it was asked for.
    fn mark(&mut self, name: &str, standing: NameStatus) -> Option<NameStatus> {
        self.standings.get_mut(&Name::canonical(name)).map(|held| std::mem::replace(held, standing))
    }

    /// What is asked for, as it stands in requests. Older servers know `*` by its legacy form alone, where there is one (UP-7).
    fn wanted(&self) -> Vec<String> {
        let everything = self.question.names.is_empty();
        match everything && !self.question.kind.info().empty_first.is_wildcard() {
            true => vec![WILDCARD.into()],
            false => self.question.names.clone(),
        }
    }

    fn unwrapped(&self, any: Any, version: &str) -> (Option<String>, Held) {
        if type_name(&any.type_url) == WRAPPER_TYPE
            && let Ok(wrapper) = Resource::decode(any.value.clone())
        {
            let name = wrapper_name(&wrapper);
            if let Some(mut held) = held_of(wrapper) {
                if held.version.is_empty() {
                    held.version = version.into();
                }
                return (name.or_else(|| self.name_in(&held.resource)), held);
            }
        }
        let name = self.name_in(&any);
        (name, Held { version: version.into(), aliases: Vec::new(), ttl: None, metadata: None, resource: any })
    }

    fn name_in(&self, any: &Any) -> Option<String> {
        let field = self.question.kind.info().name_field?;
        wire::last_text(&any.value, field).map(str::to_owned)
    }

    /// Some types carry no name, and are known by what they were asked for alone.
    fn name_of_nameless(&self, only: bool, number: usize) -> String {
        match self.question.names.as_slice() {
            [name] if only => name.clone(),
            _ => format!("(without a name, {})", number + 1),
        }
    }
}

fn wrapper_name(resource: &Resource) -> Option<String> {
    let other = || resource.resource_name.as_ref().map(|name| name.name.clone());
    Some(resource.name.clone()).filter(|name| !name.is_empty()).or_else(other).filter(|name| !name.is_empty())
}

fn held_of(resource: Resource) -> Option<Held> {
    let ttl = resource.ttl.and_then(|ttl| Duration::try_from(ttl).ok());
    let Resource { version, aliases, metadata, .. } = resource;
    Some(Held { version, aliases, ttl, metadata, resource: resource.resource? })
}

/// `*`, and collections of whatever is in them.
fn is_open_ended(name: &str) -> bool {
    name == WILDCARD || (Xdstp::is_new_style(name) && Xdstp::parse(name).is_ok_and(|name| name.is_glob()))
}

fn type_name(type_url: &str) -> &str {
    type_url.rsplit_once('/').map_or(type_url, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::discovery::{ResourceName, Status};
    use crate::xds::TypeTable;

    const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
    const VHDS: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";

    fn picture(type_url: &str, names: &[&str]) -> QueryState {
        let names = names.iter().map(ToString::to_string).collect();
        let kind = TypeTable::new().resolve(type_url);
        QueryState::new(Question { kind, type_url: type_url.into(), names, node: Bytes::new() })
    }

    fn body(type_url: &str, name: &str) -> Any {
        let mut value = vec![0x0a, u8::try_from(name.len()).unwrap()];
        value.extend(name.bytes());
        Any { type_url: type_url.into(), value: value.into() }
    }

    fn sotw(type_url: &str, version: &str, names: &[&str]) -> Response {
        Response::Sotw(DiscoveryResponse {
            version_info: version.into(),
            nonce: format!("n{version}"),
            type_url: type_url.into(),
            resources: names.iter().map(|name| body(type_url, name)).collect(),
            ..Default::default()
        })
    }

    fn delta(type_url: &str, set: &[(&str, &str)], removed: &[&str]) -> Response {
        let set = set.iter().map(|(name, version)| Resource {
            name: name.to_string(),
            version: version.to_string(),
            resource: Some(body(type_url, name)),
            ..Default::default()
        });
        Response::Delta(DeltaDiscoveryResponse {
            type_url: type_url.into(),
            nonce: "n".into(),
            resources: set.collect(),
            removed_resources: removed.iter().map(ToString::to_string).collect(),
            ..Default::default()
        })
    }

    fn words(changes: &[Change]) -> Vec<String> {
        let word = |change: &Change| match change {
            Change::Set { name, before: None } => format!("+{name}"),
            Change::Set { name, before: Some(_) } => format!("~{name}"),
            Change::Removed { name, .. } => format!("-{name}"),
            Change::Absent { name } => format!("!{name}"),
            Change::Trouble { name, reason } => format!("{name}: {reason}"),
            Change::Unasked { type_url } => type_url.clone(),
        };
        changes.iter().map(word).collect()
    }

    fn hear(picture: &mut QueryState, response: Response) -> Vec<String> {
        words(&picture.hear(response).0)
    }

    #[test]
    fn everything_is_asked_for_in_the_legacy_form_where_there_is_one() {
        let names = |request: Request| match request {
            Request::Sotw(request) => request.resource_names,
            Request::Delta(request) => request.resource_names_subscribe,
        };
        for variant in [Variant::Sotw, Variant::Delta] {
            assert_eq!(names(picture(CDS, &[]).open(variant)), Vec::<String>::new());
            assert_eq!(names(picture(EDS, &[]).open(variant)), ["*"]);
            assert_eq!(names(picture(EDS, &["a"]).open(variant)), ["a"]);
        }
    }

    #[test]
    fn names_are_known_by_delta_when_each_is_there_or_removed() {
        let mut picture = picture(EDS, &["a", "b"]);
        picture.open(Variant::Delta);
        assert_eq!(hear(&mut picture, delta(EDS, &[("a", "1")], &[])), ["+a"]);
        assert!(!picture.is_known());
        assert_eq!(hear(&mut picture, delta(EDS, &[], &["b"])), ["!b"]);
        assert!(picture.is_known() && !picture.is_open_ended());
        assert_eq!(picture.standings().values().collect::<Vec<_>>(), [&NameStatus::There, &NameStatus::Absent]);
        assert_eq!(hear(&mut picture, delta(EDS, &[], &["b"])), [""; 0], "it was said before");
        assert_eq!(hear(&mut picture, delta(EDS, &[("a", "1"), ("b", "1")], &[])), ["+b"]);
        assert_eq!(hear(&mut picture, delta(EDS, &[("a", "2")], &["b"])), ["~a", "-b"]);
    }

    #[test]
    fn absence_shows_in_sotw_where_a_set_is_whole_and_nowhere_else() {
        let mut clusters = picture(CDS, &["a", "b"]);
        clusters.open(Variant::Sotw);
        assert_eq!(hear(&mut clusters, sotw(CDS, "1", &["a"])), ["+a", "!b"]);
        assert!(clusters.is_known());
        assert_eq!(hear(&mut clusters, sotw(CDS, "2", &["b"])), ["+b", "-a"]);
        assert_eq!(clusters.standings().values().collect::<Vec<_>>(), [&NameStatus::Absent, &NameStatus::There]);
        let mut endpoints = picture(EDS, &["a", "b"]);
        endpoints.open(Variant::Sotw);
        assert_eq!(hear(&mut endpoints, sotw(EDS, "1", &["a"])), ["+a"]);
        assert!(!endpoints.is_known());
        assert_eq!(hear(&mut endpoints, sotw(EDS, "2", &["b"])), ["+b"], "what is not repeated stays");
        assert!(endpoints.is_known() && endpoints.held().len() == 2);
    }

    #[test]
    fn another_version_of_a_whole_set_is_no_change_of_what_is_in_it() {
        let mut picture = picture(CDS, &[]);
        picture.open(Variant::Sotw);
        assert!(!picture.is_known());
        assert_eq!(hear(&mut picture, sotw(CDS, "1", &["a"])), ["+a"]);
        assert!(picture.is_known() && picture.is_open_ended());
        assert_eq!(hear(&mut picture, sotw(CDS, "2", &["a", "b"])), ["+b"]);
        assert_eq!(picture.held()["a"].version, "2");
    }

    #[test]
    fn every_response_is_accepted_and_sotw_repeats_what_is_wanted() {
        let mut first = picture(EDS, &["a"]);
        first.open(Variant::Sotw);
        let Some(Request::Sotw(answer)) = first.hear(sotw(EDS, "7", &["a"])).1 else { panic!("no answer") };
        assert_eq!((answer.version_info.as_str(), answer.response_nonce.as_str()), ("7", "n7"));
        assert_eq!((answer.resource_names.as_slice(), answer.error_detail), (["a".to_owned()].as_slice(), None));
        let mut second = picture(EDS, &["a"]);
        second.open(Variant::Delta);
        let Some(Request::Delta(answer)) = second.hear(delta(EDS, &[], &[])).1 else { panic!("no answer") };
        assert!(answer.response_nonce == "n" && answer.resource_names_subscribe.is_empty() && answer.node.is_none());
    }

    #[test]
    fn a_second_stream_is_told_what_is_held_if_it_speaks_the_same_variant() {
        let mut picture = picture(CDS, &[]);
        picture.open(Variant::Delta);
        picture.hear(delta(CDS, &[("a", "1")], &[]));
        let versions = |request: Request| match request {
            Request::Delta(request) => request.initial_resource_versions,
            Request::Sotw(_) => panic!("another variant"),
        };
        assert_eq!(versions(picture.open(Variant::Delta)), BTreeMap::from([("a".to_owned(), "1".to_owned())]));
        picture.open(Variant::Sotw);
        assert_eq!(versions(picture.open(Variant::Delta)), BTreeMap::new());
    }

    #[test]
    fn reported_errors_make_a_name_known() {
        let mut picture = picture(EDS, &["a", "b"]);
        picture.open(Variant::Sotw);
        let error = |name: &str, code, message: &str| ResourceError {
            resource_name: Some(ResourceName { name: name.into(), ..Default::default() }),
            error_detail: Some(Status { code, message: message.into(), ..Default::default() }),
        };
        let resource_errors = vec![error("a", 5, "gone"), error("b", 7, "not for you")];
        let response = DiscoveryResponse { type_url: EDS.into(), resource_errors, ..Default::default() };
        assert_eq!(hear(&mut picture, Response::Sotw(response)), ["!a", "b: not for you (PermissionDenied)"]);
        assert!(picture.is_known());
    }

    #[test]
    fn an_alias_makes_known_what_was_asked_for_by_it_and_without_a_body_it_leads_nowhere() {
        let mut picture = picture(VHDS, &["r/a.example", "r/b.example"]);
        picture.open(Variant::Delta);
        let host = Resource {
            name: "r/host".into(),
            aliases: vec!["r/a.example".into()],
            resource: Some(body(VHDS, "host")),
            ..Default::default()
        };
        let nowhere = Resource { name: "r/b.example".into(), ..Default::default() };
        let response =
            DeltaDiscoveryResponse { type_url: VHDS.into(), resources: vec![host, nowhere], ..Default::default() };
        assert_eq!(hear(&mut picture, Response::Delta(response)), ["+r/host", "!r/b.example"]);
        assert!(picture.is_known());
        assert_eq!(hear(&mut picture, delta(VHDS, &[], &["r/a.example"])), ["-r/host"]);
    }

    #[test]
    fn wrappers_are_opened_and_other_types_are_passed_over() {
        let mut picture = picture(EDS, &["x"]);
        picture.open(Variant::Sotw);
        let ttl = Some(prost_types::Duration { seconds: 3, nanos: 0 });
        let wrapper = Resource { name: "x".into(), resource: Some(body(EDS, "y")), ttl, ..Default::default() };
        let type_url = format!("type.googleapis.com/{WRAPPER_TYPE}");
        let resources = vec![Any { type_url, value: wrapper.encode_to_vec().into() }];
        let response = DiscoveryResponse { version_info: "4".into(), resources, ..Default::default() };
        assert_eq!(hear(&mut picture, Response::Sotw(response)), ["+x"]);
        assert_eq!((&*picture.held()["x"].version, picture.held()["x"].ttl), ("4", Some(Duration::from_secs(3))));
        let (changes, answer) = picture.hear(sotw(CDS, "1", &["c"]));
        assert_eq!((words(&changes), answer), (vec![CDS.to_owned()], None));
    }

    #[test]
    fn new_style_names_are_one_in_all_their_spellings() {
        let mut picture = picture(EDS, &["xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/x?b=1&a=2"]);
        picture.open(Variant::Delta);
        hear(
            &mut picture,
            delta(EDS, &[("xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/x?a=2&b=1", "1")], &[]),
        );
        assert!(picture.is_known());
    }
}
