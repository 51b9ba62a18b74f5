//! What one view wants of one type and class of a local set, and what of that is still to be reported.
//!
//! Invariant: what is remembered is bounded by what is wanted, by the set, and by what the view has.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::part::SetPart;
use super::queue::Queue;
use super::renewals::Renewals;
use super::snapshot::{Absence, Set};
use crate::protocol::moment::Moment;
use crate::protocol::upstream::RequestState;
use crate::protocol::view::{Class, Completeness, Selector, Update, View};
use crate::xds::{Name, Resource, Type};

#[derive(Debug)]
pub(super) struct SetSubscription {
    class: Class,
    /// Whether `*` is wanted.
    wildcard: bool,
    names: BTreeSet<Name>,
    globs: BTreeSet<Name>,
    set: Arc<Set>,
    /// Names to report as present or absent.
    due: Queue,
    /// The names of `*` for which there was no room are still to be reported.
    lack_is_due: bool,
    /// Names that the set lacks. They are reported last, if the set still lacks them then.
    missing: BTreeSet<Name>,
    /// Sets of which the view may have resources from another source or from disk that this source does not have.
    unlisted_in: BTreeSet<Selector>,
    /// `begun`: sets of which something was reported. `unreported_ends`: sets whose end is still to be reported.
    begun: BTreeSet<Selector>,
    unreported_ends: BTreeSet<Selector>,
    renewals: Renewals,
    /// When something new of a set was last reported; `None` if the set has been quiet since.
    last_reported: Option<Moment>,
    /// Not everything that was wanted when the source became reachable has been reported yet.
    has_first_pending: bool,
}

impl SetSubscription {
    pub(super) fn new(set: Arc<Set>, class: Class) -> Self {
        let (names, globs, due, missing, unlisted_in, begun, unreported_ends, renewals) = Default::default();
        Self {
            class,
            wildcard: false,
            names,
            globs,
            set,
            due,
            lack_is_due: false,
            missing,
            unlisted_in,
            begun,
            unreported_ends,
            renewals,
            last_reported: None,
            has_first_pending: false,
        }
    }

    /// Adds a name or a set to what is wanted. A name or glob that was wanted before is reported again; `*` is not, as its changes are reported.
    pub(super) fn want(&mut self, of: Selector) {
        match of {
            Selector::Wildcard if self.wildcard => {}
            Selector::Wildcard => {
                self.wildcard = true;
                self.look_at_all();
                self.begin(Selector::Wildcard);
            }
            Selector::Name(glob) if glob.is_glob() => {
                self.due.extend(glob.members_in(self.set.items()).map(|(name, _)| name.clone()));
                self.due.extend(glob.members_in(self.set.without_room()).map(|(name, ())| name.clone()));
                self.globs.insert(glob.clone());
                self.begin(Selector::Name(glob));
            }
            Selector::Name(name) => {
                self.due.insert(name.clone());
                self.names.insert(name);
            }
        }
    }

    pub(super) fn leave(&mut self, of: &Selector) {
        for sets in [&mut self.unlisted_in, &mut self.unreported_ends, &mut self.begun] {
            sets.remove(of);
        }
        match of {
            Selector::Wildcard => self.wildcard = false,
            Selector::Name(name) if self.globs.remove(name) => {}
            Selector::Name(name) => {
                self.names.remove(name);
                if !self.wants(name) {
                    self.due.remove(name);
                    self.missing.remove(name);
                    self.renewals.remove(name);
                }
                return;
            }
        }
        // A set may have queued any number of names. Those that are no longer wanted must not be kept.
        let (mut due, mut missing) = (std::mem::take(&mut self.due), std::mem::take(&mut self.missing));
        self.lack_is_due &= self.wildcard;
        let mut renewals = std::mem::take(&mut self.renewals);
        due.retain(|name| self.wants(name));
        missing.retain(|name| self.wants(name));
        renewals.retain(|name| self.wants(name));
        (self.due, self.missing, self.renewals) = (due, missing, renewals);
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wildcard || !self.names.is_empty() || !self.globs.is_empty()
    }

    fn wants(&self, name: &Name) -> bool {
        self.wildcard || self.names.contains(name) || self.is_member(name)
    }

    fn is_member(&self, name: &Name) -> bool {
        !self.globs.is_empty() && name.collection().is_some_and(|glob| self.globs.contains(&glob))
    }

