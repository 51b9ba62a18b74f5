//! How far a server has come with its sets of one type on this opening: `*`, or collections.
//!
//! In delta nothing on the wire marks the end of a set (XLAT-12). Quiet decides when to request again, and never that
//! something is absent.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::protocol::set_mark::SetMark;
use crate::protocol::view::Completeness;
use crate::xds::Name;

#[derive(Debug, Default)]
pub(super) struct SetProgress {
    /// When the server last said something for the first time, be it with its first word.
    news: Option<Moment>,
    /// When it last said something for the first time that somebody may hold.
    growth: Option<Moment>,
    /// When its first word came.
    first: Option<Moment>,
    /// The most bytes of a response that brought something for the first time.
    largest: usize,
    /// It was said that the sets were quiet for a moment since then; and that they were at all.
    settled: bool,
    calmed: bool,
    /// An answer to an earlier question for the same may come on this opening.
    asked_before: bool,
    /// Something was sent that was stated under its own version: the server does not go by what it is told.
    pub(crate) repeats: bool,
    /// What was stated and the server says again all the same: it is still going through that.
    pub(crate) to_be_repeated: BTreeSet<Name>,
    /// It has begun with that on this opening.
    pub(crate) repeats_begun: bool,
    /// It came in pieces.
    in_pieces: bool,
    /// What was said is all there is, and so is what was not said since gone.
    pub(crate) complete: bool,
    /// What is gone by that was told.
    pub(crate) concluded: bool,
    /// What a server that is a relay has said last of the end of `*`.
    mark: Option<SetMark>,
}

impl SetProgress {
    /// What is requested once more on one opening is not known to be answered by the next response.
    pub(crate) fn again(asked_before: bool) -> Self {
        Self { asked_before, ..Self::default() }
    }

    /// Whether the next response is the answer to the first request of the type.
    pub(crate) fn is_to_begin(&self) -> bool {
        self.news.is_none() && !self.asked_before
    }

    pub(crate) fn has_response(&self) -> bool {
        self.news.is_some()
    }

    pub(crate) fn news(&self) -> Option<Moment> {
        self.news
    }

    pub(crate) fn growth(&self) -> Option<Moment> {
        self.growth
    }

    /// When a server that says nothing more may be at its end. One that comes up with something new all the time, be it with a
    /// pause now and then, is not waited for without end.
    pub(crate) fn quiet_at(&self, limits: &Limits) -> Option<Moment> {
        let quiet = self.news? + limits.settle_stated;
        let longest = self.first.filter(|_| self.calmed).map(|first| first + COMES_IN);
        Some(longest.map_or(quiet, |longest| quiet.min(longest)))
    }

    /// A response has come; `bytes` of it were said for the first time, and some of that is held. Whether it shows that this server
    /// sends pieces.
    pub(crate) fn on_response(&mut self, new: bool, held: bool, bytes: usize, now: Moment) -> bool {
        self.growth = if held { Some(now) } else { self.growth };
        self.first.get_or_insert(now);
        if self.news.is_some() && !new {
            return false;
        }
        let is_piece = self.news.is_some() && !self.calmed && bytes > 0 && 2 * bytes >= self.largest;
        self.in_pieces |= is_piece;
        (self.news, self.settled) = (Some(now), false);
        self.largest = self.largest.max(bytes);
        is_piece
    }

    /// Whether the first response was all that came, for a while.
    pub(crate) fn was_at_once(&self) -> bool {
        self.calmed && !self.in_pieces
    }

    /// Another set has begun.
    pub(crate) fn unsettle(&mut self) {
        self.settled = false;
    }

    /// When a set that comes in pieces is given to clients that hold nothing.
    pub(crate) fn settles_at(&self, limits: &Limits) -> Option<Moment> {
        self.news.filter(|_| !self.settled).map(|news| news + limits.settle_fresh)
    }

    /// Whether it was quiet for a moment, for the first time.
    pub(crate) fn settle(&mut self, now: Moment, limits: &Limits) -> bool {
        let settled = self.settles_at(limits).is_some_and(|at| at <= now);
        self.settled |= settled;
        self.calmed |= settled;
        settled
    }

    /// Takes in what a relay says of the end of `*`: whether all that was known by it is open again. A word that may be about an
    /// earlier `*` counts for nothing.
    pub(crate) fn take_mark(&mut self, mark: Option<SetMark>) -> bool {
        if self.asked_before || mark.is_none() {
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

    /// The server itself does not know all there is, and will say when it does: no silence means anything.
    pub(crate) fn is_marked_partial(&self) -> bool {
        self.mark == Some(SetMark::Partial)
    }

    /// How much is known by a response that is not known to be the last.
    pub(crate) fn completeness(&self, in_pieces: bool) -> Completeness {
        if in_pieces { Completeness::Arriving } else { Completeness::FirstResponse }
    }
}

/// For so long after the first word it is taken to come in.
pub(super) const COMES_IN: Duration = Duration::from_secs(30);
