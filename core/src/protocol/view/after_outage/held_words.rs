//! The words of servers that are held, by name and by age.
//!
//! Invariants: the ages and the counts are those of the words; a name has a word, or an interrupted one, or none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::ages::Ages;
use crate::protocol::keys::{Class, Key, Selector, SetKey};
use crate::protocol::moment::Moment;
use crate::protocol::view::update::{Evidence, Origin, SourcedUpdate, Update};
use crate::protocol::visits::visit;
use crate::xds::{Name, Resource, Type};

/// What a server said of a name, and since when that is held. A plain record: [`HeldWords`] alone changes one that is held.
#[derive(Debug, Clone)]
pub(in crate::protocol::view) struct HeldWord {
    pub(super) since: Moment,
    pub(super) origin: Origin,
    pub(super) said: HeldUpdate,
    /// Its time has started over, because there was no client in the meantime. That happens once at most.
    pub(super) is_renewed: bool,
}

#[derive(Debug, Clone)]
pub(super) enum HeldUpdate {
    Removal,
    /// An assignment without a usable host, in place of one with some.
    Emptied(Arc<Resource>),
    /// A resource that may exclude one whose removal is held.
    Change {
        resource: Arc<Resource>,
        is_new: bool,
    },
}

impl HeldUpdate {
    fn is_change(&self) -> bool {
        matches!(self, Self::Change { .. })
    }
}

impl HeldWord {
    pub(super) fn is_removal(&self) -> bool {
        matches!(self.said, HeldUpdate::Removal)
    }

    fn is_change(&self) -> bool {
        self.said.is_change()
    }

    fn is_new(&self) -> bool {
        matches!(self.said, HeldUpdate::Change { is_new: true, .. })
    }

    /// Whether a server repeats this word. That it has no such resource, and that it has one without a usable host, count as the same.
    pub(super) fn is_repeated_by(&self, said: &HeldUpdate, origin: Origin) -> bool {
        self.is_change() == said.is_change() && self.origin.server == origin.server
    }

    /// Returns what the later stages get once the word is released.
    pub(super) fn into_passed(self, (kind, class, key): Key, now: Moment) -> SourcedUpdate {
        let update = match self.said {
            HeldUpdate::Removal => Update::Absent { kind, class, key, evidence: Evidence::Reported },
            HeldUpdate::Emptied(resource) | HeldUpdate::Change { resource, .. } => {
                Update::Upsert { kind, class, key, resource }
            }
        };
        SourcedUpdate { update, origin: self.origin, received: now }
    }
}

/// A word whose stream ended before it was released. It counts no more. If the server says the same on its next stream, the time that had
/// passed goes on.
#[derive(Debug, Clone, Copy)]
struct InterruptedWord {
    server: u16,
    is_removal: bool,
    /// Since when it was held, which counts for a later view.
    since: Moment,
    passed: Duration,
    /// As in [`HeldWord`]. Kept with the time if the server says the same again.
    is_renewed: bool,
}

/// What is kept of a word if a server says the same again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Earlier {
    pub(super) since: Moment,
    pub(super) is_renewed: bool,
}

/// How many words of one set are held, by kind. Only the kinds that decide about other words of the set are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    removals: usize,
    changes: usize,
    new_names: usize,
}

/// The held words, and the sets that are incomplete because of them.
#[derive(Debug, Default)]
pub(in crate::protocol::view) struct HeldWords {
    words: BTreeMap<Key, HeldWord>,
    interrupted: BTreeMap<Key, InterruptedWord>,
    /// When the last word of each server was interrupted.
    interrupted_at: BTreeMap<u16, Moment>,
    by_age: BTreeSet<(Moment, Key)>,
    /// The ages of the held words and of the interrupted ones.
    ages: Ages,
    /// Counted for each set by itself, because another set may be of another server. A name outside of a set affects no other name.
    counts: BTreeMap<SetKey, Counts>,
    /// Sets that would be complete if no new name of them waited, each with the origin of that completeness.
    incomplete: BTreeMap<SetKey, Origin>,
}

