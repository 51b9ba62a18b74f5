//! What a client was sent, by name, and what has to be sent again.
//!
//! Invariant: each name has at most one deadline, which goes when the name does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::protocol::moment::Moment;
use crate::xds::Name;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SentState {
    Version {
        version: Arc<str>,
        /// When it has to be sent again to renew its TTL.
        again: Option<Moment>,
    },
    Absent,
}

impl SentState {
    fn again(&self) -> Option<Moment> {
        match self {
            Self::Version { again, .. } => *again,
            Self::Absent => None,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct SentVersions {
    names: BTreeMap<Name, SentState>,
    beats: BTreeSet<(Moment, Name)>,
}

impl SentVersions {
    pub(crate) fn names(&self) -> &BTreeMap<Name, SentState> {
        &self.names
    }

    pub(crate) fn get(&self, name: &Name) -> Option<&SentState> {
        self.names.get(name)
    }

    pub(crate) fn version(&self, name: &Name) -> Option<&str> {
        match self.names.get(name)? {
            SentState::Version { version, .. } => Some(version),
            SentState::Absent => None,
        }
    }

    pub(crate) fn insert(&mut self, name: Name, sent: SentState) {
        self.remove(&name);
        self.beats.extend(sent.again().map(|at| (at, name.clone())));
        self.names.insert(name, sent);
    }

    pub(crate) fn remove(&mut self, name: &Name) {
        if let Some(at) = self.names.remove(name).and_then(|sent| sent.again()) {
            self.beats.remove(&(at, name.clone()));
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn retain(&mut self, wanted: impl Fn(&Name) -> bool) {
        self.names.retain(|name, _| wanted(name));
        self.beats.retain(|(_, name)| wanted(name));
    }

    pub(crate) fn next_beat(&self) -> Option<Moment> {
        self.beats.first().map(|(at, _)| *at)
    }

    /// Returns a name that has to be sent again by now, and clears its version.
    pub(crate) fn beat(&mut self, now: Moment) -> Option<Name> {
        self.next_beat().filter(|at| *at <= now)?;
        let (_, name) = self.beats.pop_first()?;
        self.names.insert(name.clone(), SentState::Version { version: "".into(), again: None });
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn i1_what_changes_often_or_is_released_leaves_no_moments_behind() {
        let at = |seconds| Moment::START + Duration::from_secs(seconds);
        let sent = |seconds| SentState::Version { version: "1".into(), again: Some(at(seconds)) };
        let mut tellings = SentVersions::default();
        for round in 0..100 {
            tellings.insert("a".into(), sent(1_000 + round));
            tellings.insert(format!("b{round}").into(), sent(1_000));
            tellings.remove(&format!("b{round}").into());
        }
        assert_eq!((tellings.beats.len(), tellings.next_beat()), (1, Some(at(1_099))));
        tellings.insert("c".into(), sent(1));
        tellings.retain(|name| name.as_str() == "c");
        assert_eq!(tellings.beats.len(), 1);
        assert_eq!(tellings.beat(at(0)), None);
        assert_eq!((tellings.beat(at(1)), tellings.version(&"c".into())), (Some("c".into()), Some("")));
        tellings.insert("c".into(), sent(2));
        tellings.insert("c".into(), SentState::Absent);
        assert_eq!((tellings.beat(at(2)), tellings.beats.len()), (None, 0));
    }
}
