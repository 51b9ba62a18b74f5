//! Changes of a client's subscriptions until its view has counted them.

use std::collections::VecDeque;

use super::subscription::Subscriptions;
use crate::protocol::view::InterestChange;

#[derive(Debug, Default)]
pub(super) struct Uncounted {
    /// In the order of the requests.
    changes: VecDeque<InterestChange>,
    /// How many parts the view was given and has not counted yet. Until it has, it does not report changes of their names.
    parts: usize,
}

impl Uncounted {
    /// Returns the queue to which changes are added.
    pub(super) fn changes(&mut self) -> &mut VecDeque<InterestChange> {
        &mut self.changes
    }

    /// Whether there are changes that the view was not given.
    pub(super) fn are_any(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Returns at most `most` changes, for the view.
    pub(super) fn take(&mut self, most: usize) -> Vec<InterestChange> {
        let changes = match most < self.changes.len() {
            true => self.changes.drain(..most).collect(),
            false => Vec::from(std::mem::take(&mut self.changes)),
        };
        self.parts += usize::from(!changes.is_empty());
        changes
    }

    /// Records that the view has counted a part. After the last one, each subscription learns that all of it is counted.
    pub(super) fn on_counted(&mut self, subscriptions: &mut Subscriptions) {
        self.parts = self.parts.saturating_sub(1);
        if !self.is_behind() {
            subscriptions.values_mut().for_each(|subscription| subscription.on_all_counted());
        }
    }

    /// Whether the view has yet to count something.
    pub(super) fn is_behind(&self) -> bool {
        self.parts > 0 || self.are_any()
    }
}
