//! What a client newly subscribes to, or no longer, until its view has counted it.

use std::collections::VecDeque;

use crate::protocol::view::InterestChange;

#[derive(Debug, Default)]
pub(super) struct Uncounted {
    /// In the order of the requests.
    changes: VecDeque<InterestChange>,
    /// How many parts the view was given and has not counted yet. Until then it does not report changes of their names.
    parts: usize,
}

impl Uncounted {
    /// Where changes go.
    pub(super) fn changes(&mut self) -> &mut VecDeque<InterestChange> {
        &mut self.changes
    }

    /// Whether the view is to be given any.
    pub(super) fn are_any(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Returns at most so many of them, for the view.
    pub(super) fn take(&mut self, most: usize) -> Vec<InterestChange> {
        let changes = match most < self.changes.len() {
            true => self.changes.drain(..most).collect(),
            false => Vec::from(std::mem::take(&mut self.changes)),
        };
        self.parts += usize::from(!changes.is_empty());
        changes
    }

    /// The view has counted a part.
    pub(super) fn on_counted(&mut self) {
        self.parts = self.parts.saturating_sub(1);
    }

    /// Whether the view does not know everything yet.
    pub(super) fn is_behind(&self) -> bool {
        self.parts > 0 || self.are_any()
    }
}
