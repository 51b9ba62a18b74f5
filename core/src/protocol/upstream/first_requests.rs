//! The types that were requested on one opening of a stream, and which of them may be the reason why the server ended it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::moment::Moment;
use crate::xds::Type;

/// When each type was first requested on this opening, and how the last openings ended.
#[derive(Debug, Default)]
pub(super) struct FirstRequests {
    requested: BTreeMap<Type, FirstRequest>,
    /// The server takes some of the types.
    is_live: bool,
    /// How many openings in a row the server has ended soon although it takes all types.
    unexplained: usize,
}

#[derive(Debug)]
struct FirstRequest {
    at: Moment,
    is_answered: bool,
}

impl FirstRequest {
    fn is_recent(&self, now: Moment) -> bool {
        now < self.at + PROOF
    }
}

/// Which types are suspected after the end of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Suspicion {
    None,
    /// One of these is the reason: the others were on the stream before, or the server is known to take them.
    Of(Vec<Type>),
    /// Any of these may be the reason, or the view itself: nothing else was requested.
    Any(Vec<Type>),
}

/// For how long a stream has to last after a request to show that the server takes it.
pub const PROOF: Duration = Duration::from_secs(2);
/// After how many openings in a row without an explanation any type may be the reason.
const UNEXPLAINED: usize = 3;

impl FirstRequests {
    pub(super) fn note(&mut self, kind: &Type, now: Moment) {
        self.requested.insert(kind.clone(), FirstRequest { at: now, is_answered: false });
    }

    /// Records an answer. Returns whether it is the first one to a request of this opening.
    pub(super) fn on_answer(&mut self, kind: &Type) -> bool {
        self.requested.get_mut(kind).is_some_and(|of| !std::mem::replace(&mut of.is_answered, true))
    }

    /// Whether the server takes some of what is requested on this opening.
    pub(super) fn is_live(&self) -> bool {
        self.is_live
    }

    /// Records that the server has answered one of the types, or has left the stream open for long enough.
    pub(super) fn on_lived(&mut self) {
        self.is_live = true;
    }

    /// Whether nothing was requested on this opening.
    pub(super) fn is_none(&self) -> bool {
        self.requested.is_empty()
    }

    /// Whether any type may be the reason, even one that the server takes elsewhere.
    pub(super) fn has_doubts(&self) -> bool {
        self.unexplained >= UNEXPLAINED
    }

    /// Forgets types that are not kept. Once this opening has lasted, also forgets how earlier ones ended.
    pub(super) fn on_time(&mut self, is_kept: impl Fn(&Type) -> bool, now: Moment) {
        self.requested.retain(|kind, _| is_kept(kind));
        if !self.requested.is_empty() && !self.requested.values().any(|of| of.is_recent(now)) {
            self.unexplained = 0;
        }
    }

    /// Returns the types that the server has had for long enough. Those that are noted already are left out once the server takes any type.
    pub(super) fn lasting(&self, now: Moment, is_noted: impl Fn(&Type) -> bool) -> Vec<Type> {
        let lasting = self.unnoted(is_noted).filter(|(_, of)| !of.is_recent(now));
        lasting.map(|(kind, _)| kind.clone()).collect()
    }

    /// Returns when the server will have had the next type for long enough.
    pub(super) fn next_lasting(&self, is_noted: impl Fn(&Type) -> bool) -> Option<Moment> {
        self.unnoted(is_noted).map(|(_, of)| of.at + PROOF).min()
    }

    fn unnoted(&self, is_noted: impl Fn(&Type) -> bool) -> impl Iterator<Item = (&Type, &FirstRequest)> {
        self.requested.iter().filter(move |(kind, _)| !(self.is_live && is_noted(kind)))
    }

    /// Returns a type that `is` accepts.
    pub(super) fn find(&self, is: impl Fn(&Type) -> bool) -> Option<&Type> {
        self.requested.keys().find(|kind| is(kind))
    }

    /// Records that the stream is over: no type counts as requested.
    pub(super) fn clear(&mut self) {
        (self.requested, self.is_live) = Default::default();
    }

    /// Records that the server has ended the stream with a status that may be about a type. Returns which types are suspected.
    pub(super) fn on_ended(&mut self, has_answered: impl Fn(&Type) -> bool, now: Moment) -> Suspicion {
        let requested = std::mem::take(&mut self.requested);
        let doubts = self.has_doubts();
        let is_suspect = |(kind, of): &(&Type, &FirstRequest)| {
            of.is_recent(now) && !of.is_answered && (doubts || !has_answered(kind))
        };
        let suspects: Vec<Type> = requested.iter().filter(is_suspect).map(|(kind, _)| kind.clone()).collect();
        let is_soon = requested.values().any(|of| of.is_recent(now));
        self.unexplained = if is_soon { self.unexplained + usize::from(suspects.is_empty()) } else { 0 };
        match suspects.len() {
            0 => Suspicion::None,
            of_these if of_these < requested.len() => Suspicion::Of(suspects),
            _ => Suspicion::Any(suspects),
        }
    }
}
