//! How far a server has come with its sets of one type on this opening, be it `*` or collections; and whether it was seen to send them in
//! pieces.
//!
//! In delta nothing on the wire marks the end of a set (XLAT-12). Quiet decides when to request again; it never makes anything absent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::quirks::{InitialSet, ServerQuirks};
use crate::protocol::moment::Moment;
use crate::protocol::set_mark::SetMark;
use crate::protocol::upstream::options::UpstreamOptions;
use crate::protocol::view::{Class, Completeness, Selector};
use crate::xds::{Name, Type};

#[derive(Debug, Default)]
pub(super) struct SetProgress {
    /// When the last response came.
    heard: Option<Moment>,
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
    /// The server sent a resource under the version that the request had stated: it ignores stated versions.
    repeats: bool,
    /// Names that this opening stated under a version of the server, and that the server has not sent since. Forgotten once the server is quiet
    /// after its first answer.
    stated: BTreeSet<Name>,
    /// If the server ignores stated versions: the stated names that it has not sent again yet.
    to_be_repeated: BTreeSet<Name>,
    /// The server has begun to send stated names again on this opening.
    repeats_begun: bool,
    /// A set came in pieces.
    in_pieces: bool,
    /// The set is complete: what the server has not sent does not exist.
    complete: bool,
    /// The absences that follow from `complete` were reported.
    concluded: bool,
    /// The last completeness mark of `*`, if the server is a relay.
    mark: Option<SetMark>,
}

/// How much of a response the server had not sent before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NewContent {
    pub(crate) names: usize,
    pub(crate) bytes: usize,
}

impl SetProgress {
    /// Whether the next response answers the first request of the type.
    pub(crate) fn is_to_begin(&self) -> bool {
        self.news.is_none()
    }

    pub(crate) fn has_response(&self) -> bool {
        self.news.is_some()
    }