impl HeldWords {
    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty() && self.interrupted.is_empty()
    }

    pub(in crate::protocol::view) fn get(&self, key: &Key) -> Option<&HeldWord> {
        self.words.get(key)
    }

    /// Whether a server has removed a resource, and that is held.
    pub(in crate::protocol::view) fn is_removal(&self, key: &Key) -> bool {
        !self.is_empty() && self.words.get(key).is_some_and(HeldWord::is_removal)
    }

    /// Returns the names of one type and class whose removals are held.
    pub(in crate::protocol::view) fn removed_names(&self, kind: &Type, class: Class) -> impl Iterator<Item = &Name> {
        self.of(kind, class).filter(|(_, word)| word.is_removal()).map(|(name, _)| name)
    }

    /// Returns the names of one type and class that a server has sent, in a form that waits.
    pub(in crate::protocol::view) fn waiting_names(&self, kind: &Type, class: Class) -> impl Iterator<Item = &Name> {
        self.of(kind, class).filter(|(_, word)| !word.is_removal()).map(|(name, _)| name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &HeldWord)> {
        self.words.iter()
    }

    /// Returns what is held of one type and class.
    pub(super) fn of(&self, kind: &Type, class: Class) -> impl Iterator<Item = (&Name, &HeldWord)> {
        range(&self.words, kind, class)
    }

    fn interrupted_of(&self, kind: &Type, class: Class) -> impl Iterator<Item = (&Name, &InterruptedWord)> {
        range(&self.interrupted, kind, class)
    }

    /// Whether anything is held of one type and class, or was held when its server went away.
    pub(super) fn has_any(&self, kind: &Type, class: Class) -> bool {
        self.of(kind, class).next().is_some() || self.interrupted_of(kind, class).next().is_some()
    }

    /// Returns the names of one type and class for which a word of the server is held, or was held when it went away.
    pub(super) fn said_by(&self, server: u16, kind: &Type, class: Class) -> impl Iterator<Item = &Name> {
        let held = self.of(kind, class).map(|(name, word)| (name, word.origin.server));
        let all = held.chain(self.interrupted_of(kind, class).map(|(name, word)| (name, word.server)));
        all.filter(move |(_, by)| *by == server).map(|(name, _)| name)
    }

    /// Whether a word of the server is held for a name, or was held when the server went away.
    pub(super) fn is_said_by(&self, server: u16, key: &Key) -> bool {
        let held = || self.words.get(key).is_some_and(|word| word.origin.server == server);
        held() || self.interrupted.get(key).is_some_and(|word| word.server == server)
    }

    /// A server has a resource: its removal is no longer held.
    pub(super) fn take_back(&mut self, key: &Key) {
        let is_interrupted = || self.interrupted.get(key).is_some_and(|word| word.is_removal);
        if self.is_removal(key) || is_interrupted() {
            self.remove(key);
        }
    }

    fn counts(&self, set: &SetKey) -> Counts {
        self.counts.get(set).copied().unwrap_or_default() // of none, in the usual case
    }

    /// Whether any removal is held from the set that a name belongs to.
    pub(super) fn has_removals_beside(&self, key: &Key) -> bool {
        !self.counts.is_empty() && set_with(key).is_some_and(|set| self.counts(&set).removals > 0)
    }

    /// Whether new names of a set wait, which are not present yet.
    pub(super) fn has_new_names(&self, set: &SetKey) -> bool {
        self.counts(set).new_names > 0
    }

    /// Takes out the changes that waited for removals of their set, if none of these removals is held any more.
    pub(super) fn take_free(&mut self) -> Vec<(Key, HeldWord)> {
        let is_free = |counts: &Counts| counts.changes > 0 && counts.removals == 0;
        let free = self.counts.iter().filter(|(_, counts)| is_free(counts)).map(|(set, _)| set.clone());
        let free: Vec<SetKey> = free.collect();
        let take = |(kind, of): SetKey| {
            let (class, glob) = match of {
                Selector::Wildcard => (Class::Wildcard, None),
                Selector::Name(glob) => (Class::Named, Some(glob)),
            };
            let is_of = |name: &Name| glob.is_none() || name.collection() == glob;
            self.take(&kind, class, |name, word| !word.is_removal() && is_of(name))
        };
        free.into_iter().flat_map(take).collect()
    }

    pub(super) fn insert(&mut self, key: Key, word: HeldWord) {
        self.remove(&key);
        if let Some(set) = set_with(&key) {
            let counts = self.counts.entry(set).or_default();
            counts.removals += usize::from(word.is_removal());
            counts.changes += usize::from(word.is_change());
            counts.new_names += usize::from(word.is_new());
        }
        self.by_age.insert((word.since, key.clone()));
        self.ages.add(word.origin.server, word.since);
        self.words.insert(key, word);
    }

    /// Lets the time of each word begin now, unless it has begun again before. Also that of words whose stream has ended: their server may
    /// say the same to the next client.
    pub(super) fn renew(&mut self, now: Moment) {
        let Self { words, interrupted, ages, .. } = self;
        let mut begin = |server: u16, since: &mut Moment, is_renewed: &mut bool| {
            ages.remove(server, *since);
            ages.add(server, now);
            (*since, *is_renewed) = (now, true);
        };
        for word in words.values_mut().filter(|word| !word.is_renewed) {
            begin(word.origin.server, &mut word.since, &mut word.is_renewed);
        }
        for word in interrupted.values_mut().filter(|word| !word.is_renewed) {
            begin(word.server, &mut word.since, &mut word.is_renewed);
            word.passed = Duration::ZERO;
        }
        self.by_age = self.words.iter().map(|(key, word)| (word.since, key.clone())).collect();
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<HeldWord> {
        self.remove_interrupted(key);
        let word = self.words.remove(key)?;
        if let Some(set) = set_with(key)
            && let Some(counts) = self.counts.get_mut(&set)
        {
            counts.removals -= usize::from(word.is_removal());
            counts.changes -= usize::from(word.is_change());
            counts.new_names -= usize::from(word.is_new());
            if *counts == Counts::default() {
                self.counts.remove(&set);
            }
        }
        self.by_age.remove(&(word.since, key.clone()));
        self.ages.remove(word.origin.server, word.since);
        Some(word)
    }

    fn remove_interrupted(&mut self, key: &Key) {
        if let Some(word) = self.interrupted.remove(key) {
            self.ages.remove(word.server, word.since);
        }
    }

    /// Returns since when something counts as held that a server says now, if it has said the same before, or before it went away.
    pub(super) fn earlier(&self, key: &Key, said: &HeldUpdate, origin: Origin, now: Moment) -> Option<Earlier> {
        if let Some(word) = self.words.get(key).filter(|word| word.is_repeated_by(said, origin)) {
            return Some(Earlier { since: word.since, is_renewed: word.is_renewed });
        }
        let is_same = |word: &&InterruptedWord| word.server == origin.server && !said.is_change();
        let interrupted = self.interrupted.get(key).filter(is_same);
        interrupted.map(|word| Earlier { since: now - word.passed, is_renewed: word.is_renewed })
    }

    /// Interrupts the matching words of one type and class, because their server is away.
    pub(super) fn interrupt(&mut self, kind: &Type, class: Class, matches: impl Fn(&Name) -> bool, now: Moment) {
        for (key, word) in self.take(kind, class, |name, _| matches(name)) {
            self.note_interrupted(key, &word, now);
        }
    }

    /// Interrupts the word on one name.
    pub(super) fn interrupt_name(&mut self, key: &Key, now: Moment) {
        if self.words.contains_key(key)
            && let Some(word) = self.remove(key)
        {
            self.note_interrupted(key.clone(), &word, now);
        }
    }

    fn note_interrupted(&mut self, key: Key, word: &HeldWord, now: Moment) {
        if !word.is_change() {
            let (server, is_removal, since, is_renewed) =
                (word.origin.server, word.is_removal(), word.since, word.is_renewed);
            self.remove_interrupted(&key);
            self.ages.add(server, since);
            let passed = now - since;
            self.interrupted.insert(key, InterruptedWord { server, is_removal, since, passed, is_renewed });
            self.interrupted_at.insert(server, now);
        }
    }

    /// Forgets the matching words of one type and class, held or interrupted. `matches` gets the name, and whether the word is a removal.
    pub(super) fn forget(&mut self, kind: &Type, class: Class, matches: impl Fn(&Name, bool) -> bool) {
        self.take(kind, class, |name, word| matches(name, word.is_removal()));
        let interrupted = self.interrupted_of(kind, class).filter(|(name, word)| matches(name, word.is_removal));
        let names: Vec<Name> = interrupted.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.remove_interrupted(&(kind.clone(), class, name));
        }
    }

    /// Whether the server had taken away a name or its hosts, and was interrupted since.
    pub(super) fn was_said_by(&self, server: u16, key: &Key) -> bool {
        self.interrupted.get(key).is_some_and(|word| word.server == server)
    }

    /// Forgets what one server had said before it was interrupted, once it had this much time to say it again.
    pub(super) fn forget_interrupted_of(&mut self, server: u16, time: Duration, now: Moment) {
        if self.interrupted_at.get(&server).is_some_and(|at| *at + time <= now) {
            self.interrupted_at.remove(&server);
            let Self { interrupted, ages, .. } = self;
            let of_server = interrupted.extract_if(.., |_, word| word.server == server);
            of_server.for_each(|(_, word)| ages.remove(server, word.since));
        }
    }

    /// Takes out what matches of one type and class.
    pub(super) fn take(
        &mut self,
        kind: &Type,
        class: Class,
        matches: impl Fn(&Name, &HeldWord) -> bool,
    ) -> Vec<(Key, HeldWord)> {
        let names: Vec<Name> =
            self.of(kind, class).filter(|(name, word)| matches(name, word)).map(|(name, _)| name.clone()).collect();
        let keys = names.into_iter().map(|name| (kind.clone(), class, name));
        keys.filter_map(|key| self.remove(&key).map(|word| (key, word))).collect()
    }

    /// Takes out the words that are held since `since` or longer: first additions and changes, then removals.
    pub(super) fn take_since(&mut self, since: Moment) -> Vec<(Key, HeldWord)> {
        let in_order = self.by_age.iter().inspect(|_| visit());
        let due: Vec<Key> = in_order.take_while(|(at, _)| *at <= since).map(|(_, key)| key.clone()).collect();
        let mut taken: Vec<_> = due.into_iter().filter_map(|key| self.remove(&key).map(|word| (key, word))).collect();
        taken.sort_by_key(|(_, word)| word.is_removal());
        taken
    }

    /// A server has sent all of a set, now or before, and a new name of the set waits.
    pub(super) fn note_incomplete(&mut self, set: SetKey, origin: Origin) {
        self.incomplete.insert(set, origin);
    }

    /// Forgets that a set would be complete without what is held of it.
    pub(super) fn forget_incomplete(&mut self, set: &SetKey) {
        self.incomplete.remove(set);
    }

    /// Takes out the sets of which no new name waits any more.
    pub(super) fn take_complete(&mut self) -> Vec<(SetKey, Origin)> {
        let (complete, left) =
            std::mem::take(&mut self.incomplete).into_iter().partition(|(set, _)| !self.has_new_names(set));
        self.incomplete = left;
        let complete: BTreeMap<_, _> = complete;
        complete.into_iter().collect()
    }

    /// Returns until when words of each server may be held, if each is held for `time`. Interrupted words are included, since the server
    /// may say them again.
    pub(in crate::protocol::view) fn ends_by_server(&self, time: Duration) -> BTreeMap<u16, Moment> {
        self.ages.ends(time)
    }

    pub(super) fn oldest(&self) -> Option<Moment> {
        self.by_age.first().map(|(since, _)| *since)
    }
}

/// Returns the set that a name belongs to, if any.
fn set_with((kind, class, name): &Key) -> Option<SetKey> {
    let of = match class {
        Class::Wildcard => Selector::Wildcard,
        Class::Named => Selector::Name(name.collection()?),
    };
    Some((kind.clone(), of))
}

/// Returns the part of a map that is about one type and class.
fn range<'a, T>(
    map: &'a BTreeMap<Key, T>,
    kind: &Type,
    class: Class,
) -> impl Iterator<Item = (&'a Name, &'a T)> + use<'a, T> {
    let (from, kind) = ((kind.clone(), class, Name::from("")), kind.clone());
    let of = map.range(from..).inspect(|_| visit()).take_while(move |((of, own, _), _)| (of, *own) == (&kind, class));
    of.map(|((_, _, name), word)| (name, word))
}
