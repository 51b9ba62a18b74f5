//! A control plane that was away lacks something when it is back. Clients keep that for a while, in virtual time. Either the control plane has
//! not read all of its state yet, or it means what it says, or it goes away once more.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::Variant;

use crate::options::Options;
use crate::random::Random;
use crate::rows::{BOTH, UNUSED, change, has, world};
use crate::server::Health;
use crate::world::{Event, World};

const TIMES: u64 = 20;
const HOLD: Duration = Duration::from_secs(5);
/// How often the resources of the clients are checked.
const EACH: Duration = Duration::from_millis(50);
/// After this many checks, even the waits to connect again, which have grown meanwhile, are over.
const LOOKS: u64 = 800;

/// What happens some time after the control plane is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It has read the rest of its state.
    Reads,
    /// It goes away for some seconds.
    Leaves,
    /// Nothing: it means what it has said.
    Goes,
}

/// Checks what clients have while time passes.
struct Watch {
    then: Then,
    after: Duration,
    back_at: Option<Moment>,
    /// When the control plane is back for the second time.
    returned_at: Option<Moment>,
    is_done: bool,
}

impl Watch {
    fn look(&mut self, world: &mut World) {
        let now = world.now;
        if world.servers[0].health == Health::Fine && !world.streams.is_empty() {
            self.back_at.get_or_insert(now);
            if self.is_done && self.then == Then::Leaves {
                self.returned_at.get_or_insert(now);
            }
        }
        let Some(back_at) = self.back_at else { return keeps(world, "the control plane is away") };
        if !self.is_done && now >= back_at + self.after {
            self.is_done = true;
            match self.then {
                Then::Reads => change(world, UNUSED, 0),
                Then::Leaves => {
                    world.set_health(0, Health::Refuses);
                    let returns = Box::new(|world: &mut World| world.set_health(0, Health::Fine));
                    world.soon(Duration::from_secs(8), Event::Step(returns));
                }
                Then::Goes => {}
            }
        }
        if self.is_done && self.then == Then::Reads {
            keeps(world, "it was read in time");
        } else if world.servers[0].health != Health::Fine {
            keeps(world, "the control plane is away again");
        } else if self.is_done && self.then == Then::Leaves {
            match self.returned_at.map(|at| at + HOLD) {
                None => keeps(world, "no stream is open yet"),
                Some(end) if now + self.after + EACH * 4 < end => keeps(world, "not all of the time has passed"),
                Some(end) if now + EACH * 2 >= end => gone(world, "the time goes on that had passed"),
                Some(_) => {}
            }
        } else if self.then == Then::Goes && now >= back_at + HOLD * 2 {
            gone(world, "the time is over");
        } else if now + EACH * 2 < back_at + HOLD {
            keeps(world, "the time is not over");
        }
    }
}

/// Checks that all clients have the resource.
fn keeps(world: &mut World, why: &str) {
    if !(0..BOTH.len()).all(|client| has(world, client, UNUSED)) {
        world.wrong(|| format!("a client has lost what is held: {why}"));
    }
}

/// Checks that no client has the resource.
fn gone(world: &mut World, why: &str) {
    if (0..BOTH.len()).any(|client| has(world, client, UNUSED)) {
        world.wrong(|| format!("a client still has what is meant to go: {why}"));
    }
}

fn history(seed: u64, tiers: usize, variant: Variant, then: Then) -> Result<(), String> {
    let mut options = Options::calm(tiers);
    options.variants[0] = variant;
    options.habits[0].removes_unknown = true;
    options.protocol.view.brakes.after_outage = HOLD;
    let mut random = Random::of(seed);
    let (away, share) = (random.below(3_000), random.below(3_000));
    // The control plane leaves when most of the hold has passed. So the rest of it ends long before a hold from the beginning would.
    let after = Duration::from_millis(if then == Then::Leaves { 3_500 + share / 3 } else { 1_000 + share });
    let mut world = world(seed, options);
    world.step(5, |world| change(world, UNUSED, 0));
    world.step(10_000, |world| {
        world.set_health(0, Health::Refuses);
        world.change(0, UNUSED, None);
    });
    world.step(10_010 + away, |world| world.set_health(0, Health::Fine));
    let watch = Arc::new(Mutex::new(Watch { then, after, back_at: None, returned_at: None, is_done: false }));
    for at in 0..LOOKS {
        let watch = watch.clone();
        world.step(10_050 + at * EACH.as_millis() as u64, move |world| watch.lock().unwrap().look(world));
    }
    world.live()
}

fn all(then: Then) -> Vec<String> {
    let mut wrong = Vec::new();
    for (tiers, variant) in [1, 2].into_iter().flat_map(|tiers| BOTH.map(|variant| (tiers, variant))) {
        for seed in 1..=TIMES {
            if let Err(why) = history(seed, tiers, variant, then) {
                wrong.push(format!("{tiers} tiers, {variant:?}, {seed}: {why}"));
            }
        }
    }
    wrong
}

#[test]
fn what_a_control_plane_has_not_read_yet_is_lost_by_no_client() {
    assert_eq!(all(Then::Reads), Vec::<String>::new());
}

#[test]
fn what_a_control_plane_means_goes_after_the_time() {
    assert_eq!(all(Then::Goes), Vec::<String>::new());
}

#[test]
fn what_is_held_stays_while_the_control_plane_is_away_again() {
    assert_eq!(all(Then::Leaves), Vec::<String>::new());
}
