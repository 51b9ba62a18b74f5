//! A local set: a source that has its resources in the process, and reports to a view what the view wants of them.
//!
//! Owns what the view wants, and what of that is still to be reported. Leaves reading the resources to the edge. Invariants: additions are
//! reported in the order of types, and all before the removals, which are reported in the reverse order (ORD-4); a part is bounded; no name is
//! reported as absent, and no `*` set as complete, before the whole set has been read once.

mod part;
mod queue;
mod renewals;
mod set_subscription;
mod snapshot;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use part::SetPart;
pub use snapshot::{Items, NamesWithoutRoom, Set, SourceSnapshot};

use self::set_subscription::{BYTES_AT_ONCE, NAMES_AT_ONCE, SetSubscription};
use self::snapshot::Absence;
use super::moment::{Moment, earliest};
use super::upstream::{Epoch, NameRequest, TypePlace, TypeSummary, UpstreamOptions};
use super::view::{Class, InterestChange, Selector, Update, View};
use super::wait::{WaitKind, WaitList, WaitSubject};
use crate::xds::{Name, Role, Type};

/// A local set, for one view.
#[derive(Debug)]
pub struct LocalSet {
    /// Whether a name that is not in the set is absent. If false, other sources may have it (FS-6).
    authoritative: bool,
    epoch: Epoch,
    /// `None` while the source is unreachable.
    snapshot: Option<Arc<SourceSnapshot>>,
    subscriptions: BTreeMap<(Type, Class), SetSubscription>,
    options: Arc<UpstreamOptions>,
}

impl LocalSet {
    /// Starts with an unreachable source, and with nothing wanted.
    pub(crate) fn new(authoritative: bool, options: Arc<UpstreamOptions>) -> Self {
        let (epoch, snapshot, subscriptions) = Default::default();
        Self { authoritative, epoch, snapshot, subscriptions, options }
    }

    /// Applies a change of interest.
    pub(crate) fn want(&mut self, change: InterestChange) {
        let InterestChange { kind, selector, on } = change;
        let class = match selector {
            Selector::Wildcard => Class::Wildcard,
            Selector::Name(_) => Class::Named,
        };
        let key = (kind, class);
        if on {
            let set = || self.snapshot.as_ref().map(|snapshot| snapshot.set(&key.0)).unwrap_or_default();
            let subscription = match self.subscriptions.entry(key.clone()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(SetSubscription::new(set(), class)),
            };
            subscription.want(selector);
        } else if let Some(subscription) = self.subscriptions.get_mut(&key) {
            subscription.leave(&selector);
            if !subscription.is_wanted() {
                self.subscriptions.remove(&key);
            }
        }
    }

    /// Records that the source is reachable.
    pub(crate) fn opened(&mut self) -> Epoch {
        self.epoch = self.epoch.next();
        self.epoch
    }

    /// Goes on with another snapshot, unless that is of an earlier opening. If the differences are known, only they are reported.
    pub(crate) fn on_snapshot(&mut self, epoch: Epoch, snapshot: Arc<SourceSnapshot>) {
        if epoch != self.epoch {
            return;
        }
        let is_first = self.snapshot.is_none();
        for ((kind, _), subscription) in &mut self.subscriptions {
            subscription.replace_set(snapshot.set(kind));
            if is_first {
                subscription.on_reachable();
            }
        }
        self.snapshot = Some(snapshot);
    }

    /// Records that the source is unreachable. The view keeps what it has.
    pub(crate) fn ended(&mut self, epoch: Epoch, view: &View) -> Vec<Update> {
        if epoch != self.epoch || self.snapshot.take().is_none() {
            return Vec::new();
        }
        self.subscriptions.iter_mut().flat_map(|((kind, _), of)| of.on_unreachable(kind, view)).collect()
    }

    /// Whether the source is reachable.
    pub fn is_open(&self) -> bool {
        self.snapshot.is_some()
    }

    fn absence(&self) -> Absence {
        match self.snapshot.as_ref().is_some_and(|snapshot| snapshot.is_complete()) {
            _ if !self.authoritative => Absence::Never,
            true => Absence::Counts,
            false => Absence::NotYet,
        }
    }

    /// Whether a name that the set lacks is absent.
    fn absence_counts(&self) -> bool {
        self.absence() == Absence::Counts
    }

