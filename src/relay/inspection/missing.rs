//! Names that are wanted and not cached, by authority: why a ladder moved, or would move.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::view::{Selector, View};
use crate::relay::report::MissingReport;
use crate::xds::{Authority, Type, WILDCARD};

/// The missing names of one authority: the first few in order, and how many there are.
#[derive(Debug, Default)]
pub(super) struct Missing {
    first: BTreeSet<(Type, Selector)>,
    pub(crate) count: usize,
}

impl Missing {
    /// Goes through all interest once.
    pub(crate) fn by_authority(view: &View) -> BTreeMap<Authority, Self> {
        let mut missing: BTreeMap<Authority, Self> = BTreeMap::new();
        for (kind, wanted) in view.missing() {
            let authority = match &wanted {
                Selector::Wildcard => Authority::TopLevel,
                Selector::Name(name) => Authority::of(name),
            };
            missing.entry(authority).or_default().note(kind, wanted);
        }
        missing
    }

    fn note(&mut self, kind: &Type, wanted: Selector) {
        self.count += 1;
        self.first.insert((kind.clone(), wanted));
        if self.first.len() > MAX_SHOWN {
            self.first.pop_last();
        }
    }

    pub(crate) fn shown(&self) -> Vec<MissingReport> {
        let shown = |(kind, wanted): &(Type, Selector)| MissingReport {
            kind: kind.name().to_owned(),
            name: match wanted {
                Selector::Wildcard => WILDCARD.to_owned(),
                Selector::Name(name) => name.to_string(),
            },
        };
        self.first.iter().map(shown).collect()
    }
}

/// How many missing names of an authority `/upstreams` shows.
const MAX_SHOWN: usize = 10;
