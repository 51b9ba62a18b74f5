//! Which types the server of a stream takes, and by what evidence.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::xds::Type;

#[derive(Debug, Default)]
pub(super) struct TakenTypes {
    here: BTreeMap<Type, Taken>,
    /// Answered types that other views were not given yet.
    unshared: Vec<Type>,
    answered_in_others: Arc<BTreeSet<Type>>,
}

/// The evidence that the server takes a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Taken {
    /// It has left the stream open. A server that hangs does that too.
    Lasted,
    Answered,
}

impl TakenTypes {
    /// Whether the server takes the type, as this view or others have found.
    pub(super) fn has(&self, kind: &Type) -> bool {
        self.has_here(kind) || self.answered_in_others.contains(kind)
    }

    pub(super) fn has_here(&self, kind: &Type) -> bool {
        self.here.contains_key(kind)
    }

    pub(super) fn is_answered(&self, kind: &Type) -> bool {
        self.here.get(kind) == Some(&Taken::Answered) || self.answered_in_others.contains(kind)
    }

    pub(super) fn note(&mut self, kind: &Type, how: Taken) {
        let before = self.here.get(kind).copied();
        self.here.insert(kind.clone(), before.map_or(how, |before| before.max(how)));
        if how == Taken::Answered && before != Some(how) {
            self.unshared.push(kind.clone());
        }
    }

    /// Forgets what was found here about these types.
    pub(super) fn doubt(&mut self, kinds: &[Type]) {
        for kind in kinds {
            self.here.remove(kind);
        }
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&Type) -> bool) {
        self.here.retain(|kind, _| is_kept(kind));
    }

    /// Returns the types that the server was found to answer since the last call.
    pub(super) fn take_unshared(&mut self) -> Vec<Type> {
        std::mem::take(&mut self.unshared)
    }

    /// Applies what other views have found: the server answers these types. Returns whether that is news.
    pub(super) fn on_answered_in_others(&mut self, types: &Arc<BTreeSet<Type>>) -> bool {
        let is_news = !Arc::ptr_eq(types, &self.answered_in_others);
        if is_news {
            self.answered_in_others = types.clone();
        }
        is_news
    }
}
