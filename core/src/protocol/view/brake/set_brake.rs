//! The brake of one set: how large the set was when the sliding window began, and what is held of it.

use std::collections::VecDeque;
use std::time::Duration;

use super::hold::{Hold, LetGo};
use super::judgement::{Judged, Judgement, Statement};
use super::report::{BrakeEvent, ReleaseReason, SetState};
use super::rules::BrakeRules;
use crate::protocol::keys::{Selector, SetKey};
use crate::protocol::moment::Moment;
use crate::protocol::view::stage::{StageFacts, UpdateUnit};
use crate::protocol::view::update::{Completeness, Origin, Update};
use crate::xds::Name;

#[derive(Debug, Default)]
pub(super) struct SetBrake {
    window: Window,
    hold: Option<Hold>,
    /// Increases with each change of the size while something is held. When a hold ends, the number of its changes is added.
    changes: u64,
}

/// What a server has said of a set, until what passes of it is in the tables.
#[derive(Debug)]
pub(super) struct Said {
    origin: Origin,
    /// The size before. None if the window starts over, because a hold has ended with removals that were intended.
    size: Option<usize>,
    /// The brake has engaged.
    is_new: bool,
    /// Something was held before, or the brake has engaged.
    is_held: bool,
}

/// What a brake passes on, and what it reports to operators.
pub(super) type Outcome = (Vec<UpdateUnit>, Option<BrakeEvent>);

impl SetBrake {
    /// Whether nothing is known of the set.
    pub(super) fn is_blank(&self) -> bool {
        self.hold.is_none() && self.changes == 0 && self.window == Window::default()
    }

    /// Continues what another process held, without names that are not present.
    pub(super) fn restore(
        &mut self,
        saved: &SetState,
        is_present: impl Fn(&Name) -> bool,
        rules: &BrakeRules,
        now: Moment,
    ) {
        self.window = Window::of_ages(&saved.sizes, now, rules.window);
        if let Some(hold) = Hold::restored(saved, is_present, rules, now) {
            self.hold = Some(hold);
            self.changes += 1;
        }
    }

    /// Returns what another process needs to go on, if there is anything to remember.
    pub(super) fn save(&self, (kind, of): &SetKey, rules: &BrakeRules, now: Moment) -> Option<SetState> {
        let mut state = SetState {
            type_name: kind.name().to_owned(),
            glob: match of {
                Selector::Wildcard => None,
                Selector::Name(glob) => Some(glob.clone()),
            },
            sizes: self.window.ages(now, rules.window),
            ..SetState::default()
        };
        self.hold.iter().for_each(|hold| hold.save(&mut state, now));
        (!state.removals.is_empty() || !state.sizes.is_empty()).then_some(state)
    }

    pub(super) fn hold(&self) -> Option<&Hold> {
        self.hold.as_ref()
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes + self.hold.as_ref().map_or(0, Hold::changes)
    }

    /// Judges what a response says of the set. Returns what passes, what is released, and what to settle when that is in the tables.
    pub(super) fn judge(
        &mut self,
        set: &SetKey,
        unit: UpdateUnit,
        facts: &StageFacts,
        now: Moment,
    ) -> (UpdateUnit, Outcome, Said) {
        let (rules, origin, size) = (&facts.options().brakes, unit.origin, facts.size_of(set));
        self.note_opening(&unit, now);
        let before = self.hold.as_ref().map_or(size, |hold| hold.intended_size(size, 0));
        let statement = Statement::read(set, &unit, before, self.hold.as_ref(), facts);
        let mut is_new = false;
        if self.hold.is_none() && statement.shrinks(before) && !origin.skips_brakes {
            let start = self.window.start_size(before, now, rules.window);
            // A set that becomes empty has lost everything, even if nothing was there at the start of the window.
            let after = statement.size_after(before);
            let start = if after == 0 { start.max(before) } else { start };
            is_new = rules.is_too_much(start, after);
            self.hold = is_new.then(|| Hold::new(start, now));
        }
        let said = Said { origin, size: Some(size), is_new, is_held: self.hold.is_some() };
        let Some(hold) = &mut self.hold else { return (unit, Outcome::default(), said) };
        let received = unit.received;
        let judged = Judgement::new(set, hold, facts, origin, now).judge(unit, &statement);
        let Judged { passed, let_go, reason, passed_removals } = judged;
        let (units, mut event) = self.let_go(set, let_go, reason, (origin, received), rules);
        if let Some(BrakeEvent::Released { count, .. }) = &mut event {
            *count += passed_removals;
        }
        let starts_over = self.hold.is_none() && reason != ReleaseReason::Recovered;
        (passed, (units, event), Said { size: said.size.filter(|_| !starts_over), ..said })
    }

