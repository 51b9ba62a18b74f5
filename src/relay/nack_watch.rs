//! Which versions of a view clients NACK, counted when a NACK begins and ends, and when that is worth a log line.
//!
//! NACKs are rare, so the sessions of a view share one lock for them; an ACK takes it only if it ends a NACK.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_core::protocol::session::{NackChange, Nacked};
use weir_core::xds::{Type, VersionText};

#[derive(Debug, Default)]
pub(crate) struct NackWatch(Mutex<BTreeMap<Type, TypeWatch>>);

#[derive(Debug, Default)]
struct TypeWatch {
    /// Streams that NACK a version, by version.
    streams: BTreeMap<VersionText, usize>,
    reasons: Reasons,
    /// When the first version was NACKed that the last line did not include.
    new_since: Option<Instant>,
    /// The last line, until a line says that no stream NACKs any more.
    last: Option<Line>,
    /// When the latest few lines about new versions were written.
    written: Vec<Instant>,
}

/// How many streams give each reason. The first few reasons are counted by text, since clients can invent them; all others together.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Reasons {
    pub(crate) named: BTreeMap<Arc<str>, usize>,
    pub(crate) others: usize,
}

/// A line about a type: when it was due, and how many streams NACKed then.
#[derive(Debug, Clone, Copy)]
struct Line {
    at: Instant,
    streams: usize,
}

/// The kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NackNews {
    /// A version is NACKed that was not before.
    Began,
    /// More or fewer streams NACK than the last line had.
    Changed,
    /// No stream NACKs any more.
    Over,
}

impl NackWatch {
    pub(super) fn apply(&self, changes: Vec<NackChange>, now: Instant) {
        let mut types = self.lock();
        for NackChange { kind, ended, began } in changes {
            let watch = types.entry(kind).or_default();
            began.iter().for_each(|nacked| watch.begin(nacked, now));
            ended.iter().for_each(|nacked| watch.end(nacked));
        }
    }

    /// Returns why streams NACK, by type.
    pub(super) fn reasons(&self) -> Vec<(Type, Reasons)> {
        let types = self.lock();
        let standing = types.iter().filter(|(_, watch)| !watch.streams.is_empty());
        standing.map(|(kind, watch)| (kind.clone(), watch.reasons.clone())).collect()
    }

    /// Returns how many streams NACK, by type.
    pub(super) fn streams(&self) -> Vec<(Type, usize)> {
        self.lock().iter().map(|(kind, watch)| (kind.clone(), watch.total())).collect()
    }

