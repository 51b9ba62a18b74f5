//! A type that is kept off a stream because the server may end it for that.

use std::time::Duration;

use super::trial_pace::pause_after;
use crate::protocol::moment::Moment;
use crate::protocol::server_status::ServerStatus;

/// A plain record, but for what a refusal does to it.
#[derive(Debug)]
pub(super) struct Apart {
    /// It waits since then, or since its last turn.
    pub(super) since: Moment,
    /// It is tried from then on.
    pub(super) next: Moment,
    pub(super) suspicion: Option<(Why, ServerStatus)>,
    /// It is tried by itself, since others were not why.
    pub(super) is_alone: bool,
    /// It alone was new when the view's stream was ended: if that works without it, it was why.
    is_only: bool,
    /// The status by which the server refuses it.
    pub(super) refusal: Option<ServerStatus>,
    /// How often it was refused, or put back for nothing.
    failures: u32,
    /// It is on the view's stream, to be tried there.
    pub(super) is_back: bool,
    pub(super) is_wanted: bool,
    /// It is outside of the table: clients can make up any number of these.
    pub(super) is_outside: bool,
}

/// Why a type is suspected: the view's stream was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// It was new on that, and others were not.
    New,
    /// Nothing that others have found of it counts here.
    Doubted,
    /// All were, so that it may be anything.
    Turn,
}

impl Apart {
    pub(super) fn new(is_outside: bool, now: Moment) -> Self {
        Self {
            since: now,
            next: now,
            suspicion: None,
            is_alone: false,
            is_only: false,
            refusal: None,
            failures: 0,
            is_back: false,
            is_wanted: true,
            is_outside,
        }
    }

    pub(super) fn why(&self) -> Option<Why> {
        self.suspicion.as_ref().map(|(why, _)| *why)
    }

    /// Returns what orders those that wait: types of the table first, and then by how long.
    pub(super) fn place(&self) -> (bool, Moment, Moment) {
        (self.is_outside, self.next, self.since)
    }

    /// Whether it has the place of those that are put back, which one type has at a time. One that is wanted no more leaves it.
    pub(super) fn has_place(&self) -> bool {
        self.is_back && self.is_wanted
    }

    /// Whether it may be tried together with others.
    pub(super) fn is_sociable(&self) -> bool {
        !self.is_alone && self.refusal.is_none()
    }

    /// Whether it is kept although nobody wants it: who asks next hears of it at once.
    pub(super) fn is_remembered(&self, left: &mut usize) -> bool {
        let is = self.refusal.is_some() && *left > 0;
        *left -= usize::from(is);
        is
    }

    /// The view's stream was ended, and this may be why. With `is_only` nothing else may be, unless it is the server's state.
    pub(super) fn suspect(&mut self, why: Why, is_only: bool, status: &ServerStatus) {
        if self.refusal.is_none() {
            self.suspicion = Some((why, status.clone()));
            (self.is_alone, self.is_only) = (is_only, is_only);
        }
    }

    /// The view's stream works without it, which shows that the server refuses it if nothing else was suspected with it.
    pub(super) fn on_works_without(&mut self, now: Moment) {
        if self.is_only
            && let Some((_, status)) = self.suspicion.take()
        {
            self.refuse(status, now);
        }
    }

    pub(super) fn refuse(&mut self, status: ServerStatus, now: Moment) {
        (self.refusal, self.suspicion) = (Some(status), None);
        self.postpone(now);
    }

    pub(super) fn postpone(&mut self, now: Moment) {
        self.next = now + self.pause();
        self.failures += 1;
    }

    /// A trial of it has shown nothing.
    pub(super) fn retry(&mut self, pause: Duration, now: Moment) {
        self.next = now + if self.refusal.is_some() { self.pause() } else { pause };
    }

    fn pause(&self) -> Duration {
        pause_after(self.failures)
    }
}