    fn sets(&self) -> impl Iterator<Item = Selector> {
        let wildcard = self.wildcard.then_some(Selector::Wildcard);
        wildcard.into_iter().chain(self.globs.iter().cloned().map(Selector::Name))
    }

    /// Returns the set that reports a name, if one does.
    fn set_with(&self, name: &Name) -> Option<Selector> {
        match self.wildcard {
            true => Some(Selector::Wildcard),
            false => name.collection().filter(|glob| self.globs.contains(glob)).map(Selector::Name),
        }
    }

    fn is_empty(&self, of: &Selector) -> bool {
        match of {
            Selector::Wildcard => self.set.items().is_empty(),
            Selector::Name(glob) => glob.members_in(self.set.items()).next().is_none(),
        }
    }

    /// Goes on with another set. If the differences are known, only they are reported.
    pub(super) fn replace_set(&mut self, set: Arc<Set>) {
        if Arc::ptr_eq(&set, &self.set) || set.is_empty() && self.set.is_empty() {
            return;
        }
        let before = std::mem::replace(&mut self.set, set);
        if before.without_room() != self.set.without_room() {
            self.lack_is_due |= self.wildcard;
            self.unreported_ends.extend(self.globs.iter().cloned().map(Selector::Name));
        }
        match self.set.changed_since(&before) {
            Some(changed) => {
                let changed: Vec<_> = changed.iter().filter(|name| self.wants(name)).cloned().collect();
                self.due.extend(changed);
            }
            None => {
                self.look_at_all();
                self.unlisted_in = self.sets().collect();
            }
        }
    }

    /// Queues everything that the set has, and everything that is wanted.
    fn look_at_all(&mut self) {
        self.due.begin_pass();
        let lacking: Vec<_> = self.set.without_room().keys().filter(|name| self.wants(name)).cloned().collect();
        self.lack_is_due |= self.wildcard && !lacking.is_empty();
        self.due.extend(lacking);
    }

    /// Starts over, because the source became reachable: everything is to be reported.
    pub(super) fn on_reachable(&mut self) {
        self.clear();
        self.has_first_pending = true;
        self.look_at_all();
        self.sets().collect::<Vec<_>>().into_iter().for_each(|of| self.begin(of));
    }

    /// Starts over, because the source became unreachable. What it has reported as absent may exist by now.
    pub(super) fn on_unreachable(&mut self, kind: &Type, view: &View) -> Vec<Update> {
        self.clear();
        self.set = Arc::default();
        let all = self.sets().chain(self.names_not_in(view, kind).cloned().map(Selector::Name));
        all.map(|of| Update::Interrupted { kind: kind.clone(), of }).collect()
    }

    fn begin(&mut self, of: Selector) {
        self.unlisted_in.insert(of.clone());
        self.unreported_ends.insert(of);
    }

    fn clear(&mut self) {
        self.missing.clear();
        self.begun.clear();
        (self.due, self.renewals) = Default::default();
        (self.lack_is_due, self.last_reported) = (false, None);
    }

    /// Queues the resources whose TTL has to be renewed by now.
    pub(super) fn renew(&mut self, now: Moment) {
        while let Some(name) = self.renewals.take_due(now) {
            self.due.insert(name);
        }
    }

    /// Returns the resource to report under a name. An alias has one only if the alias is wanted by itself.
    fn resource_for(&self, name: &Name) -> Option<&Arc<Resource>> {
        match self.names.contains(name) {
            true => self.set.get(name),
            false => self.set.items().get(name),
        }
    }

    /// Whether something can be reported at once. With `absence_counts`, names that the set lacks are absent.
    pub(super) fn has_pending(&self, absence_counts: bool) -> bool {
        let may_end = || !self.missing.is_empty() || !self.unlisted_in.is_empty() || !self.unreported_ends.is_empty();
        self.has_additions() || absence_counts && may_end()
    }

    pub(super) fn has_additions(&self) -> bool {
        !self.due.is_empty() || self.lack_is_due
    }

    /// Whether something that was wanted when the source became reachable is still to be reported. What is wanted later does not count.
    pub(super) fn has_first_pending(&self) -> bool {
        self.has_first_pending
    }

    /// Returns when something last came of a set that may have more.
    pub(super) fn last_reported(&self) -> Option<Moment> {
        self.last_reported
    }

