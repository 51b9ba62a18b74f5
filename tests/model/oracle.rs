//! The reference implementation: what one client requested and was sent, in full, and whether each reply to it was right.
//!
//! What the server has reported comes from [`ModelView`], recomputed from the beginning. No code is shared with the relay's model.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weir::protocol::moment::Moment;
use weir::protocol::session::{Reply, Variant};
use weir::protocol::view::Revision;
use weir::xds::Resource;

use crate::content::{Content, Kind, ensure, same, version};
use crate::coverage::{Coverage, Event};
use crate::origin::Set;
use crate::view::{Entry, ModelView};

#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    Here(Content),
    Gone,
    Unknown,
}

/// What one stream requested and was sent, by a naive reading of the protocol.
#[derive(Debug)]
pub struct Judge {
    /// The node that decides which content the client gets.
    pub key: u8,
    pub variant: Variant,
    pub grpc: bool,
    pub wrappers: bool,
    /// The view keeps the bodies of removed resources only up to a few bytes.
    pub short_memory: bool,
    /// What the client held when it opened the stream.
    came_holding: BTreeMap<(Kind, String), Content>,
    wants: BTreeMap<Kind, Wants>,
    sent: BTreeMap<(Kind, String), Option<Content>>,
    /// The length of upstream's log when a name was last sent.
    told_at: BTreeMap<(Kind, String), usize>,
    /// Requested since it was last sent; a kind alone stands for `*`.
    requested: BTreeSet<(Kind, Option<String>)>,
    /// `*` was requested, and no reply since has concerned it.
    star_unanswered: BTreeSet<Kind>,
    /// May be sent once more: it was sent out of turn under `*`, or before `*` was requested again.
    out_of_turn: BTreeSet<(Kind, String)>,
    last_sets: BTreeMap<Kind, Vec<Content>>,
    answered: BTreeSet<Kind>,
    needs_endpoints: BTreeSet<String>,
    /// Endpoints that may follow a cluster although nothing waits for them: only its wrapper has changed.
    may_follow: BTreeSet<String>,
    warming: BTreeMap<String, u64>,
    warm_since: Option<Moment>,
    /// Routes that may lead to a missing cluster until they are sent again: sent before the client had all clusters, or removed without a
    /// reply.
    early_routes: BTreeSet<String>,
    /// Names in the last reply that were changes, and not responses to a request.
    changed: Vec<String>,
    last_mark: Revision,
    last_nonce: u64,
}

#[derive(Debug, Default, Clone)]
pub struct Wants {
    pub wildcard: bool,
    pub names: BTreeSet<String>,
    named_once: bool,
    stated: bool,
    held_before: BTreeMap<String, String>,
    first_names: BTreeSet<String>,
    /// `*` was requested again, so everything is to be sent again.
    again: bool,
}

impl Judge {
    pub fn new(key: u8, variant: Variant, grpc: bool, wrappers: bool) -> Self {
        Self {
            key,
            variant,
            grpc,
            wrappers,
            short_memory: false,
            came_holding: BTreeMap::new(),
            wants: BTreeMap::new(),
            sent: BTreeMap::new(),
            told_at: BTreeMap::new(),
            requested: BTreeSet::new(),
            star_unanswered: BTreeSet::new(),
            out_of_turn: BTreeSet::new(),
            last_sets: BTreeMap::new(),
            answered: BTreeSet::new(),
            needs_endpoints: BTreeSet::new(),
            may_follow: BTreeSet::new(),
            warming: BTreeMap::new(),
            warm_since: None,
            early_routes: BTreeSet::new(),
            changed: Vec::new(),
            last_mark: Revision::ZERO,
            last_nonce: 0,
        }
    }

    pub fn coming_with(self, came_holding: BTreeMap<(Kind, String), Content>, short_memory: bool) -> Self {
        Self { came_holding, short_memory, ..self }
    }

    /// Whether `*` of a type got no reply because the client stated exactly the current set.
    pub fn skipped(&self, kind: Kind) -> bool {
        let wants = self.wants.get(&kind);
        wants.is_some_and(|wants| wants.wildcard && wants.stated && kind.full_state() && !self.answered.contains(&kind))
    }

