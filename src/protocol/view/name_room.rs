//! How many names a view may have, and who gets a new one when there is little room.

use std::collections::{HashMap, HashSet};

use super::session_id::SessionId;

/// Counts the names of a view, and for each session those that no other session subscribes to.
#[derive(Debug, Default)]
pub(super) struct NameRoom {
    /// All names, those that linger included.
    names: usize,
    sessions: HashSet<SessionId>,
    /// No entry means none.
    alone: HashMap<SessionId, usize>,
}

impl NameRoom {
    /// Whether a session may have a name that is new to the view, which has `lingering` subscriptions that would make room. Above half
    /// of the limit, sessions with more names of their own than their share may not: what is left is for the others.
    pub(super) fn admits(&self, session: SessionId, lingering: usize, limit: usize) -> bool {
        let used = self.names.saturating_sub(lingering);
        if used < limit / 2 {
            return true;
        }
        let sessions = self.sessions.len() + usize::from(!self.sessions.contains(&session));
        let share = (limit / 2 / sessions.max(1)).max(LEAST_SHARE);
        used < limit && self.alone.get(&session).is_none_or(|alone| *alone < share)
    }

    /// Whether there are more names than this.
    pub(super) fn is_above(&self, limit: usize) -> bool {
        self.names > limit
    }

    pub(super) fn on_new_name(&mut self) {
        self.names += 1;
    }

    pub(super) fn on_name_ended(&mut self) {
        self.names = self.names.saturating_sub(1);
    }

    /// A session has subscribed to a name. `first` is the first of the sessions that did before, and `count` their number now.
    pub(super) fn on_subscribed(&mut self, session: SessionId, other: Option<SessionId>, count: usize) {
        self.sessions.insert(session);
        match (count, other) {
            (1, _) => *self.alone.entry(session).or_default() += 1,
            (2, Some(other)) => self.one_less(other),
            _ => {}
        }
    }

    /// A session has left a name, which `left` other sessions still subscribe to.
    pub(super) fn on_unsubscribed(&mut self, session: SessionId, last: Option<SessionId>, left: usize) {
        match (left, last) {
            (0, _) => self.one_less(session),
            (1, Some(last)) => *self.alone.entry(last).or_default() += 1,
            _ => {}
        }
    }

    /// A session has left the view.
    pub(super) fn on_left(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.alone.remove(&session);
    }

    fn one_less(&mut self, session: SessionId) {
        if let Some(alone) = self.alone.get_mut(&session) {
            *alone -= 1;
            if *alone == 0 {
                self.alone.remove(&session);
            }
        }
    }
}

/// Names of its own that a session may have until the view is full, however many sessions there are.
const LEAST_SHARE: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    const GREEDY: SessionId = SessionId(1);
    const HONEST: SessionId = SessionId(2);

    fn with_names_of(room: &mut NameRoom, session: SessionId, count: usize) {
        for _ in 0..count {
            room.on_new_name();
            room.on_subscribed(session, None, 1);
        }
    }

    #[test]
    fn i8_above_half_of_the_limit_new_names_are_for_sessions_below_their_share() {
        let mut room = NameRoom::default();
        with_names_of(&mut room, GREEDY, 500);
        assert!(!room.admits(GREEDY, 0, 1000), "its share is 500");
        assert!(room.admits(GREEDY, 1, 1000), "a name that lingers makes room");
        with_names_of(&mut room, HONEST, 200);
        assert!(room.admits(HONEST, 0, 1000), "its share is 250");
        with_names_of(&mut room, HONEST, 50);
        assert!(!room.admits(HONEST, 0, 1000));
        assert!(room.admits(SessionId(3), 0, 1000));
        with_names_of(&mut room, SessionId(3), 250);
        assert!(!room.admits(SessionId(4), 0, 1000), "the view is full");
    }

    #[test]
    fn a_name_that_others_have_too_is_not_its_own() {
        let mut room = NameRoom::default();
        with_names_of(&mut room, GREEDY, 2);
        room.on_subscribed(HONEST, Some(GREEDY), 2);
        assert_eq!((room.alone.get(&GREEDY), room.alone.get(&HONEST)), (Some(&1), None));
        room.on_unsubscribed(GREEDY, Some(HONEST), 1);
        room.on_unsubscribed(GREEDY, None, 0);
        assert_eq!((room.alone.get(&GREEDY), room.alone.get(&HONEST)), (None, Some(&1)));
        room.on_left(HONEST);
        room.on_left(GREEDY);
        assert!(room.alone.is_empty() && room.sessions.is_empty());
    }
}
