//! How long everything may take: the sum of the documented bounds of a path, one term for each.

use std::time::Duration;

use weir_core::protocol::view::BrakeRules;

use crate::client::Profile;
use crate::content::Kind;
use crate::options::{Ending, Options};
use crate::world::World;

/// An aspect in which what a client has can be right or wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aspect {
    /// It has the resources that there are.
    Has(Kind),
    /// It does not have resources that were removed.
    Gone(Kind),
    /// It does not hold what it stated and no server has.
    Stale(Kind),
    /// It was sent a reply to its wildcard.
    Answered(Kind),
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl World {
    pub fn bound(&self, client: usize, aspect: Aspect) -> Duration {
        let (of, options) = (&self.clients[client], &self.options);
        let tiers = of.tier as u32 + 1;
        // Served 2 s after the request with one tier, 3 s with two or three.
        let mut bound = seconds(if tiers == 1 { 2 } else { 3 }) + ways(options) * tiers + pieces(options);
        // The hold of what a server takes away in its first words after an outage, and of changes that may conflict with it.
        bound += options.protocol.view.brakes.after_outage;
        if of.profile == Profile::Polls {
            bound += POLLS;
        }
        if !options.is_honest() || self.judge.has_pieces {
            bound += by_silence(options);
        }
        bound += growth(self.judge.growths(), options);
        if tiers > 1 && !self.tells_of_all_routing() {
            // A relay that states routing of which nothing is known is sent removals only after this time. The end of their sets waits as long.
            bound += options.protocol.session.clusters_timeout * (tiers - 1);
        }
        if options.habits.len() > 1 {
            bound += options.hold_down;
        }
        // A change waits until the routing is steady, which only the server's silence shows if it has nothing to send. Each time that a stream is
        // opened again, for the end of a set or for a name, the silence has to last anew.
        let steady = options.protocol.upstream.resource_timer * 4;
        let is_away = options.ending == Ending::Away && self.judge.is_ended();
        let order = if is_away { CHANGE } else { (CHANGE + steady) * tiers };
        let (hold, brake) = (hold(options) * tiers, brake(options));
        match aspect {
            // A resource that replaces another one may wait for what it refers to, and routing may wait for clusters that do not come.
            Aspect::Has(Kind::Listeners | Kind::Routes | Kind::Scopes) => bound + order + late_clusters(options),
            Aspect::Answered(Kind::Listeners | Kind::Routes | Kind::Scopes) => bound + late_clusters(options),
            Aspect::Has(_) | Aspect::Answered(_) => bound,
            Aspect::Gone(_) => bound + hold + order + brake + late_clusters(options),
            Aspect::Stale(_) => bound + hold + order + brake + late_clusters(options) + by_silence(options),
        }
    }

    pub fn least_bound(&self) -> Duration {
        seconds(2)
    }

    pub fn greatest_bound(&self) -> Duration {
        let clients = 0..self.clients.len();
        let aspects = [Aspect::Has(Kind::Routes), Aspect::Gone(Kind::Routes), Aspect::Stale(Kind::Routes)];
        let all = clients.flat_map(|client| aspects.map(|aspect| self.bound(client, aspect)));
        all.max().unwrap_or_default() + seconds(10)
    }

    /// Returns for how long a loss may still be under way although the server has the resource again.
    pub fn slack(&self) -> Duration {
        seconds(30)
    }
}

/// Returns how long messages between two tiers take until a set was requested twice, with a liveness call each time.
fn ways(options: &Options) -> Duration {
    Duration::from_millis(options.lag) * 10
}

/// Returns how long a server takes that sends one resource at a time, of one type after another.
fn pieces(options: &Options) -> Duration {
    let pause = options.habits.iter().filter_map(|habit| habit.pieces).max();
    pause.map_or(Duration::ZERO, |pause| pause * MOST_RESOURCES)
}

/// Returns how long it takes if a server does not answer the question for the end of a set, or sends sets in pieces: a quiet, openings with
/// their pauses, and the second silence.
fn by_silence(options: &Options) -> Duration {
    let timer = options.protocol.upstream.resource_timer;
    COMES_IN + timer * (1 + 2 + 4) + COMES_IN * 3 + options.protocol.upstream.second_silence + pieces(options) * 3
}

/// Returns how long a set takes that grows while its end is asked for: it is asked for a second time at once, a third time after its quiet, and
/// then judged by silence. The first of the openings has brought the set itself.
fn growth(openings: usize, options: &Options) -> Duration {
    let upstream = &options.protocol.upstream;
    let third = upstream.settle_stated + upstream.settle_fresh + ways(options);
    match openings {
        0..=2 => Duration::ZERO,
        3 => third,
        _ => third + upstream.resource_timer + upstream.second_silence,
    }
}

fn hold(options: &Options) -> Duration {
    options.protocol.view.reference_hold
}

/// Returns for how long routing waits at most while not all clusters are known, and removals while not all routing is known.
fn late_clusters(options: &Options) -> Duration {
    let is_told = options.is_honest() && options.unanswered.is_empty();
    if is_told { Duration::ZERO } else { options.protocol.session.clusters_timeout }
}

fn brake(options: &Options) -> Duration {
    let BrakeRules { share, grace, empty_grace, .. } = &options.protocol.view.brakes;
    if *share == 0 { Duration::ZERO } else { (*grace).max(*empty_grace) }
}

/// A client that polls requests one type after the other, and waits for up to five seconds each time.
const POLLS: Duration = seconds(13);
/// How long a change of routing waits for a cluster.
const CHANGE: Duration = seconds(1);
/// For how long a set counts as coming in.
const COMES_IN: Duration = seconds(30);
/// A server has up to five clusters with their endpoints, three listeners with their routes, and a scope.
const MOST_RESOURCES: u32 = 17;