    pub fn wants(&self, kind: Kind) -> Option<&Wants> {
        self.wants.get(&kind)
    }

    pub fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.wants.keys().copied()
    }

    /// How many names a session may store for this stream: those requested, and those stated and not compared yet.
    pub fn allowance(&self) -> usize {
        self.wants.values().map(|wants| wants.names.len() + wants.held_before.len()).sum()
    }

    pub fn on_sotw(&mut self, kind: Kind, names: &[String], version: &str) {
        let first = !self.wants.contains_key(&kind);
        let mut names: BTreeSet<String> = names.iter().filter(|name| !name.is_empty()).cloned().collect();
        let grpc = self.grpc;
        let wants = self.wants.entry(kind).or_default();
        wants.named_once |= !names.is_empty();
        let wildcard = names.remove("*") || (names.is_empty() && !wants.named_once && kind.full_state() && !grpc);
        if first {
            wants.stated = !version.is_empty();
            if wants.stated {
                wants.first_names = names.clone();
            }
        }
        let joined = wildcard && !wants.wildcard;
        let left = wants.wildcard && !wildcard;
        let added: Vec<_> = names.difference(&wants.names).cloned().collect();
        let dropped: Vec<_> = wants.names.difference(&names).cloned().collect();
        wants.first_names.retain(|name| names.contains(name));
        (wants.wildcard, wants.names) = (wildcard, names);
        if wildcard && !kind.full_state() {
            self.requested.extend(dropped.iter().map(|name| (kind, Some(name.clone()))));
        }
        if joined || left || (!dropped.is_empty() && kind.full_state()) {
            self.requested.insert((kind, None));
        }
        self.requested.extend(added.into_iter().map(|name| (kind, Some(name))));
        self.forget_unwanted(kind);
    }

    pub fn on_delta(&mut self, kind: Kind, on: &[String], off: &[String], stated: &BTreeMap<String, String>) {
        let first = !self.wants.contains_key(&kind);
        let grpc = self.grpc;
        let wants = self.wants.entry(kind).or_default();
        if first {
            wants.stated = !stated.is_empty();
            wants.held_before = stated.clone();
            if on.is_empty() && off.is_empty() && kind.full_state() && !grpc {
                wants.again |= wants.wildcard;
                if !first {
                    wants.held_before.clear();
                }
                wants.wildcard = true;
                self.requested.insert((kind, None));
                self.star_unanswered.insert(kind);
            }
        }
        for name in on {
            if name == "*" {
                wants.again |= wants.wildcard;
                if !first {
                    wants.held_before.clear();
                }
                wants.wildcard = true;
                self.requested.insert((kind, None));
                self.star_unanswered.insert(kind);
                self.out_of_turn.extend(self.sent.keys().filter(|(of, _)| *of == kind).cloned());
            } else {
                wants.names.insert(name.clone());
                self.requested.insert((kind, Some(name.clone())));
            }
        }
        for name in off {
            if name == "*" {
                wants.wildcard = false;
            } else if wants.names.remove(name) && {
                wants.held_before.remove(name);
                wants.wildcard
            } {
                self.requested.insert((kind, Some(name.clone())));
            }
        }
        self.forget_unwanted(kind);
    }

    /// Endpoints that are known to be absent are no longer waited for, even if they appear later.
    pub fn on_poll(&mut self, view: &ModelView, nothing_kept_back: bool) {
        // The total time limits the delay of one change, through any number of clusters.
        if nothing_kept_back && self.warming.is_empty() {
            self.warm_since = None;
        }
        self.warming.retain(|name, _| view.named.get(&(Kind::Endpoints, name.clone())) != Some(&None));
    }

    /// Starts the wait of a routing change, unless one is running.
    pub fn on_kept_back(&mut self, now: Moment) {
        self.warm_since.get_or_insert(now);
    }

    pub fn on_answer(&mut self, kind: Kind, nonce: u64) {
        if kind == Kind::Cluster {
            self.warming.retain(|_, sent| *sent > nonce);
        }
    }

    fn forget_unwanted(&mut self, kind: Kind) {
        let wants = &self.wants[&kind];
        let wanted = |name: &String| wants.wildcard || wants.names.contains(name);
        self.sent.retain(|(of, name), _| *of != kind || wanted(name));
        self.requested.retain(|(of, name)| *of != kind || name.as_ref().is_none_or(wanted));
        if kind == Kind::Endpoints {
            self.needs_endpoints.retain(wanted);
        }
    }

    /// Whether the client would drop what a reply lacks.
    fn may_lose(&self, kind: Kind) -> bool {
        self.wants.get(&kind).is_some_and(|wants| wants.stated)
    }

    /// Returns what the client should see under a name: what the server sent for the name, or else for `*` if it requested that too.
    pub fn visible(&self, view: &ModelView, kind: Kind, name: &str, _now: Moment) -> Seen {
        let Some(wants) = self.wants.get(&kind) else { return Seen::Unknown };
        let by_name = wants.names.contains(name).then(|| view.named.get(&(kind, name.to_owned())));
        if let Some(Some(Some(content))) = by_name {
            return Seen::Here(content.clone());
        }
        let wildcard = wants.wildcard.then(|| view.stars.get(&kind)).flatten();
        if let Some(content) = wildcard.and_then(|wildcard| wildcard.set.get(name)) {
            return Seen::Here(content.clone());
        }
        match by_name {
            Some(Some(_)) => Seen::Gone,
            Some(None) => Seen::Unknown,
            None if wildcard.is_some_and(|wildcard| wildcard.gone.contains_key(name)) => Seen::Gone,
            None if wants.wildcard && view.whole(kind) => Seen::Gone,
            None => Seen::Unknown,
        }
    }

    /// Returns everything that the client should see of a type, as far as it is known.
    pub fn expected(&self, view: &ModelView, kind: Kind, now: Moment) -> Set {
        let Some(wants) = self.wants.get(&kind) else { return Set::new() };
        let all = view.stars.get(&kind).filter(|_| wants.wildcard).into_iter().flat_map(|wildcard| wildcard.set.keys());
        let names: BTreeSet<&String> = all.chain(&wants.names).collect();
        let here = |name: &String| match self.visible(view, kind, name, now) {
            Seen::Here(content) => Some((name.clone(), content)),
            _ => None,
        };
        names.into_iter().filter_map(here).collect()
    }

    pub fn on_reply(
        &mut self,
        reply: &Reply,
        log: &[Entry],
        view: &ModelView,
        orderly: bool,
        now: Moment,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let kind = Kind::of(&reply.kind);
        ensure(reply.revision >= self.last_mark, || "told of an older state after a newer".into())?;
        ensure(reply.nonce > self.last_nonce, || "a nonce was used twice".into())?;
        (self.last_mark, self.last_nonce) = (reply.revision, reply.nonce);
        ensure(*reply.spelling == *kind.url(), || "answered in another spelling".into())?;
        let mut names: Vec<_> = reply.resources.iter().map(|resource| resource.name.as_str()).collect();
        names.extend(reply.removed.iter().map(|name| name.as_str()));
        let unique: BTreeSet<_> = names.iter().collect();
        ensure(unique.len() == names.len(), || format!("a name stands twice in one reply: {names:?}"))?;
        for resource in &*reply.resources {
            self.check_key(resource)?;
        }
        if self.variant == Variant::Sotw && kind.full_state() {
            self.full_set(kind, reply, log, view, now, coverage)?;
        } else {
            self.single_resources(kind, reply, log, view, now, coverage)?;
        }
        if kind == Kind::Route {
            let whole = view.whole(Kind::Cluster) && self.has_all_clusters(view, now);
            for resource in &*reply.resources {
                self.early_routes.remove(resource.name.as_str());
                self.early_routes.extend((!whole).then(|| resource.name.to_string()));
            }
            self.check_hold(view, now)?;
        }
        self.answered.insert(kind);
        if orderly {
            self.check_routes(view, now)?;
        }
        Ok(())
    }

    fn check_key(&self, resource: &Resource) -> Result<(), String> {
        let text = String::from_utf8_lossy(resource.body.bytes()).into_owned();
        let tagged = text.contains(&format!("{}/true/", self.key)) || text.contains(&format!("{}/false/", self.key));
        let shared = resource.name.as_str().starts_with('t');
        ensure(tagged || shared, || format!("{} was made for another key", resource.name))
    }

    fn single_resources(
        &mut self,
        kind: Kind,
        reply: &Reply,
        log: &[Entry],
        view: &ModelView,
        now: Moment,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let star_asked = self.requested.contains(&(kind, None));
        self.changed.clear();
        for resource in &*reply.resources {
            let name = resource.name.as_str().to_owned();
            let Seen::Here(content) = self.visible(view, kind, &name, now) else {
                return Err(format!("{name} was sent, and is {:?}", self.visible(view, kind, &name, now)));
            };
            same(resource, &content)?;
            let key = (kind, Some(name.clone()));
            let sent = self.sent.get(&(kind, name.clone()));
            let is_news = sent.is_none_or(|sent| sent.as_ref().is_none_or(|sent| !self.equal(sent, &content)));
            let forced =
                kind == Kind::Endpoints && (self.needs_endpoints.contains(&name) || self.may_follow.contains(&name));
            let requested = self.requested.contains(&key) || star_asked;
            let detour = self.made_a_detour(log, kind, &content) || self.out_of_turn.remove(&(kind, name.clone()));
            if self.wants[&kind].wildcard && (forced || requested) {
                self.out_of_turn.insert((kind, name.clone()));
            }
            ensure(is_news || requested || forced || detour, || format!("{name} was sent again without a reason"))?;
            coverage.note_if(forced && !is_news && !requested, Event::ForcedEndpoints);
            if is_news && !requested {
                self.changed.push(name.clone());
            }
            let wants = &self.wants[&kind];
            let had = sent.is_none()
                && !wants.again
                && !wants.names.contains(&name)
                && !self.requested.contains(&key)
                && wants.held_before.get(&name) == Some(&version(&content));
            ensure(!had || forced, || format!("{name} was sent although the client came with it"))?;
            self.note_cluster(kind, &content, log, reply.nonce, now);
            self.requested.remove(&key);
            self.told_at.insert((kind, name.clone()), log.len());
            self.sent.insert((kind, name.clone()), Some(content));
            self.note_endpoints(kind, &name);
        }
        for name in &reply.removed {
            let name = name.as_str().to_owned();
            let seen = self.visible(view, kind, &name, now);
            ensure(seen == Seen::Gone, || format!("{name} was called absent, and is {seen:?}"))?;
            let sent = self.sent.insert((kind, name.clone()), None);
            let requested = self.requested.remove(&(kind, Some(name.clone())));
            coverage.note_if(requested, Event::AbsentAnswer);
            coverage.note_if(!requested && sent.is_some(), Event::DeltaRemoval);
            self.note_endpoints(kind, &name);
        }
        if self.variant == Variant::Delta {
            let empty = reply.resources.is_empty() && reply.removed.is_empty();
            coverage.note_if(empty, Event::EmptyDeltaReply);
            coverage.note(Event::DeltaReply);
            let unanswered = self.star_unanswered.remove(&kind);
            let names = &self.wants[&kind].names;
            if !empty && unanswered && reply.resources.iter().all(|resource| names.contains(resource.name.as_str())) {
                self.star_unanswered.insert(kind);
            }
            ensure(!empty || unanswered, || "an empty reply that nobody asked for".into())?;
            ensure(!empty || view.has_begun(kind), || "an empty reply before anything is known".into())?;
        } else {
            coverage.note(Event::SotwReply);
            ensure(!reply.resources.is_empty(), || "an empty reply of a partial type".into())?;
        }
        // `*` counts as answered once all of it was sent; it may take several replies.
        if star_asked && view.stars.contains_key(&kind) && self.all_told(view, kind, now) {
            self.requested.remove(&(kind, None));
        }
        Ok(())
    }

    /// `*` stores no names, so it cannot recognise a content that changed and changed back as the one already sent.
    fn made_a_detour(&self, log: &[Entry], kind: Kind, content: &Content) -> bool {
        let told_at = self.told_at.get(&(kind, content.name.clone())).copied().unwrap_or_default().min(log.len());
        let by_star = self.wants[&kind].wildcard;
        by_star
            && log[told_at..].iter().any(|entry| match entry {
                Entry::Said { sent, .. } if sent.kind == kind && sent.wildcard => {
                    let said = sent.set.iter().find(|said| said.name == content.name);
                    said.map_or(sent.complete, |said| !self.equal(said, content)) || sent.gone.contains(&content.name)
                }
                _ => false,
            })
    }

    fn all_told(&self, view: &ModelView, kind: Kind, now: Moment) -> bool {
        let wants = &self.wants[&kind];
        self.expected(view, kind, now).into_iter().all(|(name, content)| {
            let sent = self.sent.get(&(kind, name.clone()));
            sent.is_some_and(|sent| sent.as_ref().is_some_and(|sent| self.equal(sent, &content)))
                || wants.held_before.get(&name) == Some(&version(&content))
        })
    }

    fn full_set(
        &mut self,
        kind: Kind,
        reply: &Reply,
        log: &[Entry],
        view: &ModelView,
        now: Moment,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let wants = self.wants[&kind].clone();
        ensure(!wants.wildcard || view.has_begun(kind), || "a full set before anything is known".into())?;
        if wants.wildcard && !view.whole(kind) {
            // Whatever the client stated is present, or was reported absent upstream: nothing is dropped because it is unknown.
            for (_, name) in self.came_holding.keys().filter(|(of, _)| *of == kind && self.may_lose(kind)) {
                let here = reply.resources.iter().any(|resource| resource.name.as_str() == name);
                let sent = self.sent.contains_key(&(kind, name.clone()));
                let gone = self.visible(view, kind, name, now) == Seen::Gone;
                ensure(here || sent || gone, || format!("a set without {name}, which the client holds"))?;
            }
        }
        let mut set = Vec::new();
        let mut rest: BTreeMap<_, _> =
            reply.resources.iter().map(|resource| (resource.name.to_string(), resource)).collect();
        for (name, content) in self.expected(view, kind, now) {
            let Some(resource) = rest.remove(&name) else { return Err(format!("the full set lacks {name}")) };
            same(resource, &content)?;
            set.push(content);
        }
        let union = !rest.is_empty();
        for (name, resource) in rest {
            ensure(self.visible(view, kind, &name, now) == Seen::Gone, || format!("{name} is in the set unasked"))?;
            let key = (kind, name.clone());
            let Some(last) = self.sent.get(&key).map_or(self.came_holding.get(&key), Option::as_ref) else {
                return Err(format!("{name} is gone, the client never had it, and is sent it"));
            };
            ensure(last.name == resource.name.as_str(), || "another name".into())?;
            set.push(Content { serial: u64::MAX, ..last.clone() });
        }
        for name in &wants.names {
            let held =
                matches!(self.sent.get(&(kind, name.clone())), Some(Some(_))) || wants.first_names.contains(name);
            let unknown = self.visible(view, kind, name, now) == Seen::Unknown;
            ensure(!(held && unknown), || format!("the set lacks {name}, which is not known to be gone"))?;
        }
        let requested = self.requested.iter().any(|(of, _)| *of == kind);
        let before = self.last_sets.get(&kind);
        let is_news = union || before.is_none_or(|before| !self.equal_sets(before, &set));
        ensure(requested || is_news, || {
            format!("a full set was sent again without a reason: {before:?} at {:?}", reply.revision)
        })?;
        let reduced = before.is_some_and(|before| before.len() > set.len());
        coverage.note_if(union, Event::UnionReply);
        coverage.note_if(reduced && !requested, Event::ReducedReply);
        coverage.note_if(set.is_empty(), Event::EmptyFullSet);
        coverage.note(Event::SotwReply);
        for content in set.iter().filter(|content| content.serial != u64::MAX) {
            self.note_cluster(kind, content, log, reply.nonce, now);
            self.told_at.insert((kind, content.name.clone()), log.len());
            self.sent.insert((kind, content.name.clone()), Some(content.clone()));
        }
        let absent: Vec<_> = self
            .sent
            .keys()
            .filter(|(of, name)| *of == kind && set.iter().all(|content| content.name != *name))
            .cloned()
            .collect();
        absent.into_iter().for_each(|key| drop(self.sent.insert(key, None)));
        if self.wants[&kind].wildcard {
            let held = |name: &String| set.iter().any(|content| content.name == *name);
            self.came_holding.retain(|(of, name), _| *of != kind || held(name));
        }
        self.requested.retain(|(of, name)| {
            let unknown = name.as_ref().is_some_and(|name| !view.named.contains_key(&(kind, name.clone())));
            *of != kind || unknown
        });
        if let Some(wants) = self.wants.get_mut(&kind) {
            wants.first_names.clear();
        }
        self.last_sets.insert(kind, set);
        Ok(())
    }

    /// A cluster that is new or changed for this client waits for its endpoints.
    fn note_cluster(&mut self, kind: Kind, content: &Content, log: &[Entry], nonce: u64, now: Moment) {
        if kind != Kind::Cluster || !content.eds {
            return;
        }
        let name = (kind, content.name.clone());
        let endpoints = content.endpoints();
        let sent = self.sent.get(&name);
        let held = sent.map_or(self.came_holding.get(&name), Option::as_ref);
        if held.is_some_and(|held| held.body() == content.body()) {
            let differs = !held.is_some_and(|held| self.equal(held, content));
            let requested =
                [None, Some(content.name.clone())].into_iter().any(|name| self.requested.contains(&(kind, name)));
            // If it was sent alone there was a reason, which the caller has checked.
            let alone = self.variant == Variant::Delta;
            if alone || sent.is_none() || requested || differs || self.made_a_detour(log, kind, content) {
                self.may_follow.insert(endpoints);
            }
            return;
        }
        let subscribed =
            self.wants.get(&Kind::Endpoints).is_some_and(|wants| wants.wildcard || wants.names.contains(&endpoints));
        if subscribed && !self.grpc {
            self.needs_endpoints.insert(endpoints.clone());
        }
        let first = !self.answered.contains(&kind)
            || self.requested.contains(&(kind, None))
            || self.requested.contains(&(kind, Some(content.name.clone())));
        if !first {
            self.warm_since.get_or_insert(now);
            self.warming.insert(endpoints, nonce);
        }
    }

    fn note_endpoints(&mut self, kind: Kind, name: &str) {
        if kind == Kind::Endpoints {
            self.needs_endpoints.remove(name);
            self.may_follow.remove(name);
            self.warming.remove(name);
        }
    }

    /// A routing change waits for the endpoints of a cluster that was sent before it, up to a total time.
    fn check_hold(&mut self, view: &ModelView, now: Moment) -> Result<(), String> {
        for name in std::mem::take(&mut self.changed) {
            let sent = self.sent.get(&(Kind::Route, name.clone()));
            let Some(Some(Content { target: Some(target), .. })) = sent else { continue };
            let endpoints = target.replace('c', "e");
            let absent = matches!(view.named.get(&(Kind::Endpoints, endpoints.clone())), Some(None));
            if absent || !self.warming.contains_key(&endpoints) {
                continue;
            }
            let waited = self.warm_since.is_some_and(|since| now - since >= HOLD);
            ensure(waited, || format!("{name} went out while {target} waits for endpoints"))?;
            self.warming.clear();
        }
        Ok(())
    }

    /// Whether `*` of clusters was requested and has been answered completely.
    fn has_all_clusters(&self, view: &ModelView, now: Moment) -> bool {
        let known = |name: &String| self.visible(view, Kind::Cluster, name, now) != Seen::Unknown;
        let wants = self.wants.get(&Kind::Cluster);
        wants.is_some_and(|wants| wants.wildcard && wants.names.iter().all(known))
            && self.answered.contains(&Kind::Cluster)
            && !self.requested.contains(&(Kind::Cluster, None))
    }

    /// Checks that no route leads to a cluster that the client does not hold.
    fn check_routes(&mut self, view: &ModelView, now: Moment) -> Result<(), String> {
        // SotW cannot report a route as removed: the client keeps one that no longer exists until it is sent again.
        if self.variant == Variant::Sotw {
            let routes = self.sent.keys().filter(|(kind, _)| *kind == Kind::Route);
            let gone = routes.filter(|(kind, name)| self.visible(view, *kind, name, now) == Seen::Gone);
            let gone: Vec<_> = gone.map(|(_, name)| name.clone()).collect();
            self.early_routes.extend(gone);
        }
        let clusters = self.wants.get(&Kind::Cluster).filter(|_| self.has_all_clusters(view, now));
        let Some(clusters) = clusters else { return Ok(()) };
        for ((_, name), sent) in &self.sent {
            let Some(Content { target: Some(target), .. }) = sent else { continue };
            if self.early_routes.contains(name) {
                continue;
            }
            let held = match self.sent.get(&(Kind::Cluster, target.clone())) {
                Some(sent) => sent.is_some(),
                None => clusters.held_before.contains_key(target),
            };
            // A SotW client that is further behind than bodies are kept is the documented exception of I7.
            let gone_at = view.stars.get(&Kind::Cluster).and_then(|wildcard| wildcard.gone.get(target));
            let forgotten = self.short_memory || gone_at.is_some_and(|at| now - *at >= BODIES_KEPT);
            let excused = self.variant == Variant::Sotw && forgotten;
            ensure(held || excused, || format!("{name} points at {target}, which the client does not hold"))?;
        }
        Ok(())
    }

    /// Checks what must hold once nothing changes any more.
    pub fn at_rest(
        &self,
        held: &BTreeMap<(Kind, String), Content>,
        view: &ModelView,
        now: Moment,
    ) -> Result<(), String> {
        for (kind, wants) in &self.wants {
            let expected = self.expected(view, *kind, now);
            for name in &wants.names {
                let seen = self.visible(view, *kind, name, now);
                ensure(seen != Seen::Unknown, || format!("nothing is known of {name}, and nobody asks"))?;
                let absent = self.variant == Variant::Delta && seen == Seen::Gone;
                let sent = matches!(self.sent.get(&(*kind, name.clone())), Some(None));
                ensure(!absent || sent, || format!("{name} is absent and the client was not told"))?;
            }
            // In SotW a partial type has no empty reply (SOTW-25).
            if wants.wildcard && (self.variant == Variant::Delta || kind.full_state()) {
                ensure(self.answered.contains(kind) || wants.stated, || format!("* of {kind:?} was never answered"))?;
            }
            for (name, content) in &expected {
                let Some(held) = held.get(&(*kind, name.clone())) else {
                    return Err(format!("at rest the client lacks {name}"));
                };
                ensure(self.equal(held, content), || format!("at rest the client has {held:?} for {content:?}"))?;
            }
            let partial = self.variant == Variant::Sotw && !kind.full_state();
            for (of, name) in held.keys().filter(|(of, _)| of == kind) {
                let extra = !expected.contains_key(name) && (wants.wildcard || wants.names.contains(name));
                ensure(!extra || partial, || format!("at rest the client still has {name} of {of:?}"))?;
            }
        }
        for name in &self.needs_endpoints {
            let seen = self.visible(view, Kind::Endpoints, name, now);
            let silent = self.variant == Variant::Sotw && seen == Seen::Gone;
            ensure(silent, || format!("a cluster waits for {name}, which never followed it"))?;
        }
        Ok(())
    }

    /// Whether the two are equal for a client of this kind.
    fn equal(&self, one: &Content, other: &Content) -> bool {
        let beside = self.variant == Variant::Delta || self.wrappers;
        one.body() == other.body() && (!beside || (&one.alias, one.metadata) == (&other.alias, other.metadata))
    }

    fn equal_sets(&self, one: &[Content], other: &[Content]) -> bool {
        one.len() == other.len()
            && one.iter().all(|one| other.iter().any(|other| one.name == other.name && self.equal(one, other)))
    }
}

const BODIES_KEPT: Duration = Duration::from_secs(60);
const HOLD: Duration = Duration::from_secs(2);
