//! The first words after an outage: a control plane that has just started sends what it has read so far, and the rest some seconds later.
//! What it takes away meanwhile is held for a while: listeners, clusters and scoped routes, and the last usable host of a cluster. What it
//! takes away from a client that has left is held too, until it is shown another client ([`members`](crate::protocol::members)).
//!
//! This stage comes after the brakes, because the brakes count and judge all that a server says: an opening does not agree with a brake if
//! it removes more than the brake holds. A removal that the brakes release after its time, or because an operator or a later statement
//! agrees, is not held here again. If a response ends a brake only because less is missing now, what it still removes may have waited for
//! a moment: that passes with the response, and is judged here. A change that the brakes release may still exclude a resource whose removal
//! is held here, and then waits with that.
//!
//! Owns what is held, and since when. Reads the tables as facts, and changes nothing in them.
//!
//! Invariants:
//! - Each name is held until its next word, and while a client is there, for no longer than `BrakeRules::after_outage`.
//! - No word of a server that is away is released. If the server says the same once it is back, or once the relay has opened the stream
//!   again, the time that had passed goes on. So a server that goes away again and again cannot delay anything for ever.

mod ages;
pub(super) mod held_words;
mod judgement;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use self::held_words::HeldWords;
use self::judgement::Judgement;
use super::brake::BrakeRules;
use super::stage::{HoldTimes, StageFacts, UpdateUnit, class_of};
use super::update::{Completeness, Origin, Recovering, SourcedUpdate, Update};
use crate::protocol::keys::{Class, Key, Selector, SetKey};
use crate::protocol::moment::Moment;
use crate::protocol::wait::{WaitKind, WaitList, WaitSubject};
use crate::xds::{Name, Type};

#[derive(Debug, Default)]
pub(super) struct AfterOutage {
    recovering: Recovering,
    /// For servers of which an earlier view holds something: when each of them first sent something to this view.
    first_words: BTreeMap<u16, Moment>,
    attendance: Attendance,
    held: HeldWords,
}

/// Whether a client is there to which the held words matter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Attendance {
    #[default]
    Attended,
    Unattended,
    /// A client has come, and the time of the held words has not started over yet.
    Returned,
}

impl AfterOutage {
    pub(super) fn note_recovering(&mut self, servers: Recovering) {
        self.first_words.retain(|server, _| servers.held_until.contains_key(server));
        self.attendance = match (self.attendance, servers.is_unattended) {
            (_, true) => Attendance::Unattended,
            (Attendance::Attended, false) => Attendance::Attended,
            (Attendance::Unattended | Attendance::Returned, false) => Attendance::Returned,
        };
        self.recovering = servers;
    }

    /// Judges what a server says. Returns the part that passes, and the held words that it releases.
    pub(super) fn judge(&mut self, unit: UpdateUnit, facts: &StageFacts, now: Moment) -> Vec<UpdateUnit> {
        if self.recovering.end_of(unit.origin.server).is_some_and(|end| end <= now) {
            // The relay may have opened the stream again since then, which is no outage.
            self.held.forget_interrupted_of(unit.origin.server, facts.options().brakes.after_outage, now);
        }
        let doubted = self.doubted_since(unit.origin, &facts.options().brakes, now);
        if doubted.is_none() && self.held.is_empty() {
            return vec![unit];
        }
        let UpdateUnit { origin, received, updates } = unit;
        let judgement = Judgement::new(&mut self.held, facts, origin, doubted, now);
        let passing = UpdateUnit { origin, received, updates: judgement.judge(updates) };
        std::iter::once(passing).chain(self.let_free(now)).collect()
    }

    /// Returns since when words of the server count as held, if it is the first choice and came back so recently that it may not have all
    /// of its state. If only an earlier view holds words of it, the server may repeat these now, and they keep their end.
    fn doubted_since(&mut self, origin: Origin, rules: &BrakeRules, now: Moment) -> Option<Moment> {
        if origin.rank != 0 || origin.skips_brakes || rules.after_outage.is_zero() {
            return None;
        }
        if self.recovering.until.get(&origin.server).is_some_and(|until| now < *until) {
            return Some(now);
        }
        let end = *self.recovering.held_until.get(&origin.server).filter(|end| now < **end)?;
        let first = *self.first_words.entry(origin.server).or_insert(now);
        (now < first + SAID_AGAIN).then(|| now.min(end - rules.after_outage))
    }

