//! Resources that a server has and for which there was no room. They exist with unknown contents, and clients lack them only because of the
//! relay.
//!
//! Owns their names, until something else is known of each. Others decide what follows: their lack is no reason for a fallback
//! (`wants.rs`), they count in the size of their set (`stage.rs`), and routing waits longer for a cluster among them (`order`).

use std::collections::{BTreeMap, btree_map};

use super::update::{Completeness, Update};
use crate::protocol::keys::{Class, MORE, Selector};
use crate::xds::{Name, Type};

/// The names without room of a view.
#[derive(Debug, Default)]
pub(super) struct WithoutRoom {
    of: BTreeMap<(Type, Class), BTreeMap<Name, Said>>,
    /// There is room by now: the next response will have them again.
    has_room: bool,
}

/// On which opening of its stream the server had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Now,
    Earlier,
}

impl WithoutRoom {
    pub(super) fn has(&self, kind: &Type, class: Class, name: &Name) -> bool {
        !self.of.is_empty() && self.of.get(&(kind.clone(), class)).is_some_and(|names| names.contains_key(name))
    }

    /// Returns the names of a set.
    pub(super) fn names<'a>(&'a self, kind: &Type, of: &'a Selector) -> impl Iterator<Item = &'a Name> {
        self.all(kind, of).map(|(name, _)| name).filter(move |name| is_in(of, name))
    }

    /// Returns how many names of a set there are.
    pub(super) fn count(&self, kind: &Type, of: &Selector) -> usize {
        match of {
            Selector::Wildcard => self.all(kind, of).len(),
            Selector::Name(_) => self.names(kind, of).count(),
        }
    }

    /// Returns how many names there are.
    pub(super) fn len(&self) -> usize {
        self.of.values().map(BTreeMap::len).sum()
    }

    fn all(&self, kind: &Type, of: &Selector) -> btree_map::Iter<'_, Name, Said> {
        let names = if self.of.is_empty() { None } else { self.of.get(&(kind.clone(), class_of(of))) };
        names.map(BTreeMap::iter).unwrap_or_default()
    }

    /// Whether there is room by now for what had none.
    pub(super) fn has_room(&self) -> bool {
        self.has_room
    }

    pub(super) fn set_has_room(&mut self, has_room: bool) {
        self.has_room = has_room;
    }

    /// Records what an update, which is applied now, says of names without room.
    pub(super) fn note(&mut self, update: &Update) {
        if let Update::WithoutRoom { kind, class, key } = update {
            self.has_room = false;
            let names = self.of.entry((kind.clone(), *class)).or_default();
            if names.len() < MOST || names.contains_key(key) {
                names.insert(key.clone(), Said::Now);
            }
            return;
        }
        if self.of.is_empty() {
            return; // the usual case
        }
        match update {
            Update::Absent { kind, class, key, .. } if key.is_glob() => {
                let of = Selector::Name(key.clone());
                self.retain(kind, *class, |name, _| !is_in(&of, name));
            }
            Update::Upsert { kind, class, key, .. }
            | Update::Absent { kind, class, key, .. }
            | Update::Kept { kind, class, key } => self.remove(kind, *class, key),
            // The server has all unusable names for which nothing is cached. They are not listed if they are too many.
            Update::Unreadable { kind, of: Selector::Wildcard, names } if !names.contains(&Name::from(MORE)) => {
                self.retain(kind, Class::Wildcard, |name, _| names.contains(name));
            }
            Update::Interrupted { kind, of } => {
                self.retain(kind, class_of(of), |name, said| {
                    if is_in(of, name) {
                        *said = Said::Earlier;
                    }
                    true
                });
            }
            // The server has said all that it has on this opening. Many servers never say that `*` is complete, so quiet counts too. No
            // version of a name without room was stated to the server, so it has sent that name again if it has it.
            Update::Progress { kind, of, completeness }
                if *completeness == Completeness::Complete
                    || *completeness == Completeness::Settled && matches!(of, Selector::Wildcard) =>
            {
                self.retain(kind, class_of(of), |name, said| *said == Said::Now || !is_in(of, name));
            }
            _ => {}
        }
    }

    /// No session wants a name or a set any more.
    pub(super) fn forget(&mut self, kind: &Type, selector: &Selector) {
        if self.of.is_empty() {
            return;
        }
        match selector {
            Selector::Wildcard => drop(self.of.remove(&(kind.clone(), Class::Wildcard))),
            Selector::Name(glob) if glob.is_glob() => {
                self.retain(kind, Class::Named, |name, _| !is_in(selector, name));
            }
            Selector::Name(name) => self.remove(kind, Class::Named, name),
        }
    }

    fn remove(&mut self, kind: &Type, class: Class, name: &Name) {
        let key = (kind.clone(), class);
        let Some(names) = self.of.get_mut(&key) else { return };
        names.remove(name);
        if names.is_empty() {
            self.of.remove(&key);
        }
    }

    fn retain(&mut self, kind: &Type, class: Class, keep: impl FnMut(&Name, &mut Said) -> bool) {
        let key = (kind.clone(), class);
        let Some(names) = self.of.get_mut(&key) else { return };
        names.retain(keep);
        if names.is_empty() {
            self.of.remove(&key);
        }
    }
}

/// How many names of a type and class are remembered.
const MOST: usize = 100_000;

fn class_of(of: &Selector) -> Class {
    match of {
        Selector::Wildcard => Class::Wildcard,
        Selector::Name(_) => Class::Named,
    }
}

/// Whether a name is of a set. The names of a table are all of its `*`.
fn is_in(of: &Selector, name: &Name) -> bool {
    match of {
        Selector::Wildcard => true,
        Selector::Name(glob) => glob.is_glob() && name.collection().as_ref() == Some(glob),
    }
}
