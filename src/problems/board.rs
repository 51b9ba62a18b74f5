//! The present problems. The board has no clock: callers pass `now`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::kind::ProblemKind;
use super::sighting::{CountedSample, Sighting};

/// The board of the process.
#[derive(Debug, Default)]
pub(crate) struct ProblemBoard(Mutex<Board>);

#[derive(Debug, Default)]
struct Board {
    known: BTreeMap<ProblemId, Known>,
    /// The number of problems of each kind that had no room when they were last reported.
    left_out: BTreeMap<ProblemKind, usize>,
}

/// The kind and the group.
type ProblemId = (ProblemKind, String);

#[derive(Debug)]
struct Known {
    seen: Sighting,
    since: Instant,
    /// When it last began.
    began: Instant,
    /// How often it has begun, each time soon after it had ended.
    times: usize,
    /// When it ended, if it is over.
    ended: Option<Instant>,
}

/// A problem as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Problem {
    kind: &'static str,
    title: &'static str,
    subject: String,
    reason: String,
    servers: CountedSample,
    views: CountedSample,
    times: u64,
    clients: usize,
    names: CountedSample,
    since_seconds: f64,
    /// Whether it comes and goes again and again. It may be absent at this moment.
    flaps: bool,
    noticed: &'static str,
    next: Vec<String>,
    /// The section of the documentation that explains it.
    section: String,
}

/// The problems, worst first.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ProblemPage {
    pub(crate) problems: Vec<Problem>,
    /// How many problems there are, including those that are not shown.
    pub(crate) count: usize,
    /// The count of each kind that has any.
    pub(crate) kinds: BTreeMap<&'static str, usize>,
}

impl ProblemBoard {
    /// Records everything that is wrong now. Problems that are not in `seen` are over.
    pub(crate) fn note(&self, seen: Vec<Sighting>, now: Instant) {
        self.board().note(seen, now);
    }

