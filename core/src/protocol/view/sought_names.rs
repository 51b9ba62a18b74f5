//! The claimed names of one type and class, shared out to the sessions that claim them.
//!
//! A claim is counted for a session as long as no other has claimed the same name. When a session leaves, the names that it has claimed
//! alone stay until they are answered, since its client may return with them; meanwhile they make room for others. The answer that a name
//! does not exist is kept as long as it is evidence and its room is not needed, because others may claim the same name.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use super::name_room::{NameRoom, Shares};
use crate::protocol::keys::{Revision, SessionId};
use crate::protocol::visits::visit;
use crate::xds::Name;

#[derive(Debug, Default)]
pub(super) struct SoughtNames {
    names: BTreeMap<Name, ClaimedName>,
    /// The same names by their numbers: the latest comes last.
    by_number: BTreeMap<u64, Name>,
    /// The names that one session has claimed alone.
    own: BTreeSet<(SessionId, Name)>,
    /// The names of sessions that left.
    left: BTreeSet<Name>,
    /// Names that do not exist, each with the revision of the answer.
    absent: BTreeMap<Name, Revision>,
    room: NameRoom,
    limit: usize,
    /// Sessions with claims that had no room.
    pub(super) waiting: BTreeSet<SessionId>,
}

#[derive(Debug)]
struct ClaimedName {
    claimant: Claimant,
    /// The generation of its first claim.
    number: u64,
}

/// Who has claimed a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claimant {
    One(SessionId),
    Several(Vec<SessionId>),
    /// More sessions than are remembered one by one.
    Many,
    /// The session has left.
    Left,
}

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Insertion {
    New,
    /// It was claimed before.
    Known,
    /// It does not exist, as of this revision.
    Absent(Revision),
    NoRoom,
}

impl SoughtNames {
    /// Adds a claim. A new name gets the number, which is higher than those before.
    pub(super) fn insert(&mut self, session: SessionId, name: &Name, limit: usize, number: u64) -> Insertion {
        self.limit = limit;
        if let Some(answered) = self.absent.get(name) {
            return Insertion::Absent(*answered);
        }
        let Some(ClaimedName { claimant, .. }) = self.names.get_mut(name) else {
            return self.insert_new(session, name, number);
        };
        match claimant {
            Claimant::One(other) if *other != session => {
                let other = *other;
                *claimant = Claimant::Several(vec![other, session]);
                self.own.remove(&(other, name.clone()));
                self.room.on_subscribed(session, Some(other), 2, 1);
            }
            Claimant::Several(sessions) if sessions.contains(&session) => {}
            Claimant::Several(sessions) if sessions.len() < TOLD_APART => sessions.push(session),
            Claimant::Several(_) => *claimant = Claimant::Many,
            Claimant::Left => {
                *claimant = Claimant::One(session);
                self.left.remove(name);
                self.own.insert((session, name.clone()));
                self.room.on_subscribed(session, None, 1, 1);
            }
            Claimant::One(_) | Claimant::Many => {}
        }
        Insertion::Known
    }

    fn insert_new(&mut self, session: SessionId, name: &Name, number: u64) -> Insertion {
        if !self.room.admits(session, self.left.len(), &Shares::of_claims(self.limit)) {
            self.waiting.insert(session);
            return Insertion::NoRoom;
        }
        if self.names.len() >= self.limit
            && let Some(oldest) = self.left.pop_first()
        {
            self.take_name(&oldest);
            self.room.on_name_ended(1);
        }
        self.bound_answers(1);
        self.names.insert(name.clone(), ClaimedName { claimant: Claimant::One(session), number });
        self.by_number.insert(number, name.clone());
        self.own.insert((session, name.clone()));
        self.room.on_new_name(1);
        self.room.on_subscribed(session, None, 1, 1);
        Insertion::New
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.names.keys().inspect(|_| visit())
    }

    /// Returns the names with higher numbers.
    pub(super) fn names_after(&self, number: u64) -> impl Iterator<Item = &Name> {
        self.by_number.range((Excluded(number), Unbounded)).map(|(_, name)| name).inspect(|_| visit())
    }

    pub(super) fn has(&self, name: &Name) -> bool {
        self.names.contains_key(name)
    }

