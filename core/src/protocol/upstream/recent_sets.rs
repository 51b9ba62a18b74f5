//! The sets that a server sent last. They show which resources it sends again unchanged.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::xds::{Name, Resource, Type};

/// The last SotW set of each type, in the order in which the server sent it. Most of what a server sends again is unchanged: an entry with the
/// same bytes as before is recognized without hashing and look-up. The sets keep nothing alive. Only full-state types are remembered, of which
/// there are few.
#[derive(Debug, Default)]
pub struct RecentSets(BTreeMap<Type, Vec<Weak<Resource>>>);

/// The previous set while the next one is read.
#[derive(Debug, Default)]
pub(super) struct Recall {
    before: Vec<Weak<Resource>>,
    /// Entries before this index have been sent again, were changed, or were left out.
    at: usize,
    now: Vec<Weak<Resource>>,
    misses: usize,
}

impl RecentSets {
    pub(super) fn take(&mut self, kind: &Type) -> Recall {
        Recall { before: self.0.remove(kind).unwrap_or_default(), ..Recall::default() }
    }

    pub(super) fn put(&mut self, kind: &Type, recall: Recall) {
        if kind.info().full_state && !recall.now.is_empty() {
            self.0.insert(kind.clone(), recall.now);
        }
    }
}

impl Recall {
    /// Returns the next resource of the previous set, if it has these bytes.
    pub(super) fn same(&mut self, body: &[u8]) -> Option<Arc<Resource>> {
        let same = self.before.get(self.at)?.upgrade().filter(|resource| resource.body.bytes() == body)?;
        self.at += 1;
        self.now.push(Arc::downgrade(&same));
        Some(same)
    }

    /// Records a resource that is not the next one of the previous set: it has changed, is new, or follows removed ones. Returns the known
    /// resource instead if that has the same content.
    pub(super) fn note(&mut self, resource: Arc<Resource>) -> Arc<Resource> {
        let mut known = None;
        if self.misses < MISSES {
            self.misses += 1;
            if let Some(distance) = self.distance(&resource.name) {
                known = self.before[self.at + distance].upgrade();
                self.at += distance + 1;
            }
        }
        let resource = known.filter(|known| Arc::ptr_eq(&known.body, &resource.body)).unwrap_or(resource);
        self.now.push(Arc::downgrade(&resource));
        resource
    }

    fn distance(&self, name: &Name) -> Option<usize> {
        let next = self.before.iter().skip(self.at).take(AHEAD);
        next.map(Weak::upgrade).position(|next| next.is_some_and(|next| next.name == *name))
    }
}

/// How many entries ahead a name is searched.
const AHEAD: usize = 16;
/// After this many differences the set counts as reordered, and no more names are searched. Most sets have few differences.
const MISSES: usize = 1024;
