//! A control plane of the simulation: it serves delta, has one of the habits of real ones, and can fail in several ways.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use weir_core::proto::Response;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource};
use weir_core::protocol::moment::Moment;

/// How a server treats connections now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Fine,
    /// Connections fail.
    Refuses,
    /// Connections succeed, and nothing is sent. Calls are not answered either.
    Hangs,
    /// Like `Hangs`, but existing streams do not end: what was sent on them is read and answered when the server continues.
    HalfOpen,
    /// Only calls are answered.
    Mute,
    /// Streams end before the first response.
    Rejects,
    /// Streams end after the first response.
    AnswersOnce,
}

impl Health {
    pub fn answers_calls(self) -> bool {
        !matches!(self, Self::Hangs | Self::HalfOpen)
    }

    pub fn speaks(self) -> bool {
        self.answers_calls() && self != Self::Mute
    }
}

/// How a server treats the versions that the relay states, and how it sends its resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Habit {
    /// It sends everything again, whatever is stated.
    pub all_again: bool,
    /// It reports names as absent that are stated by name and that it does not have.
    pub answers_foreign: bool,
    /// If everything under `*` is stated, it sends an empty response; otherwise it sends none.
    pub says_nothing_is_new: bool,
    /// Its versions are those of one replica, and each stream may reach another.
    pub replicas: bool,
    /// Sets are sent one resource at a time, with this pause.
    pub pieces: Option<Duration>,
}

#[derive(Debug)]
pub struct Server {
    pub health: Health,
    pub habit: Habit,
    /// One letter of content for each resource, by type and name. A resource that is not in the map does not exist here.
    pub content: BTreeMap<(&'static str, &'static str), char>,
    /// Resources that are sent without a body for now.
    pub broken: BTreeSet<&'static str>,
    pub streams: u64,
}

/// What one stream has requested, and its responses in flight.
#[derive(Debug, Default)]
pub struct Subscriptions {
    of: BTreeMap<String, (bool, BTreeSet<String>)>,
    replica: u64,
    out: VecDeque<(Moment, Response)>,
}

impl Subscriptions {
    pub fn has(&self, url: &str, name: &str) -> bool {
        self.of.get(url).is_some_and(|(wildcard, names)| *wildcard || names.contains(name))
    }

    /// Returns the next response, if one has arrived by now.
    pub fn next(&mut self, now: Moment) -> Option<Response> {
        let due = self.out.front().is_some_and(|(at, _)| *at <= now);
        due.then(|| self.out.pop_front()).flatten().map(|(_, response)| response)
    }
}

impl Server {
    pub fn accept(&mut self) -> Subscriptions {
        self.streams += 1;
        let replica = if self.habit.replicas { self.streams } else { 0 };
        Subscriptions { replica, ..Subscriptions::default() }
    }

    /// Reads a request, and queues the responses to it.
    pub fn hear(&self, request: &DeltaDiscoveryRequest, to: &mut Subscriptions, now: Moment) {
        let url = &request.type_url;
        let first = !to.of.contains_key(url);
        let replica = to.replica;
        let (wildcard, names) = to.of.entry(url.clone()).or_default();
        let on = &request.resource_names_subscribe;
        let empty = on.is_empty() && request.resource_names_unsubscribe.is_empty();
        let asks_star = on.iter().any(|name| name == "*") || (first && empty);
        *wildcard = (*wildcard || asks_star) && !request.resource_names_unsubscribe.iter().any(|name| name == "*");
        names.extend(on.iter().filter(|name| *name != "*").cloned());
        request.resource_names_unsubscribe.iter().for_each(|name| drop(names.take(name)));
        if on.is_empty() && !asks_star {
            return;
        }
        let of_type = self.content.iter().filter(|((of, _), _)| of == url);
        let wanted = of_type.filter(|((_, name), _)| asks_star || on.iter().any(|requested| requested == name));
        let stated = &request.initial_resource_versions;
        let held = |resource: &Resource| {
            !self.habit.all_again && stated.get(&resource.name).is_some_and(|version| *version == resource.version)
        };
        let resources: Vec<_> = wanted
            .map(|((url, name), content)| self.resource(url, name, *content, replica))
            .filter(|of| !held(of))
            .collect();
        let exists = |name: &String| self.content.keys().any(|(of, known)| of == url && known == name);
        // The server's own versions have a dot.
        let known = |version: &str| self.habit.answers_foreign || version.contains('.');
        let sent = stated.iter().filter(|(_, version)| known(version)).map(|(name, _)| name);
        let requested = on.iter().filter(|_| self.habit.answers_foreign);
        let missing = requested.chain(sent).filter(|name| *name != "*" && !exists(name));
        let removed: BTreeSet<String> = missing.cloned().collect();
        self.send(url, resources, removed, asks_star && self.habit.says_nothing_is_new, to, now);
    }

    /// Sends a resource that has changed, if the stream subscribes to it.
    pub fn push(&self, url: &'static str, name: &'static str, to: &mut Subscriptions, now: Moment) {
        if !to.has(url, name) {
            return;
        }
        let replica = to.replica;
        match self.content.get(&(url, name)) {
            Some(content) => {
                let resource = self.resource(url, name, *content, replica);
                self.send(url, vec![resource], BTreeSet::new(), false, to, now);
            }
            None => self.send(url, Vec::new(), [name.to_owned()].into(), false, to, now),
        }
    }

    fn resource(&self, url: &str, name: &str, content: char, replica: u64) -> Resource {
        let mut resource =
            Resource { version: format!("{content}.{replica}"), ..super::world::resource(url, name, content) };
        if self.broken.contains(name) {
            resource.resource = None;
        }
        resource
    }

    fn send(
        &self,
        url: &str,
        resources: Vec<Resource>,
        removed: BTreeSet<String>,
        even_if_empty: bool,
        to: &mut Subscriptions,
        now: Moment,
    ) {
        let response = |resources, removed_resources| {
            Response::Delta(DeltaDiscoveryResponse {
                resources,
                removed_resources,
                type_url: url.into(),
                nonce: "n".into(),
                ..Default::default()
            })
        };
        let mut at = now.max(to.out.back().map_or(now, |(at, _)| *at));
        // A removal never overtakes updates of the name that were sent before.
        let gone: Vec<_> = removed.into_iter().collect();
        if let Some(pause) = self.habit.pieces.filter(|_| resources.len() > 1) {
            for resource in resources {
                to.out.push_back((at, response(vec![resource], Vec::new())));
                at = at + pause;
            }
            if !gone.is_empty() {
                to.out.push_back((at, response(Vec::new(), gone)));
            }
        } else if !resources.is_empty() || !gone.is_empty() || even_if_empty {
            to.out.push_back((at, response(resources, gone)));
        }
    }
}
