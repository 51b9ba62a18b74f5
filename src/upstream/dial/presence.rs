//! Which addresses the answers for a name have, and which have left it.
//!
//! Some balancers give out a part of their addresses with each answer, so that an address may exist although an answer lacks it. How often that
//! happens is counted: an address that comes back existed meanwhile. An address has left the name once answers have lacked it for long enough, and
//! so many in a row that chance does not explain it.
//!
//! Caches on the way repeat answers. Once answers are known to vary, equal ones in a row count as one. Before that, all answers have the same
//! addresses, and each counts.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

/// The addresses of one name.
#[derive(Debug, Default)]
pub(super) struct Presence {
    known: HashMap<SocketAddr, Absence>,
    /// The addresses of the last answer, in order.
    latest: Vec<SocketAddr>,
    /// All answers, and those that differ from the one before.
    answers: Counts,
    draws: Counts,
    /// When an address last came back.
    varied: Option<Instant>,
    last: Option<Instant>,
}

/// How often answers had an address, and how often they lacked one that a later answer had.
#[derive(Debug, Default)]
struct Counts {
    had: usize,
    lacked: usize,
}

/// The latest answers in a row without an address.
#[derive(Debug, Default)]
struct Absence {
    answers: usize,
    /// How many of these answers differ from the one before.
    draws: usize,
    /// When the first of these answers came.
    since: Option<Instant>,
}

impl Presence {
    /// Records an answer. Failed and empty look-ups say nothing about addresses.
    pub(super) fn answered(&mut self, addresses: &[SocketAddr], now: Instant) {
        self.last = Some(now);
        let mut addresses = addresses.to_vec();
        addresses.sort_unstable();
        addresses.dedup();
        let is_draw = addresses != self.latest;
        for absence in self.known.values_mut() {
            absence.answers += 1;
            absence.draws += usize::from(is_draw);
            absence.since.get_or_insert(now);
        }
        for address in &addresses {
            let absence = std::mem::take(self.known.entry(*address).or_default());
            // After an hour the address counts as that of a new server.
            let comes_back = absence.answers > 1 && absence.since.is_some_and(|since| now - since < REMEMBERED);
            if comes_back {
                self.varied = Some(now);
            }
            // Without this answer, which has the address.
            let lacked = |count: usize| if comes_back { count.saturating_sub(1) } else { 0 };
            self.answers.add(1, lacked(absence.answers));
            self.draws.add(usize::from(is_draw), lacked(absence.draws));
        }
        if self.known.len() > MOST_KNOWN {
            self.known.retain(|_, absence| absence.answers == 0);
        }
        let most = WINDOW * self.known.len();
        self.answers.keep(most);
        self.draws.keep(most);
        self.latest = addresses;
    }

    /// Whether the answers have lacked an address for so long and so often that it has left the name.
    pub(super) fn has_left(&self, address: SocketAddr, drain: Duration) -> bool {
        let (Some(last), Some(absence)) = (self.last, self.known.get(&address)) else { return false };
        let is_long = absence.since.is_some_and(|since| last - since >= drain);
        let vary = self.varied.is_some_and(|varied| last - varied < VARYING);
        let is_no_chance = match vary {
            true => self.draws.is_no_chance(absence.draws),
            false => self.answers.is_no_chance(absence.answers),
        };
        is_long && is_no_chance
    }
}

impl Counts {
    fn add(&mut self, had: usize, lacked: usize) {
        self.had += had;
        self.lacked += lacked;
    }

    /// Halves the counts if they exceed a limit, so that older answers count less.
    fn keep(&mut self, most: usize) {
        if self.had + self.lacked > most {
            self.had /= 2;
            self.lacked /= 2;
        }
    }

    /// Whether chance practically cannot explain that so many answers in a row lack an address that exists.
    fn is_no_chance(&self, answers: usize) -> bool {
        // One more is counted as lacking: a few answers do not prove that no other answers exist.
        let share = (self.lacked + 1) as f64 / (self.had + self.lacked + 2) as f64;
        share.powi(i32::try_from(answers).unwrap_or(i32::MAX)) < CHANCE
    }
}

