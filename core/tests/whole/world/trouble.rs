//! What goes wrong and what changes, until the quiet end.

use std::time::Duration;

use weir_core::protocol::sources::{ServerHistory, StreamId};
use weir_core::protocol::view::{BrakeState, SavedSet, SessionId};

use super::{Event, World};
use crate::content::{Content, Key, Kind};
use crate::options::Ending;
use crate::server::Health;
use crate::tier::{LinkKey, Place, Tier};

/// What a tier leaves to the one that replaces it.
pub struct Saved {
    sets: Vec<SavedSet>,
    brakes: BrakeState,
    history: ServerHistory,
}

/// One kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    Change,
    Return,
    Newcomer,
    WarmRestart,
    ColdRestart,
    Reload,
    Health,
    Cut,
}

const CALM: [Trouble; 10] = [
    Trouble::Change,
    Trouble::Change,
    Trouble::Change,
    Trouble::Change,
    Trouble::Return,
    Trouble::Return,
    Trouble::Newcomer,
    Trouble::WarmRestart,
    Trouble::WarmRestart,
    Trouble::Reload,
];
const HARSH: [Trouble; 9] = [
    Trouble::Health,
    Trouble::Health,
    Trouble::Health,
    Trouble::Health,
    Trouble::Cut,
    Trouble::Cut,
    Trouble::ColdRestart,
    Trouble::Change,
    Trouble::Return,
];

impl World {
    pub(super) fn trouble(&mut self) {
        let of: &[Trouble] = if self.options.harsh && self.random.one_in(2) { &HARSH } else { &CALM };
        let trouble = self.random.pick(of);
        self.tell(|_| format!("{trouble:?}"));
        match trouble {
            Trouble::Change => self.change_something(),
            Trouble::Return => {
                let client = self.random.below(self.clients.len() as u64) as usize;
                self.break_client(client, true);
            }
            Trouble::Newcomer => self.add_client(),
            Trouble::WarmRestart | Trouble::ColdRestart => {
                let tier = self.random.below(self.tiers.len() as u64) as usize;
                self.restart(tier, trouble == Trouble::WarmRestart);
                if self.random.one_in(2) {
                    self.change_something();
                }
            }
            Trouble::Reload => {
                let tier = self.random.below(self.tiers.len() as u64) as usize;
                self.reload(tier);
            }
            Trouble::Health => {
                let server = self.random.below(self.servers.len() as u64) as usize;
                let states =
                    [Health::Fine, Health::Fine, Health::Refuses, Health::HalfOpen, Health::Mute, Health::Rejects];
                let health = match self.random.pick(&states) {
                    // A server that is mute for longer than the second silence would count as one that has nothing.
                    Health::Mute if self.options.protocol.upstream.second_silence < MUTE => Health::HalfOpen,
                    health => health,
                };
                self.set_health(server, health);
            }
            Trouble::Cut => {
                let links = self.tiers.iter().enumerate();
                let links =
                    links.flat_map(|(tier, of)| of.links.iter().map(move |(id, link)| (tier, *id, link.opening)));
                let links: Vec<(usize, StreamId, u64)> = links.collect();
                if !links.is_empty() {
                    let (tier, id, opening) = self.random.pick(&links);
                    self.link_ended(LinkKey { tier, id, opening }, "it is cut");
                }
            }
        }
    }

    /// Changes something at one server, or the same at all servers.
    pub(super) fn change_something(&mut self) {
        let all = self.random.one_in(2);
        let one = self.random.below(self.servers.len() as u64) as usize;
        let what = self.random.below(8);
        let (number, other) = (self.random.below(5) as u16, self.random.below(5) as u16);
        let listener = self.random.below(3) as u16;
        for server in 0..self.servers.len() {
            if all || server == one {
                self.bundle(server, what, number, other, listener);
            }
        }
    }

    /// Makes a group of changes, as a control plane makes them in one go.
    fn bundle(&mut self, server: usize, what: u64, number: u16, other: u16, listener: u16) {
        let mut wait = Duration::ZERO;
        let mut change = |world: &mut Self, key: Key, to: Option<u16>| {
            wait += world.pause();
            let content = to.map(|to| Content { serial: world.serial(), to });
            world.soon(wait, Event::Change(server, key, content));
        };
        let [cluster, endpoints] = [Kind::Clusters, Kind::Endpoints].map(|kind| Key(kind, number));
        let route = Key(Kind::Routes, listener);
        match what {
            0 => change(self, cluster, Some(0)),
            1 => change(self, endpoints, Some(0)),
            // Traffic moves from one cluster to another, which is new.
            2 | 3 => {
                change(self, cluster, Some(0));
                change(self, endpoints, Some(0));
                change(self, route, Some(number));
                if what == 3 && other != number {
                    let led =
                        self.servers[server].content.iter().filter(|(key, _)| key.0 == Kind::Routes && **key != route);
                    let is_led_to = led.clone().any(|(_, content)| content.to == other);
                    if !is_led_to {
                        change(self, Key(Kind::Clusters, other), None);
                        change(self, Key(Kind::Endpoints, other), None);
                    }
                }
            }
            // A cluster is removed, in use or not.
            4 => {
                change(self, cluster, None);
                change(self, endpoints, None);
            }
            5 => {
                change(self, Key(Kind::Listeners, listener), Some(listener));
                change(self, route, Some(number));
            }
            6 => {
                change(self, Key(Kind::Listeners, listener), None);
                change(self, route, None);
            }
            _ => change(self, route, Some(number)),
        }
    }

