//! One type on one stream: what is subscribed, what was sent, and how far the search for differences has come.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use super::sent::{SentState, SentVersions};
use super::snapshot::Set;
use crate::proto::discovery::{DeltaDiscoveryRequest, Resource};
use crate::protocol::moment::Moment;
use crate::protocol::upstream::INCOMPLETE_MARKER;
use crate::xds::{Name, WILDCARD};

#[derive(Debug)]
pub(super) struct ServedType {
    wildcard: bool,
    names: BTreeSet<Name>,
    /// Those of `names` that are collections.
    globs: BTreeSet<Name>,
    sent: SentVersions,
    set: Arc<Set>,
    /// Whether a name that is not in the set may be reported as absent, now or later.
    alone: bool,
    /// Names to compare with what was sent.
    due: BTreeSet<Name>,
    /// A pass over all names: the last name that was compared, or none yet.
    sweep: Option<Option<Name>>,
    /// Names that were compared and are not in the set. They are reported last, if they are still missing by then.
    missing: BTreeSet<Name>,
    /// The end of the `*` set has been reported.
    whole: bool,
    first: bool,
}

/// The result of one bounded pass.
pub(super) enum Pass {
    Some(Vec<Resource>),
    Busy,
    Nothing,
}

impl ServedType {
    pub(crate) fn over(set: Arc<Set>, alone: bool) -> Self {
        Self {
            wildcard: false,
            names: BTreeSet::new(),
            globs: BTreeSet::new(),
            sent: SentVersions::default(),
            set,
            alone,
            due: BTreeSet::new(),
            sweep: None,
            missing: BTreeSet::new(),
            whole: false,
            first: true,
        }
    }

    pub(crate) fn on_request(&mut self, request: DeltaDiscoveryRequest) {
        let first = std::mem::take(&mut self.first);
        if first {
            for (name, version) in request.initial_resource_versions {
                self.sent.insert(Name::canonical(&name), SentState::Version { version: version.into(), again: None });
            }
        }
        for name in &request.resource_names_unsubscribe {
            if name == WILDCARD {
                (self.wildcard, self.whole) = (false, false);
                self.forget_unwanted();
                continue;
            }
            let name = Name::canonical(name);
            self.names.remove(&name);
            if self.globs.remove(&name) {
                let members = name.members_in(self.sent.names()).map(|(member, _)| member);
                let unwanted: Vec<_> = members.filter(|member| !self.wants(member)).cloned().collect();
                unwanted.iter().for_each(|member| self.sent.remove(member));
                self.look_for_wanted();
            } else if !self.wants(&name) {
                self.sent.remove(&name);
                self.due.remove(&name);
                self.missing.remove(&name);
            }
        }
        // A first request without names subscribes to everything, also on old servers (DELTA-18).
        let legacy = first && request.resource_names_subscribe.is_empty();
        for name in &request.resource_names_subscribe {
            match name == WILDCARD {
                true => self.want_all(first),
                false => self.want(Name::canonical(name), first),
            }
        }
        if legacy {
            self.want_all(first);
        }
        if first {
            self.forget_unwanted();
        }
    }

    fn wants(&self, name: &Name) -> bool {
        self.wildcard || self.names.contains(name) || self.collection(name).is_some()
    }

    /// The subscribed collection that contains the name.
    fn collection(&self, name: &Name) -> Option<&Name> {
        if self.globs.is_empty() {
            return None;
        }
        self.globs.get(&name.collection()?)
    }

    fn members<'a>(&'a self, glob: &'a Name) -> impl Iterator<Item = &'a Name> {
        glob.members_in(self.set.items()).map(|(name, _)| name)
    }

    fn has_members(&self, name: &Name) -> bool {
        self.globs.contains(name) && self.members(name).next().is_some()
    }

    fn forget_unwanted(&mut self) {
        let mut sent = std::mem::take(&mut self.sent);
        sent.retain(|name| self.wants(name));
        self.sent = sent;
        self.look_for_wanted();
    }

