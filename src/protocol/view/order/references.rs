//! Counts references to clusters: from the tables, and for a while from resources that were replaced or removed.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use crate::protocol::moment::Moment;
use crate::xds::Name;

#[derive(Debug, Default)]
pub(super) struct References {
    /// How many resources in the tables refer to a cluster.
    live: HashMap<Name, u32>,
    /// How many did until recently. A listener drains, and a new one warms on its old route.
    lingering: HashMap<Name, u32>,
    ends: VecDeque<(Moment, Name)>,
    /// Clusters that a resource refers to and that are absent, with since when.
    dangling: BTreeMap<Name, Dangling>,
}

#[derive(Debug, Clone, Copy)]
pub(in crate::protocol::view) struct Dangling {
    pub(crate) since: Moment,
    /// A change that refers to it has waited for it once.
    pub(crate) waited: bool,
}

impl References {
    /// The references of a resource have changed. Both lists are sorted, without duplicates.
    pub(crate) fn replace(
        &mut self,
        old: &[Name],
        new: &[Name],
        is_here: impl Fn(&Name) -> bool,
        now: Moment,
        linger: Duration,
    ) {
        self.on_time(now); // drops references that have ended
        for name in new.iter().filter(|name| old.binary_search(name).is_err()) {
            let count = self.live.entry(name.clone()).or_default();
            *count += 1;
            if *count == 1 && !is_here(name) {
                self.dangling.insert(name.clone(), Dangling { since: now, waited: false });
            }
        }
        for name in old.iter().filter(|name| new.binary_search(name).is_err()) {
            take_one(&mut self.live, name);
            if !self.live.contains_key(name) {
                self.dangling.remove(name);
            }
            *self.lingering.entry(name.clone()).or_default() += 1;
            self.ends.push_back((now + linger, name.clone()));
        }
    }

    pub(crate) fn on_time(&mut self, now: Moment) {
        let over = self.ends.iter().take_while(|(end, _)| *end <= now).count();
        for (_, name) in self.ends.drain(..over) {
            take_one(&mut self.lingering, &name);
        }
    }

    /// When the next lingering reference ends.
    pub(crate) fn next_end(&self) -> Option<Moment> {
        self.ends.front().map(|(end, _)| *end)
    }

    pub(crate) fn is_live(&self, cluster: &Name) -> bool {
        self.live.contains_key(cluster)
    }

    pub(crate) fn is_any(&self, cluster: &Name) -> bool {
        self.is_live(cluster) || self.lingering.contains_key(cluster)
    }

    pub(crate) fn appeared(&mut self, cluster: &Name) {
        self.dangling.remove(cluster);
    }

    pub(crate) fn vanished(&mut self, cluster: &Name, now: Moment) {
        if self.is_live(cluster) {
            self.dangling.insert(cluster.clone(), Dangling { since: now, waited: true });
        }
    }

    pub(crate) fn dangling(&self) -> &BTreeMap<Name, Dangling> {
        &self.dangling
    }

    /// Whether a change that refers to this cluster waits for it: not again if it did not arrive the first time.
    pub(crate) fn is_worth_waiting(&self, cluster: &Name) -> bool {
        self.dangling.get(cluster).is_none_or(|dangling| !dangling.waited)
    }

    pub(crate) fn waited_for(&mut self, cluster: &Name) {
        if let Some(dangling) = self.dangling.get_mut(cluster) {
            dangling.waited = true;
        }
    }
}

fn take_one(counts: &mut HashMap<Name, u32>, name: &Name) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_that_lingers_ends_at_its_time_and_not_after_it() {
        let mut references = References::default();
        let (a, linger) = (Name::from("a"), Duration::from_secs(5));
        references.replace(&[], std::slice::from_ref(&a), |_| true, Moment::START, linger);
        references.replace(std::slice::from_ref(&a), &[], |_| true, Moment::START, linger);
        let end = references.next_end().unwrap();
        assert_eq!(end, Moment::START + linger);
        references.on_time(Moment::START + (linger - Duration::from_nanos(1)));
        assert!(references.is_any(&a));
        references.on_time(end);
        assert!(!references.is_any(&a));
        assert_eq!(references.next_end(), None, "a timer that is due again and again would keep a core busy");
    }
}