    pub(super) fn is_any_claimed(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether nothing is claimed or answered and no session waits for room.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.waiting.is_empty() && self.absent.is_empty()
    }

    /// Drops a name that is known now. Returns who has claimed it.
    pub(super) fn remove(&mut self, name: &Name) -> Option<Claimant> {
        self.absent.remove(name);
        let claimant = self.take_name(name)?;
        match &claimant {
            Claimant::One(session) => {
                self.own.remove(&(*session, name.clone()));
                self.room.on_unsubscribed(*session, None, 0, 1);
            }
            Claimant::Left => drop(self.left.remove(name)),
            Claimant::Several(_) | Claimant::Many => {}
        }
        self.room.on_name_ended(1);
        Some(claimant)
    }

    fn take_name(&mut self, name: &Name) -> Option<Claimant> {
        let ClaimedName { claimant, number } = self.names.remove(name)?;
        self.by_number.remove(&number);
        Some(claimant)
    }

    /// Drops a name that does not exist, and keeps the answer. Returns who has claimed it.
    pub(super) fn remove_absent(&mut self, name: &Name, answered: Revision) -> Option<Claimant> {
        let claimant = self.remove(name)?;
        self.absent.insert(name.clone(), answered);
        self.bound_answers(0);
        Some(claimant)
    }

    /// Answers share the room with claims, which come first.
    fn bound_answers(&mut self, more: usize) {
        while !self.absent.is_empty() && self.names.len() + self.absent.len() + more > self.limit {
            self.absent.pop_first();
        }
    }

    pub(super) fn forget_answer(&mut self, name: &Name) {
        self.absent.remove(name);
    }

    /// Forgets all answers: they are no evidence any more.
    pub(super) fn forget_answers(&mut self) {
        self.absent.clear();
    }

    /// Forgets the answer for a name, and those for its members if it is a collection.
    pub(super) fn forget_answers_of(&mut self, name: &Name) {
        self.absent.remove(name);
        if name.is_glob() {
            let members = name.members_in(&self.absent).inspect(|_| visit());
            let members: Vec<_> = members.map(|(member, _)| member.clone()).collect();
            for member in &members {
                self.absent.remove(member);
            }
        }
    }

    pub(super) fn remove_members(&mut self, glob: &Name) {
        self.forget_answers_of(glob);
        let members = glob.members_in(&self.names).inspect(|_| visit());
        let members: Vec<_> = members.map(|(member, _)| member.clone()).collect();
        for member in &members {
            self.remove(member);
        }
    }

    pub(super) fn on_left(&mut self, session: SessionId) {
        self.waiting.remove(&session);
        let first = (session, Name::from(""));
        let own = self.own.range(first..).take_while(|(owner, _)| *owner == session);
        let own: Vec<_> = own.inspect(|_| visit()).map(|(_, name)| name.clone()).collect();
        for name in own {
            if let Some(claimed) = self.names.get_mut(&name) {
                claimed.claimant = Claimant::Left;
            }
            self.own.remove(&(session, name.clone()));
            self.left.insert(name);
        }
        self.room.on_left(session);
    }

    /// Returns the sessions that wait, once half of the room is free. It does not return them earlier, because a session claims all of its
    /// names again, and should not do so for each name that is answered.
    pub(super) fn take_waiting(&mut self) -> BTreeSet<SessionId> {
        let has_room = self.names.len().saturating_sub(self.left.len()) <= self.limit / 2;
        if has_room { std::mem::take(&mut self.waiting) } else { BTreeSet::new() }
    }
}

