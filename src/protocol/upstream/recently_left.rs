//! Names that were unsubscribed on this opening a short while ago. When one is subscribed again, a response to the time between may
//! lack it: that is no evidence of whether it exists.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::protocol::moment::Moment;
use crate::xds::Name;

#[derive(Debug, Default)]
pub(super) struct RecentlyLeft {
    /// In a request that is made and not yet written.
    leaving: BTreeSet<Name>,
    /// Until when a response may come that was made while the name was not subscribed.
    until: BTreeMap<Name, Moment>,
    deadlines: VecDeque<(Moment, Name)>,
}

impl RecentlyLeft {
    pub(crate) fn leave(&mut self, mut names: BTreeSet<Name>) {
        self.leaving.append(&mut names);
    }

    /// Requests were written. They are answered within `lasting`.
    pub(crate) fn written(&mut self, now: Moment, lasting: Duration) {
        let over = self.deadlines.iter().take_while(|(until, _)| *until <= now).count();
        for (at, name) in self.deadlines.drain(..over) {
            if self.until.get(&name) == Some(&at) {
                self.until.remove(&name);
            }
        }
        for name in std::mem::take(&mut self.leaving) {
            self.until.insert(name.clone(), now + lasting);
            self.deadlines.push_back((now + lasting, name));
        }
    }

    pub(crate) fn is_recent(&self, name: &Name, now: Moment) -> bool {
        self.leaving.contains(name) || self.until.get(name).is_some_and(|until| now < *until)
    }
}
