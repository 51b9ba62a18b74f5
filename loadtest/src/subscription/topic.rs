//! One type on one stream.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use prost::Message as _;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, Status};

use super::names::Name;
use super::response::Response;
use crate::kind::Kind;
use crate::wire::Variant;

#[derive(Debug, Clone)]
pub struct Topic {
    pub kind: Kind,
    pub variant: Variant,
    pub is_wildcard: bool,
    /// The subscribed names.
    pub names: BTreeSet<Name>,
    /// Names that were unsubscribed on this stream, the last ones. Responses with them may still be on their way.
    formerly: VecDeque<Name>,
    pub held: BTreeMap<Name, ReceivedVersion>,
    /// Subscribed names that the server reported as absent, or omitted from a complete set after it had sent them. A name that no set
    /// had yet may still come, as gRPC clients assume.
    pub absent: BTreeSet<Name>,
    /// Whether the first request was sent on this stream.
    pub is_open: bool,
    /// Responses on this stream.
    pub responses: u64,
    /// The number of the server to which the client is connected now.
    pub server: u32,
    /// Version of the last accepted response (SotW).
    version: String,
    /// Nonce of the last response on this stream.
    nonce: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedVersion {
    pub update: u64,
    /// The number of the server that sent the resource.
    pub server: u32,
    pub version: Option<Name>,
    pub refers_to: Box<[Name]>,
}

impl Topic {
    pub fn new(kind: Kind, variant: Variant, is_wildcard: bool, names: BTreeSet<Name>) -> Self {
        Self {
            kind,
            variant,
            is_wildcard,
            names,
            formerly: VecDeque::new(),
            held: BTreeMap::new(),
            absent: BTreeSet::new(),
            is_open: false,
            responses: 0,
            server: 0,
            version: String::new(),
            nonce: String::new(),
        }
    }

    /// Starts a new stream. The client keeps its resources.
    pub fn reopen(&mut self) {
        self.is_open = false;
        self.responses = 0;
        self.formerly.clear();
        self.nonce.clear();
    }

    /// Whether the client subscribes to a name, or has done so on this stream.
    pub fn has_asked_for(&self, name: &Name) -> bool {
        self.is_wildcard || self.names.contains(name) || self.formerly.contains(name)
    }

    /// Whether the server has answered every subscription. It need not answer for names whose current version the client states.
    pub fn is_complete(&self) -> bool {
        match self.is_wildcard {
            true => self.responses > 0 || !self.held.is_empty(),
            false => self.names.iter().all(|name| self.is_answered(name)),
        }
    }

    /// Returns which subscriptions the server has not answered.
    pub fn lack(&self) -> Option<String> {
        let (kind, names) = (self.kind.word(), self.names.len());
        let missing = self.names.iter().filter(|name| !self.is_answered(name)).count();
        let lack = match self.is_wildcard {
            true => format!("the server is connected, and sends no {kind}"),
            false => format!("the server is connected, and does not send {missing} of {names} requested {kind}"),
        };
        (!self.is_complete()).then_some(lack)
    }

    fn is_answered(&self, name: &Name) -> bool {
        self.held.contains_key(name) || self.absent.contains(name)
    }

    /// Returns the first request of the type on this stream.
    pub fn open(&mut self, node: Option<&[u8]>) -> Vec<u8> {
        self.is_open = true;
        match self.variant {
            Variant::Sotw => self.sotw(node),
            Variant::Delta => {
                let stated = self.held.iter().filter_map(|(name, held)| Some((name, held.version.as_ref()?)));
                DeltaDiscoveryRequest {
                    node: node.map(|node| node.to_vec().into()),
                    type_url: self.kind.url().into(),
                    resource_names_subscribe: strings(&self.names),
                    initial_resource_versions: stated.map(|(name, v)| (name.to_string(), v.to_string())).collect(),
                    ..Default::default()
                }
                .encode_to_vec()
            }
        }
    }

    /// Subscribes to these names instead of the current ones; `None` if they are equal. Drops the resources of other names.
    pub fn set_names(&mut self, wanted: BTreeSet<Name>) -> Option<Vec<u8>> {
        if wanted == self.names {
            return None;
        }
        let added: BTreeSet<Name> = wanted.difference(&self.names).cloned().collect();
        let dropped: BTreeSet<Name> = self.names.difference(&wanted).cloned().collect();
        for name in &dropped {
            self.held.remove(name);
            self.absent.remove(name);
        }
        self.formerly.extend(dropped.iter().cloned());
        self.names = wanted;
        let excess = self.formerly.len().saturating_sub(FORMER_NAMES + 2 * self.names.len());
        self.formerly.drain(..excess);
        Some(match self.variant {
            Variant::Sotw => self.sotw(None),
            Variant::Delta => DeltaDiscoveryRequest {
                type_url: self.kind.url().into(),
                resource_names_subscribe: strings(&added),
                resource_names_unsubscribe: strings(&dropped),
                ..Default::default()
            }
            .encode_to_vec(),
        })
    }

