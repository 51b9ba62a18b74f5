//! The subscribed collections: the members of each, and how much of it is known.
//!
//! A member is an entry of its table like any other. This module only keeps which collection a name belongs to, and only for subscribed
//! globs. Of other collections it keeps the names of present resources.

use std::ops::Bound::{Included, Unbounded};

use rpds::{HashTrieMapSync, RedBlackTreeSetSync};

use super::update::Completeness;
use crate::protocol::keys::Revision;
use crate::protocol::visits::visit;
use crate::xds::{Name, Xdstp};

#[derive(Debug, Clone, Default)]
pub struct Collections {
    followed: HashTrieMapSync<Name, Collection>,
    /// The new-style names of present resources, so that the members of a collection are found together.
    in_folders: RedBlackTreeSetSync<Name>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Collection {
    members: RedBlackTreeSetSync<Name>,
    pub(crate) completeness: Completeness,
    /// A member has expired since upstream last sent something of the collection.
    pub(crate) lapsed: bool,
    /// What was said of its members up to this revision is no evidence any more.
    pub(crate) opening: Revision,
}

impl Collections {
    pub(crate) fn is_empty(&self) -> bool {
        self.followed.is_empty()
    }

    /// Returns the collections that are settled or complete.
    pub fn settled(&self) -> impl Iterator<Item = &Name> {
        self.followed.iter().filter(|(_, of)| of.completeness >= Completeness::Settled).map(|(glob, _)| glob)
    }

    pub(crate) fn get(&self, glob: &Name) -> Option<&Collection> {
        self.followed.get(glob)
    }

    /// How much is known of a collection, if it is followed.
    pub fn completeness_of(&self, glob: &Name) -> Option<Completeness> {
        self.get(glob).map(|collection| collection.completeness)
    }

    /// Returns the opening of the collection that a name belongs to.
    pub(crate) fn opening_of(&self, member: &Name) -> Revision {
        let collection = member.collection().and_then(|glob| self.get(&glob));
        collection.map_or(Revision::ZERO, |of| of.opening)
    }

    /// Begins to follow a collection, starting with its present members. Returns whether it is new.
    pub(crate) fn begin(&mut self, glob: &Name) -> bool {
        if self.followed.contains_key(glob) {
            return false;
        }
        let mut collection = Collection::default();
        let near = self
            .in_folders
            .range::<str, _>((Included(glob.folder()), Unbounded))
            .take_while(|name| name.as_str().starts_with(glob.folder()));
        for name in near.inspect(|_| visit()).filter(|name| name.collection().as_ref() == Some(glob)) {
            collection.members.insert_mut(name.clone());
        }
        self.followed.insert_mut(glob.clone(), collection);
        true
    }

    pub(crate) fn end(&mut self, glob: &Name) -> Option<Collection> {
        let ended = self.followed.get(glob).cloned();
        self.followed.remove_mut(glob);
        ended
    }

    /// Another opening of a collection has begun.
    pub(crate) fn interrupt(&mut self, glob: &Name, at: Revision) {
        if let Some(collection) = self.followed.get_mut(glob) {
            collection.opening = at;
        }
    }

    /// Records that a resource is present, or no longer.
    pub(crate) fn note(&mut self, name: &Name, here: bool) {
        match here {
            true if !Xdstp::is_new_style(name.as_str()) => {}
            true => self.in_folders.insert_mut(name.clone()),
            false => drop(self.in_folders.remove_mut(name)),
        }
        if self.followed.is_empty() {
            return; // most types have none, and a look-up costs time
        }
        let Some(glob) = name.collection() else { return };
        if let Some(collection) = self.followed.get_mut(&glob) {
            match here {
                true => collection.members.insert_mut(name.clone()),
                false => drop(collection.members.remove_mut(name)),
            }
        }
    }

    /// Updates how much of a collection is known. Returns whether that changed.
    pub(crate) fn update_completeness(
        &mut self,
        glob: &Name,
        change: impl FnOnce(Completeness) -> Completeness,
    ) -> bool {
        let Some(collection) = self.followed.get_mut(glob) else { return false };
        let before = collection.completeness;
        collection.completeness = change(before);
        collection.completeness != before
    }

    pub(crate) fn set_expired(&mut self, glob: &Name, lapsed: bool) {
        if let Some(collection) = self.followed.get_mut(glob) {
            collection.lapsed = lapsed;
        }
    }
}

impl Collection {
    pub(crate) fn members(&self) -> impl Iterator<Item = &Name> {
        self.members.iter().inspect(|_| visit())
    }

    pub(crate) fn len(&self) -> usize {
        self.members.size()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}
