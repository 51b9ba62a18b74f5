//! Whether replies kept the order that clients rely on.

use super::*;

impl Judge {
    /// Records that a cluster which is new or changed for this client waits for its endpoints.
    pub(super) fn note_cluster(&mut self, kind: Kind, content: &Content, log: &[Entry], nonce: u64, now: Moment) {
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
            // If the cluster was sent alone, there was a reason, which the caller has checked.
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
            self.warming.insert(endpoints, (nonce, now));
        }
    }

    pub(super) fn note_endpoints(&mut self, kind: Kind, name: &str) {
        if kind == Kind::Endpoints {
            self.needs_endpoints.remove(name);
            self.may_follow.remove(name);
            self.warming.remove(name);
        }
    }

    /// Checks that a change of routing waits for the endpoints of a cluster that was sent before it, up to a time for each cluster and in total.
    pub(super) fn check_hold(&mut self, view: &ModelView, now: Moment) -> Result<(), String> {
        for name in std::mem::take(&mut self.changed) {
            let sent = self.sent.get(&(Kind::Route, name.clone()));
            let Some(Some(Content { target: Some(target), .. })) = sent else { continue };
            let endpoints = target.replace('c', "e");
            let absent = matches!(view.named.get(&(Kind::Endpoints, endpoints.clone())), Some(None));
            let Some((_, sent)) = self.warming.get(&endpoints).filter(|_| !absent) else { continue };
            ensure(now - *sent >= HOLD, || format!("{name} went out while {target} waits for endpoints"))?;
        }
        Ok(())
    }

    /// Whether `*` of clusters was requested and has been answered completely.
    pub(super) fn has_all_clusters(&self, view: &ModelView, now: Moment) -> bool {
        let known = |name: &String| self.visible(view, Kind::Cluster, name, now) != Seen::Unknown;
        let wants = self.wants.get(&Kind::Cluster);
        wants.is_some_and(|wants| wants.wildcard && wants.names.iter().all(known))
            && self.answered.contains(&Kind::Cluster)
            && !self.requested.contains(&(Kind::Cluster, None))
    }

    /// Checks that no route refers to a cluster that the client does not hold.
    pub(super) fn check_routes(&mut self, view: &ModelView, now: Moment) -> Result<(), String> {
        // SotW cannot report that a route is removed: the client keeps the route until it is sent again.
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
            // The documented exception of I7: a SotW client that is so far behind that bodies are not kept for it.
            let gone_at = view.stars.get(&Kind::Cluster).and_then(|wildcard| wildcard.gone.get(target));
            let forgotten = self.short_memory || gone_at.is_some_and(|at| now - *at >= BODIES_KEPT);
            let excused = self.variant == Variant::Sotw && forgotten;
            ensure(held || excused, || format!("{name} points at {target}, which the client does not hold"))?;
        }
        Ok(())
    }
}
