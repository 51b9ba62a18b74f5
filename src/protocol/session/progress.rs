//! What a client of `*` has been sent, and so may hold, without keeping names.

use crate::protocol::view::{Entry, Revision};

/// Removals up to one revision, and the snapshots whose additions were sent since.
#[derive(Debug)]
pub(super) struct Progress {
    removals: Revision,
    /// First and last revision of each. If bursts were interrupted many times, neighbours are merged.
    additions: Vec<(Revision, Revision)>,
}

impl Progress {
    /// Starts with the snapshot of the first reply.
    pub(crate) fn starting(mark: Revision) -> Self {
        Self { removals: mark, additions: vec![(mark, mark)] }
    }

    pub(crate) fn removals(&self) -> Revision {
        self.removals
    }

    pub(crate) fn record_additions_sent(&mut self, mark: Revision) {
        if self.additions.last().is_some_and(|(_, last)| *last == mark) {
            return;
        }
        self.additions.push((mark, mark));
        if self.additions.len() > REMEMBERED {
            let (_, last) = self.additions.remove(REMEMBERED);
            self.additions[REMEMBERED - 1].1 = last;
        }
    }

    /// Records that removals up to a revision were sent; more of this snapshot will follow.
    pub(crate) fn record_removals_sent_to(&mut self, revision: Revision) {
        self.removals = self.removals.max(revision);
    }

    /// Records that everything was sent: the client holds what this snapshot has.
    pub(crate) fn record_all_sent(&mut self, mark: Revision) {
        *self = Self::starting(mark);
    }

    /// Whether the client may hold a resource that is removed now.
    pub(crate) fn client_may_hold(&self, gone: &Entry) -> bool {
        self.additions.iter().any(|(from, to)| gone.history.overlaps(*from, *to, gone.changed))
    }
}

const REMEMBERED: usize = 6;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::proto::{Any, discovery};
    use crate::protocol::moment::Moment;
    use crate::protocol::view::{Class, Evidence, InterestChange, Selector, SessionId, Update, View};
    use crate::xds::{BodyStore, Resource, TypeTable};

    /// Adds one name at each of so many revisions, and then removes them all. Returns the removed ones by revision.
    fn added_and_removed(count: usize) -> Vec<Entry> {
        let kind = TypeTable::new().resolve("type.googleapis.com/own.Type");
        let mut view = View::new(Arc::new(TypeTable::new()), Arc::default());
        let change = InterestChange { kind: kind.clone(), selector: Selector::Wildcard, on: true };
        view.change_interest(SessionId(1), change, Moment::START);
        let names: Vec<_> = (1..=count).map(|number| number.to_string()).collect();
        let class = Class::Wildcard;
        for name in &names {
            let resource = Some(Any { type_url: "type.googleapis.com/own.Type".into(), value: "1".into() });
            let wrapper = discovery::Resource { name: name.clone(), resource, ..Default::default() };
            let resource = Arc::new(Resource::from_wrapper(0, wrapper, &kind, &BodyStore::default()).unwrap());
            let (kind, key) = (kind.clone(), name.as_str().into());
            view.apply(vec![Update::Upsert { kind, class, key, resource }], Moment::START);
        }
        let gone = |name: &String| {
            let (kind, key, evidence) = (kind.clone(), name.as_str().into(), Evidence::Reported);
            Update::Absent { kind, class, key, evidence }
        };
        view.apply(names.iter().map(gone).collect(), Moment::START);
        view.publish();
        let table = view.snapshot().resources(&kind, class).unwrap();
        names.iter().map(|name| table.get(&name.as_str().into()).unwrap().clone()).collect()
    }

    fn revision(number: usize) -> Revision {
        (0..number).fold(Revision::ZERO, |revision, _| revision.next())
    }

    #[test]
    fn what_any_of_many_bursts_has_sent_that_were_cut_short_the_client_may_hold() {
        let entries = added_and_removed(20);
        for bursts in 1..=20 {
            let mut progress = Progress::starting(revision(1));
            (1..=bursts).for_each(|burst| progress.record_additions_sent(revision(burst)));
            let held: Vec<_> = entries.iter().map(|gone| progress.client_may_hold(gone)).collect();
            let sent: Vec<_> = (1..=20).map(|added| added <= bursts).collect();
            assert_eq!(held, sent, "after {bursts} bursts");
            assert!(progress.additions.len() <= REMEMBERED);
        }
    }

    #[test]
    fn once_everything_was_sent_earlier_bursts_count_no_more() {
        let entries = added_and_removed(3);
        let mut progress = Progress::starting(revision(1));
        progress.record_additions_sent(revision(3));
        progress.record_all_sent(revision(6)); // all three are removed by then
        assert!(!entries.iter().any(|gone| progress.client_may_hold(gone)));
    }
}