    /// Drops queued names that are no longer wanted: their turn may never come.
    fn look_for_wanted(&mut self) {
        let (mut due, mut missing) = (std::mem::take(&mut self.due), std::mem::take(&mut self.missing));
        due.retain(|name| self.wants(name));
        missing.retain(|name| self.wants(name));
        (self.due, self.missing) = (due, missing);
    }

    /// A repeated subscription is sent again, except for what the first request states as held (DELTA-13).
    fn want_all(&mut self, first: bool) {
        if !first {
            self.sent.clear();
        }
        (self.wildcard, self.whole, self.sweep) = (true, false, Some(None));
    }

    fn want(&mut self, name: Name, first: bool) {
        let mut due: Vec<_> = vec![name.clone()];
        if name.is_glob() {
            due.extend(self.members(&name).cloned());
            // Also finds what the client states as held and the collection lacks.
            self.sweep = first.then_some(None).or(self.sweep.take());
            self.globs.insert(name.clone());
        }
        if !first {
            due.iter().for_each(|name| self.sent.remove(name));
        }
        self.due.extend(due);
        self.names.insert(name);
    }

    pub(crate) fn turn_to(&mut self, set: Arc<Set>) {
        if Arc::ptr_eq(&set, &self.set) {
            return;
        }
        match set.changed_since(&self.set) {
            Some(changed) => {
                let due: Vec<_> = changed.iter().filter(|name| self.wants(name)).cloned().collect();
                self.due.extend(due);
            }
            None => self.sweep = Some(None),
        }
        self.set = set;
    }

