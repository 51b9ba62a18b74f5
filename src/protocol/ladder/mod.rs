//! Which of an authority's servers serves: fallback and return by gRFC A71 and A95.
//!
//! Knows servers by their place in the list alone, 0 being the first choice, and holds no resource. Always: the servers above
//! the lowest one that is open are open too and keep trying; only an answer moves the ladder up, and only a server out of
//! reach moves it down; nothing is deleted by a move.

use std::ops::AddAssign;
use std::time::Duration;

use super::moment::{Moment, earliest};

/// When a server unreachable is left for the next (FB-6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rule {
    /// Only while something is wanted that is not cached (A71).
    #[default]
    Uncached,
    /// Whatever is cached (A95, `fallback_on_reachability_only`).
    Reachability,
}

/// Which server of a list is active, or why none is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LadderState {
    /// Nothing is wanted, and nothing open.
    Idle,
    /// This one is the lowest that is open, and has not answered since it was opened.
    Trying(usize),
    /// This one has answered, and none below is open.
    Active(usize),
    /// This one is unreachable, and the cache serves: there is no reason to go further down, or not yet.
    Cached(usize),
    /// None is reachable.
    Down,
}

impl LadderState {
    /// The words of all states.
    pub(crate) const NAMES: [&str; 5] = ["idle", "trying", "active", "cached", "down"];

    /// Returns its word in reports, metrics and logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Trying(_) => "trying",
            Self::Active(_) => "active",
            Self::Cached(_) => "cached",
            Self::Down => "down",
        }
    }
}

/// What has to be done for a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LadderAction {
    /// Open this server, and ask it for everything that is wanted (FB-7).
    Open(usize),
    /// Close every server below this one.
    CloseBelow(usize),
    CloseAll,
}

/// Waiting times against flapping (FB-17). None by default: the gRFCs have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FallbackTimers {
    /// A server has to be unreachable for so long before the next is tried.
    pub delay: Duration,
    /// After a return to a higher server it is not left again for so long.
    pub hold_down: Duration,
}

/// What the ladder has to know of the world at the moment of an event.
pub(crate) trait LadderContext {
    /// Something is wanted of which neither a value nor its absence is known (FB-4, FB-5).
    fn anything_uncached(&self) -> bool;

    /// The server is known to be unreachable, from whoever tried it last (FB-20).
    fn is_unreachable(&self, server: usize) -> bool;
}

#[derive(Debug)]
pub(crate) struct Ladder {
    servers: usize,
    rule: Rule,
    timers: FallbackTimers,
    state: LadderState,
    /// Since when the standing is what it is, and since when the lowest open server is unreachable.
    since: Moment,
    unreachable_since: Option<Moment>,
    returned: Option<Moment>,
    /// The rule allows the next server, and a waiting time alone does not yet.
    waiting: bool,
    switches: Switches,
}

/// How often a ladder has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Switches {
    /// To the next server, for lack of the one before.
    pub(crate) down: u64,
    /// Back to a server further up.
    pub(crate) up: u64,
}

impl AddAssign for Switches {
    fn add_assign(&mut self, other: Self) {
        self.down += other.down;
        self.up += other.up;
    }
}

impl Ladder {
    pub(crate) fn new(servers: usize, rule: Rule, patience: FallbackTimers) -> Self {
        let (standing, since) = (LadderState::Idle, Moment::START);
        let moves = Switches::default();
        Self {
            servers,
            rule,
            timers: patience,
            state: standing,
            since,
            unreachable_since: None,
            returned: None,
            waiting: false,
            switches: moves,
        }
    }

    pub(crate) fn switches(&self) -> Switches {
        self.switches
    }

    pub(crate) fn state(&self) -> LadderState {
        self.state
    }

    pub(crate) fn since(&self) -> Moment {
        self.since
    }

    /// Servers that are open: all down to the lowest.
    pub(crate) fn open(&self) -> std::ops::Range<usize> {
        match self.state {
            LadderState::Idle => 0..0,
            LadderState::Trying(at) | LadderState::Active(at) | LadderState::Cached(at) => 0..at + 1,
            LadderState::Down => 0..self.servers,
        }
    }

    /// The active server, once it has said one.
    pub(crate) fn active(&self) -> Option<usize> {
        match self.state {
            LadderState::Active(at) => Some(at),
            _ => None,
        }
    }

    /// The server whose silence counts too. That of one that has not answered yet does not, where there are others that
    /// may know better (FB-28). Where there is none, nobody else will ever say that a name does not exist.
    pub(crate) fn authoritative(&self) -> Option<usize> {
        match self.state {
            LadderState::Trying(0) if self.servers == 1 => Some(0),
            _ => self.active(),
        }
    }

