//! The control plane: what it has, sends and forgets.

use super::*;

impl World {
    // ---- the control plane

    /// Sets the content of a name: what `*` has of it, what the name has, or both.
    pub fn set(
        &mut self,
        key: u8,
        kind: Kind,
        number: u8,
        wildcard: bool,
        named: bool,
        edit: impl FnOnce(&mut Content),
    ) {
        self.serial += 1;
        let name = kind.name(number);
        let truth = &mut self.truths[usize::from(key)];
        let before = truth.of(kind, wildcard).get(&name).cloned();
        let mut content = before.unwrap_or(Content {
            kind,
            name: name.clone(),
            serial: 0,
            key,
            wildcard: false,
            target: None,
            eds: true,
            alias: None,
            metadata: 0,
        });
        content.serial = self.serial;
        edit(&mut content);
        let differs = wildcard != named;
        for (on, class) in [(wildcard, true), (named, false)] {
            if on {
                let content = Content { wildcard: differs && class, ..content.clone() };
                let sets = if class { &mut truth.wildcard } else { &mut truth.named };
                sets.entry(kind).or_default().insert(name.clone(), content);
            }
        }
        self.push(key, kind);
    }

    pub fn delete(&mut self, key: u8, kind: Kind, number: u8, wildcard: bool, named: bool) {
        let truth = &mut self.truths[usize::from(key)];
        for (on, sets) in [(wildcard, &mut truth.wildcard), (named, &mut truth.named)] {
            if on && let Some(set) = sets.get_mut(&kind) {
                set.remove(&kind.name(number));
            }
        }
        self.push(key, kind);
    }

    pub(super) fn push(&mut self, key: u8, kind: Kind) {
        let rig = &mut self.units[usize::from(key)];
        for link in rig.links.iter_mut().filter(|link| link.open.is_some()) {
            link.server.push(kind, &self.truths[usize::from(key)], self.epoch);
        }
    }

    pub fn repeat(&mut self, key: u8, kind: Kind) {
        self.coverage.note(Event::SameBytesNewVersion);
        self.epoch += 1_000_000; // all version strings are new
        let rig = &mut self.units[usize::from(key)];
        rig.links.iter_mut().filter(|link| link.open.is_some()).for_each(|link| link.server.repeat(kind, self.epoch));
    }

    /// Lets the control plane read the relay's requests.
    pub fn origin_reads(&mut self, key: u8, how_many: usize) -> bool {
        let mut any = false;
        let rig = &mut self.units[usize::from(key)];
        for link in rig.links.iter_mut().filter(|link| link.open.is_some()) {
            for _ in 0..how_many {
                let Some(request) = link.requests.pop_front() else { break };
                any = true;
                // The server answers for the node that it was sent. If it knows clients by a header, the stream belongs to the view with that
                // header.
                let tenant = request.node().map(|node| tenant_of(node));
                assert!(tenant.is_none_or(|tenant| tenant.is_none_or(|tenant| tenant == key.to_string())));
                link.server.read(request, &self.truths[usize::from(key)], self.pieces, self.epoch);
            }
        }
        any
    }

    pub fn kill_upstream(&mut self, key: u8, at: usize) {
        let now = self.now;
        let rig = &mut self.units[usize::from(key)];
        let Some(link) = rig.links.get_mut(at) else { return };
        let Some(epoch) = link.open.take() else { return };
        self.coverage.note(Event::UpstreamKilled);
        link.late = link.server.out.drain(..).map(|sent| (epoch, sent)).collect();
        let stars = std::mem::take(&mut link.wanted_stars);
        *link = Link { late: std::mem::take(&mut link.late), ..Link::default() };
        rig.log.push(Entry::Ended { stars });
        let updates = rig.upstream.streams_mut()[at].ended(epoch);
        rig.view.apply(updates, now);
    }

    pub fn reset_origin(&mut self) {
        self.coverage.note(Event::UpstreamReset);
        self.epoch += 1;
        for key in 0..KEYS {
            (0..2).for_each(|at| self.kill_upstream(key, at));
        }
    }
}
