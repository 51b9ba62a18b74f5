//! Which of an authority's servers is active: fallback and return by gRFC A71 and A95.
//!
//! Knows servers by their index in the list only, 0 being the first choice, and holds no resource. Invariants: the servers above the lowest open
//! one are open too and keep trying; only a response moves the ladder up, and only an unreachable server moves it down; a move deletes nothing.

use std::ops::AddAssign;
use std::time::Duration;

use super::moment::{Moment, earliest};

/// When to leave an unreachable server for the next one (FB-6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rule {
    /// Only while a wanted name is not cached (A71).
    #[default]
    Uncached,
    /// Whatever is cached (A95, `fallback_on_reachability_only`).
    Reachability,
}

/// Which server of a list is active, or why none is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LadderState {
    /// No interest, and no server open.
    Idle,
    /// This server is the lowest open one, and has not responded since it was opened.
    Trying(usize),
    /// This server has responded, and none below it is open.
    Active(usize),
    /// This server is unreachable and the cache is served: the rule does not allow the next server, or a timer still runs.
    Cached(usize),
    /// All servers are unreachable.
    Down,
}

impl LadderState {
    /// The names of all states.
    pub const NAMES: [&str; 5] = ["idle", "trying", "active", "cached", "down"];

    /// Returns the name used in reports, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Trying(_) => "trying",
            Self::Active(_) => "active",
            Self::Cached(_) => "cached",
            Self::Down => "down",
        }
    }
}

/// What the caller has to do because of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LadderAction {
    /// Open this server, and request everything that is wanted (FB-7).
    Open(usize),
    /// Close every server below this one.
    CloseBelow(usize),
    CloseAll,
}

/// Timers against flapping (FB-17). Zero by default: the gRFCs have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FallbackTimers {
    /// How long a server has to be unreachable before the next one is tried.
    pub delay: Duration,
    /// How long a server is kept after a return to it.
    pub hold_down: Duration,
}

/// What a ladder needs to know about its surroundings while it handles an event.
pub(crate) trait LadderContext {
    /// Whether a wanted name is neither present nor known to be absent (FB-4, FB-5).
    fn anything_uncached(&self) -> bool;

    /// Whether the server is unreachable by the view's latest attempt or, if there was none, by those of other views (FB-20).
    fn is_unreachable(&self, server: usize) -> bool;
}

#[derive(Debug)]
pub(crate) struct Ladder {
    servers: usize,
    rule: Rule,
    timers: FallbackTimers,
    state: LadderState,
    /// Since when the ladder is in this state, and since when its lowest open server is unreachable.
    since: Moment,
    unreachable_since: Option<Moment>,
    returned: Option<Moment>,
    /// The rule allows the next server, but a timer still runs.
    waiting: bool,
    switches: Switches,
}

/// How often a ladder has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Switches {
    /// To the next server, because the one before it is unreachable.
    pub down: u64,
    /// Back to a server further up.
    pub up: u64,
}

impl AddAssign for Switches {
    fn add_assign(&mut self, other: Self) {
        self.down += other.down;
        self.up += other.up;
    }
}

impl Ladder {
    pub(crate) fn new(servers: usize, rule: Rule, timers: FallbackTimers) -> Self {
        Self {
            servers,
            rule,
            timers,
            state: LadderState::Idle,
            since: Moment::START,
            unreachable_since: None,
            returned: None,
            waiting: false,
            switches: Switches::default(),
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

    /// Returns the open servers: from the first to the lowest.
    pub(crate) fn open(&self) -> std::ops::Range<usize> {
        match self.state {
            LadderState::Idle => 0..0,
            LadderState::Trying(at) | LadderState::Active(at) | LadderState::Cached(at) => 0..at + 1,
            LadderState::Down => 0..self.servers,
        }
    }

    /// Returns the active server. It is active only when it has responded.
    pub(crate) fn active(&self) -> Option<usize> {
        match self.state {
            LadderState::Active(at) => Some(at),
            _ => None,
        }
    }

    /// Returns the server whose updates and silence count. A server that has not responded yet does not count while others may know better
    /// (FB-28). The only server of a list counts before it responds: no other can report that a name does not exist.
    pub(crate) fn authoritative(&self) -> Option<usize> {
        match self.state {
            LadderState::Trying(0) if self.servers == 1 => Some(0),
            _ => self.active(),
        }
    }

    /// Handles new interest.
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

    /// Handles the end of all interest, when its linger time is over.
    pub(crate) fn on_idle(&mut self, now: Moment) -> Vec<LadderAction> {
        if self.state == LadderState::Idle {
            return Vec::new();
        }
        self.set_state(LadderState::Idle, now);
        vec![LadderAction::CloseAll]
    }

    /// Handles a well-formed response of an open server. Returns whether the server's updates count from now on.
    pub(crate) fn on_response(&mut self, server: usize, usable: bool, now: Moment) -> (bool, Vec<LadderAction>) {
        if !self.open().contains(&server) {
            return (false, Vec::new()); // a late response of a server that was closed
        }
        match self.state {
            LadderState::Active(active) if server == active => {
                self.unreachable_since = None;
                (true, Vec::new())
            }
            // The ladder returns to a higher server only on usable content: an open stream is not enough (FB-9).
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

    /// Handles that a server is unreachable. Only the lowest open one matters: those above it are unreachable already.
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
        if !matches!(self.state, LadderState::Cached(_)) {
            self.set_state(LadderState::Cached(lowest), now);
        }
        self.walk_down(around, now)
    }

    /// Returns when the timers that keep the ladder where it is end.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        self.waiting.then(|| self.may_leave_at()).flatten()
    }

    /// Returns for how long the ladder has waited, and for how long it waits at most. There is no bound if no server is reachable, or if the
    /// rule does not allow the next one. `None` if the ladder does not wait.
    pub(crate) fn wait(&self, now: Moment) -> Option<(Duration, Option<Duration>)> {
        match (self.state, self.unreachable_since) {
            (LadderState::Cached(_), Some(since)) if self.waiting => {
                Some((now - since, Some(self.timers.delay.max(self.timers.hold_down))))
            }
            (LadderState::Cached(_) | LadderState::Down, _) => Some((now - self.since, None)),
            _ => None,
        }
    }

    pub(crate) fn on_time(&mut self, around: &impl LadderContext, now: Moment) -> Vec<LadderAction> {
        match self.next_deadline() {
            Some(at) if at <= now => self.walk_down(around, now),
            _ => Vec::new(),
        }
    }

    /// Moves down while the lowest open server is unreachable and the rule allows it.
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
