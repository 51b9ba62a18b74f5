//! Subscriptions that follow from received resources.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Action, Client, Stream};
use crate::checks::Note;
use crate::fleet::behaviour::{Behaviour, Follow};
use crate::kind::Kind;
use crate::subscription::{Name, Topic};
use crate::wire::Variant;

impl Client {
    /// Subscribes to what the resources of a type refer to.
    pub(super) fn follow(&mut self, kind: Kind, changes_clusters: bool, at: Duration, actions: &mut Vec<Action>) {
        let next = match kind {
            Kind::Cluster => Some(Kind::Endpoints),
            Kind::Listener => Some(Kind::Route),
            Kind::Route if self.behaviour.follow() == Follow::Grpc => Some(Kind::Cluster),
            _ => None,
        };
        if let Some(next) = next {
            self.subscribe(next, self.wanted(kind), changes_clusters, at, actions);
            if next == Kind::Cluster {
                self.subscribe(Kind::Endpoints, self.wanted(Kind::Cluster), false, at, actions);
            }
        }
        self.start_listeners(at, actions);
    }

    fn wanted(&self, kind: Kind) -> BTreeSet<Name> {
        let topics = self.streams.iter().flatten().flat_map(|stream| &stream.topics).filter(|topic| topic.kind == kind);
        let held = topics.flat_map(|topic| topic.held.values());
        let names = held.flat_map(|held| held.leads_to.iter().cloned());
        match kind == Kind::Cluster && self.is_reduced {
            true => names.step_by(2).collect(),
            false => names.collect(),
        }
    }

    fn subscribe(
        &mut self,
        kind: Kind,
        wanted: BTreeSet<Name>,
        repeats: bool,
        at: Duration,
        actions: &mut Vec<Action>,
    ) {
        if self.behaviour.follow() == Follow::PerType {
            return self.subscribe_apart(kind, wanted, at, actions);
        }
        let answers_nothing = self.behaviour == Behaviour::NeverAcker && self.variant == Variant::Sotw;
        let Some(Some(stream)) = self.streams.get_mut(0) else { return };
        let Some(place) = stream.topics.iter().position(|topic| topic.kind == kind) else { return };
        let topic = &mut stream.topics[place];
        let count = wanted.len();
        let request = if !topic.is_open {
            if wanted.is_empty() {
                return;
            }
            topic.names = wanted;
            stream.open(place, &self.node)
        } else if answers_nothing {
            return; // any further SotW request would be an ACK
        } else if let Some(request) = topic.set_names(wanted) {
            request
        } else if repeats && topic.variant == Variant::Sotw && topic.responses > 0 {
            topic.repeat()
        } else {
            return;
        };
        self.history.push(at, Note::Subscribed(kind, count));
        actions.push(Action::Send(0, request));
    }

    /// Opens a stream for each name.
    fn subscribe_apart(&mut self, kind: Kind, mut wanted: BTreeSet<Name>, at: Duration, actions: &mut Vec<Action>) {
        for key in 0..self.streams.len() {
            let Some(stream) = &self.streams[key] else { continue };
            let Some(topic) = stream.topics.first().filter(|topic| topic.kind == kind && !topic.is_wildcard) else {
                continue;
            };
            if !topic.names.iter().any(|name| wanted.remove(name)) {
                self.streams[key] = None;
                actions.push(Action::Cancel(key));
            }
        }
        for name in wanted {
            let key = self.streams.iter().position(Option::is_none).unwrap_or(self.streams.len());
            if key == self.streams.len() {
                self.streams.push(None);
            }
            let topic = Topic::new(kind, self.variant, false, BTreeSet::from([name]));
            self.streams[key] = Some(Stream::new(vec![topic]));
            self.open_stream(key, at, actions);
        }
    }

    /// An Envoy requests listeners when all clusters have their endpoints.
    pub(super) fn start_listeners(&mut self, at: Duration, actions: &mut Vec<Action>) {
        if self.behaviour.follow() != Follow::Ads {
            return;
        }
        let Some(Some(stream)) = self.streams.first_mut() else { return };
        let Some(place) = stream.topics.iter().position(|topic| topic.kind == Kind::Listener) else { return };
        let is_ready = |topic: &Topic| match topic.kind {
            Kind::Cluster | Kind::Endpoints => topic.is_complete(),
            _ => true,
        };
        if !stream.topics[place].is_open && stream.topics.iter().all(is_ready) {
            self.history.push(at, Note::Subscribed(Kind::Listener, 0));
            actions.push(Action::Send(0, stream.open(place, &self.node)));
        }
    }
}
