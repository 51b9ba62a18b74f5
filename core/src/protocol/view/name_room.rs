//! Limits the names of a view, including those that it requests because clients claim them, and the bytes of one SotW list. Decides which
//! session may add a name near the limit.

use std::collections::{HashMap, HashSet};

use crate::protocol::keys::SessionId;
use crate::xds::Name;

/// What there is room for, and how it is shared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shares {
    limit: usize,
    /// The upper part of the limit, for sessions that have little.
    reserved: usize,
    /// What a session may have of its own, however many sessions there are.
    least: usize,
}

impl Shares {
    /// The names of a view.
    pub(super) fn of_names(limit: usize) -> Self {
        Self { limit, reserved: limit / 2, least: 100 }
    }

    /// The names that clients hold and the view does not know. Most of the room is open to every session, because a single client may have
    /// many.
    pub(super) fn of_claims(limit: usize) -> Self {
        Self { limit, reserved: limit / 8, least: 100 }
    }

    /// The bytes of one list. Most of the room is open to every session, because a single client may need it.
    pub(super) fn of_list(limit: usize) -> Self {
        Self { limit, reserved: limit / 8, least: 8 << 10 }
    }
}

/// Counts names or their bytes, and for each session those that no other session subscribes to.
#[derive(Debug, Default)]
pub(super) struct NameRoom {
    /// Used by all names, including those that linger.
    used: usize,
    sessions: HashSet<SessionId>,
    /// No entry means none.
    alone: HashMap<SessionId, usize>,
}

impl NameRoom {
    /// Whether a session may have a new name. `lingering` is in use by subscriptions that would make room. The reserved part is for
    /// sessions that have little: a session that has more names of its own than an equal share of this part gets none of it.
    pub(super) fn admits(&self, session: SessionId, lingering: usize, of: &Shares) -> bool {
        let used = self.used.saturating_sub(lingering);
        if used < of.limit.saturating_sub(of.reserved) {
            return true;
        }
        let sessions = self.sessions.len() + usize::from(!self.sessions.contains(&session));
        let share = (of.reserved / sessions.max(1)).max(of.least);
        used < of.limit && self.alone.get(&session).is_none_or(|alone| *alone < share)
    }

    pub(super) fn is_above(&self, limit: usize) -> bool {
        self.used > limit
    }

    pub(super) fn on_new_name(&mut self, cost: usize) {
        self.used += cost;
    }

    pub(super) fn on_name_ended(&mut self, cost: usize) {
        self.used = self.used.saturating_sub(cost);
    }

    /// A session has subscribed to a name. `other` is one of the sessions that did before, and `count` their number now.
    pub(super) fn on_subscribed(&mut self, session: SessionId, other: Option<SessionId>, count: usize, cost: usize) {
        self.sessions.insert(session);
        match (count, other) {
            (1, _) => *self.alone.entry(session).or_default() += cost,
            (2, Some(other)) => self.less(other, cost),
            _ => {}
        }
    }

    /// A session has left a name, which `left` other sessions still subscribe to.
    pub(super) fn on_unsubscribed(&mut self, session: SessionId, last: Option<SessionId>, left: usize, cost: usize) {
        match (left, last) {
            (0, _) => self.less(session, cost),
            (1, Some(last)) => *self.alone.entry(last).or_default() += cost,
            _ => {}
        }
    }

    /// A session has left the view.
    pub(super) fn on_left(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.alone.remove(&session);
    }

    fn less(&mut self, session: SessionId, cost: usize) {
        if let Some(alone) = self.alone.get_mut(&session) {
            *alone = alone.saturating_sub(cost);
            if *alone == 0 {
                self.alone.remove(&session);
            }
        }
    }
}

/// Returns about how many bytes a name takes in a request.
pub(super) fn listed_bytes(name: &Name) -> usize {
    name.as_str().len() + TAG_AND_LENGTH
}

const TAG_AND_LENGTH: usize = 3;
#[cfg(test)]
mod tests {
    use super::*;

    const GREEDY: SessionId = SessionId(1);
    const HONEST: SessionId = SessionId(2);

    fn with_names_of(room: &mut NameRoom, session: SessionId, count: usize) {
        for _ in 0..count {
            room.on_new_name(1);
            room.on_subscribed(session, None, 1, 1);
        }
    }

    #[test]
    fn i8_above_half_of_the_limit_new_names_are_for_sessions_below_their_share() {
        let mut room = NameRoom::default();
        with_names_of(&mut room, GREEDY, 500);
        assert!(!room.admits(GREEDY, 0, &Shares::of_names(1000)), "its share is 500");
        assert!(room.admits(GREEDY, 1, &Shares::of_names(1000)), "a name that lingers makes room");
        with_names_of(&mut room, HONEST, 200);
        assert!(room.admits(HONEST, 0, &Shares::of_names(1000)), "its share is 250");
        with_names_of(&mut room, HONEST, 50);
        assert!(!room.admits(HONEST, 0, &Shares::of_names(1000)));
        assert!(room.admits(SessionId(3), 0, &Shares::of_names(1000)));
        with_names_of(&mut room, SessionId(3), 250);
        assert!(!room.admits(SessionId(4), 0, &Shares::of_names(1000)), "the view is full");
    }

    #[test]
    fn i8_an_eighth_of_a_list_is_for_sessions_with_few_names() {
        let (mut room, shares) = (NameRoom::default(), Shares::of_list(1 << 20));
        let mut names = 0;
        while room.admits(GREEDY, 0, &shares) {
            room.on_new_name(100);
            room.on_subscribed(GREEDY, None, 1, 100);
            names += 1;
        }
        assert_eq!(names, (7_usize << 17).div_ceil(100));
        assert!(room.admits(HONEST, 0, &shares));
    }

    #[test]
    fn i8_each_session_may_have_some_however_many_there_are() {
        for (shares, cost) in [(Shares::of_names(10_000), 1), (Shares::of_list(1 << 20), 100)] {
            let mut room = NameRoom::default();
            for number in 0..1000 {
                room.on_subscribed(SessionId(number), Some(GREEDY), 3, 1); // what others have too
            }
            room.on_new_name(shares.limit - shares.reserved);
            let mut own = 0;
            while room.admits(HONEST, 0, &shares) {
                room.on_new_name(cost);
                room.on_subscribed(HONEST, None, 1, cost);
                own += cost;
            }
            assert!((shares.least..shares.least + cost).contains(&own), "{own}");
        }
    }

    #[test]
    fn a_name_that_others_have_too_is_not_its_own() {
        let mut room = NameRoom::default();
        with_names_of(&mut room, GREEDY, 2);
        room.on_subscribed(HONEST, Some(GREEDY), 2, 1);
        assert_eq!((room.alone.get(&GREEDY), room.alone.get(&HONEST)), (Some(&1), None));
        room.on_unsubscribed(GREEDY, Some(HONEST), 1, 1);
        room.on_unsubscribed(GREEDY, None, 0, 1);
        assert_eq!((room.alone.get(&GREEDY), room.alone.get(&HONEST)), (None, Some(&1)));
        room.on_left(HONEST);
        room.on_left(GREEDY);
        assert!(room.alone.is_empty() && room.sessions.is_empty());
    }
}
