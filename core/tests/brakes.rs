//! Random histories of one server's set under brakes. A plain model of the rules, which keeps every statement, judges them.
//!
//! The judge knows nothing of windows in steps, holds or generations. It keeps what the server has stated and what clients have, second by
//! second. It checks:
//! 1. A resource whose removal is younger than the grace is present, if it was part of a loss that was too much.
//! 2. If a set would become empty, the rest of it is removed only after a time of its own.
//! 3. Nothing is present for longer than its longest time after its server has removed it.
//! 4. What the server has is present.
//! 5. Without rules, the same history gives what the server states, at once.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use support::random::{Random, number};
use support::{Bench, CDS};
use weir_core::protocol::moment::Moment;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::view::{
    BrakeRules, Class, Completeness, Evidence, InterestChange, Retain, Selector, SessionId, Update,
};
use weir_core::xds::Resource;

const SHARE: u64 = 30;
const COUNT: usize = 5;
const WINDOW: u64 = 60;
const GRACE: u64 = 40;
const EMPTY_GRACE: u64 = 120;
const AGREE_AFTER: u64 = 15;

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

/// Returns a bench on which somebody wants the set. It begins late enough for every window.
fn bench(rules: bool) -> Bench {
    let brakes = BrakeRules {
        types: ["envoy.config.cluster.v3.Cluster".into()].into(),
        share: SHARE as u8,
        count: COUNT,
        window: Duration::from_secs(WINDOW),
        grace: Duration::from_secs(GRACE),
        empty_grace: Duration::from_secs(EMPTY_GRACE),
        agree_after: Duration::from_secs(AGREE_AFTER),
        ..BrakeRules::default()
    };
    let brakes = if rules { brakes } else { BrakeRules::default() };
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| {
        options.view.brakes = brakes;
        options.hold_referenced(Duration::ZERO);
    }));
    let wanted = InterestChange { kind: bench.kind(CDS), selector: Selector::Wildcard, on: true };
    bench.view.change_interest(SessionId(1), wanted, bench.now);
    bench.later(1_000_000);
    bench
}

fn now(bench: &Bench) -> u64 {
    (bench.now - Moment::START).as_secs()
}

fn second(bench: &mut Bench) {
    bench.later(1_000);
}

fn resource(bench: &mut Bench, number: usize) -> Arc<Resource> {
    bench.resource(CDS, &format!("r{number}"), "")
}

/// Applies what the server says, and runs the timers that are due then.
fn apply(bench: &mut Bench, updates: Vec<Update>) {
    bench.apply(updates);
    bench.later(0);
}

fn whole(bench: &mut Bench, set: &BTreeSet<usize>) {
    let resources = set.iter().map(|number| resource(bench, *number)).collect();
    let kind = bench.kind(CDS);
    apply(bench, vec![Update::FullSet { kind, resources, retain: Retain::nothing() }]);
}

fn change(bench: &mut Bench, gone: &BTreeSet<usize>, come: &BTreeSet<usize>) {
    let (kind, class) = (bench.kind(CDS), Class::Wildcard);
    let mut updates = Vec::new();
    for number in come {
        let resource = resource(bench, *number);
        updates.push(Update::Upsert { kind: kind.clone(), class, key: resource.name.clone(), resource });
    }
    for number in gone {
        let key = format!("r{number}").as_str().into();
        updates.push(Update::Absent { kind: kind.clone(), class, key, evidence: Evidence::Reported });
    }
    updates.push(Update::Progress { kind, of: Selector::Wildcard, completeness: Completeness::Settled });
    apply(bench, updates);
}

fn present(bench: &Bench) -> BTreeSet<usize> {
    let kind = bench.kind(CDS);
    bench.view.tables().wildcard_names(&kind).map(|name| name.as_str()[1..].parse().unwrap()).collect()
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
    let mut random = Random::of(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let pick = |random: &mut Random, most: usize| -> Vec<usize> {
        (0..random.place(most + 1)).map(|_| random.place(60)).collect()
    };
    (0..40)
        .map(|_| match random.place(12) {
            0..4 => Op::Change(pick(&mut random, 3), Vec::new()),
            4 => Op::Change(pick(&mut random, 60), Vec::new()),
            5 => Op::Change((0..60).collect(), Vec::new()),
            6 | 7 => Op::Change(Vec::new(), pick(&mut random, 30)),
            8 => Op::Restart([None, Some(0), Some(random.place(40))][random.place(3)]),
            9 => Op::Repeat,
            _ => Op::Wait(1 + random.below(50)),
        })
        .collect()
}

fn run(ops: &[Op], rules: bool) -> Result<(), String> {
    let (mut bench, mut judge) = (bench(rules), Judge::default());
    let mut truth: BTreeSet<usize> = (0..40).collect();
    whole(&mut bench, &truth);
    judge.state(&truth, now(&bench), true);
    let look = |bench: &Bench, judge: &mut Judge| match rules {
        true => judge.look(&present(bench), now(bench)),
        false if present(bench) == judge.stated => Ok(()),
        false => Err("without rules a statement does not pass at once".to_owned()),
    };
    look(&bench, &mut judge)?;
    (0..100).try_for_each(|_| {
        second(&mut bench);
        look(&bench, &mut judge)
    })?;
    for op in ops {
        match op {
            Op::Change(gone, come) => {
                let gone: BTreeSet<_> = gone.iter().filter(|number| truth.contains(number)).copied().collect();
                let come: BTreeSet<_> = come.iter().copied().collect();
                truth.retain(|number| !gone.contains(number));
                truth.extend(&come);
                change(&mut bench, &gone, &come);
                judge.state(&truth, now(&bench), false);
            }
            Op::Restart(part) => {
                if let Some(count) = part {
                    truth = truth.iter().take(*count).copied().collect();
                }
                judge.opening += 1;
                let kind = bench.kind(CDS);
                apply(&mut bench, vec![Update::Interrupted { kind, of: Selector::Wildcard }]);
                whole(&mut bench, &truth);
                judge.state(&truth, now(&bench), true);
            }
            Op::Repeat => {
                whole(&mut bench, &truth);
                judge.state(&truth, now(&bench), true);
            }
            Op::Wait(seconds) => (0..*seconds).try_for_each(|_| {
                second(&mut bench);
                look(&bench, &mut judge)
            })?,
        }
        look(&bench, &mut judge)?;
    }
    (0..EMPTY_GRACE + GRACE).try_for_each(|_| {
        second(&mut bench);
        look(&bench, &mut judge)
    })?;
    if present(&bench) == truth { Ok(()) } else { Err("what is meant has not passed in the end".into()) }
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

#[test]
fn no_history_takes_more_than_allowed_and_what_is_meant_passes() {
    let first = number("WEIR_SEED").unwrap_or(1);
    for seed in first..first + number("WEIR_HISTORIES").unwrap_or(100) {
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
