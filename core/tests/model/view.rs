//! What the server has reported, recomputed from the log of everything that reached the relay.
//!
//! It shares no code with the relay. Timers that it repeats have their own numbers.

use std::collections::{BTreeMap, BTreeSet};

use weir_core::protocol::moment::Moment;

use crate::content::{Content, Kind};
use crate::origin::{Sent, Set};

/// What reached the relay's view, in order.
#[derive(Debug, Clone)]
pub enum Entry {
    Said {
        sent: Box<Sent>,
        at: Moment,
    },
    Wanted {
        kind: Kind,
        name: Option<String>,
        on: bool,
    },
    TimedOut {
        kind: Kind,
        name: String,
    },
    /// After a second request, the server's silence shows that `*` does not contain this name.
    NotThere {
        kind: Kind,
        name: String,
        at: Moment,
    },
    /// A stream with these `*` subscriptions ended.
    Ended {
        stars: Vec<Kind>,
    },
}

/// What the server has reported, as far as it was subscribed.
#[derive(Debug, Default, Clone)]
pub struct ModelView {
    pub stars: BTreeMap<Kind, StarView>,
    /// `None` means absence by evidence.
    pub named: BTreeMap<(Kind, String), Option<Content>>,
    wanted: BTreeSet<(Kind, Option<String>)>,
}

#[derive(Debug, Default, Clone)]
pub struct StarView {
    pub set: Set,
    pub gone: BTreeMap<String, Moment>,
    /// The complete set has arrived on this opening.
    whole: bool,
}

impl ModelView {
    pub fn replay(log: &[Entry]) -> Self {
        let mut view = Self::default();
        log.iter().for_each(|entry| view.add(entry));
        view
    }

    fn add(&mut self, entry: &Entry) {
        match entry {
            Entry::Said { sent, at } if sent.wildcard => self.add_star(sent, *at),
            Entry::Said { sent, .. } => self.add_named(sent),
            Entry::Wanted { kind, name, on: true } => drop(self.wanted.insert((*kind, name.clone()))),
            Entry::Wanted { kind, name, on: false } => {
                self.wanted.remove(&(*kind, name.clone()));
                match name {
                    Some(name) => drop(self.named.remove(&(*kind, name.clone()))),
                    None => drop(self.stars.remove(kind)),
                }
            }
            Entry::TimedOut { kind, name } => drop(self.named.insert((*kind, name.clone()), None)),
            Entry::NotThere { kind, name, at } => {
                let wildcard = self.stars.entry(*kind).or_default();
                wildcard.set.remove(name);
                wildcard.gone.insert(name.clone(), *at);
            }
            Entry::Ended { stars } => {
                for (_, wildcard) in self.stars.iter_mut().filter(|(kind, _)| stars.contains(kind)) {
                    wildcard.whole = false; // there may be more than before
                }
            }
        }
    }

    fn add_star(&mut self, sent: &Sent, at: Moment) {
        if !self.wanted.contains(&(sent.kind, None)) {
            return;
        }
        let wildcard = self.stars.entry(sent.kind).or_default();
        if sent.complete {
            wildcard.gone.extend(wildcard.set.keys().map(|name| (name.clone(), at)));
            wildcard.set.clear();
            wildcard.whole = true;
        }
        for content in &sent.set {
            wildcard.gone.remove(&content.name);
            wildcard.set.insert(content.name.clone(), content.clone());
        }
        for name in &sent.gone {
            if wildcard.set.remove(name).is_some() {
                wildcard.gone.insert(name.clone(), at);
            }
        }
        wildcard.whole |= sent.last_piece;
    }

    fn add_named(&mut self, sent: &Sent) {
        let wanted = |name: &String| self.wanted.contains(&(sent.kind, Some(name.clone())));
        let mut news: Vec<(String, Option<Content>)> = Vec::new();
        if sent.complete {
            let present = |name: &String| sent.set.iter().any(|content| content.name == *name);
            let known = sent.requested.iter().filter(|name| !present(name));
            news.extend(known.map(|name| (name.clone(), None)));
        }
        news.extend(sent.set.iter().map(|content| (content.name.clone(), Some(content.clone()))));
        news.extend(sent.gone.iter().map(|name| (name.clone(), None)));
        let news: Vec<_> = news.into_iter().filter(|(name, _)| wanted(name)).collect();
        for (name, content) in news {
            self.named.insert((sent.kind, name), content);
        }
    }

    /// Whether the complete set has arrived. The server itself knows which response is the last one.
    pub fn whole(&self, kind: Kind) -> bool {
        self.stars.get(&kind).is_some_and(|wildcard| wildcard.whole)
    }

    pub fn has_begun(&self, kind: Kind) -> bool {
        self.stars.contains_key(&kind)
    }

    /// Whether a route from upstream names a cluster that upstream does not send for `*`.
    pub fn has_dangling_route(&self) -> bool {
        let Some(clusters) = self.stars.get(&Kind::Cluster).filter(|wildcard| wildcard.whole) else { return false };
        self.routes().any(|target| !clusters.set.contains_key(target))
    }

    fn routes(&self) -> impl Iterator<Item = &String> {
        let named = self.named.iter().filter(|((kind, _), _)| *kind == Kind::Route);
        let named = named.filter_map(|(_, content)| content.as_ref());
        let all = self.stars.get(&Kind::Route).into_iter().flat_map(|wildcard| wildcard.set.values());
        named.chain(all).filter_map(|content| content.target.as_ref())
    }

    pub fn differs_by_class(&self) -> bool {
        self.named.iter().any(|((kind, name), content)| {
            let among_all = self.stars.get(kind).and_then(|wildcard| wildcard.set.get(name));
            among_all.is_some() && content.as_ref().map(Content::body) != among_all.map(Content::body)
        })
    }
}
