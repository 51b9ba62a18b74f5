//! What a client may see, and what it must hold when nothing changes any more.

use super::*;

impl Judge {
    /// Returns what the client should see under a name: what the server sent for the name or, if the client requested `*` too, for `*`.
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

    /// Returns everything that the client should see of a type, as far as the type is known.
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

    /// Checks what must hold when nothing changes any more.
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

    /// Whether two contents are equal for a client of this kind.
    pub(super) fn equal(&self, one: &Content, other: &Content) -> bool {
        let beside = self.variant == Variant::Delta || self.wrappers;
        one.body() == other.body() && (!beside || (&one.alias, one.metadata) == (&other.alias, other.metadata))
    }

    pub(super) fn equal_sets(&self, one: &[Content], other: &[Content]) -> bool {
        one.len() == other.len()
            && one.iter().all(|one| other.iter().any(|other| one.name == other.name && self.equal(one, other)))
    }
}
