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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_left_again_is_recent_for_the_whole_time_again() {
        let at = |seconds| Moment::START + Duration::from_secs(seconds);
        let (mut left, lasting, name) = (RecentlyLeft::default(), Duration::from_secs(10), Name::from("a"));
        left.leave([name.clone()].into());
        assert!(left.is_recent(&name, at(0)), "the request is not written yet");
        left.written(at(0), lasting);
        left.written(at(4), lasting);
        assert!(left.is_recent(&name, at(9)) && !left.is_recent(&name, at(10)), "other requests do not lengthen it");
        left.leave([name.clone()].into());
        left.written(at(5), lasting);
        left.written(at(12), lasting);
        assert!(left.is_recent(&name, at(14)), "the end of the first time is not that of the second");
        left.written(at(15), lasting);
        assert!(!left.is_recent(&name, at(15)) && left.until.is_empty() && left.deadlines.is_empty());
    }
}
