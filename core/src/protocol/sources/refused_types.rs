//! The types for which a server ends streams, as this view and an earlier one have found.

use std::collections::BTreeSet;

use crate::protocol::upstream::StreamTrials;
use crate::xds::Type;

#[derive(Debug, Default)]
pub(super) struct RefusedTypes {
    all: BTreeSet<Type>,
    /// Those that an earlier view has found and that the server has not taken since.
    before: BTreeSet<Type>,
}

/// The most refused types that are taken over from an earlier view.
const REMEMBERED: usize = 64;

impl RefusedTypes {
    pub(super) fn all(&self) -> &BTreeSet<Type> {
        &self.all
    }

    /// Takes over the types that an earlier view has found.
    pub(super) fn go_on(&mut self, types: BTreeSet<Type>) {
        (self.all, self.before) = (types.clone(), types);
    }

    /// Updates the types from what the streams to the server have found.
    pub(super) fn follow<'a>(&mut self, streams: impl Iterator<Item = StreamTrials<'a>>) {
        self.all.clear();
        for trials in streams {
            self.all.extend(trials.refused());
            self.before.retain(|kind| !trials.has_taken(kind));
        }
        let room = REMEMBERED.saturating_sub(self.all.len());
        self.all.extend(self.before.iter().take(room).cloned());
    }
}
