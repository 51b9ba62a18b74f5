//! One stream of a control plane that answers by itself: what was requested on it, and what was sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use prost::Message;
use tokio::sync::watch;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse};
use weir_core::proto::{Any, Request, Response};
use weir_core::protocol::session::Variant;

use crate::plane::Stream;
use crate::resources::{CDS, cluster, nonce_of, wrapped};
use crate::script::{Manner, Seen, Set, Way, World};

pub(crate) struct Conversation {
    stream: Stream,
    manner: Manner,
    seen: Arc<Mutex<Seen>>,
    /// The index of the stream.
    at: usize,
    topics: BTreeMap<String, Topic>,
    nonce: usize,
}

/// One type on the stream.
#[derive(Default)]
struct Topic {
    /// The names that are subscribed to. `*` stands for everything.
    names: BTreeSet<String>,
    /// The versions that the relay has, as it stated them or was sent them.
    held: Set,
}

impl Conversation {
    pub fn over(stream: Stream, manner: Manner, seen: Arc<Mutex<Seen>>) -> Self {
        let at = seen.lock().unwrap().begin();
        Self { stream, manner, seen, at, topics: BTreeMap::new(), nonce: 0 }
    }

    /// Follows the script until the stream ends.
    pub async fn hold(mut self, mut ways: watch::Receiver<Way>) {
        ways.mark_unchanged();
        loop {
            let goes_on = tokio::select! {
                request = self.stream.requests.recv() => match request {
                    Some(request) => {
                        let way = ways.borrow().clone(); // if it is new, it remains to be followed on the whole stream
                        self.take(request, &way).await
                    }
                    None => false,
                },
                changed = ways.changed() => {
                    let way = ways.borrow_and_update().clone();
                    changed.is_ok() && self.turn(&way)
                }
            };
            if !goes_on {
                break;
            }
        }
        self.note(|seen| seen.open -= 1);
    }

    fn note(&self, note: impl FnOnce(&mut Seen)) {
        note(&mut self.seen.lock().unwrap());
    }

    /// Does with an open stream what a changed script says, and returns whether the stream goes on.
    fn turn(&mut self, way: &Way) -> bool {
        match way {
            Way::EndsUnheard => return false,
            Way::Has(world) | Way::EndsForTypes(_, _, world) => self.send_news(world),
            Way::Gives(_) | Way::GivesOnly(_) => {
                let requested = self.topics.iter().map(|(url, topic)| (url.clone(), topic.names.clone()));
                for (url, names) in requested.collect::<Vec<_>>() {
                    self.give(way, &url, &names, Set::new());
                }
            }
            Way::Mute | Way::EndsAfterOne(_) => {}
        }
        true
    }

    /// Answers a request, and returns whether the stream goes on.
    async fn take(&mut self, request: Request, way: &Way) -> bool {
        self.count(&request);
        let url = request.type_url().to_owned();
        if let Way::EndsForTypes(refused, status, _) = way
            && (refused.contains(&url.as_str()) || refused.contains(&"*"))
        {
            self.stream.end_with(*status);
            return false;
        }
        let has_node = request.node().is_some();
        let fresh = match request {
            Request::Sotw(request) => self.topics.entry(url.clone()).or_default().on_sotw(request),
            Request::Delta(request) => self.topics.entry(url.clone()).or_default().on_delta(request),
        };
        self.note(|seen| seen.requested.extend(fresh.iter().flatten().cloned()));
        if self.manner.forgets_node && !has_node {
            return true;
        }
        if let Some(world) = way.world() {
            self.send_news(world);
            return true;
        }
        let Some(fresh) = fresh else { return true }; // an ACK or NACK
        match way {
            Way::EndsUnheard => return false,
            Way::EndsAfterOne(content) => {
                let stated = self.take_stated(&url);
                self.give(&Way::GivesOnly(content), &url, &fresh, stated);
                // Waits for the ACK or NACK first, so that the end does not overtake the response.
                while self.stream.requests.recv().await.is_some_and(|request| nonce_of(&request).is_empty()) {}
                return false;
            }
            way => {
                let is_sotw = self.stream.variant == Variant::Sotw;
                let names = if is_sotw { self.topics[&url].names.clone() } else { fresh };
                let stated = self.take_stated(&url);
                self.give(way, &url, &names, stated);
            }
        }
        true
    }

    fn count(&self, request: &Request) {
        let (length, names, stated) = match request {
            Request::Sotw(request) => (request.encoded_len(), request.resource_names.len(), 0),
            Request::Delta(request) => {
                let stated = request.initial_resource_versions.len();
                (request.encoded_len(), request.resource_names_subscribe.len(), stated)
            }
        };
        let is_answer = !nonce_of(request).is_empty();
        self.note(|seen| {
            seen.longest = seen.longest.max(length);
            (seen.stated, seen.names) = (seen.stated + stated, seen.names + names);
            seen.acks += usize::from(is_answer);
            seen.types[self.at].insert(request.type_url().to_owned());
        });
    }

    /// Returns the versions that the relay has stated and that no response was compared with.
    fn take_stated(&mut self, url: &str) -> Set {
        self.topics.get_mut(url).map(|topic| std::mem::take(&mut topic.held)).unwrap_or_default()
    }

