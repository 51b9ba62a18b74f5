//! How far a server has come with its sets of one type on this opening, `*` or collections; and whether it was seen to send
//! them in pieces.
//!
//! In delta nothing on the wire marks the end of a set (XLAT-12). Quiet decides when to request again; it never makes anything
//! absent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::protocol::set_mark::SetMark;
use crate::protocol::view::Completeness;
use crate::xds::{Name, Type};

#[derive(Debug, Default)]
pub(super) struct SetProgress {
    /// When the last response with new content came. The first response always counts.
    news: Option<Moment>,
    /// When a response last confirmed a name that a client may hold.
    growth: Option<Moment>,
    /// When the first response came.
    first: Option<Moment>,
    /// The most bytes of new content in one response.
    largest: usize,
    /// The sets were quiet for a moment since `news` (`settled`), and at least once on this opening (`calmed`).
    settled: bool,
    calmed: bool,
    /// The type was requested earlier on this opening, so that a response may belong to that request.
    requested_before: bool,
    /// The server sent a resource under the version that the request had stated: it ignores stated versions.
    pub(crate) repeats: bool,
    /// Names that this opening stated under a version of the server, and that it has not sent. Forgotten once its first answer has come.
    pub(crate) stated: BTreeSet<Name>,
    /// Stated names that such a server has not sent again yet.
    pub(crate) to_be_repeated: BTreeSet<Name>,
    /// It has begun to send stated names again on this opening.
    pub(crate) repeats_begun: bool,
    /// A set came in pieces.
    in_pieces: bool,
    /// The set is complete: what the server has not sent does not exist.
    pub(crate) complete: bool,
    /// The absences that follow from `complete` were reported.
    pub(crate) concluded: bool,
    /// The last completeness mark of `*` from a server that is a relay itself.
    mark: Option<SetMark>,
}

/// What a response has that the server had not sent before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NewContent {
    pub(crate) names: usize,
    pub(crate) bytes: usize,
}

impl SetProgress {
    /// Starts over. With `requested_before`, the type was requested earlier on this opening, so that the next response may not belong
    /// to the new request.
    pub(crate) fn again(requested_before: bool) -> Self {
        Self { requested_before, ..Self::default() }
    }

    /// Whether the next response answers the first request of the type.
    pub(crate) fn is_to_begin(&self) -> bool {
        self.news.is_none() && !self.requested_before
    }

    pub(crate) fn has_response(&self) -> bool {
        self.news.is_some()
    }

    pub(crate) fn news(&self) -> Option<Moment> {
        self.news
    }

    /// When the first response of this opening came.
    pub(crate) fn first(&self) -> Option<Moment> {
        self.first
    }

    pub(crate) fn growth(&self) -> Option<Moment> {
        self.growth
    }

    /// When a server that sends nothing more may have sent everything. After a first pause this is at most `COMES_IN` after the
    /// first response, so that a server that always has something new is not waited for without end.
    pub(crate) fn quiet_at(&self, limits: &Limits) -> Option<Moment> {
        let quiet = self.news? + limits.settle_stated;
        let longest = self.first.filter(|_| self.calmed).map(|first| first + COMES_IN);
        Some(longest.map_or(quiet, |longest| quiet.min(longest)))
    }

    /// Records a response: whether it has new content, whether it confirms a name that a client may hold, and what is new in it.
    /// Returns whether it shows that this server sends pieces: several names at once, soon after a response of no more than twice that
    /// size. A single name may be a change, and so may what follows a response without content.
    pub(crate) fn on_response(&mut self, new: bool, held: bool, content: NewContent, now: Moment) -> bool {
        let NewContent { names, bytes } = content;
        self.growth = if held { Some(now) } else { self.growth };
        self.first.get_or_insert(now);
        if self.news.is_some() && !new {
            return false;
        }
        let soon = self.news.is_some() && !self.calmed && 2 * bytes >= self.largest;
        let is_piece = soon && names > 1 && self.largest > 0;
        self.in_pieces |= is_piece;
        (self.news, self.settled) = (Some(now), false);
        self.largest = self.largest.max(bytes);
        is_piece
    }

    /// Whether the sets were quiet at some time and did not come in pieces.
    pub(crate) fn was_at_once(&self) -> bool {
        self.calmed && !self.in_pieces
    }

    /// Another set has begun.
    pub(crate) fn unsettle(&mut self) {
        self.settled = false;
    }

    /// When a set that comes in pieces is served to clients without state.
    pub(crate) fn settles_at(&self, limits: &Limits) -> Option<Moment> {
        self.news.filter(|_| !self.settled).map(|news| news + limits.settle_fresh)
    }

    /// Settles the sets if they have been quiet for a moment. Returns whether that is new.
    pub(crate) fn settle(&mut self, now: Moment, limits: &Limits) -> bool {
        let settled = self.settles_at(limits).is_some_and(|at| at <= now);
        self.settled |= settled;
        self.calmed |= settled;
        settled
    }

    /// Applies a relay's completeness mark of `*`. Returns whether a complete set is partial again. A mark that may belong to an
    /// earlier `*` is ignored.
    pub(crate) fn take_mark(&mut self, mark: Option<SetMark>) -> bool {
        if self.requested_before || mark.is_none() {
            return false;
        }
        self.mark = mark;
        let opens = self.is_marked_partial() && self.complete;
        if opens {
            (self.complete, self.concluded) = (false, false);
        }
        opens
    }

