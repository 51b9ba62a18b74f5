//! One type on one stream: what is subscribed, what was sent, and how far a search for differences has come.

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
pub(super) struct TypeSubscription {
    wildcard: bool,
    names: BTreeSet<Name>,
    /// Those of them that stand for a whole collection.
    globs: BTreeSet<Name>,
    sent: SentVersions,
    set: Arc<Set>,
    /// What is not in the set may be told to be absent, if not now then later.
    alone: bool,
    /// Names that may have to be told.
    due: BTreeSet<Name>,
    /// All names may have to be: those up to the last that was looked at have been.
    sweep: Option<Option<Name>>,
    /// Looked at and found missing. They are told last, if that is so still.
    missing: BTreeSet<Name>,
    /// The end of the `*` set has been told.
    whole: bool,
    first: bool,
}

/// What one bounded look came to.
pub(super) enum Pass {
    Some(Vec<Resource>),
    Busy,
    Nothing,
}

impl TypeSubscription {
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
        // The form in which every server understands that everything is wanted (DELTA-18).
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

    /// The collection that a name is in and that is wanted.
    fn collection(&self, name: &Name) -> Option<&Name> {
        if self.globs.is_empty() {
            return None; // and there is nothing to look for
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

    /// Lest what is not requested any more is kept until its turn comes, which it may never do.
    fn look_for_wanted(&mut self) {
        let (mut due, mut missing) = (std::mem::take(&mut self.due), std::mem::take(&mut self.missing));
        due.retain(|name| self.wants(name));
        missing.retain(|name| self.wants(name));
        (self.due, self.missing) = (due, missing);
    }

    /// What is requested again is told again, but for what the client states to have (DELTA-13).
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
            // What was stated to be in it and is not has to be found as well.
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

    /// Whether an answer is no part of a `*` set that has an end to come.
    pub(crate) fn is_complete(&self) -> bool {
        self.whole || !self.wildcard
    }

    /// What is there and was not told.
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
                collection.iter().for_each(|glob| self.sent.remove(glob)); // it is not empty any more
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

    /// What the client holds or waits for, and is not there. Of `*` also that everything has been told, once.
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
            return self.sent.remove(&name); // nobody will ever be told of its absence
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

    /// The next names to look at, in their order.
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
        // Each of the three gave its first ones, so that the first of all are among them.
        if let Some(rest) = names.iter().nth(NAMES_AT_ONCE).cloned() {
            names.split_off(&rest);
        }
        self.sweep = names.last().map(|last| Some(last.clone()));
        names
    }
}

/// How many names are looked at, and about how many bytes told, in one go: whoever reads the answers has other things to do.
const NAMES_AT_ONCE: usize = 1_000;
const BYTES_AT_ONCE: usize = 1 << 20;
/// Nothing is told again more often than this, however short its life is.
const BEAT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::super::SourceSnapshot;
    use super::*;
    use crate::xds::TypeTable;

    fn ask(subscription: &mut TypeSubscription, on: &[&str], off: &[&str]) {
        let text = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        subscription.on_request(DeltaDiscoveryRequest {
            resource_names_subscribe: text(on),
            resource_names_unsubscribe: text(off),
            ..Default::default()
        });
        while !matches!(subscription.additions(Moment::START), Pass::Nothing) {}
    }

    fn subscription(alone: bool) -> TypeSubscription {
        TypeSubscription::over(SourceSnapshot::default().set(&TypeTable::new().resolve("t")), alone)
    }

    #[test]
    fn i1_names_that_are_requested_and_left_while_nothing_is_known_to_be_absent_are_not_kept() {
        let mut subscription = subscription(true);
        for round in 0..10 {
            let [name, glob] = [format!("n{round}"), format!("xdstp://x/t/{round}/*")];
            for left in [&name, &glob] {
                ask(&mut subscription, &["stays", left], &[]);
                ask(&mut subscription, &[], &[left]);
                assert_eq!((subscription.missing.len(), subscription.due.len()), (1, 0));
            }
        }
        ask(&mut subscription, &["*"], &["stays"]);
        ask(&mut subscription, &[], &["*"]);
        assert_eq!(subscription.missing.len(), 0);
    }

    #[test]
    fn i1_where_absence_is_never_sent_nothing_is_remembered_for_it() {
        let mut subscription = subscription(false);
        ask(&mut subscription, &["a", "b"], &[]);
        assert_eq!((subscription.missing.len(), subscription.removals().is_none()), (0, true));
    }
}