    /// Records whether an opening has ended, a poll was answered, or the server has stated its set.
    fn note_opening(&mut self, unit: &UpdateUnit, now: Moment) {
        for update in &unit.updates {
            let stands = match update {
                Update::Interrupted { .. } => {
                    self.hold.iter_mut().for_each(|hold| hold.interrupted(now));
                    false
                }
                Update::FullSet { .. } | Update::Unchanged { .. } => {
                    self.hold.iter_mut().filter(|_| unit.origin.is_polled).for_each(Hold::polled);
                    true
                }
                Update::Progress { completeness, .. } => *completeness >= Completeness::Settled,
                _ => false,
            };
            if stands {
                self.window.begin(now);
                self.hold.iter_mut().for_each(|hold| hold.stands(now));
            }
        }
    }

    /// Updates the brake from the tables, once everything that passed is in them. `said` is `None` if what is held has changed by itself.
    pub(super) fn settle(&mut self, set: &SetKey, said: Option<Said>, facts: &StageFacts, now: Moment) -> Outcome {
        let (rules, size) = (&facts.options().brakes, facts.size_of(set));
        if let Some(hold) = &mut self.hold
            && said.as_ref().is_none_or(|said| said.is_held)
        {
            hold.note_size(hold.intended_size(size, 0), now, rules);
        }
        let Some(Said { origin, size: before, is_new, is_held }) = said else { return Outcome::default() };
        // A set of which new names wait is not complete: what it lacks may be among them.
        let is_complete = is_held && facts.tables().completeness_of(&set.0, &set.1) == Completeness::Complete;
        let is_part = is_complete && self.hold.as_mut().is_some_and(Hold::withhold_completeness);
        let part = is_part.then(|| {
            let (kind, of) = set.clone();
            UpdateUnit { origin, received: now, updates: vec![Update::PartHeld { kind, of }] }
        });
        let engaged = self.hold.as_ref().filter(|_| is_new).map(|hold| BrakeEvent::Engaged {
            kind: set.0.clone(),
            of: set.1.clone(),
            server: origin.server,
            generation: hold.generation(),
            held: hold.removals(),
            size: hold.start_size(),
        });
        if let Some(before) = before
            && before != size
        {
            self.window.record(before, size, now, rules.window);
            self.changes += u64::from(self.hold.is_some());
        }
        (part.into_iter().collect(), engaged)
    }

    /// A resource has expired: that is no removal.
    pub(super) fn expired(&mut self, name: &Name, rules: &BrakeRules) {
        self.window.forget_one();
        if let Some(hold) = &mut self.hold {
            self.changes += 1; // of the size
            hold.expired(name, rules);
        }
    }

    /// Lets go what has been held for long enough.
    pub(super) fn release_due(&mut self, set: &SetKey, rules: &BrakeRules, now: Moment) -> Outcome {
        let Some(hold) = &mut self.hold else { return Outcome::default() };
        let let_go = hold.take_due(now, rules);
        let emptied = let_go.iter().any(|(_, held)| held.emptied);
        let reason = if emptied { ReleaseReason::EmptyGrace } else { ReleaseReason::Grace };
        self.let_go(set, let_go, reason, (Origin::default(), now), rules)
    }