    pub(crate) fn is_marked_complete(&self) -> bool {
        self.mark == Some(SetMark::Complete)
    }

    /// Whether the server does not have the complete set itself. It reports when it does, so its silence means nothing.
    pub(crate) fn is_marked_partial(&self) -> bool {
        self.mark == Some(SetMark::Partial)
    }

    /// How much is known after a response that is not known to be the last.
    pub(crate) fn completeness(&self, in_pieces: bool) -> Completeness {
        if in_pieces { Completeness::Arriving } else { Completeness::FirstResponse }
    }
}

/// How long after its first response a set counts as coming in.
pub(super) const COMES_IN: Duration = Duration::from_secs(30);

/// What one opening has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// A set came in pieces.
    Piece,
    /// An opening has ended, and the first response was the complete set.
    AtOnce,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DeliveryHabit {
    pub(crate) cuts: bool,
    /// Openings in a row on which everything came in the first response.
    at_once: u8,
}

/// What all views have seen of one server. Servers and clients can make up any number of types, so the number kept is bounded.
#[derive(Debug, Default)]
pub(crate) struct DeliveryHabits {
    of: BTreeMap<Type, DeliveryHabit>,
    cut: Arc<BTreeSet<Type>>,
}

impl DeliveryHabit {
    pub(crate) fn note(&mut self, seen: Delivery) {
        match seen {
            Delivery::Piece => *self = Self { cuts: true, at_once: 0 },
            Delivery::AtOnce => {
                self.at_once = self.at_once.saturating_add(1);
                self.cuts &= self.at_once < FORGOTTEN_AFTER;
            }
        }
    }
}

impl DeliveryHabits {
    pub(crate) fn note(&mut self, kind: &Type, seen: Delivery) {
        let known = self.of.contains_key(kind);
        if !known && (seen == Delivery::AtOnce || self.of.len() >= MOST) {
            return;
        }
        self.of.entry(kind.clone()).or_default().note(seen);
        self.of.retain(|_, habit| habit.cuts);
        if self.of.len() != self.cut.len() || !self.of.keys().eq(self.cut.iter()) {
            self.cut = Arc::new(self.of.keys().cloned().collect());
        }
    }

    /// The types of which it sends sets in pieces.
    pub(crate) fn types_in_pieces(&self) -> &Arc<BTreeSet<Type>> {
        &self.cut
    }
}

const FORGOTTEN_AFTER: u8 = 3;
/// Types of one server.
const MOST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::TypeTable;

    fn at(seconds: u64) -> Moment {
        Moment::START + Duration::from_secs(seconds)
    }

    fn content(names: usize, bytes: usize) -> NewContent {
        NewContent { names, bytes }
    }

    #[test]
    fn a_set_settles_some_time_after_its_last_new_content_and_what_it_confirms_is_noted_each_time() {
        let (mut progress, limits) = (SetProgress::default(), Limits::default());
        let mut last = at(0);
        for second in [10, 11, 12] {
            last = at(second);
            progress.on_response(true, second != 12, content(1, 100), last);
            assert_eq!(progress.settles_at(&limits), Some(last + limits.settle_fresh));
        }
        assert_eq!(progress.growth(), Some(at(11)));
        progress.on_response(false, true, content(0, 0), at(13));
        assert_eq!(progress.growth(), Some(at(13)));
        assert_eq!(progress.settles_at(&limits), Some(last + limits.settle_fresh), "nothing new");
        assert!(progress.settle(at(13), &limits) && !progress.settle(at(14), &limits), "once");
        progress.on_response(true, false, content(1, 1), at(15));
        assert!(!progress.settle(at(15), &limits) && progress.settle(at(16), &limits), "and again after new content");
    }

    #[test]
    fn xlat_12_a_piece_is_of_several_names_and_follows_content_of_about_its_size() {
        for (first, next, is_piece) in [
            (content(2, 20), content(2, 10), true),
            (content(2, 20), content(2, 9), false),
            (content(2, 20), content(1, 20), false),
            (content(1, 10), content(2, 20), true),
            (content(0, 0), content(2, 20), false),
        ] {
            let mut progress = SetProgress::default();
            assert!(!progress.on_response(true, false, first, at(10)));
            assert_eq!(progress.on_response(true, false, next, at(10)), is_piece, "{first:?}, {next:?}");
        }
    }

    #[test]
    fn what_one_has_seen_all_know_until_the_server_has_sent_it_at_once_a_few_times() {
        let clusters = TypeTable::new().resolve("type.googleapis.com/envoy.config.cluster.v3.Cluster");
        let mut habits = DeliveryHabits::default();
        habits.note(&clusters, Delivery::AtOnce);
        assert!(habits.types_in_pieces().is_empty() && habits.of.is_empty(), "nothing is kept of the usual");
        habits.note(&clusters, Delivery::Piece);
        for _ in 1..FORGOTTEN_AFTER {
            habits.note(&clusters, Delivery::AtOnce);
            assert!(habits.types_in_pieces().contains(&clusters));
        }
        habits.note(&clusters, Delivery::Piece);
        habits.note(&clusters, Delivery::AtOnce);
        habits.note(&clusters, Delivery::AtOnce);
        assert!(habits.types_in_pieces().contains(&clusters), "in a row");
        habits.note(&clusters, Delivery::AtOnce);
        assert!(habits.types_in_pieces().is_empty() && habits.of.is_empty());
    }
}