    fn save(&mut self, tier: usize) -> Saved {
        let now = self.now;
        let of = &mut self.tiers[tier];
        Saved {
            sets: SavedSet::all_of(of.view.snapshot(), now),
            brakes: of.view.holds().brake_state(now),
            history: of.sources.history(now),
        }
    }

    /// Stops a process and starts another one, with what the first one has saved, or with nothing.
    pub fn restart(&mut self, tier: usize, is_warm: bool) {
        if self.tiers[tier].is_down {
            return;
        }
        let mut saved = self.save(tier);
        if !is_warm {
            saved = Saved { sets: Vec::new(), brakes: BrakeState::default(), history: ServerHistory::default() };
        }
        saved.history = ServerHistory::default(); // a history is given to the views of a next configuration, and is in no file
        self.stop(tier);
        self.tiers[tier].is_down = true;
        let wait = self.random.millis(50, 2000);
        self.soon(wait, Event::Restarted(tier, Box::new(saved)));
    }

    /// Replaces a view by one of the next configuration, which takes over what the view has.
    pub fn reload(&mut self, tier: usize) {
        if !self.tiers[tier].is_down {
            let saved = self.save(tier);
            self.stop(tier);
            self.restarted(tier, saved);
        }
    }

    /// Ends all streams of a tier, in both directions.
    fn stop(&mut self, tier: usize) {
        let links: Vec<LinkKey> =
            self.tiers[tier].links.iter().map(|(id, link)| LinkKey { tier, id: *id, opening: link.opening }).collect();
        links.into_iter().for_each(|key| self.drop_link(key));
        self.tiers[tier].links.clear();
        let sessions: Vec<SessionId> = self.tiers[tier].seats.keys().copied().collect();
        for session in sessions {
            self.end_session(Place { tier, session }, "the relay stops");
        }
        self.tiers[tier] = Tier::new(self.options.plan(tier), self.protocol.clone());
    }

    pub(super) fn restarted(&mut self, tier: usize, saved: Saved) {
        let now = self.now;
        self.tell(|_| {
            format!("tier {tier} begins with {:?}", saved.sets.iter().map(|set| set.resources.len()).sum::<usize>())
        });
        if tier == 0 {
            self.note_saved(&saved.sets);
        }
        let of = &mut self.tiers[tier];
        of.is_down = false;
        of.view.restore(saved.sets, now + KEEP, now);
        of.view.restore_brakes(&saved.brakes, now);
        of.sources.go_on(saved.history);
        self.judge.restarts += 1;
        self.disturbed("restarted");
        self.wake_tier(tier);
    }

    /// Ends the last fault: from now on everything goes well, or nothing does.
    pub(super) fn end(&mut self) {
        match self.options.ending {
            Ending::Well => {
                for server in 0..self.servers.len() {
                    self.set_health(server, Health::Fine);
                }
            }
            Ending::Away => {
                let (number, listener) = (self.random.below(5) as u16, self.random.below(2) as u16);
                self.bundle(0, 2, number, number, listener);
                if self.random.one_in(2) {
                    // The clients come back to a relay that starts with nothing, and soon loses the server that it begins to read from.
                    self.restart(0, false);
                    self.leaves_soon = true;
                } else {
                    let wait = self.random.millis(150, 700);
                    self.soon(wait, Event::Leave);
                }
            }
        }
        self.judge.ended(self.now);
        self.plan_end();
        self.disturbed("the end");
    }

    /// Makes the control plane go away for good.
    pub(super) fn servers_leave(&mut self) {
        for server in 0..self.servers.len() {
            self.set_health(server, Health::Refuses);
        }
        self.disturbed("the control plane is away");
    }
}

/// No server is mute for longer than this.
const MUTE: Duration = Duration::from_secs(100);
/// How long a view is kept without a client.
const KEEP: Duration = Duration::from_secs(300);