    /// Releases what an operator has seen. Also returns how many removals that were, and whether later ones remain.
    pub(super) fn release(
        &mut self,
        set: &SetKey,
        (generation, server): (u64, Option<u16>),
        rules: &BrakeRules,
        now: Moment,
    ) -> (Outcome, usize, bool) {
        let Some(hold) = &mut self.hold else { return Default::default() };
        let before = hold.removals();
        let (let_go, any) = hold.take_early(generation, server, rules);
        let count = before - hold.removals();
        let outcome = self.let_go(set, let_go, ReleaseReason::Operator, (Origin::default(), now), rules);
        (outcome, count, any && count == 0)
    }

    /// Returns what is no longer held, additions and changes first. If no removal is left that the others would wait for, they are released
    /// too.
    fn let_go(
        &mut self,
        set: &SetKey,
        mut let_go: LetGo,
        reason: ReleaseReason,
        (origin, received): (Origin, Moment),
        rules: &BrakeRules,
    ) -> Outcome {
        let Some(hold) = &mut self.hold else { return Outcome::default() };
        if hold.removals() == 0 {
            let_go.extend(hold.take_all(rules));
        }
        let (ended, complete, taken_back, left) =
            (hold.is_empty(), hold.is_complete_after(), hold.taken_back(), hold.removals());
        if ended {
            self.end_hold(reason);
        }
        let (removals, changes): (LetGo, LetGo) = let_go.into_iter().partition(|(_, held)| held.is_removal());
        let event = (ended || !removals.is_empty()).then(|| BrakeEvent::Released {
            kind: set.0.clone(),
            of: set.1.clone(),
            server: removals.first().map_or(origin.server, |(_, held)| held.origin.server),
            reason,
            count: removals.len() + if ended { taken_back } else { 0 },
            left,
        });
        let held = changes.into_iter().chain(removals);
        let mut units: Vec<_> = held.map(|(name, held)| held.into_unit(set, name, received)).collect();
        if ended && complete {
            let (kind, of) = set.clone();
            let updates = vec![Update::Progress { kind, of, completeness: Completeness::Complete }];
            units.push(UpdateUnit { origin, received, updates });
        }
        (units, event)
    }

    fn end_hold(&mut self, reason: ReleaseReason) {
        self.changes += self.hold.take().map_or(0, |hold| hold.changes() + 1);
        if reason != ReleaseReason::Recovered {
            self.window.restart();
        }
    }
}

/// The sizes of one set over the window. The start of the window moves on in steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Window {
    /// Steps in which the size changed, each with the size at its beginning.
    steps: VecDeque<(u64, usize)>,
    /// When the set was first known. Names that come before that or shortly after it fill the set, and do not count as growth. A loss
    /// always counts.
    begun: Option<Moment>,
}

/// The steps of a window.
const STEPS: u128 = 60;
/// How long a set that was first known may still fill.
const FILLING: Duration = Duration::from_secs(30);

impl Window {
    fn begin(&mut self, now: Moment) {
        self.begun.get_or_insert(now);
    }

    /// The size was `before` and is `after` from now on.
    fn record(&mut self, before: usize, after: usize, now: Moment, length: Duration) {
        let step = step_of(now - Moment::START, length);
        self.drop_old(now, length);
        let fills = self.begun.is_none_or(|begun| now - begun < FILLING);
        if fills && after > before {
            return;
        }
        if self.steps.back().is_none_or(|(last, _)| *last < step) {
            self.steps.push_back((step, before));
        }
    }

    /// Returns the size at the beginning of the window. `size` is the present one.
    fn start_size(&mut self, size: usize, now: Moment, length: Duration) -> usize {
        self.drop_old(now, length);
        self.steps.front().map_or(size, |(_, size)| *size)
    }

    /// A resource went by itself, and does not count as removed.
    fn forget_one(&mut self) {
        self.steps.iter_mut().for_each(|(_, size)| *size = size.saturating_sub(1));
    }

    /// What was removed so far was intended, so its loss no longer counts.
    fn restart(&mut self) {
        self.steps.clear();
    }

    fn drop_old(&mut self, now: Moment, length: Duration) {
        let start = step_of((now - Moment::START).saturating_sub(length), length);
        while self.steps.front().is_some_and(|(step, _)| *step < start) {
            self.steps.pop_front();
        }
    }