    pub(super) fn next_deadline(&self, absence_counts: bool, settle_fresh: Duration) -> Option<Moment> {
        let quiet = self.last_reported.filter(|_| !absence_counts).map(|last| last + settle_fresh);
        quiet.into_iter().chain(self.renewals.next()).min()
    }

    /// Returns a bounded part of the resources that are to be reported. It may be empty although more is due. Names that the set lacks are kept
    /// for [`Self::removals`] if they are absent now or may be later.
    pub(super) fn additions(&mut self, kind: &Type, absence: Absence, view: &View, now: Moment) -> SetPart {
        let (mut part, mut given) = (SetPart::of(kind), BTreeSet::new());
        if std::mem::take(&mut self.lack_is_due) {
            let is_here = |name: &&Name| view.holds().entry_here(kind, Class::Wildcard, name).is_some();
            part.add_unreadable(self.set.without_room().keys().filter(|name| !is_here(name)).cloned().collect());
        }
        let items = (self.wildcard || !self.globs.is_empty()).then(|| self.set.items());
        let candidates = self.due.next(NAMES_AT_ONCE, &self.names, items);
        part.looked += candidates.len();
        for name in candidates {
            if part.summary.bytes >= BYTES_AT_ONCE {
                self.due.insert(name); // for the next part
                continue;
            }
            let Some(resource) = self.resource_for(&name).cloned() else {
                if self.set.lacks_room(&name) {
                    part.add_without_room(self.class, name); // the resource exists, but the view cannot have it
                } else if absence != Absence::Never {
                    self.missing.insert(name);
                }
                continue;
            };
            if !self.wants(&name) {
                continue;
            }
            if let Some(ttl) = resource.ttl {
                self.renewals.insert(name.clone(), now + (ttl / 2).max(MIN_RENEWAL_INTERVAL));
            }
            if let Some(of) = self.set_with(&name) {
                let is_new =
                    || view.tables().entry(kind, self.class, &name).is_none_or(|entry| entry.resource().is_none());
                if self.unreported_ends.contains(&of) && (self.begun.insert(of.clone()) || is_new()) {
                    self.last_reported = Some(now);
                }
                given.insert(of);
            }
            part.add(self.class, name, resource);
        }
        for of in given {
            let known = if of == Selector::Wildcard { Completeness::Arriving } else { Completeness::FirstResponse };
            part.add_progress(of, known);
        }
        self.has_first_pending &= self.has_pending(absence == Absence::Counts);
        part
    }

    /// Returns a bounded part of the removals: names that the view has or waits for and the set lacks, then the end of each set. To be called
    /// when names that the set lacks are absent, and everything that the set has was reported.
    pub(super) fn removals(&mut self, kind: &Type, view: &View) -> SetPart {
        for of in std::mem::take(&mut self.unlisted_in) {
            self.missing.extend(self.unlisted_in_view(kind, &of, view));
        }
        let mut part = SetPart::of(kind);
        while part.looked < NAMES_AT_ONCE {
            let Some(name) = self.missing.pop_first() else { break };
            part.looked += 1;
            if self.resource_for(&name).is_none() && !self.set.lacks_room(&name) && self.wants(&name) {
                self.renewals.remove(&name);
                part.remove(self.class, name);
            }
        }
        while part.looked < NAMES_AT_ONCE && self.missing.is_empty() {
            let Some(of) = self.unreported_ends.pop_first() else { break };
            part.looked += 1;
            match of {
                Selector::Name(glob) if glob.members_in(self.set.without_room()).next().is_some() => {
                    part.add_progress(Selector::Name(glob), Completeness::FirstResponse); // until there is room
                }
                Selector::Name(glob) if self.is_empty(&Selector::Name(glob.clone())) => part.remove(self.class, glob),
                of => part.add_progress(of, Completeness::Complete),
            }
            self.last_reported = None;
        }
        self.has_first_pending &= self.has_pending(true);
        part
    }

    /// Returns the resources of a set that the view has and this source does not have.
    fn unlisted_in_view(&self, kind: &Type, of: &Selector, view: &View) -> Vec<Name> {
        let (holds, is_unlisted) = (view.holds(), |name: &&Name| self.resource_for(name).is_none());
        match of {
            Selector::Wildcard => {
                holds.here(kind, Class::Wildcard).map(|(name, _)| name).filter(is_unlisted).cloned().collect()
            }
            Selector::Name(glob) => {
                let members = view.tables().members(kind, glob).filter(is_unlisted);
                members.filter(|name| holds.entry_here(kind, Class::Named, name).is_some()).cloned().collect()
            }
        }
    }