/// The accepted probability of taking an existing address for one that has left.
const CHANCE: f64 = 1e-9;
/// An address that comes back after more than this time counts as new.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// For so long after an address has come back, answers are taken for parts.
const VARYING: Duration = Duration::from_secs(6 * 3600);
/// About how many answers are used to estimate which share of the addresses an answer has.
const WINDOW: usize = 64;
/// Above this number of addresses, only those of the last answer are kept.
const MOST_KNOWN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const DRAIN: Duration = Duration::from_secs(300);
    const BETWEEN: Duration = Duration::from_secs(30);

    fn at(number: usize) -> SocketAddr {
        ([10, 0, (number >> 8) as u8, number as u8], 1).into()
    }

    fn all(numbers: impl IntoIterator<Item = usize>) -> Vec<SocketAddr> {
        numbers.into_iter().map(at).collect()
    }

    /// Numbers that look random, the same in each run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % limit
        }

        fn some_of(&mut self, count: usize, mut from: Vec<SocketAddr>) -> Vec<SocketAddr> {
            (0..count).map(|_| from.swap_remove(self.below(from.len()))).collect()
        }
    }

    /// A name server that answers after each interval.
    struct Name {
        presence: Presence,
        now: Instant,
    }

    impl Name {
        fn new() -> Self {
            Self { presence: Presence::default(), now: Instant::now() }
        }

        fn answers(&mut self, addresses: &[SocketAddr]) {
            self.presence.answered(addresses, self.now);
            self.now += BETWEEN;
        }

        /// Returns how many answers it takes until the address has left.
        fn answers_until_left(&mut self, address: SocketAddr, mut answer: impl FnMut() -> Vec<SocketAddr>) -> usize {
            let left = (1..2000).find(|_| {
                self.answers(&answer());
                self.presence.has_left(address, DRAIN)
            });
            left.expect("it has left")
        }
    }

    #[test]
    fn an_address_that_full_answers_lack_has_left_after_the_drain_and_not_before() {
        for addresses in [1, 2, 10, 300] {
            let mut name = Name::new();
            name.answers(&all(0..addresses));
            let rest = all(if addresses == 1 { 1..2 } else { 1..addresses });
            assert_eq!(
                name.answers_until_left(at(0), || rest.clone()),
                11,
                "{addresses}: 300 s from the first to the last"
            );
            assert!(rest.iter().all(|address| !name.presence.has_left(*address, DRAIN)));
        }
    }

    #[test]
    fn a_whole_set_that_is_replaced_has_left_after_the_drain() {
        let mut name = Name::new();
        (0..100).for_each(|_| name.answers(&all(0..10)));
        assert_eq!(name.answers_until_left(at(0), || all(10..20)), 11);
        assert!(all(0..10).iter().all(|address| name.presence.has_left(*address, DRAIN)));
        name.answers(&all(0..10));
        assert!(all(0..10).iter().all(|address| !name.presence.has_left(*address, DRAIN)), "it has come back");
    }

    /// An address is lacking for five minutes in one of 165 cases, so by the time alone many would be left.
    #[test]
    fn nothing_leaves_while_each_answer_has_eight_of_twenty_at_random_for_an_hour() {
        let mut long_absences = 0;
        for seed in 0..100 {
            let (mut name, mut random) = (Name::new(), Random(seed));
            for _ in 0..120 {
                name.answers(&random.some_of(8, all(0..20)));
                let left = all(0..20).into_iter().find(|address| name.presence.has_left(*address, DRAIN));
                assert_eq!(left, None, "seed {seed}");
                long_absences += name.presence.known.values().filter(|absence| absence.answers == 11).count();
            }
        }
        assert!(long_absences > 100, "{long_absences}: by the time alone they would be left");
    }

    /// Caches repeat an answer for a while. Until an address comes back, an answer with a part of the addresses looks like a changed set.
    #[test]
    fn nothing_leaves_by_answers_that_are_repeated_once_an_address_has_come_back() {
        for (part, of) in [(1, 4), (8, 20), (1, 2)] {
            for repeated in [1, 2, 4, 10] {
                for seed in 0..20 {
                    let (mut name, mut random) = (Name::new(), Random(seed));
                    for _ in 0..720 / repeated {
                        let part = random.some_of(part, all(0..of));
                        for _ in 0..repeated {
                            name.answers(&part);
                            let varies = name.presence.varied.is_some();
                            let left = all(0..of).into_iter().find(|one| name.presence.has_left(*one, DRAIN));
                            assert_eq!(left.filter(|_| varies), None, "{part:?}, {repeated} times, seed {seed}");
                        }
                    }
                    assert!(name.presence.varied.is_some());
                }
            }
        }
    }

    #[test]
    fn an_address_that_leaves_for_good_after_it_had_come_back_once_has_left_when_nothing_has_come_back_for_hours() {
        let mut name = Name::new();
        (0..100).for_each(|_| name.answers(&all(0..3)));
        (0..2).for_each(|_| name.answers(&all(1..3)));
        (0..2).for_each(|_| name.answers(&all(0..3)));
        assert_eq!(name.answers_until_left(at(0), || all(1..3)), 719, "6 h after it had come back");
        assert!(!name.presence.has_left(at(1), DRAIN));
    }

    #[test]
    fn of_parts_of_a_name_an_address_leaves_after_more_answers_the_less_they_have() {
        let mut random = Random(1);
        let [most, half, few] = [16, 10, 4].map(|count| {
            let mut name = Name::new();
            (0..200).for_each(|_| name.answers(&random.some_of(count, all(0..20))));
            name.answers(&all(0..20));
            name.answers_until_left(at(0), || random.some_of(count, all(1..20)))
        });
        assert!(
            (11..20).contains(&most) && (25..40).contains(&half) && (70..130).contains(&few),
            "{most} {half} {few}"
        );
    }

    #[test]
    fn two_answers_long_apart_prove_less_than_many() {
        let mut name = Name::new();
        (0..3).for_each(|_| name.answers(&all(0..2)));
        name.answers(&all(0..1));
        name.now += DRAIN;
        name.answers(&all(0..1));
        assert!(!name.presence.has_left(at(1), DRAIN));
        assert!(name.answers_until_left(at(1), || all(0..1)) < 9);
    }

    #[test]
    fn what_a_name_has_had_is_bounded() {
        let mut name = Name::new();
        for round in 0..100 {
            name.answers(&all(round * 100..round * 100 + 100));
        }
        assert!(name.presence.known.len() <= MOST_KNOWN);
        for counts in [&name.presence.answers, &name.presence.draws] {
            assert!(counts.had + counts.lacked <= WINDOW * MOST_KNOWN);
        }
    }
}