    /// Releases what was held for long enough. Without a client nothing is released: what the server said was for a client that has left, and would
    /// take effect for the next one. When a client returns for the first time, the time of each word starts over.
    pub(super) fn on_time(&mut self, rules: &BrakeRules, now: Moment) -> Vec<UpdateUnit> {
        if self.attendance == Attendance::Returned {
            self.attendance = Attendance::Attended;
            self.held.renew(now);
        }
        if self.next_deadline(rules).is_none_or(|at| at > now) {
            return Vec::new();
        }
        let mut units = Vec::new();
        while let Some(oldest) = self.held.oldest().filter(|oldest| *oldest + rules.after_outage <= now) {
            units.extend(
                self.held.take_since(oldest).into_iter().map(|(key, word)| unit_of(word.into_passed(key, now))),
            );
        }
        units.extend(self.let_free(now));
        units
    }

    /// Releases changes that waited for words that are held no longer.
    fn let_free(&mut self, now: Moment) -> Vec<UpdateUnit> {
        let free = self.held.take_free().into_iter();
        let mut units: Vec<_> = free.map(|(key, word)| unit_of(word.into_passed(key, now))).collect();
        for ((kind, of), origin) in self.held.take_complete() {
            let update = Update::Progress { kind, of, completeness: Completeness::Complete };
            units.push(unit_of(SourcedUpdate { update, origin, received: now }));
        }
        units
    }

    pub(super) fn next_deadline(&self, rules: &BrakeRules) -> Option<Moment> {
        let is_attended = self.attendance != Attendance::Unattended;
        self.held.oldest().filter(|_| is_attended).map(|since| since + rules.after_outage)
    }

    /// Ends what is held of a set that no session subscribes to any more.
    pub(super) fn forget_set(&mut self, (kind, of): &SetKey) {
        self.held.forget_incomplete(&(kind.clone(), of.clone()));
        if *of == Selector::Wildcard {
            self.held.forget(kind, Class::Wildcard, |_, _| true);
        }
    }

    /// Ends what is held of a name that no session subscribes to any more.
    pub(super) fn forget(&mut self, key: &Key) {
        if !self.held.is_empty() {
            self.held.remove(key);
        }
    }

    pub(super) fn held(&self) -> &HeldWords {
        &self.held
    }

    /// Whether anything is held.
    pub(super) fn is_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns the names for which words of one server are held: names of a set, or one name.
    pub(super) fn names_said_by<'a>(
        &'a self,
        server: usize,
        kind: &'a Type,
        of: &'a Selector,
    ) -> impl Iterator<Item = &'a Name> {
        let server = u16::try_from(server).ok().filter(|_| !self.held.is_empty());
        let single = match of {
            Selector::Name(name) if !name.is_glob() => Some(name),
            _ => None,
        };
        let is_said = move |name: &&'a Name| {
            let key = (kind.clone(), Class::Named, (*name).clone());
            server.is_some_and(|server| self.held.is_said_by(server, &key))
        };
        let is_meant = move |name: &&Name| match of {
            Selector::Wildcard => true,
            Selector::Name(meant) => *name == meant || name.collection().as_ref() == Some(meant),
        };
        let of_set = server.into_iter().filter(move |_| single.is_none());
        let of_set = of_set.flat_map(move |server| self.held.said_by(server, kind, class_of(of))).filter(is_meant);
        single.into_iter().filter(is_said).chain(of_set)
    }

    /// Returns the names of one type that a server has sent by name or as members of collections, in a form that is held.
    pub(super) fn names_sent_by(&self, server: usize, kind: &Type) -> impl Iterator<Item = &Name> {
        let sent = self.held.of(kind, Class::Named).filter(|(_, word)| !word.is_removal());
        sent.filter(move |(_, word)| usize::from(word.origin.server) == server).map(|(name, _)| name)
    }

    /// Returns since when a name is held, and until when.
    pub(super) fn times_of(&self, key: &Key, rules: &BrakeRules) -> Option<HoldTimes> {
        let since = self.held.get(key)?.since;
        Some(HoldTimes { since: Some(since), until: Some(since + rules.after_outage) })
    }

    /// Adds everything that is held.
    pub(super) fn add_waits(&self, rules: &BrakeRules, now: Moment, list: &mut WaitList) {
        for ((kind, _, name), word) in self.held.iter() {
            let bound = Some(rules.after_outage);
            list.add(WaitKind::AfterOutage, now - word.since, bound, || WaitSubject::name(kind, name));
        }
    }
}

/// For how long the first words to a view may repeat what an earlier one holds.
const SAID_AGAIN: Duration = Duration::from_secs(15);

fn unit_of(SourcedUpdate { update, origin, received }: SourcedUpdate) -> UpdateUnit {
    UpdateUnit { origin, received, updates: vec![update] }
}