    /// Returns the types that are worth a line now, at most `most`. Each counts as written.
    pub(super) fn take_news(&self, now: Instant, most: usize) -> Vec<(Type, NackNews)> {
        let mut types = self.lock();
        let due = types.iter_mut().filter_map(|(kind, watch)| Some((kind, watch.news(now)?, watch)));
        let news = due.take(most).map(|(kind, news, watch)| {
            watch.written(news, now);
            (kind.clone(), news)
        });
        let news = news.collect();
        types.retain(|_, watch| !watch.is_over(now));
        news
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Type, TypeWatch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TypeWatch {
    fn begin(&mut self, nacked: &Nacked, now: Instant) {
        self.reasons.begin(&nacked.reason);
        let streams = self.streams.entry(nacked.version.text()).or_default();
        if *streams == 0 {
            self.new_since.get_or_insert(now);
        }
        *streams += 1;
    }

    fn end(&mut self, nacked: &Nacked) {
        self.reasons.end(&nacked.reason);
        let version = nacked.version.text();
        if let Some(streams) = self.streams.get_mut(&version) {
            *streams -= 1;
            if *streams == 0 {
                self.streams.remove(&version);
            }
        }
        self.new_since = self.new_since.filter(|_| !self.streams.is_empty());
    }

    fn total(&self) -> usize {
        self.streams.values().sum()
    }

    fn is_over(&self, now: Instant) -> bool {
        self.streams.is_empty() && self.last.is_none() && self.new_lines(now) == 0
    }

    fn new_lines(&self, now: Instant) -> usize {
        self.written.iter().filter(|at| now.saturating_duration_since(**at) < MINUTE).count()
    }

    /// Whether a new version has been NACKed for so long that the line counts most clients of a push.
    fn has_new(&self, now: Instant) -> bool {
        let settled = self.new_since.is_some_and(|since| now.saturating_duration_since(since) >= SETTLE);
        settled && !self.streams.is_empty()
    }

    fn news(&self, now: Instant) -> Option<NackNews> {
        match self.last {
            _ if self.has_new(now) && self.new_lines(now) < NEW_PER_MINUTE => Some(NackNews::Began),
            Some(_) if self.streams.is_empty() => Some(NackNews::Over),
            Some(line) => {
                let is_due = now.saturating_duration_since(line.at) >= MINUTE && line.streams != self.total();
                is_due.then_some(NackNews::Changed)
            }
            None => None,
        }
    }

    fn written(&mut self, news: NackNews, now: Instant) {
        if news == NackNews::Began {
            self.written.retain(|at| now.saturating_duration_since(*at) < MINUTE);
            self.written.push(now);
        }
        self.new_since = None;
        self.last = (news != NackNews::Over).then(|| Line { at: now, streams: self.total() });
    }
}

impl Reasons {
    fn begin(&mut self, reason: &Arc<str>) {
        if let Some(streams) = self.named.get_mut(reason) {
            *streams += 1;
        } else if self.named.len() < MOST_REASONS {
            self.named.insert(reason.clone(), 1);
        } else {
            self.others += 1;
        }
    }

    /// Counts one stream less for a reason. The stream may have been counted among the others, and its reason by text since. Then the split between
    /// the two is off by one, and the sum is right.
    fn end(&mut self, reason: &Arc<str>) {
        match self.named.get_mut(reason) {
            Some(streams) if *streams > 1 => *streams -= 1,
            Some(_) => drop(self.named.remove(reason)),
            None => self.others = self.others.saturating_sub(1),
        }
    }
}

const MINUTE: Duration = Duration::from_secs(60);
/// How long after the first NACK of a version its line is written.
const SETTLE: Duration = Duration::from_secs(2);
/// Lines in a minute about new NACKed versions, for each view and type.
const NEW_PER_MINUTE: usize = 5;
/// How many reasons are counted separately, for each view and type.
const MOST_REASONS: usize = 16;

#[cfg(test)]
mod tests {
    use weir_core::xds::{ContentHash, SetVersion, TypeTable};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn version(number: u64) -> SetVersion {
        SetVersion::of("a", ContentHash::of_body("t", &number.to_le_bytes()))
    }

    fn change(ended: Option<u64>, began: Option<u64>) -> Vec<NackChange> {
        let kind = TypeTable::new().resolve("envoy.config.cluster.v3.Cluster");
        let nacked = |number| Nacked { version: version(number), reason: format!("no {}", number % 20).into() };
        vec![NackChange { kind, ended: ended.map(nacked), began: began.map(nacked) }]
    }

    fn news(watch: &NackWatch, now: Instant) -> Option<NackNews> {
        watch.take_news(now, 10).first().map(|(_, news)| *news)
    }

    #[test]
    fn a_version_is_news_once_and_then_its_count_each_minute_and_its_end() {
        let (watch, start) = (NackWatch::default(), Instant::now());
        assert_eq!(news(&watch, start), None);
        watch.apply(change(None, Some(1)), start);
        assert_eq!(news(&watch, start + SECOND), None, "others may follow");
        (0..16).for_each(|_| watch.apply(change(None, Some(1)), start + SECOND));
        assert_eq!(watch.streams()[0].1, 17);
        let began = start + 2 * SECOND;
        assert_eq!(news(&watch, began), Some(NackNews::Began));
        watch.apply(change(None, Some(1)), began);
        assert_eq!(news(&watch, began + 59 * SECOND), None, "once a minute");
        assert_eq!(news(&watch, began + 60 * SECOND), Some(NackNews::Changed));
        assert_eq!(news(&watch, began + 200 * SECOND), None, "nothing changed");
        watch.apply(change(Some(1), Some(2)), began + 200 * SECOND);
        assert_eq!(news(&watch, began + 202 * SECOND), Some(NackNews::Began), "another version");
        watch.apply(change(Some(2), None), began);
        (0..17).for_each(|_| watch.apply(change(Some(1), None), began));
        assert_eq!(news(&watch, began + 203 * SECOND), Some(NackNews::Over));
        assert_eq!(news(&watch, began + 300 * SECOND), None);
        assert!(watch.lock().is_empty(), "nothing is kept");
    }

    #[test]
    fn the_first_reasons_are_told_apart_and_the_sum_is_right() {
        let (watch, now) = (NackWatch::default(), Instant::now());
        let sum = |watch: &NackWatch| {
            let of = watch.reasons();
            let (named, others) = of.first().map_or((0, 0), |(_, of)| (of.named.values().sum::<usize>(), of.others));
            (of.first().map_or(0, |(_, of)| of.named.len()), named + others)
        };
        (0..20).chain(0..20).for_each(|number| watch.apply(change(None, Some(number)), now));
        assert_eq!(sum(&watch), (MOST_REASONS, 40));
        (0..20).for_each(|number| watch.apply(change(Some(number), None), now));
        assert_eq!(sum(&watch), (MOST_REASONS, 20));
        (0..19).for_each(|number| watch.apply(change(Some(number), None), now));
        assert_eq!(sum(&watch), (0, 1), "it has no place of its own");
        watch.apply(change(Some(19), None), now);
        assert!(watch.reasons().is_empty());
    }

    #[test]
    fn what_ended_before_a_line_was_due_has_none() {
        let (watch, start) = (NackWatch::default(), Instant::now());
        watch.apply(change(None, Some(1)), start);
        watch.apply(change(Some(1), None), start);
        assert_eq!(news(&watch, start + 2 * SECOND), None);
        assert!(watch.lock().is_empty());
    }

    #[test]
    fn the_time_until_a_line_begins_with_the_nacks_that_it_is_about() {
        let (watch, start) = (NackWatch::default(), Instant::now());
        watch.apply(change(None, Some(1)), start);
        watch.apply(change(Some(1), None), start + SECOND);
        watch.apply(change(None, Some(2)), start + SECOND);
        assert_eq!(news(&watch, start + 2 * SECOND), None);
        assert_eq!(news(&watch, start + 3 * SECOND), Some(NackNews::Began));
    }

    #[test]
    fn a_client_that_nacks_and_acks_in_turn_has_a_few_lines_a_minute() {
        let (watch, start) = (NackWatch::default(), Instant::now());
        let mut lines = 0;
        for round in 0..200 {
            let (version, now) = (u64::from(round), start + 3 * round * SECOND);
            watch.apply(change(None, Some(version)), now);
            lines += usize::from(news(&watch, now + 2 * SECOND).is_some());
            watch.apply(change(Some(version), None), now + 2 * SECOND);
            lines += usize::from(news(&watch, now + 2 * SECOND).is_some());
        }
        assert!((50..=110).contains(&lines), "{lines} lines in ten minutes");
    }

    #[test]
    fn types_that_have_no_room_have_their_line_the_next_time() {
        let (watch, start) = (NackWatch::default(), Instant::now());
        watch.apply(change(None, Some(1)), start);
        assert!(watch.take_news(start + 2 * SECOND, 0).is_empty());
        assert_eq!(news(&watch, start + 2 * SECOND), Some(NackNews::Began));
    }
}