    /// Returns when the last response for the type came on this opening.
    pub(crate) fn heard(&self) -> Option<Moment> {
        self.heard
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

    /// Returns when a server that sends nothing more may have sent everything. After a first pause this is at most `COMES_IN` after the first
    /// response, so that a server that always has something new is not waited for without end.
    fn quiet_at(&self, options: &UpstreamOptions) -> Option<Moment> {
        let quiet = self.news? + options.settle_stated;
        let longest = self.first.filter(|_| self.calmed).map(|first| first + COMES_IN);
        Some(longest.map_or(quiet, |longest| quiet.min(longest)))
    }

    /// Records a response: whether it has new content, whether it confirms a name that a client may hold, and what is new in it. Returns whether
    /// it shows that this server sends pieces: several new names, soon after a response of no more than twice its size. A single name may be a
    /// change, and so may whatever follows a response without content.
    pub(crate) fn on_response(&mut self, new: bool, held: bool, content: NewContent, now: Moment) -> bool {
        let NewContent { names, bytes } = content;
        self.heard = Some(now);
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

    /// Whether the sets have been quiet at some time, and did not come in pieces.
    pub(crate) fn was_at_once(&self) -> bool {
        self.calmed && !self.in_pieces
    }

    /// Records that another set has begun.
    pub(crate) fn unsettle(&mut self) {
        self.settled = false;
    }

    /// Returns when a set that comes in pieces is served to clients without state.
    pub(crate) fn settles_at(&self, options: &UpstreamOptions) -> Option<Moment> {
        self.news.filter(|_| !self.settled).map(|news| news + options.settle_fresh)
    }

    /// Settles the sets if they have been quiet for a moment. Returns whether this has settled them.
    pub(crate) fn settle(&mut self, now: Moment, options: &UpstreamOptions) -> bool {
        let settled = self.settles_at(options).is_some_and(|at| at <= now);
        self.settled |= settled;
        self.calmed |= settled;
        settled
    }

    /// Applies a relay's completeness mark of `*`. Returns whether a complete set is partial again.
    pub(crate) fn take_mark(&mut self, mark: Option<SetMark>) -> bool {
        if mark.is_none() {
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

    /// Whether the server reports that it does not have the complete set. It reports when it does, so its silence means nothing.
    pub(crate) fn is_marked_partial(&self) -> bool {
        self.mark == Some(SetMark::Partial)
    }

    /// Whether the server ignores stated versions.
    pub(crate) fn repeats(&self) -> bool {
        self.repeats
    }

    pub(crate) fn record_repetition(&mut self) {
        self.repeats = true;
    }

    /// Records the names that the first request of this opening states under versions of the server.
    pub(crate) fn on_stated(&mut self, names: BTreeSet<Name>) {
        self.stated = names;
    }

    /// Whether a name was stated and has not come, while the first answer is not over.
    pub(crate) fn is_stated(&self, name: &Name) -> bool {
        self.stated.contains(name)
    }

    /// Records that the server has answered what it was first asked.
    pub(crate) fn forget_stated(&mut self) {
        self.stated.clear();
    }

    /// Records that the server begins to send again what it gave before; or, if it `repeats`, what was stated.
    pub(crate) fn begin_repetition(&mut self, repeats: bool, given: impl FnOnce() -> BTreeSet<Name>) {
        if !std::mem::replace(&mut self.repeats_begun, true) {
            let is_as_stated = repeats && !self.stated.is_empty();
            self.to_be_repeated = if is_as_stated { self.stated.clone() } else { given() };
        }
    }

    /// Returns the names that a server which ignores stated versions has not sent again.
    pub(crate) fn to_be_repeated(&self) -> &BTreeSet<Name> {
        &self.to_be_repeated
    }

    /// Returns the stated names that were not sent again, and expects none of them any more.
    pub(crate) fn take_unrepeated(&mut self) -> BTreeSet<Name> {
        std::mem::take(&mut self.to_be_repeated)
    }

    pub(crate) fn on_sent(&mut self, name: &Name) {
        self.to_be_repeated.remove(name);
        self.stated.remove(name);
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(crate) fn complete(&mut self) {
        self.complete = true;
    }

    /// Whether the set is complete, and the absences that follow were not reported.
    pub(crate) fn is_to_conclude(&self) -> bool {
        self.complete && !self.concluded
    }

    pub(crate) fn conclude(&mut self) {
        self.concluded = true;
    }

    /// Returns when a silent server has had enough time to send what it has, if the first request was `written` at that time.
    pub(crate) fn first_silence_ends_at(
        &self,
        class: Class,
        written: Option<Moment>,
        not_before: Moment,
        options: &UpstreamOptions,
    ) -> Option<Moment> {
        let requested = written? + options.resource_timer;
        let quiet = self.quiet_at(options).map(|quiet| quiet.max(not_before));
        Some(match (class, quiet) {
            (Class::Wildcard, Some(quiet)) => quiet,
            (_, quiet) => quiet.map_or(requested, |quiet| quiet.max(requested)),
        })
    }

    /// Returns when a server that sends nothing more, for any type, has been quiet for a moment: since the last news, or since the request was
    /// `written` that states versions.
    pub(crate) fn quiet_of_all_at(
        &self,
        written: Option<Moment>,
        not_before: Moment,
        options: &UpstreamOptions,
    ) -> Option<Moment> {
        let since = self.news.or(written);
        since.map(|since| (since + options.settle_fresh).max(not_before))
    }
}

/// For how long after its first response a set counts as coming in.
pub(super) const COMES_IN: Duration = Duration::from_secs(30);

/// What one opening has shown about how sets are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// A set came in pieces.
    Piece,
    /// An opening has ended, and its first response was the complete set.
    AtOnce,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct DeliveryHabit {
    cuts: bool,
    /// How many openings in a row had everything in the first response.
    at_once: u8,
}

/// What one subscription has seen of how the server delivers its sets, and what the other views of the server have.
#[derive(Debug, Default)]
pub(super) struct DeliveryRecord {
    habit: DeliveryHabit,
    /// What `habit` was learned from, for the other views of this server.
    unshared: Vec<Delivery>,
    /// Another view has seen the server send this type in pieces.
    in_pieces_for_others: bool,
}

impl DeliveryRecord {
    pub(crate) fn note(&mut self, seen: Delivery) {
        self.habit.note(seen);
        if self.unshared.last() != Some(&seen) {
            self.unshared.push(seen); // until it is taken, a repetition adds nothing
        }
        self.unshared.drain(..self.unshared.len().saturating_sub(2));
    }

    /// Returns what was seen since the last call.
    pub(crate) fn take_unshared(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.unshared)
    }

    pub(crate) fn set_in_pieces_for_others(&mut self, in_pieces: bool) {
        self.in_pieces_for_others = in_pieces;
    }

    /// Returns how much of a set is known after a response. `ends` is set if the response is the last one of the set.
    pub(crate) fn completeness(&self, quirks: &ServerQuirks, of: &Selector, ends: bool) -> Completeness {
        let wildcard = *of == Selector::Wildcard;
        match quirks.initial_set {
            _ if ends && wildcard => Completeness::Complete,
            _ if quirks.is_hub() && !wildcard => Completeness::Arriving,
            InitialSet::Pieces => Completeness::Arriving,
            InitialSet::OneResponse if wildcard => Completeness::Arriving, // a set that is not at its end has something that could not be read
            InitialSet::Auto | InitialSet::OneResponse if self.is_in_pieces() => Completeness::Arriving,
            InitialSet::Auto | InitialSet::OneResponse => Completeness::FirstResponse,
        }
    }

    /// Whether asking this server for the end of its set may show the end: it is not known to send sets in pieces.
    pub(crate) fn may_show_end(&self, quirks: &ServerQuirks) -> bool {
        quirks.may_answer_for_end() && !self.is_in_pieces()
    }

    fn is_in_pieces(&self) -> bool {
        self.habit.cuts || self.in_pieces_for_others
    }
}

/// What all views have seen of one server. Servers and clients can make up any number of types, so the number of types kept is bounded.
#[derive(Debug, Default)]
pub struct DeliveryHabits {
    of: BTreeMap<Type, DeliveryHabit>,
    cut: Arc<BTreeSet<Type>>,
}

impl DeliveryHabit {
    fn note(&mut self, seen: Delivery) {
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
    /// Records how a set of a type was delivered.
    pub fn note(&mut self, kind: &Type, seen: Delivery) {
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

    /// Returns the types of which the server sends sets in pieces.
    pub fn types_in_pieces(&self) -> &Arc<BTreeSet<Type>> {
        &self.cut
    }
}

const FORGOTTEN_AFTER: u8 = 3;
/// The most types that are kept of one server.
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
        let (mut progress, options) = (SetProgress::default(), UpstreamOptions::default());
        let mut last = at(0);
        for second in [10, 11, 12] {
            last = at(second);
            progress.on_response(true, second != 12, content(1, 100), last);
            assert_eq!(progress.settles_at(&options), Some(last + options.settle_fresh));
        }
        assert_eq!(progress.growth(), Some(at(11)));
        progress.on_response(false, true, content(0, 0), at(13));
        assert_eq!(progress.growth(), Some(at(13)));
        assert_eq!(progress.settles_at(&options), Some(last + options.settle_fresh), "nothing new");
        assert!(progress.settle(at(13), &options) && !progress.settle(at(14), &options), "once");
        progress.on_response(true, false, content(1, 1), at(15));
        assert!(!progress.settle(at(15), &options) && progress.settle(at(16), &options), "and again after new content");
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

    #[test]
    fn i10_types_that_are_made_up_are_kept_up_to_a_number() {
        let (table, mut habits) = (TypeTable::new(), DeliveryHabits::default());
        for number in 0..2 * MOST {
            habits.note(&table.resolve(&format!("own.Type{number}")), Delivery::Piece);
        }
        assert_eq!((habits.of.len(), habits.types_in_pieces().len()), (MOST, MOST));
    }
}