    /// Something new is wanted.
    pub(crate) fn on_interest(&mut self, around: &impl LadderContext, now: Moment) -> Vec<LadderAction> {
        match self.state {
            LadderState::Idle => {
                self.set_state(LadderState::Trying(0), now);
                let mut moves = vec![LadderAction::Open(0)];
                moves.extend(self.walk_down(around, now));
                moves
            }
            LadderState::Cached(_) => self.walk_down(around, now),
            _ => Vec::new(),
        }
    }

    /// Nothing is wanted any more, for long enough.
    pub(crate) fn on_idle(&mut self, now: Moment) -> Vec<LadderAction> {
        if self.state == LadderState::Idle {
            return Vec::new();
        }
        self.set_state(LadderState::Idle, now);
        vec![LadderAction::CloseAll]
    }

    /// A well-formed response has come from an open server. Whether its word counts from now on.
    pub(crate) fn on_response(&mut self, server: usize, usable: bool, now: Moment) -> (bool, Vec<LadderAction>) {
        if !self.open().contains(&server) {
            return (false, Vec::new()); // a late word of one that was closed
        }
        match self.state {
            LadderState::Active(active) if server == active => {
                self.unreachable_since = None;
                (true, Vec::new())
            }
            // Back to a higher one for something of use alone: a stream that is merely there is not enough (FB-9).
            LadderState::Active(active) if server < active && !usable => (false, Vec::new()),
            _ => {
                let below = server + 1 < self.open().end;
                if below || !matches!(self.state, LadderState::Trying(_)) {
                    self.returned = Some(now);
                }
                self.set_state(LadderState::Active(server), now);
                self.switches.up += u64::from(below);
                (true, if below { vec![LadderAction::CloseBelow(server)] } else { Vec::new() })
            }
        }
    }

    /// A server has been found unreachable. Those above the lowest are unreachable already.
    pub(crate) fn on_unreachable(
        &mut self,
        server: usize,
        around: &impl LadderContext,
        now: Moment,
    ) -> Vec<LadderAction> {
        let lowest = match self.state {
            LadderState::Trying(at) | LadderState::Active(at) | LadderState::Cached(at) => at,
            LadderState::Idle | LadderState::Down => return Vec::new(),
        };
        if server != lowest {
            return Vec::new();
        }
        self.unreachable_since.get_or_insert(now);
        if !matches!(self.state, LadderState::Cached(_)) {
            self.set_state(LadderState::Cached(lowest), now);
        }
        self.walk_down(around, now)
    }

    /// When the waiting times that keep the ladder where it is are over.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        self.waiting.then(|| self.may_leave_at()).flatten()
    }

    pub(crate) fn on_time(&mut self, around: &impl LadderContext, now: Moment) -> Vec<LadderAction> {
        match self.next_deadline() {
            Some(at) if at <= now => self.walk_down(around, now),
            _ => Vec::new(),
        }
    }

    /// Goes down for as long as the lowest open server is known to be unreachable and the rule allows it.
    fn walk_down(&mut self, around: &impl LadderContext, now: Moment) -> Vec<LadderAction> {
        let mut moves = Vec::new();
        loop {
            let lowest = match self.state {
                LadderState::Trying(at) if around.is_unreachable(at) => at,
                LadderState::Cached(at) => at,
                _ => return moves,
            };
            self.unreachable_since.get_or_insert(now);
            let last = lowest + 1 == self.servers;
            if last {
                self.set_state(LadderState::Down, now);
                return moves;
            }
            let allowed = self.rule == Rule::Reachability || around.anything_uncached();
            self.waiting = allowed && self.may_leave_at().is_some_and(|at| now < at);
            if !allowed || self.waiting {
                if !matches!(self.state, LadderState::Cached(_)) {
                    self.set_state(LadderState::Cached(lowest), now);
                }
                return moves;
            }
            self.set_state(LadderState::Trying(lowest + 1), now);
            self.switches.down += 1;
            moves.push(LadderAction::Open(lowest + 1));
        }
    }

    fn may_leave_at(&self) -> Option<Moment> {
        let tried = self.unreachable_since.map(|since| since + self.timers.delay);
        let held = self.returned.map(|returned| returned + self.timers.hold_down);
        earliest(tried.max(held), None)
    }

    fn set_state(&mut self, standing: LadderState, now: Moment) {
        if standing != self.state {
            (self.state, self.since) = (standing, now);
        }
        if !matches!(standing, LadderState::Cached(_)) {
            (self.unreachable_since, self.waiting) = (None, false);
        }
    }
}

#[cfg(test)]
mod tests;
