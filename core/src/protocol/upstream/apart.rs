//! A type that is kept off a stream because the server may end the stream for it.

use std::time::Duration;

use super::trial_pace::pause_after;
use crate::protocol::moment::Moment;
use crate::protocol::server_status::ServerStatus;

/// What is known of one type. A plain record, except for what a refusal changes.
#[derive(Debug)]
pub(super) struct ApartType {
    /// Since when the type waits: since it was kept off, or since its last turn.
    pub(super) since: Moment,
    /// When the type may be tried next.
    pub(super) next: Moment,
    pub(super) suspicion: Option<(Why, ServerStatus)>,
    /// The type is tried by itself: it alone is suspected, or the server ended a trial with others.
    pub(super) is_alone: bool,
    /// It was the only new type when the view's stream was ended: if the stream works without it, the server refuses it.
    is_only: bool,
    /// The status with which the server refuses the type.
    pub(super) refusal: Option<ServerStatus>,
    /// How often the type was refused, or put back without a result.
    failures: u32,
    /// The type is on the view's stream, to be tried there.
    pub(super) is_back: bool,
    pub(super) is_wanted: bool,
    /// The type is outside of the table. Clients can make up any number of such types.
    pub(super) is_outside: bool,
}

/// Why a type is suspected of the end of the view's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// It was new on that stream, and others were not.
    New,
    /// The server ended openings without an explanation, so what other views have found of the type does not count.
    Doubted,
    /// All types were new, so that any may be the reason.
    Turn,
}

impl ApartType {
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

    /// Returns the order of types that wait: types of the table first, then by time.
    pub(super) fn place(&self) -> (bool, Moment, Moment) {
        (self.is_outside, self.next, self.since)
    }

    /// Whether the type is put back on the stream and wanted. Only one type is put back at a time; one that no client wants makes room.
    pub(super) fn has_place(&self) -> bool {
        self.is_back && self.is_wanted
    }

    /// Whether the type may be tried together with others.
    pub(super) fn is_sociable(&self) -> bool {
        !self.is_alone && self.refusal.is_none()
    }

    /// Whether the type is remembered although no client wants it, so that a client that requests it next gets the error at once. `left` counts down.
    pub(super) fn is_remembered(&self, left: &mut usize) -> bool {
        let is = self.refusal.is_some() && *left > 0;
        *left -= usize::from(is);
        is
    }

    /// Suspects the type of the end of the view's stream. `is_only`: no other type is suspected, so only the server's state may be the reason instead.
    pub(super) fn suspect(&mut self, why: Why, is_only: bool, status: &ServerStatus) {
        if self.refusal.is_none() {
            self.suspicion = Some((why, status.clone()));
            (self.is_alone, self.is_only) = (is_only, is_only);
        }
    }

    /// Records that the view's stream works without the type. If no other type was suspected with it, the server refuses it.
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

    /// Sets the time of the next trial, after one that has shown nothing.
    pub(super) fn retry(&mut self, pause: Duration, now: Moment) {
        self.next = now + if self.refusal.is_some() { self.pause() } else { pause };
    }

    fn pause(&self) -> Duration {
        pause_after(self.failures)
    }
}
