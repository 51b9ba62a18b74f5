//! Random histories of one server's set under brakes. A plain model of the rules, which keeps every statement, judges them.
//!
//! The judge knows nothing of windows in steps, holds or generations. It keeps what the server has stated and what clients have, second by
//! second. It checks:
//! 1. A resource whose removal is younger than the grace is present, if it was part of a loss that was too much.
//! 2. If a set would become empty, the rest of it is removed only after a time of its own.
//! 3. Nothing is present for longer than its longest time after its server has removed it.
//! 4. What the server has is present.
//! 5. Without rules, the same history gives what the server states, at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_core::proto::Any;
use weir_core::proto::discovery::Resource as Wrapper;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::view::{
    BrakeRules, Class, Completeness, Evidence, InterestChange, Retain, Selector, SessionId, Update, View,
};
use weir_core::xds::{BodyStore, Resource, Type, TypeTable};

const CDS: &str = "envoy.config.cluster.v3.Cluster";
const SHARE: u64 = 30;
const COUNT: usize = 5;
const WINDOW: u64 = 60;
const GRACE: u64 = 40;
const EMPTY_GRACE: u64 = 120;
const AGREE_AFTER: u64 = 15;

/// A generator of random numbers that is the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}

#[derive(Debug, Clone)]
enum Op {
    /// One delta response: what it removes, and what it adds.
    Change(Vec<usize>, Vec<usize>),
    /// The server restarts, and states this many of its set, or all.
    Restart(Option<usize>),
    /// The server sends the whole set again, on the same opening.
    Repeat,
    Wait(u64),
}

struct World {
    view: View,
    kind: Type,
    store: BodyStore,
    now: u64,
}

impl World {
    fn new(rules: bool) -> Self {
        let table = Arc::new(TypeTable::new());
        let kind = table.resolve(CDS);
        let brakes = BrakeRules {
            types: [CDS.into()].into(),
            share: SHARE as u8,
            count: COUNT,
            window: Duration::from_secs(WINDOW),
            grace: Duration::from_secs(GRACE),
            empty_grace: Duration::from_secs(EMPTY_GRACE),
            agree_after: Duration::from_secs(AGREE_AFTER),
            ..BrakeRules::default()
        };
        let brakes = if rules { brakes } else { BrakeRules::default() };
        let options = ProtocolOptions::default().with(|options| {
            options.view.brakes = brakes;
            options.hold_referenced(Duration::ZERO);
        });
        let mut view = View::new(table, options.view.clone().into());
        let wanted = InterestChange { kind: kind.clone(), selector: Selector::Wildcard, on: true };
        view.change_interest(SessionId(1), wanted, Moment::START);
        Self { view, kind, store: BodyStore::default(), now: 1000 }
    }

    fn moment(&self) -> Moment {
        Moment::START + Duration::from_secs(self.now)
    }

    fn resource(&self, number: usize) -> Arc<Resource> {
        let body = Any { type_url: format!("type.googleapis.com/{CDS}"), value: Bytes::new() };
        let wrapper = Wrapper { name: format!("r{number}"), resource: Some(body), ..Wrapper::default() };
        Arc::new(Resource::from_wrapper(0, wrapper, &self.kind, &self.store).unwrap())
    }

    fn apply(&mut self, updates: Vec<Update>) {
        let now = self.moment();
        self.view.apply(updates, now);
        self.view.on_time(now);
        self.view.publish();
    }

    fn whole(&mut self, set: &BTreeSet<usize>) {
        let resources = set.iter().map(|number| self.resource(*number)).collect();
        self.apply(vec![Update::FullSet { kind: self.kind.clone(), resources, retain: Retain::nothing() }]);
    }

    fn change(&mut self, gone: &BTreeSet<usize>, come: &BTreeSet<usize>) {
        let class = Class::Wildcard;
        let mut updates = Vec::new();
        for number in come {
            let resource = self.resource(*number);
            updates.push(Update::Upsert { kind: self.kind.clone(), class, key: resource.name.clone(), resource });
        }
        for number in gone {
            let key = format!("r{number}").as_str().into();
            updates.push(Update::Absent { kind: self.kind.clone(), class, key, evidence: Evidence::Reported });
        }
        let (kind, of) = (self.kind.clone(), Selector::Wildcard);
        updates.push(Update::Progress { kind, of, completeness: Completeness::Settled });
        self.apply(updates);
    }