    /// Sends what the script has of these names. In delta it removes stated names that a wildcard does not contain, as go-control-plane does.
    fn give(&mut self, way: &Way, url: &str, names: &BTreeSet<String>, stated: Set) {
        let content: Set = match way {
            Way::Gives(content) => {
                names.iter().filter(|name| *name != "*").map(|name| (name.clone(), (*content).to_owned())).collect()
            }
            Way::GivesOnly(content) => {
                let requested = content.iter().filter(|(name, _)| names.contains("*") || names.contains(*name));
                requested.map(|(name, content)| ((*name).to_owned(), (*content).to_owned())).collect()
            }
            _ => return,
        };
        if content.is_empty() && url != CDS {
            return;
        }
        let is_all = matches!(way, Way::GivesOnly(_)) && names.contains("*");
        let gone = stated.into_keys().filter(|name| is_all && !content.contains_key(name)).collect();
        self.send(url, &content, gone);
    }

    /// Sends what is new to the stream.
    fn send_news(&mut self, world: &World) {
        let mut topics = std::mem::take(&mut self.topics);
        for (url, topic) in &mut topics {
            let all = world.get(url.as_str()).unwrap_or(&NOTHING);
            match self.stream.variant {
                Variant::Sotw => self.send_set(url, topic, all),
                Variant::Delta => self.send_difference(url, topic, all),
            }
        }
        self.topics = topics;
    }

    /// Sends the complete set, if it is not the one that was sent last.
    fn send_set(&mut self, url: &str, topic: &mut Topic, all: &Set) {
        let set: Set = all.iter().filter(|(name, _)| topic.wants(name)).map(owned).collect();
        if set != topic.held {
            self.send(url, &set, Vec::new());
            topic.held = set;
        }
    }

    fn send_difference(&mut self, url: &str, topic: &mut Topic, all: &Set) {
        let news: Vec<_> =
            all.iter().filter(|(name, at)| topic.wants(name) && topic.held.get(*name) != Some(*at)).collect();
        let gone: Vec<_> = topic.held.keys().filter(|name| !all.contains_key(*name)).cloned().collect();
        for piece in news.chunks(self.manner.piece.unwrap_or(usize::MAX)) {
            let piece: Set = piece.iter().copied().map(owned).collect();
            self.send(url, &piece, Vec::new());
        }
        if !gone.is_empty() {
            self.send(url, &Set::new(), gone.clone());
        }
        topic.held.extend(news.into_iter().map(owned));
        topic.held.retain(|name, _| !gone.contains(name));
    }

    fn send(&mut self, url: &str, set: &Set, gone: Vec<String>) {
        self.nonce += 1;
        self.note(|seen| (seen.sent, seen.responses) = (seen.sent + set.len(), seen.responses + 1));
        let (type_url, nonce) = (url.to_owned(), self.nonce.to_string());
        let body = |name: &str, content: &str| Any { type_url: url.to_owned(), ..cluster(name, content) };
        self.stream.respond(&match self.stream.variant {
            Variant::Sotw => Response::Sotw(DiscoveryResponse {
                version_info: nonce.clone(),
                resources: set.iter().map(|(name, content)| body(name, content)).collect(),
                type_url,
                nonce,
                ..Default::default()
            }),
            Variant::Delta => Response::Delta(DeltaDiscoveryResponse {
                resources: set.iter().map(|(name, content)| wrapped(name, content, body(name, content))).collect(),
                removed_resources: gone,
                type_url,
                nonce,
                ..Default::default()
            }),
        });
    }
}

/// What there is of a type that the world does not have.
static NOTHING: Set = Set::new();

fn owned((name, content): (&String, &String)) -> (String, String) {
    (name.clone(), content.clone())
}

impl Topic {
    fn wants(&self, name: &str) -> bool {
        self.names.contains("*") || self.names.contains(name)
    }

    /// Applies a request, and returns the names in it if it asks for more than an earlier one.
    fn on_sotw(&mut self, request: DiscoveryRequest) -> Option<BTreeSet<String>> {
        let is_first = self.names.is_empty() && request.response_nonce.is_empty();
        let listed: BTreeSet<String> = match request.resource_names {
            names if !names.is_empty() => names.into_iter().collect(),
            _ if is_first || self.names.contains("*") => BTreeSet::from(["*".to_owned()]),
            _ => BTreeSet::new(),
        };
        let asks = !listed.is_subset(&self.names);
        self.names.clone_from(&listed);
        asks.then_some(listed)
    }

    /// Applies a request, and returns the names that it subscribes to. `*` stands for everything; `None`: it is only an ACK or NACK.
    fn on_delta(&mut self, request: DeltaDiscoveryRequest) -> Option<BTreeSet<String>> {
        let is_empty = request.resource_names_subscribe.is_empty() && request.resource_names_unsubscribe.is_empty();
        let fresh: BTreeSet<String> = match is_empty && request.response_nonce.is_empty() {
            true => BTreeSet::from(["*".to_owned()]),
            false => request.resource_names_subscribe.into_iter().collect(),
        };
        self.names.retain(|name| !request.resource_names_unsubscribe.contains(name));
        self.held.retain(|name, _| !fresh.contains(name)); // a subscription is answered even if the resource was sent before
        self.names.extend(fresh.iter().cloned());
        self.held.extend(request.initial_resource_versions);
        Some(fresh).filter(|fresh| !fresh.is_empty())
    }
}
