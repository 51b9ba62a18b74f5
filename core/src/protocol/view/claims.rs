//! Claims: resources that clients hold and the view does not know. They are requested from a server once more before its silence
//! removes anything.

use std::collections::{BTreeMap, BTreeSet};

use super::interest::Interest;
use super::publication::NameChanged;
use super::sought_names::{Claimant, Insertion, SoughtNames};
use crate::protocol::keys::{Class, Revision, Selector, SessionId};
use crate::protocol::view::options::ViewOptions;
use crate::xds::{Name, Type};

/// Something that a client may hold and that the view does not know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// The type of the resource.
    pub kind: Type,
    /// The claimed name or set.
    pub of: Claimed,
}

/// What a client holds that the view does not know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claimed {
    /// A name, as a member of the wildcard set or by itself.
    Name(Class, Name),
    /// The version of a complete set, without its names.
    Set,
}

/// The claims of clients, until each is found or known to be absent.
#[derive(Debug, Default)]
pub struct OpenClaims {
    names: BTreeMap<(Type, Class), SoughtNames>,
    sets: BTreeSet<Type>,
    /// Increases with each new claim.
    generation: u64,
    /// Claims that had no room since the last call, by session.
    refused: BTreeMap<SessionId, Vec<Claim>>,
    /// Sessions that had claims without room, and may claim again.
    admitted: BTreeSet<SessionId>,
}

impl OpenClaims {
    /// Adds a claim. Returns the answer if a server has already reported that the name does not exist.
    pub(super) fn insert(&mut self, session: SessionId, claim: Claim, options: &ViewOptions) -> Option<NameChanged> {
        let Claimed::Name(class, name) = claim.of else {
            self.generation += u64::from(self.sets.insert(claim.kind));
            return None;
        };
        let names = self.names.entry((claim.kind.clone(), class)).or_default();
        let next = self.generation + 1;
        match names.insert(session, &name, options.sought_names, next) {
            Insertion::New => self.generation = next,
            Insertion::Known => {}
            Insertion::Absent(revision) => {
                return Some(NameChanged::answer(claim.kind, class, name, revision));
            }
            Insertion::NoRoom => {
                // Claims without room are answered by the end of the set.
                if class == Class::Wildcard && self.sets.insert(claim.kind.clone()) {
                    self.generation += 1;
                }
                let claim = Claim { kind: claim.kind, of: Claimed::Name(class, name) };
                self.refused.entry(session).or_default().push(claim);
            }
        }
        None
    }

    pub(crate) fn is_any(&self) -> bool {
        self.names.values().any(SoughtNames::is_any_claimed)
    }

    /// Drops a name that is known now.
    pub(crate) fn found(&mut self, kind: &Type, class: Class, name: &Name) {
        self.take(kind, class, |names| names.remove(name));
    }

    /// Drops a name that does not exist, and keeps the answer for those that claim it later. Returns the sessions to notify, if it is
    /// claimed.
    pub(super) fn answer(
        &mut self,
        kind: &Type,
        class: Class,
        name: &Name,
        answered: Revision,
        interest: &Interest,
    ) -> Option<Vec<SessionId>> {
        match self.take(kind, class, |names| names.remove_absent(name, answered))? {
            Claimant::Left => None,
            Claimant::One(session) => Some(vec![session]),
            Claimant::Several(sessions) => Some(sessions),
            // All that subscribe to the set or collection.
            Claimant::Many => Some(match class {
                Class::Wildcard => interest.wildcard_sessions(kind).collect(),
                Class::Named => interest.sessions_of(kind, name).collect(),
            }),
        }
    }

    fn take(
        &mut self,
        kind: &Type,
        class: Class,
        take: impl FnOnce(&mut SoughtNames) -> Option<Claimant>,
    ) -> Option<Claimant> {
        if self.names.is_empty() {
            return None; // the usual case
        }
        let key = (kind.clone(), class);
        let claimant = take(self.names.get_mut(&key)?);
        self.make_room(&key);
        claimant
    }

    /// The server has sent something under a name that it did not have before.
    pub(crate) fn forget_answer(&mut self, kind: &Type, class: Class, name: &Name) {
        self.take(kind, class, |names| {
            names.forget_answer(name);
            None
        });
    }

    /// Another opening of a set, a collection or a name has begun: what was answered before is no evidence any more.
    pub(crate) fn interrupt(&mut self, kind: &Type, of: &Selector) {
        let class = match of {
            Selector::Wildcard => Class::Wildcard,
            Selector::Name(_) => Class::Named,
        };
        let key = (kind.clone(), class);
        if let Some(names) = self.names.get_mut(&key) {
            match of {
                Selector::Wildcard => names.forget_answers(),
                Selector::Name(name) => names.forget_answers_of(name),
            }
            self.make_room(&key);
        }
    }

    /// Drops all wildcard claims of a type, since the set is complete.
    pub(crate) fn found_all(&mut self, kind: &Type) {
        self.sets.remove(kind);
        if let Some(mut names) = self.names.remove(&(kind.clone(), Class::Wildcard)) {
            self.admitted.append(&mut names.waiting);
        }
    }

    pub(crate) fn forget(&mut self, kind: &Type, selector: &Selector) {
        match selector {
            Selector::Wildcard => self.found_all(kind),
            Selector::Name(name) => {
                self.found(kind, Class::Named, name);
                let key = (kind.clone(), Class::Named);
                if name.is_glob()
                    && let Some(names) = self.names.get_mut(&key)
                {
                    names.remove_members(name);
                    self.make_room(&key);
                }
            }
        }
    }

    /// Returns the claims, by session, for which there was no room since the last call. They stay with their sessions.
    pub(super) fn take_refused(&mut self) -> BTreeMap<SessionId, Vec<Claim>> {
        std::mem::take(&mut self.refused)
    }

    /// Returns the sessions that may claim again what had no room, since the last call.
    pub(super) fn take_admitted(&mut self) -> BTreeSet<SessionId> {
        std::mem::take(&mut self.admitted)
    }

    /// Returns a number that changes with each new claim.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the claimed names of a type and class.
    pub(crate) fn names(&self, kind: &Type, class: Class) -> impl Iterator<Item = &Name> {
        self.names.get(&(kind.clone(), class)).into_iter().flat_map(SoughtNames::names)
    }

    /// Returns the names that were claimed after a generation.
    pub(crate) fn names_since(&self, kind: &Type, class: Class, generation: u64) -> impl Iterator<Item = &Name> {
        let names = self.names.get(&(kind.clone(), class));
        names.into_iter().flat_map(move |names| names.names_after(generation))
    }

    pub(crate) fn has(&self, kind: &Type, class: Class, name: &Name) -> bool {
        self.names.get(&(kind.clone(), class)).is_some_and(|names| names.has(name))
    }

    /// Returns whether a client holds a set whose contents are unknown.
    pub fn has_set(&self, kind: &Type) -> bool {
        self.sets.contains(kind)
    }

    /// A session has left. What it alone has claimed makes room for others.
    pub(crate) fn on_left(&mut self, session: SessionId) {
        self.refused.remove(&session);
        self.admitted.remove(&session);
        self.names.values_mut().for_each(|names| names.on_left(session));
        for key in self.names.keys().cloned().collect::<Vec<_>>() {
            self.make_room(&key);
        }
    }

    /// Lets sessions claim again what had no room, once there is.
    fn make_room(&mut self, key: &(Type, Class)) {
        let Some(names) = self.names.get_mut(key) else { return };
        self.admitted.append(&mut names.take_waiting());
        if names.is_empty() {
            self.names.remove(key);
        }
    }
}