    fn second(&mut self) {
        self.now += 1;
        let now = self.moment();
        self.view.on_time(now);
        self.view.publish();
    }

    fn present(&self) -> BTreeSet<usize> {
        self.view.tables().wildcard_names(&self.kind).map(|name| name.as_str()[1..].parse().unwrap()).collect()
    }
}

/// Everything that the server has stated and clients have had.
#[derive(Default)]
struct Judge {
    /// What the server has by its statements.
    stated: BTreeSet<usize>,
    /// When the server removed what is still present, and on which opening it first did so.
    removed: BTreeMap<usize, (u64, u64)>,
    /// Removals that the server stated again on a later opening, late enough to agree with them.
    agreed: BTreeSet<usize>,
    /// Removals that were held while the set would have been empty.
    emptied: BTreeSet<usize>,
    /// The least and the last size of the present set, for each second.
    sizes: BTreeMap<u64, (usize, usize)>,
    opening: u64,
    present: BTreeSet<usize>,
    /// The seconds in which removals passed because their time had ended. Counting may start over there.
    restarts: Vec<u64>,
    empty_since: Option<u64>,
    /// Since when there is anything present that was removed. A loss is measured from then on.
    held_since: Option<u64>,
}

impl Judge {
    /// Records that the server has stated a new set.
    fn state(&mut self, set: &BTreeSet<usize>, now: u64, whole: bool) {
        let restated = if whole { self.present.difference(set).copied().collect() } else { BTreeSet::new() };
        let more = self.stated.difference(set).filter(|number| !self.removed.contains_key(number)).count();
        for number in &restated {
            if let Some((since, opening)) = self.removed.get(number)
                && *opening != self.opening
                && more == 0
                && !set.is_empty()
                && since + AGREE_AFTER <= now
                && !self.emptied.contains(number)
            {
                self.agreed.insert(*number);
            }
        }
        for number in restated {
            self.removed.entry(number).and_modify(|(_, opening)| *opening = self.opening);
        }
        for number in self.stated.difference(set) {
            self.removed.entry(*number).or_insert((now, self.opening));
        }
        self.removed.retain(|number, _| !set.contains(number));
        self.emptied.retain(|number| !set.contains(number));
        self.stated.clone_from(set);
        match set.is_empty() {
            true => {
                self.empty_since.get_or_insert(now);
                self.emptied.extend(self.removed.keys());
            }
            false => self.empty_since = None,
        }
    }

    /// Compares what clients have with what they may have lost.
    fn look(&mut self, present: &BTreeSet<usize>, now: u64) -> Result<(), String> {
        if let Some(missing) = self.stated.difference(present).next() {
            return Err(format!("{missing} is stated and not present"));
        }
        let gone: Vec<usize> = self.present.difference(present).copied().collect();
        let size = self.stated.len();
        // The set at the start of the window, or after the last removals that were released.
        let start = self.held_since.unwrap_or(now).saturating_sub(WINDOW);
        let before = self.sizes.range(..start).next_back().map(|(_, (_, last))| *last);
        let restarts = self.restarts.iter().copied().filter(|at| *at > start);
        let at = restarts.chain([start]).filter_map(|at| Some(self.sizes.range(at..).next()?.1.0));
        let least = at.chain(before).min().unwrap_or(0);
        let lost = least.saturating_sub(size);
        let surely_too_much = lost as u64 * 100 > least as u64 * SHARE && lost >= COUNT || size == 0;
        let mut was_due = false;
        for number in &gone {
            let Some((since, _)) = self.removed.get(number) else {
                return Err(format!("{number} has gone, and the server has not removed it"));
            };
            let age = now - since;
            if size == 0 && self.empty_since.is_some_and(|since| now - since < EMPTY_GRACE) {
                return Err(format!("{number} went from a set that would be empty, after {age} s"));
            }
            was_due |= age >= GRACE || self.agreed.contains(number);
            if surely_too_much && age < GRACE && !self.agreed.contains(number) {
                return Err(format!("{number} went after {age} s, as one of {lost} of {least}"));
            }
        }
        if let Some((number, (since, _))) = self.removed.iter().find(|(number, (since, _))| {
            let longest = if self.emptied.contains(number) { EMPTY_GRACE } else { GRACE };
            let longest = self.empty_since.map_or(since + longest, |empty| (empty + EMPTY_GRACE).max(since + longest));
            present.contains(number) && now > longest
        }) {
            return Err(format!("{number} is still present {} s after its removal", now - since));
        }
        self.removed.retain(|number, _| present.contains(number));
        self.agreed.retain(|number| present.contains(number));
        self.emptied.retain(|number| present.contains(number));
        if was_due {
            self.restarts.push(now);
        }
        match self.removed.is_empty() {
            true => self.held_since = None,
            false => drop(self.held_since.get_or_insert(now)),
        }
        self.present.clone_from(present);
        let (least, last) = self.sizes.entry(now).or_insert((present.len(), 0));
        (*least, *last) = ((*least).min(present.len()), present.len());
        Ok(())
    }
}