    /// Returns how many problems there are of each kind.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (ProblemKind, usize)> {
        let counts = self.board().counts();
        ProblemKind::ALL.into_iter().map(move |kind| (kind, counts.get(&kind).copied().unwrap_or_default()))
    }

    /// Returns at most `limit` problems.
    pub(crate) fn page(&self, limit: usize, now: Instant) -> ProblemPage {
        self.board().page(limit, now)
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Board {
    fn note(&mut self, mut seen: Vec<Sighting>, now: Instant) {
        self.left_out.clear();
        if seen.len() > MOST {
            seen.sort_by_key(badness);
            for of in seen.drain(MOST..) {
                *self.left_out.entry(of.kind).or_default() += 1;
            }
        }
        let mut there = BTreeSet::new();
        for of in seen {
            let id = (of.kind, of.group.clone());
            there.insert(id.clone());
            match self.known.get_mut(&id) {
                Some(known) => known.see(of, now),
                None => drop(self.known.insert(id, Known { seen: of, since: now, began: now, times: 1, ended: None })),
            }
        }
        for (id, known) in &mut self.known {
            if !there.contains(id) {
                known.ended.get_or_insert(now);
            }
        }
        self.known.retain(|_, known| known.ended.is_none_or(|ended| now.saturating_duration_since(ended) < AGAIN));
    }

    fn shown(&self) -> impl Iterator<Item = &Known> {
        self.known.values().filter(|known| known.ended.is_none() || known.flaps())
    }

    fn counts(&self) -> BTreeMap<ProblemKind, usize> {
        let mut counts = self.left_out.clone();
        self.shown().for_each(|known| *counts.entry(known.seen.kind).or_default() += 1);
        counts
    }

    fn page(&self, limit: usize, now: Instant) -> ProblemPage {
        let counts = self.counts();
        let mut shown: Vec<_> = self.shown().collect();
        shown.sort_by_key(|known| (badness(&known.seen), known.since));
        ProblemPage {
            problems: shown.into_iter().take(limit).map(|known| known.problem(now)).collect(),
            count: counts.values().sum(),
            kinds: counts.into_iter().map(|(kind, count)| (kind.word(), count)).collect(),
        }
    }
}

impl Known {
    fn see(&mut self, seen: Sighting, now: Instant) {
        self.seen = seen;
        if self.ended.take().is_some() {
            (self.began, self.times) = (now, self.times + 1);
        } else if now.saturating_duration_since(self.began) >= AGAIN {
            (self.since, self.times) = (self.began, 1); // it has lasted, so earlier beginnings no longer count
        }
    }

    fn flaps(&self) -> bool {
        self.times >= FLAPS
    }

    fn problem(&self, now: Instant) -> Problem {
        let Sighting { kind, group: _, subject, reason, servers, views, times, clients, names, noticed, next } =
            self.seen.clone();
        let since_seconds = now.saturating_duration_since(self.since).as_secs_f64();
        let (flaps, section, title, kind) = (self.flaps(), kind.section(), kind.title(), kind.word());
        Problem {
            kind,
            title,
            subject,
            reason,
            servers,
            views,
            times,
            clients,
            names,
            since_seconds,
            flaps,
            noticed,
            next,
            section,
        }
    }
}

/// Returns the sorting key for the worst first: by kind, then by how many clients and views are concerned.
fn badness(of: &Sighting) -> (ProblemKind, Reverse<usize>, Reverse<usize>) {
    (of.kind, Reverse(of.clients), Reverse(of.views.count))
}

/// A problem that begins again within this time after its end is still the same problem.
const AGAIN: Duration = Duration::from_secs(10);
/// A problem that has begun this often flaps.
const FLAPS: usize = 3;
/// The maximum number of problems that are distinguished.
const MOST: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn away(server: &str, clients: usize) -> Sighting {
        Sighting { clients, ..Sighting::new(ProblemKind::ServerAway, server, "refused") }
    }

    fn subjects(board: &Board, now: Instant) -> Vec<String> {
        board.page(200, now).problems.into_iter().map(|problem| problem.subject).collect()
    }

    #[test]
    fn a_problem_is_there_from_when_it_is_seen_until_it_is_not_and_the_worst_is_first() {
        let (mut board, start) = (Board::default(), Instant::now());
        let nack = || Sighting { clients: 9, ..Sighting::new(ProblemKind::Nacks, "CDS", "no") };
        board.note(vec![nack(), away("a", 1), away("b", 2)], start);
        board.note(vec![nack(), away("a", 1), away("b", 2)], start + 3 * SECOND);
        assert_eq!(subjects(&board, start + 3 * SECOND), ["b", "a", "CDS"]);
        let page = board.page(1, start + 3 * SECOND);
        assert_eq!((page.problems.len(), page.count, page.problems[0].since_seconds), (1, 3, 3.0));
        assert_eq!(page.kinds, BTreeMap::from([("server_away", 2), ("nacks", 1)]));
        board.note(vec![away("a", 1)], start + 4 * SECOND);
        assert_eq!(subjects(&board, start + 4 * SECOND), ["a"], "the others are over at once");
        board.note(Vec::new(), start + 30 * SECOND);
        board.note(Vec::new(), start + 50 * SECOND);
        assert!(board.known.is_empty());
    }

    #[test]
    fn what_comes_and_goes_is_one_problem_and_is_over_when_it_stays_away() {
        let (mut board, start) = (Board::default(), Instant::now());
        let mut now = start;
        for round in 0..3 {
            board.note(vec![away("a", 1)], now);
            assert_eq!(board.page(9, now).problems[0].flaps, round == 2);
            now += 4 * SECOND;
            board.note(Vec::new(), now);
            assert_eq!(subjects(&board, now).len(), usize::from(round == 2), "only then it is known to come again");
            now += 4 * SECOND;
        }
        assert_eq!(board.page(9, now).problems[0].since_seconds, 24.0, "since the first time");
        board.note(Vec::new(), now + 5 * SECOND);
        assert_eq!(subjects(&board, now + 5 * SECOND), ["a"]);
        board.note(Vec::new(), now + 6 * SECOND);
        assert!(board.known.is_empty());
        board.note(vec![away("a", 1)], now + 7 * SECOND);
        assert!(!board.page(9, now + 7 * SECOND).problems[0].flaps, "another time");
    }

    #[test]
    fn what_stays_flaps_no_more_and_another_word_of_a_server_is_the_same_problem() {
        let (mut board, start) = (Board::default(), Instant::now());
        for round in 0..3 {
            board.note(vec![away("a", 1)], start + 2 * round * SECOND);
            board.note(Vec::new(), start + (2 * round + 1) * SECOND);
        }
        let stays = start + 6 * SECOND;
        board.note(vec![away("a", 1)], stays);
        assert!(board.page(9, stays).problems[0].flaps);
        board.note(vec![Sighting { reason: "timed out".into(), ..away("a", 1) }], stays + 10 * SECOND);
        let problem = &board.page(9, stays + 11 * SECOND).problems[0];
        assert_eq!((problem.flaps, problem.since_seconds, problem.reason.as_str()), (false, 11.0, "timed out"));
    }

    #[test]
    fn peers_that_invent_reasons_do_not_make_it_grow() {
        let (board, now) = (ProblemBoard::default(), Instant::now());
        for round in 0..20 {
            let seen = |number| Sighting::new(ProblemKind::Nacks, format!("{round} {number}"), "no");
            let mut all: Vec<_> = (0..3 * MOST).map(seen).collect();
            all.push(away("a", 0));
            board.note(all, now + round * SECOND);
        }
        let held = board.board();
        assert!(held.known.len() <= 11 * MOST, "{}", held.known.len());
        assert_eq!(held.known.values().filter(|known| known.ended.is_none()).count(), MOST);
        drop(held);
        let counts: Vec<_> = board.counts().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counts, [(ProblemKind::ServerAway, 1), (ProblemKind::Nacks, 3 * MOST)]);
    }
}