    pub(crate) fn on_time(&mut self, now: Moment) {
        while let Some(name) = self.sent.beat(now) {
            self.due.insert(name);
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        self.sent.next_beat()
    }

    /// Whether responses need no marker that a `*` set is incomplete.
    pub(crate) fn is_complete(&self) -> bool {
        self.whole || !self.wildcard
    }

    /// Collects resources that are in the set and were not sent in this version.
    pub(crate) fn additions(&mut self, now: Moment) -> Pass {
        let (mut resources, mut bytes, mut sent) = (Vec::new(), 0, BTreeSet::new());
        for name in self.candidates() {
            if bytes >= BYTES_AT_ONCE {
                self.due.insert(name); // in the next response
                continue;
            }
            let Some(item) = self.set.get(&name).cloned() else {
                self.miss(name);
                continue;
            };
            let collection = self.collection(&name).cloned();
            let in_a_set = self.wildcard || collection.is_some();
            let wanted = self.names.contains(&name) || (in_a_set && item.wrapper.name == name.as_str());
            if wanted && self.sent.version(&name) != Some(&item.version) {
                let ttl = item.wrapper.ttl.and_then(|ttl| Duration::try_from(ttl).ok());
                let again = ttl.map(|ttl| now + (ttl / 2).max(BEAT));
                collection.iter().for_each(|glob| self.sent.remove(glob)); // no longer empty
                self.sent.insert(name, SentState::Version { version: item.version.clone(), again });
                if sent.insert(item.wrapper.name.clone()) {
                    bytes += item.wrapper.resource.as_ref().map_or(0, |body| body.value.len());
                    resources.push(Resource::clone(&item.wrapper));
                }
            }
        }
        match resources.is_empty() {
            false => Pass::Some(resources),
            true if self.due.is_empty() && self.sweep.is_none() => Pass::Nothing,
            true => Pass::Busy,
        }
    }

    /// Collects names that the client holds or waits for and that the set lacks; for `*` also, once, the end of the set.
    pub(crate) fn removals(&mut self) -> Option<Vec<String>> {
        let mut removed = Vec::new();
        while removed.len() < NAMES_AT_ONCE {
            let Some(name) = self.missing.pop_first() else { break };
            if self.set.get(&name).is_some() || !self.wants(&name) || self.has_members(&name) {
                continue;
            }
            removed.push(name.to_string());
            match self.names.contains(&name) {
                true => self.sent.insert(name, SentState::Absent),
                false => self.sent.remove(&name),
            }
        }
        if self.missing.is_empty() && !self.is_complete() {
            self.whole = true;
            removed.push(INCOMPLETE_MARKER.into());
        }
        (!removed.is_empty()).then_some(removed)
    }

    fn miss(&mut self, name: Name) {
        if !self.alone {
            return self.sent.remove(&name); // its absence is never reported
        }
        let news = match self.sent.get(&name) {
            Some(SentState::Version { .. }) => true,
            Some(SentState::Absent) => false,
            None => self.names.contains(&name),
        };
        if news {
            self.missing.insert(name);
        }
    }

    /// The next names to compare, in order.
    fn candidates(&mut self) -> BTreeSet<Name> {
        if !self.due.is_empty() {
            let rest = self.due.iter().nth(NAMES_AT_ONCE).cloned();
            let rest = rest.map(|rest| self.due.split_off(&rest)).unwrap_or_default();
            return std::mem::replace(&mut self.due, rest);
        }
        let Some(after) = self.sweep.take() else { return BTreeSet::new() };
        let from = (after.as_ref().map_or(Unbounded, Excluded), Unbounded);
        let mut names: BTreeSet<Name> = self.names.range::<Name, _>(from).take(NAMES_AT_ONCE).cloned().collect();
        if self.wildcard || !self.globs.is_empty() {
            names.extend(self.set.items().range::<Name, _>(from).take(NAMES_AT_ONCE).map(|(name, _)| name.clone()));
            names.extend(self.sent.names().range::<Name, _>(from).take(NAMES_AT_ONCE).map(|(name, _)| name.clone()));
        }
        // Each of the three gave its first names, so the first of all are among them.
        if let Some(rest) = names.iter().nth(NAMES_AT_ONCE).cloned() {
            names.split_off(&rest);
        }
        self.sweep = names.last().map(|last| Some(last.clone()));
        names
    }
}

/// Names compared, and about how many bytes sent, in one pass. The thread has other streams to serve.
const NAMES_AT_ONCE: usize = 1_000;
const BYTES_AT_ONCE: usize = 1 << 20;
/// The shortest time between two renewals of a resource, however short its TTL is.
const BEAT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::super::SourceSnapshot;
    use super::*;
    use crate::xds::TypeTable;

    fn ask(served: &mut ServedType, on: &[&str], off: &[&str]) {
        let text = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        served.on_request(DeltaDiscoveryRequest {
            resource_names_subscribe: text(on),
            resource_names_unsubscribe: text(off),
            ..Default::default()
        });
        while !matches!(served.additions(Moment::START), Pass::Nothing) {}
    }

    fn served_type(alone: bool) -> ServedType {
        ServedType::over(SourceSnapshot::default().set(&TypeTable::new().resolve("t")), alone)
    }

    #[test]
    fn i1_names_that_are_requested_and_left_while_nothing_is_known_to_be_absent_are_not_kept() {
        let mut served = served_type(true);
        for round in 0..10 {
            let [name, glob] = [format!("n{round}"), format!("xdstp://x/t/{round}/*")];
            for left in [&name, &glob] {
                ask(&mut served, &["stays", left], &[]);
                ask(&mut served, &[], &[left]);
                assert_eq!((served.missing.len(), served.due.len()), (1, 0));
            }
        }
        ask(&mut served, &["*"], &["stays"]);
        ask(&mut served, &[], &["*"]);
        assert_eq!(served.missing.len(), 0);
    }

    #[test]
    fn i1_where_absence_is_never_sent_nothing_is_remembered_for_it() {
        let mut served = served_type(false);
        ask(&mut served, &["a", "b"], &[]);
        assert_eq!((served.missing.len(), served.removals().is_none()), (0, true));
    }
}