/// How many sessions that have claimed one name are remembered one by one.
const TOLD_APART: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const GREEDY: SessionId = SessionId(1);
    const HONEST: SessionId = SessionId(2);
    const LIMIT: usize = 1000;

    fn insert(sought: &mut SoughtNames, session: SessionId, name: &str) -> Insertion {
        let last = sought.by_number.last_key_value().map_or(0, |(number, _)| *number);
        sought.insert(session, &name.into(), LIMIT, last + 1)
    }

    fn claim(sought: &mut SoughtNames, session: SessionId, prefix: &str, count: usize) -> usize {
        let names = (0..count).map(|number| format!("{prefix}-{number:04}"));
        names.filter(|name| insert(sought, session, name) == Insertion::New).count()
    }

    #[test]
    fn names_that_were_claimed_after_a_number_are_found_until_they_are_answered() {
        let mut sought = SoughtNames::default();
        for (number, name) in [(3, "b"), (5, "a"), (8, "c"), (9, "a")] {
            sought.insert(GREEDY, &name.into(), LIMIT, number);
        }
        let after = |sought: &SoughtNames, number| sought.names_after(number).map(Name::to_string).collect::<Vec<_>>();
        assert_eq!(after(&sought, 0), ["b", "a", "c"]);
        assert_eq!(after(&sought, 5), ["c"], "a was claimed before");
        sought.on_left(GREEDY);
        assert!(sought.remove(&"c".into()).is_some() && after(&sought, 3) == ["a"]);
        assert_eq!(sought.insert(HONEST, &"c".into(), LIMIT, 10), Insertion::New);
        assert_eq!(after(&sought, 5), ["c"], "it is claimed again");
    }

    #[test]
    fn i8_a_session_with_more_claims_than_there_is_room_leaves_an_eighth_to_others() {
        let mut sought = SoughtNames::default();
        assert_eq!(claim(&mut sought, GREEDY, "greedy", 2 * LIMIT), 875);
        assert_eq!(claim(&mut sought, HONEST, "honest", 10), 10);
        assert_eq!(sought.waiting, [GREEDY].into());
        assert_eq!(sought.names().count(), 885);
        assert_eq!(insert(&mut sought, HONEST, "greedy-0000"), Insertion::Known);
        assert_eq!(insert(&mut sought, GREEDY, "greedy-0000"), Insertion::Known, "both have claimed it");
    }

    #[test]
    fn a_session_waits_until_half_of_the_room_is_free() {
        let mut sought = SoughtNames::default();
        claim(&mut sought, GREEDY, "greedy", LIMIT);
        for number in 0..375 {
            assert!(sought.take_waiting().is_empty(), "{number}");
            assert!(sought.remove(&format!("greedy-{number:04}").as_str().into()).is_some());
        }
        assert_eq!(sought.take_waiting(), [GREEDY].into());
        assert!(sought.remove(&"greedy-0000".into()).is_none() && sought.take_waiting().is_empty());
        assert_eq!(claim(&mut sought, GREEDY, "greedy", LIMIT), 375, "what was answered made room");
    }

    #[test]
    fn a_session_that_leaves_gives_its_share_back_and_its_client_finds_its_claims_when_it_returns() {
        let mut sought = SoughtNames::default();
        claim(&mut sought, GREEDY, "greedy", LIMIT);
        claim(&mut sought, HONEST, "honest", LIMIT);
        assert_eq!(sought.waiting, [GREEDY, HONEST].into());
        sought.on_left(GREEDY);
        assert_eq!(sought.take_waiting(), [HONEST].into());
        assert_eq!(sought.names().count(), 975, "nothing needs the room yet");
        assert_eq!(insert(&mut sought, SessionId(3), "greedy-0800"), Insertion::Known);
        claim(&mut sought, HONEST, "honest", LIMIT);
        assert_eq!(sought.names().count(), LIMIT);
        let honest = sought.names().filter(|name| name.as_str().starts_with("honest")).count();
        assert_eq!(honest, 874, "it has room as a single session, but for one");
        assert!(sought.remove(&"greedy-0800".into()).is_some(), "it belongs to a session that is there");
        for name in sought.names().cloned().collect::<Vec<_>>() {
            assert!(sought.remove(&name).is_some());
        }
        assert!(sought.own.is_empty() && sought.left.is_empty() && sought.by_number.is_empty());
        assert_eq!(claim(&mut sought, SessionId(4), "other", LIMIT), 875, "all of it was given back");
    }

    #[test]
    fn answers_are_kept_as_long_as_there_is_room_beside_claims() {
        let mut sought = SoughtNames::default();
        for (round, kept) in [("a", 400), ("b", 800), ("c", LIMIT)] {
            assert_eq!(claim(&mut sought, HONEST, round, 400), 400);
            assert!(sought.names.len() + sought.absent.len() <= LIMIT);
            for name in sought.names().cloned().collect::<Vec<_>>() {
                assert!(sought.remove_absent(&name, Revision::ZERO).is_some());
            }
            assert_eq!(sought.absent.len(), kept, "{round}");
        }
    }
}