    /// Lets a set be served that has been quiet for `settle_fresh`, although it may be incomplete.
    pub(super) fn settle(
        &mut self,
        kind: &Type,
        absence_counts: bool,
        settle_fresh: Duration,
        now: Moment,
    ) -> Vec<Update> {
        let is_quiet = self.last_reported.is_some_and(|last| last + settle_fresh <= now) && !self.has_additions();
        if absence_counts || !is_quiet {
            return Vec::new();
        }
        self.last_reported = None;
        let begun = self.begun.iter().cloned();
        begun.map(|of| Update::Progress { kind: kind.clone(), of, completeness: Completeness::Settled }).collect()
    }

    /// Returns what is known of a name, if it is wanted.
    pub(super) fn state_of(&self, name: &Name, absence_counts: bool) -> Option<RequestState> {
        let is_glob = self.globs.contains(name);
        if !is_glob && !self.wants(name) {
            return None;
        }
        let is_present = match is_glob {
            true => !self.is_empty(&Selector::Name(name.clone())),
            false => self.resource_for(name).is_some(),
        };
        Some(match is_present {
            _ if self.wildcard => RequestState::OfWildcard,
            true => RequestState::Given,
            false if absence_counts && !self.set.lacks_room(name) => RequestState::Absent,
            false => RequestState::Waiting(None),
        })
    }

    /// Returns the wanted names that the view does not have, or has only until their removal is applied.
    pub(super) fn names_not_in<'a>(&'a self, view: &'a View, kind: &'a Type) -> impl Iterator<Item = &'a Name> {
        self.names.iter().filter(|name| view.holds().entry_here(kind, self.class, name).is_none())
    }

    pub(super) fn names(&self) -> &BTreeSet<Name> {
        &self.names
    }

    pub(super) fn globs(&self) -> &BTreeSet<Name> {
        &self.globs
    }

    pub(super) fn has_wildcard(&self) -> bool {
        self.wildcard
    }

    /// Returns how many resources of the set have another name in their body (TYPE-10).
    pub(super) fn misnamed(&self) -> u64 {
        self.set.misnamed()
    }
}

/// How many names are checked, and about how many bytes are reported, at once. The thread has other views to serve.
pub(super) const NAMES_AT_ONCE: usize = 1_000;
pub(super) const BYTES_AT_ONCE: usize = 1 << 20;
/// The shortest time between two renewals of a resource, however short its TTL is.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::super::SourceSnapshot;
    use super::*;
    use crate::xds::TypeTable;

    fn names_of_nothing() -> SetSubscription {
        SetSubscription::new(SourceSnapshot::default().set(&TypeTable::new().resolve("t")), Class::Named)
    }

    fn look(of: &mut SetSubscription, absence: Absence) {
        let (kind, view) = (TypeTable::new().resolve("t"), View::new(Arc::new(TypeTable::new()), Arc::default()));
        while of.has_additions() {
            assert!(of.additions(&kind, absence, &view, Moment::START).updates.is_empty());
        }
    }

    #[test]
    fn i1_names_that_are_wanted_and_left_while_nothing_is_known_to_be_absent_are_not_kept() {
        let mut of = names_of_nothing();
        of.want(Selector::Name("stays".into()));
        for round in 0..10 {
            for left in [format!("n{round}"), format!("xdstp://x/t/{round}/*")] {
                let left = Selector::Name(left.as_str().into());
                of.want(left.clone());
                look(&mut of, Absence::NotYet);
                of.leave(&left);
                let SetSubscription { missing, due, unreported_ends, names, globs, .. } = &of;
                assert_eq!((missing.len(), due.len(), unreported_ends.len(), names.len() + globs.len()), (1, 0, 0, 1));
            }
        }
        of.leave(&Selector::Name("stays".into()));
        assert!(of.missing.is_empty() && !of.is_wanted());
    }

    #[test]
    fn i1_where_absence_is_never_reported_nothing_is_remembered_for_it() {
        let mut of = names_of_nothing();
        ["a", "b"].into_iter().for_each(|name| of.want(Selector::Name(name.into())));
        look(&mut of, Absence::Never);
        assert!(of.missing.is_empty() && !of.has_pending(false));
    }
}