    /// Returns the sizes, each with its age.
    fn ages(&self, now: Moment, length: Duration) -> Vec<(Duration, usize)> {
        let since = |step: u64| now - (Moment::START + step_length(length) * u32::try_from(step).unwrap_or(u32::MAX));
        self.steps.iter().map(|(step, size)| (since(*step), *size)).collect()
    }

    /// The inverse of [`Self::ages`]. Sizes from before the start of this process count as of its start.
    fn of_ages(ages: &[(Duration, usize)], now: Moment, length: Duration) -> Self {
        let mut steps: VecDeque<(u64, usize)> = VecDeque::new();
        for (age, size) in ages.iter().take(STEPS as usize + 1) {
            let step = step_of((now - Moment::START).saturating_sub(*age), length);
            if steps.back().is_none_or(|(last, _)| *last < step) {
                steps.push_back((step, *size));
            }
        }
        Self { steps, begun: Some(Moment::START) }
    }
}

fn step_length(length: Duration) -> Duration {
    Duration::from_micros(u64::try_from((length.as_micros() / STEPS).max(1)).unwrap_or(u64::MAX))
}

fn step_of(since_start: Duration, length: Duration) -> u64 {
    u64::try_from(since_start.as_micros() / step_length(length).as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Moment {
        Moment::START + Duration::from_secs(1000 + seconds)
    }

    fn begun() -> Window {
        Window { begun: Some(Moment::START), ..Window::default() }
    }

    #[test]
    fn the_start_is_the_size_when_the_window_began() {
        let mut window = begun();
        window.record(100, 99, at(0), LENGTH);
        window.record(99, 98, at(30), LENGTH);
        assert_eq!(window.start_size(98, at(59), LENGTH), 100);
        assert_eq!(window.start_size(98, at(61), LENGTH), 99, "the first change is out of the window");
        assert_eq!(window.start_size(98, at(91), LENGTH), 98, "both are");
    }

    #[test]
    fn a_set_that_fills_has_no_start_yet() {
        let mut window = Window::default();
        window.record(0, 40, at(0), LENGTH);
        assert_eq!(window.start_size(40, at(1), LENGTH), 40);
        let mut early = window.clone();
        early.record(40, 30, at(1), LENGTH);
        assert_eq!(early.start_size(30, at(1), LENGTH), 40, "a loss before the set is known counts too");
        window.begin(at(1));
        window.record(40, 80, at(2), LENGTH);
        assert_eq!(window.start_size(80, at(3), LENGTH), 80, "a further piece");
        window.record(80, 10, at(4), LENGTH);
        assert_eq!(window.start_size(10, at(5), LENGTH), 80, "a loss counts at once");
    }

    #[test]
    fn later_growth_counts() {
        let mut window = begun();
        window.record(10, 20, at(0), LENGTH);
        window.record(20, 10, at(10), LENGTH);
        assert_eq!(window.start_size(10, at(20), LENGTH), 10, "what came in the window and went in it is no loss");
    }

    #[test]
    fn any_number_of_changes_keeps_few_steps() {
        let mut window = begun();
        for millis in 0..600_000 {
            window.record(1000, 999, Moment::START + Duration::from_millis(millis), LENGTH);
        }
        assert!(window.steps.len() <= 61, "{}", window.steps.len());
    }

    #[test]
    fn what_expires_is_not_lost() {
        let mut window = begun();
        window.record(10, 9, at(0), LENGTH);
        window.forget_one();
        assert_eq!(window.start_size(9, at(1), LENGTH), 9);
    }

    #[test]
    fn ages_restore_a_window_in_another_process() {
        let mut window = begun();
        window.record(100, 80, at(0), LENGTH);
        window.record(80, 70, at(20), LENGTH);
        let ages = window.ages(at(25), LENGTH);
        assert_eq!(ages, [(Duration::from_secs(25), 100), (Duration::from_secs(5), 80)]);
        let mut restored = Window::of_ages(&ages, at(5000), LENGTH);
        assert_eq!(restored.start_size(70, at(5000), LENGTH), 100);
        assert_eq!(restored.start_size(70, at(5040), LENGTH), 80);
    }
}