    /// Returns some parts of what is due. Together they take no longer than one large part. [`Self::next_deadline`] shows whether more is due.
    pub(crate) fn next_parts(&mut self, view: &View, now: Moment) -> Vec<SetPart> {
        let (mut parts, mut looked, mut bytes) = (Vec::new(), 0, 0);
        while looked < NAMES_AT_ONCE && bytes < BYTES_AT_ONCE {
            let Some(part) = self.next_part(view, now) else { break };
            looked += part.looked.max(1);
            bytes += part.summary.bytes;
            parts.extend((!part.updates.is_empty()).then_some(part));
        }
        parts
    }

    fn next_part(&mut self, view: &View, now: Moment) -> Option<SetPart> {
        self.snapshot.as_ref()?;
        self.subscriptions.values_mut().for_each(|subscription| subscription.renew(now));
        let (absence, absence_counts) = (self.absence(), self.absence_counts());
        let mut additions = self.subscriptions.iter_mut().filter(|(_, of)| of.has_additions());
        Some(match additions.next() {
            Some(((kind, _), of)) => of.additions(kind, absence, view, now),
            None => {
                let mut others = self.subscriptions.iter_mut().rev().filter(|(_, of)| of.has_pending(absence_counts));
                others.next().map(|((kind, _), of)| of.removals(kind, view))?
            }
        })
    }

    /// Returns the updates for sets that have been quiet for a while.
    pub(crate) fn on_time(&mut self, now: Moment) -> Vec<Update> {
        let (absence_counts, quiet) = (self.absence_counts(), self.options.settle_fresh);
        let subscriptions = self.subscriptions.iter_mut().filter(|_| self.snapshot.is_some());
        subscriptions.flat_map(|((kind, _), of)| of.settle(kind, absence_counts, quiet, now)).collect()
    }

    /// Returns when something is next to be reported: at once, if something is due that need not wait.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        self.snapshot.as_ref()?;
        let (absence_counts, quiet) = (self.absence_counts(), self.options.settle_fresh);
        self.subscriptions.values().fold(None, |first, of| match of.has_pending(absence_counts) {
            true => Some(Moment::START),
            false => earliest(first, of.next_deadline(absence_counts, quiet)),
        })
    }

    /// Whether the source is reachable, and has reported all routing that was wanted when it became reachable.
    pub(crate) fn has_reported_routing(&self) -> bool {
        let mut routing = self.subscriptions.iter().filter(|((kind, _), _)| kind.is(Role::Routing));
        self.subscriptions.is_empty() || self.is_open() && routing.all(|(_, of)| !of.has_first_pending())
    }

    /// Returns the types of the local set, for reports. A type that is wanted by `*` and by name is listed twice.
    pub fn types(&self) -> impl Iterator<Item = TypeSummary<'_>> {
        self.subscriptions.iter().map(|((kind, _), of)| TypeSummary {
            kind,
            wildcard: of.has_wildcard(),
            names: of.names().len() + of.globs().len(),
            left_out: 0,
            misnamed: of.misnamed(),
            asked_again: 0,
            rejected: 0,
            unnamed: None,
            place: TypePlace::OnStream,
        })
    }

    /// Returns what is known of a name; `None` if it is not wanted.
    pub fn request_of(&self, kind: &Type, name: &Name) -> Option<NameRequest> {
        let state_in = |class| {
            let subscription = self.subscriptions.get(&(kind.clone(), class))?;
            subscription.state_of(name, self.absence_counts())
        };
        let state = [Class::Named, Class::Wildcard].into_iter().find_map(state_in)?;
        Some(NameRequest { state, rejected: None, error: None, heard: None })
    }

    /// Adds the waits for the source to the list: everything while it is unreachable, and sets of which more may come.
    pub(crate) fn add_waits(&self, server: usize, view: &View, now: Moment, list: &mut WaitList) {
        for ((kind, _), of) in &self.subscriptions {
            if self.is_open() {
                if let Some(last) = of.last_reported().filter(|_| !self.absence_counts()) {
                    let bound = Some(self.options.settle_fresh);
                    list.add(WaitKind::Quiet, now - last, bound, || WaitSubject::of_type(kind).at(server));
                }
                continue;
            }
            let mut names = of.names_not_in(view, kind).chain(of.globs());
            for name in names.by_ref().take(list.room()) {
                list.add(WaitKind::Name, Duration::ZERO, None, || WaitSubject::name(kind, name).at(server));
            }
            list.add_younger(WaitKind::Name, names.count());
            if of.has_wildcard() {
                list.add(WaitKind::Set, Duration::ZERO, None, || WaitSubject::set(kind).at(server));
            }
        }
    }
}

#[cfg(test)]
mod tests;
