//! Whether a reply was right.

use super::*;

impl Judge {
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

    pub(super) fn check_key(&self, resource: &Resource) -> Result<(), String> {
        let text = String::from_utf8_lossy(resource.body.bytes()).into_owned();
        let tagged = text.contains(&format!("{}/true/", self.key)) || text.contains(&format!("{}/false/", self.key));
        let shared = resource.name.as_str().starts_with('t');
        ensure(tagged || shared, || format!("{} was made for another key", resource.name))
    }

    pub(super) fn single_resources(
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
        // `*` counts as answered when all of it was sent, which may take several replies.
        if star_asked && view.stars.contains_key(&kind) && self.all_told(view, kind, now) {
            self.requested.remove(&(kind, None));
        }
        Ok(())
    }

    /// Whether a content changed and changed back. `*` stores no names, so it cannot recognize such a content as the one already sent.
    pub(super) fn made_a_detour(&self, log: &[Entry], kind: Kind, content: &Content) -> bool {
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

    pub(super) fn all_told(&self, view: &ModelView, kind: Kind, now: Moment) -> bool {
        let wants = &self.wants[&kind];
        self.expected(view, kind, now).into_iter().all(|(name, content)| {
            let sent = self.sent.get(&(kind, name.clone()));
            sent.is_some_and(|sent| sent.as_ref().is_some_and(|sent| self.equal(sent, &content)))
                || wants.held_before.get(&name) == Some(&version(&content))
        })
    }

    pub(super) fn full_set(
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
            // Everything that the client stated is present, or was reported absent upstream: nothing is dropped because it is unknown.
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
}
