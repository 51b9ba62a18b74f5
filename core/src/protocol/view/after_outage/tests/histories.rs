//! Random histories of one set, judged by a plain model: the last word on each name, and since when it is the same.

use super::*;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const RECOVERY: u64 = 15_000;

/// What the words on one name amount to.
#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    is_present: bool,
    /// The last word is that the server has it.
    is_stated: bool,
    /// Since when it is removed and held.
    held: Option<u64>,
    /// How long it had been held when the server went away.
    passed: Option<u64>,
}

#[derive(Debug, Default)]
struct Judge {
    readings: [Reading; NAMES.len()],
    now: u64,
    doubted_until: u64,
}

impl Judge {
    fn say(&mut self, at: usize, has: bool) {
        let is_doubted = self.now < self.doubted_until;
        self.forget();
        let reading = &mut self.readings[at];
        match (has, reading.held) {
            (true, _) => *reading = Reading { is_present: true, is_stated: true, ..Reading::default() },
            (false, Some(_)) => {}
            (false, None) if reading.is_present && is_doubted => {
                reading.held = Some(self.now - reading.passed.take().unwrap_or_default());
            }
            (false, None) => *reading = Reading::default(),
        }
        reading.is_stated = has;
    }

    /// Once a server has been there for long enough, what it had said before is forgotten.
    fn forget(&mut self) {
        if self.now >= self.doubted_until {
            self.readings.iter_mut().for_each(|reading| reading.passed = None);
        }
    }

    fn go_away(&mut self) {
        self.forget();
        for reading in &mut self.readings {
            reading.passed = reading.held.take().map(|since| self.now - since).or(reading.passed);
        }
        self.doubted_until = self.now + RECOVERY;
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        for reading in &mut self.readings {
            if reading.held.is_some_and(|since| since + HOLD.as_millis() as u64 <= self.now) {
                *reading = Reading::default();
            }
        }
    }

    fn present(&self) -> BTreeSet<String> {
        let here = self.readings.iter().zip(NAMES).filter(|(reading, _)| reading.is_present);
        here.map(|(_, name)| name.to_owned()).collect()
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }
}

/// Runs a history. Returns what went wrong at which step.
fn run(kind: &str, seed: u64) -> Result<(), String> {
    let (mut random, mut judge) = (Random(seed), Judge::default());
    let mut bench = Bench::with(options());
    let mut waits = 0;
    for step in 0..60 {
        match random.below(5) {
            0 => {
                let mask = random.below(1 << NAMES.len());
                let set: Vec<&str> = (0..NAMES.len()).filter(|at| mask >> at & 1 == 1).map(|at| NAMES[at]).collect();
                bench.set(kind, &set);
                (0..NAMES.len()).for_each(|at| judge.say(at, mask >> at & 1 == 1));
            }
            1 => {
                let at = random.below(NAMES.len() as u64) as usize;
                bench.remove(kind, NAMES[at]);
                judge.say(at, false);
            }
            2 => {
                let at = random.below(NAMES.len() as u64) as usize;
                bench.send(kind, NAMES[at], b"");
                judge.say(at, true);
            }
            3 => {
                bench.outage(kind);
                judge.go_away();
                if kind == LDS {
                    // What waited is requested again.
                    let stated = judge.readings.map(|reading| reading.is_stated);
                    let set: Vec<&str> = (0..NAMES.len()).filter(|at| stated[*at]).map(|at| NAMES[at]).collect();
                    bench.set(kind, &set);
                    stated.into_iter().enumerate().for_each(|(at, has)| judge.say(at, has));
                }
            }
            _ => {
                let milliseconds = 500 * random.below(20);
                bench.pass(milliseconds);
                judge.pass(milliseconds);
            }
        }
        waits = waits.max(bench.waits().len());
        let (is, expected) = (bench.present(kind), judge.present());
        // New listeners may wait for those whose removal is held.
        let is_right = if kind == LDS { is.is_subset(&expected) } else { is == expected };
        if !is_right {
            return Err(format!("{kind} {seed}, step {step}: {is:?}, and not {expected:?}"));
        }
    }
    bench.pass(20_000);
    judge.pass(20_000);
    let (is, expected) = (bench.present(kind), judge.present());
    if is != expected || !bench.waits().is_empty() {
        return Err(format!("{kind} {seed}, at rest: {is:?}, and not {expected:?}"));
    }
    Ok(())
}

#[test]
fn what_is_present_is_what_the_words_amount_to() {
    for (kind, seed) in [CDS, LDS].into_iter().flat_map(|kind| (0..500).map(move |seed| (kind, seed))) {
        run(kind, seed).unwrap();
    }
}
