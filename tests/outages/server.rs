//! A control plane of the simulation: it speaks delta, and may be out of order in several ways.

use std::collections::{BTreeMap, BTreeSet};

use weir::proto::Response;
use weir::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource};

/// How a server takes connections at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Fine,
    /// Connections fail.
    Refuses,
    /// Connections are made, and nothing comes.
    Hangs,
    /// Streams end before the first response.
    Rejects,
    /// Streams end after the first response.
    AnswersOnce,
}

#[derive(Debug)]
pub struct Server {
    pub health: Health,
    /// By type and name: one letter of content. What is missing does not exist here.
    pub content: BTreeMap<(&'static str, &'static str), char>,
}

/// What one stream has asked for.
#[derive(Debug, Default)]
pub struct Subscriptions {
    of: BTreeMap<String, (bool, BTreeSet<String>)>,
}

impl Subscriptions {
    pub fn has(&self, url: &str, name: &str) -> bool {
        self.of.get(url).is_some_and(|(_, names)| names.contains(name))
    }
}

impl Server {
    /// The answer to a request, if it asks for anything.
    pub fn answer(&self, request: &DeltaDiscoveryRequest, subscriptions: &mut Subscriptions) -> Option<Response> {
        let first = !subscriptions.of.contains_key(&request.type_url);
        let (star, names) = subscriptions.of.entry(request.type_url.clone()).or_default();
        let on = &request.resource_names_subscribe;
        let empty = on.is_empty() && request.resource_names_unsubscribe.is_empty();
        let asks_star = on.iter().any(|name| name == "*") || (first && empty);
        *star = (*star || asks_star) && !request.resource_names_unsubscribe.iter().any(|name| name == "*");
        names.extend(on.iter().filter(|name| *name != "*").cloned());
        request.resource_names_unsubscribe.iter().for_each(|name| drop(names.take(name)));
        if on.is_empty() && !asks_star {
            return None;
        }
        let of_type = self.content.iter().filter(|((url, _), _)| *url == request.type_url);
        let wanted = of_type.filter(|((_, name), _)| asks_star || on.iter().any(|asked| asked == name));
        let resource = |((url, name), content): (&(&str, &str), &char)| Resource {
            version: content.to_string(),
            ..super::world::resource(url, name, *content)
        };
        // What the relay states to hold is not sent again.
        let held =
            |resource: &Resource| request.initial_resource_versions.get(&resource.name) == Some(&resource.version);
        let here: Vec<Resource> = wanted.map(resource).filter(|resource| !held(resource)).collect();
        let exists = |name: &&String| self.content.keys().any(|(url, known)| *url == request.type_url && known == name);
        let stated = request.initial_resource_versions.keys();
        let missing = on.iter().chain(stated).filter(|name| *name != "*" && !exists(name));
        let missing: BTreeSet<String> = missing.cloned().collect();
        if here.is_empty() && missing.is_empty() && !asks_star {
            return None; // as real ones do: nothing is new to whoever states what it holds
        }
        Some(Response::Delta(DeltaDiscoveryResponse {
            resources: here,
            removed_resources: missing.into_iter().collect(),
            type_url: request.type_url.clone(),
            nonce: "n".into(),
            ..Default::default()
        }))
    }
}
