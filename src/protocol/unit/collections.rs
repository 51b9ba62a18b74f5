//! The collections that are wanted as a whole: which resources are in each, and how much of it is known.
//!
//! A member is an entry of its shelf like any other. What is kept here is only where it belongs, and only for globs that
//! somebody wants.

use rpds::{HashTrieMapSync, RedBlackTreeSetSync};

use super::shelf::Fill;
use crate::protocol::limits::Limits;
use crate::protocol::moment::{Moment, sooner};
use crate::xds::Name;

#[derive(Debug, Clone, Default)]
pub(super) struct Collections(HashTrieMapSync<Name, Collection>);

#[derive(Debug, Clone, Default)]
pub(super) struct Collection {
    members: RedBlackTreeSetSync<Name>,
    pub fill: Fill,
}

impl Collections {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, glob: &Name) -> Option<&Collection> {
        self.0.get(glob)
    }

    pub fn all_members(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.0.iter().flat_map(|(glob, collection)| collection.members().map(move |name| (glob, name)))
    }

    /// Begins to follow a collection, with what is here of it already. Whether it is new.
    pub fn begin<'a>(&mut self, glob: &Name, here: impl Iterator<Item = &'a Name>) -> bool {
        if self.0.contains_key(glob) {
            return false;
        }
        let mut collection = Collection::default();
        for name in here.filter(|name| name.collection().as_ref() == Some(glob)) {
            collection.members.insert_mut(name.clone());
        }
        self.0.insert_mut(glob.clone(), collection);
        true
    }

    pub fn end(&mut self, glob: &Name) -> Option<Collection> {
        let ended = self.0.get(glob).cloned();
        self.0.remove_mut(glob);
        ended
    }

    /// A resource is here now, or is here no more.
    pub fn note(&mut self, name: &Name, here: bool) {
        if self.0.is_empty() {
            return; // most types have none, and looking for one is work
        }
        let Some(glob) = name.collection() else { return };
        if let Some(collection) = self.0.get_mut(&glob) {
            match here {
                true => collection.members.insert_mut(name.clone()),
                false => drop(collection.members.remove_mut(name)),
            }
        }
    }

    pub fn fill(&mut self, glob: &Name) -> Option<&mut Fill> {
        self.0.get_mut(glob).map(|collection| &mut collection.fill)
    }

    pub fn next_deadline(&self, limits: &Limits) -> Option<Moment> {
        let fills = self.0.values().map(|collection| collection.fill);
        fills.filter_map(|fill| fill.settles_at(limits)).fold(None, |first, at| sooner(first, Some(at)))
    }

    /// Whether a set has settled.
    pub fn on_time(&mut self, now: Moment, limits: &Limits) -> bool {
        let ripe = |fill: &Fill| fill.settles_at(limits).is_some_and(|at| at <= now);
        let settled: Vec<_> = self.0.iter().filter(|(_, of)| ripe(&of.fill)).map(|(glob, _)| glob.clone()).collect();
        for glob in &settled {
            self.fill(glob).into_iter().for_each(|fill| *fill = Fill::Whole);
        }
        !settled.is_empty()
    }
}

impl Collection {
    pub fn members(&self) -> impl Iterator<Item = &Name> {
        self.members.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}
