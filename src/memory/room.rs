//! Why something has no room.

use std::fmt;

use super::group::Standing;
use crate::limit::Limit;

/// There is no room for something new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoRoom {
    pub(super) used: usize,
    pub(super) budget: usize,
    /// The group that has more than its part, if that is the reason.
    pub(super) above: Option<Standing>,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { used, budget, above } = self;
        let key = Limit::Memory.key();
        write!(f, "too little memory: {} of {} MiB are in use", used >> 20, budget >> 20)?;
        if let Some(Standing { has, part, level, .. }) = above {
            write!(f, ", {} MiB by {level}, of which the equal part is {} MiB", has >> 20, part >> 20)?;
        }
        write!(f, " ({key}); retry later")
    }
}