fn history(seed: u64) -> Vec<Op> {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let pick = |random: &mut Random, most: usize| -> Vec<usize> {
        (0..random.below(most + 1)).map(|_| random.below(60)).collect()
    };
    (0..40)
        .map(|_| match random.below(12) {
            0..4 => Op::Change(pick(&mut random, 3), Vec::new()),
            4 => Op::Change(pick(&mut random, 60), Vec::new()),
            5 => Op::Change((0..60).collect(), Vec::new()),
            6 | 7 => Op::Change(Vec::new(), pick(&mut random, 30)),
            8 => Op::Restart([None, Some(0), Some(random.below(40))][random.below(3)]),
            9 => Op::Repeat,
            _ => Op::Wait(1 + random.below(50) as u64),
        })
        .collect()
}

fn run(ops: &[Op], rules: bool) -> Result<(), String> {
    let (mut world, mut judge) = (World::new(rules), Judge::default());
    let mut truth: BTreeSet<usize> = (0..40).collect();
    world.whole(&truth);
    judge.state(&truth, world.now, true);
    let look = |world: &World, judge: &mut Judge| match rules {
        true => judge.look(&world.present(), world.now),
        false if world.present() == judge.stated => Ok(()),
        false => Err("without rules a statement does not pass at once".to_owned()),
    };
    look(&world, &mut judge)?;
    (0..100).try_for_each(|_| {
        world.second();
        look(&world, &mut judge)
    })?;
    for op in ops {
        match op {
            Op::Change(gone, come) => {
                let gone: BTreeSet<_> = gone.iter().filter(|number| truth.contains(number)).copied().collect();
                let come: BTreeSet<_> = come.iter().copied().collect();
                truth.retain(|number| !gone.contains(number));
                truth.extend(&come);
                world.change(&gone, &come);
                judge.state(&truth, world.now, false);
            }
            Op::Restart(part) => {
                if let Some(count) = part {
                    truth = truth.iter().take(*count).copied().collect();
                }
                judge.opening += 1;
                world.apply(vec![Update::Interrupted { kind: world.kind.clone(), of: Selector::Wildcard }]);
                world.whole(&truth);
                judge.state(&truth, world.now, true);
            }
            Op::Repeat => {
                world.whole(&truth);
                judge.state(&truth, world.now, true);
            }
            Op::Wait(seconds) => (0..*seconds).try_for_each(|_| {
                world.second();
                look(&world, &mut judge)
            })?,
        }
        look(&world, &mut judge)?;
    }
    (0..EMPTY_GRACE + GRACE).try_for_each(|_| {
        world.second();
        look(&world, &mut judge)
    })?;
    if world.present() == truth { Ok(()) } else { Err("what is meant has not passed in the end".into()) }
}

/// Returns the shortest part of a history that still fails.
fn shrink(mut ops: Vec<Op>) -> Vec<Op> {
    let mut at = 0;
    while at < ops.len() {
        let mut fewer = ops.clone();
        fewer.remove(at);
        if run(&fewer, true).is_err() { ops = fewer } else { at += 1 }
    }
    ops
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn no_history_takes_more_than_allowed_and_what_is_meant_passes() {
    let first = variable("WEIR_SEED", 1);
    for seed in first..first + variable("WEIR_HISTORIES", 100) {
        let ops = history(seed);
        if let Err(reason) = run(&ops, true) {
            let ops = shrink(ops);
            panic!("seed {seed}: {reason}\n{:?}\n{ops:?}", run(&ops, true));
        }
    }
}

#[test]
fn without_rules_every_statement_passes_at_once() {
    for seed in 1..200 {
        run(&history(seed), false).unwrap_or_else(|reason| panic!("seed {seed}: {reason}"));
    }
}
