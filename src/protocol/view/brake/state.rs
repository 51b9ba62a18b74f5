//! The brakes of a view as plain data, which survives the process.

use std::time::Duration;

use super::window::Window;
use super::{Brakes, Held, Hold, SetBrake, What, restored_origin};
use crate::protocol::moment::{Clock, Moment};
use crate::protocol::view::brake::BrakeRules;
use crate::protocol::view::keys::Selector;
use crate::xds::{Name, TypeTable};

/// What is held in a view, and how large its sets were. Times are ages, so that another process with another clock can go on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BrakeState {
    /// Each set that has anything to remember.
    pub sets: Vec<SetState>,
}

/// The brake of one set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetState {
    /// The full name of the type.
    pub type_name: String,
    /// The glob of a collection, or `None` for `*`.
    pub glob: Option<Name>,
    /// How long ago the set had which size, oldest first.
    pub sizes: Vec<(Duration, usize)>,
    /// The size that the loss is measured against.
    pub start_size: usize,
    /// The server's set does not stand: for what is held, no time passes.
    pub is_stopped: bool,
    /// For how long the set has been empty but for what is held.
    pub empty_for: Option<Duration>,
    /// What is held. Changes that wait are not among it: the server sends them again.
    pub removals: Vec<HeldRemoval>,
}

/// A held removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRemoval {
    /// The name that is removed.
    pub name: Name,
    /// For how long it has been held. Time in which the server's set did not stand is not part of it.
    pub age: Duration,
    /// What a release has to name.
    pub generation: u64,
    /// The set would have been empty without it.
    pub emptied: bool,
    /// The server that removed it, by its place in the plan, and its rank.
    pub server: u16,
    /// See `server`.
    pub rank: u8,
}

impl BrakeState {
    /// Whether the same is held, for however long.
    pub(crate) fn holds_the_same(&self, other: &Self) -> bool {
        let held = |state: &Self| -> Vec<(String, Option<Name>, Name, u64)> {
            let of_set = |set: &SetState| {
                let held =
                    |held: &HeldRemoval| (set.type_name.clone(), set.glob.clone(), held.name.clone(), held.generation);
                set.removals.iter().map(held).collect::<Vec<_>>()
            };
            state.sets.iter().flat_map(of_set).collect()
        };
        held(self) == held(other)
    }
}

impl Brakes {
    pub(crate) fn state(&self, rules: &BrakeRules, now: Moment) -> BrakeState {
        let of = |(set, of): (&super::SetKey, &SetBrake)| {
            let mut state = SetState {
                type_name: set.0.name().to_owned(),
                glob: match &set.1 {
                    Selector::Wildcard => None,
                    Selector::Name(glob) => Some(glob.clone()),
                },
                sizes: of.window.ages(now, rules.window),
                ..SetState::default()
            };
            if let Some(hold) = &of.hold {
                let time = hold.clock.read(now);
                let removals = hold.items().filter(|(_, held)| held.is_removal());
                (state.start_size, state.is_stopped) = (hold.start_size, !hold.clock.runs());
                state.empty_for = hold.empty_since.map(|since| time.saturating_sub(since));
                state.removals = removals
                    .map(|(name, held)| HeldRemoval {
                        name: name.clone(),
                        age: time.saturating_sub(held.since),
                        generation: held.generation,
                        emptied: held.emptied,
                        server: held.source.server,
                        rank: held.source.rank,
                    })
                    .collect();
            }
            (!state.removals.is_empty() || !state.sizes.is_empty()).then_some(state)
        };
        BrakeState { sets: self.sets.iter().filter_map(of).collect() }
    }

    /// Continues what another process held. What is held counts as stated on an earlier opening.
    pub(crate) fn restore(
        &mut self,
        state: &BrakeState,
        table: &TypeTable,
        rules: &BrakeRules,
        is_present: impl Fn(&super::SetKey, &Name) -> bool,
        now: Moment,
    ) {
        for saved in &state.sets {
            let kind = table.resolve(&saved.type_name);
            if !rules.concerns(&kind) {
                continue;
            }
            let set = (kind, saved.glob.clone().map_or(Selector::Wildcard, Selector::Name));
            let of = self.sets.entry(set.clone()).or_default();
            of.window = Window::of_ages(&saved.sizes, now, rules.window);
            let removals: Vec<_> = saved.removals.iter().filter(|held| is_present(&set, &held.name)).collect();
            let bounded = |age: Duration| age.min(LONGEST);
            let ages = removals.iter().map(|held| held.age).chain(saved.empty_for).map(bounded);
            let Some(passed) = ages.max().filter(|_| !removals.is_empty()) else { continue };
            let mut hold = Hold::new(saved.start_size, Clock::standing(passed), now);
            (hold.opening, hold.empty_since) = (1, saved.empty_for.map(|age| passed - bounded(age)));
            for removal in removals {
                rules.generations.skip_to(removal.generation);
                let held = Held {
                    since: passed - bounded(removal.age),
                    generation: removal.generation,
                    opening: 0,
                    source: restored_origin(removal),
                    emptied: removal.emptied,
                    what: What::Removal,
                };
                hold.insert(removal.name.clone(), held, rules);
            }
            of.hold = Some(hold);
            self.changes += 1;
        }
    }
}

/// An age in a file may be anything.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
