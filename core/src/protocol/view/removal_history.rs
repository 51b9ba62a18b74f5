//! How long removals are remembered for sessions that are behind: for a time, which runs while the control plane is reachable, and as long
//! as they do not take too much memory.
//!
//! No removal is forgotten before it is in a published snapshot, so a session that was sent everything up to the last one misses none.

use std::collections::VecDeque;
use std::time::Duration;

use super::resource_table::ResourceTable;
use crate::protocol::keys::Revision;
use crate::protocol::moment::{Clock, Moment};
use crate::protocol::view::options::ViewOptions;

#[derive(Debug, Default)]
pub(super) struct RemovalHistory {
    /// Stopped while all servers of the `*` sets are unreachable: clients may have to wait for a server before they are sent removals.
    clock: Clock,
    /// When it was last trimmed.
    looked: Moment,
    /// Published revisions, at least `APART` from one another, each with what the clock showed then.
    published: VecDeque<(Revision, Duration)>,
    forgotten: Forgotten,
}

/// How many removals were forgotten, and why.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Forgotten {
    /// Older than the limit.
    pub by_age: u64,
    /// There was no room.
    pub by_bytes: u64,
}

impl RemovalHistory {
    /// Forgets published removals: those that are too old, and then the oldest ones while all together take too much memory. Returns
    /// whether any was forgotten.
    pub(super) fn trim(
        &mut self,
        mut sets: Vec<&mut ResourceTable>,
        published: Revision,
        is_reachable: bool,
        options: &ViewOptions,
        now: Moment,
    ) -> bool {
        sets.retain(|set| set.journal().removal_bytes() > 0);
        match is_reachable {
            true => self.clock.start(now),
            false => self.clock.stop(self.looked), // it is away since then, or earlier
        }
        self.looked = now;
        if sets.is_empty() {
            self.published.clear();
            return false;
        }
        let old = self.note(published, options, now);
        let before = self.forgotten;
        for set in &mut sets {
            while set.journal().oldest_removal().is_some_and(|oldest| oldest <= old) {
                set.forget_oldest_removal();
                self.forgotten.by_age += 1;
            }
        }
        let mut bytes: usize = sets.iter().map(|set| set.journal().removal_bytes()).sum();
        while bytes > options.history_bytes {
            let oldest = sets.iter_mut().filter_map(|set| Some((set.journal().oldest_removal()?, set)));
            let Some((_, set)) = oldest.min_by_key(|(at, _)| *at).filter(|(at, _)| *at <= published) else { break };
            bytes -= set.journal().removal_bytes();
            set.forget_oldest_removal();
            bytes += set.journal().removal_bytes();
            self.forgotten.by_bytes += 1;
        }
        self.forgotten != before
    }

    pub(super) fn forgotten(&self) -> Forgotten {
        self.forgotten
    }

    /// Notes a published revision. Returns the newest one that is too old.
    fn note(&mut self, published: Revision, options: &ViewOptions, now: Moment) -> Revision {
        let passed = self.clock.read(now);
        let is_due = |(last, at): &(Revision, Duration)| *last < published && *at + APART <= passed;
        if self.published.back().is_none_or(is_due) {
            self.published.push_back((published, passed));
        }
        let mut old = Revision::ZERO;
        while let Some((revision, at)) = self.published.front()
            && *at + options.history_age <= passed
        {
            old = *revision;
            self.published.pop_front();
        }
        old
    }

    /// Returns when removals are to be forgotten next because of their age.
    pub(super) fn next_deadline(&self, options: &ViewOptions) -> Option<Moment> {
        let (_, oldest) = self.published.front()?;
        self.clock.when(*oldest + options.history_age)
    }
}

/// Of an age of minutes, a second more makes no difference.
const APART: Duration = Duration::from_secs(1);