    /// Returns the last request again, as an Envoy sends it for endpoints whose cluster has changed (SotW).
    pub fn repeat(&self) -> Vec<u8> {
        self.sotw(None)
    }

    /// Stores the nonce of a response, valid or not.
    pub fn receive(&mut self, response: &Response) {
        self.responses += 1;
        self.nonce.clone_from(&response.nonce);
    }

    pub fn accept(&mut self, response: &Response) {
        self.version.clone_from(&response.version);
        let is_complete_set = self.variant == Variant::Sotw && self.kind.is_full_state();
        let held_before = if is_complete_set { std::mem::take(&mut self.held) } else { BTreeMap::new() };
        for entry in &response.entries {
            if self.is_wildcard || self.names.contains(&entry.name) {
                let refers_to = entry.refers_to.clone().into_boxed_slice();
                let held = ReceivedVersion {
                    update: entry.update(),
                    server: self.server,
                    version: entry.version.clone(),
                    refers_to,
                };
                self.held.insert(entry.name.clone(), held);
                self.absent.remove(&entry.name);
            }
        }
        for name in &response.removed {
            self.held.remove(name);
            if self.names.contains(name) {
                self.absent.insert(name.clone());
            }
        }
        let left_out =
            held_before.into_keys().filter(|name| self.names.contains(name) && !self.held.contains_key(name));
        self.absent.extend(left_out);
    }

    /// Returns the ACK of the last response, with that response's nonce or with this one.
    pub fn ack(&self, nonce: Option<&str>) -> Vec<u8> {
        self.answer(nonce, None)
    }

    pub fn nack(&self, reason: &str) -> Vec<u8> {
        self.answer(None, Some(Status { code: INTERNAL, message: reason.into() }))
    }

    fn answer(&self, nonce: Option<&str>, error: Option<Status>) -> Vec<u8> {
        let nonce = nonce.unwrap_or(&self.nonce).to_owned();
        match self.variant {
            Variant::Sotw => {
                let mut request = self.sotw_request(None);
                request.response_nonce = nonce;
                request.error_detail = error;
                request.encode_to_vec()
            }
            Variant::Delta => DeltaDiscoveryRequest {
                type_url: self.kind.url().into(),
                response_nonce: nonce,
                error_detail: error,
                ..Default::default()
            }
            .encode_to_vec(),
        }
    }

    fn sotw(&self, node: Option<&[u8]>) -> Vec<u8> {
        self.sotw_request(node).encode_to_vec()
    }

    fn sotw_request(&self, node: Option<&[u8]>) -> DiscoveryRequest {
        DiscoveryRequest {
            version_info: self.version.clone(),
            node: node.map(|node| node.to_vec().into()),
            resource_names: strings(&self.names),
            type_url: self.kind.url().into(),
            response_nonce: self.nonce.clone(),
            ..Default::default()
        }
    }
}

fn strings(names: &BTreeSet<Name>) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

const INTERNAL: i32 = 13;
/// How many former names are stored, in addition to twice the number of subscribed names.
const FORMER_NAMES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subscription::Entry;

    #[test]
    fn a_name_has_its_answer_when_it_comes_or_is_left_out_after_it_was_there() {
        let set = |names: &[&str]| {
            let entry = |name: &&str| Entry { name: (*name).into(), version: None, stamp: None, refers_to: Vec::new() };
            Response { entries: names.iter().map(entry).collect(), ..Response::default() }
        };
        let mut topic = Topic::new(Kind::Cluster, Variant::Sotw, false, ["a", "b"].map(Name::from).into());
        topic.accept(&set(&["a"]));
        assert!(!topic.is_complete(), "b may still come (ORD-10)");
        topic.accept(&set(&["a", "b"]));
        assert!(topic.is_complete());
        topic.accept(&set(&["b"]));
        assert!(topic.is_complete(), "a was deleted (SOTW-20)");
        assert_eq!(topic.absent, ["a"].map(Name::from).into());
        topic.accept(&set(&["a", "b"]));
        assert_eq!((topic.is_complete(), topic.absent.len()), (true, 0));
    }
}
