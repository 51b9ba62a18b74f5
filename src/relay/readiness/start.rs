//! What a relay has to find out before it is ready: whether it could serve a new client. `now` is an argument.
//!
//! One of three is enough: a server of its lists has answered, all its files were read, or it has warm state. This does not depend on clients, so
//! relays that are each other's servers do not wait for each other once one of them has something.

use std::time::Duration;

use tokio::time::Instant;

use super::NotReady;

/// A source of the relay, as it is asked at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartSource {
    /// The name in logs.
    pub(crate) name: String,
    pub(crate) is_files: bool,
}

#[derive(Debug)]
pub(super) struct Start {
    phase: Phase,
    began: Instant,
    /// The time after the beginning when the wait is over in any case.
    ready_after: Option<Duration>,
    /// The number of the configuration whose sources are asked.
    number: u64,
}

#[derive(Debug)]
enum Phase {
    /// There is no source to ask.
    Unasked,
    Asking(Vec<Asked>),
    /// The relay could serve a client at some time, or its time to wait is over. This state is final.
    Over,
}

/// A source that has not answered.
#[derive(Debug)]
struct Asked {
    source: StartSource,
    is_read: bool,
    error: Option<String>,
}

impl Start {
    pub(super) fn new(began: Instant) -> Self {
        Self { phase: Phase::Unasked, began, ready_after: None, number: 0 }
    }

    /// Waits from now on for these sources instead of earlier ones. Returns the number of the question, or `None` if the wait is over.
    pub(super) fn ask(&mut self, sources: Vec<StartSource>) -> Option<u64> {
        if matches!(self.phase, Phase::Over) || sources.is_empty() {
            return None;
        }
        let asked = sources.into_iter().map(|source| Asked { source, is_read: false, error: None });
        self.phase = Phase::Asking(asked.collect());
        self.number += 1;
        Some(self.number)
    }

    pub(super) fn set_ready_after(&mut self, ready_after: Option<Duration>) {
        self.ready_after = ready_after;
    }

    /// Whether answers to this question still count.
    pub(super) fn is_asking(&self, number: u64) -> bool {
        self.number == number && matches!(self.phase, Phase::Asking(_))
    }

    /// Records that a source has answered. Files count once all file sources were read.
    pub(super) fn answered(&mut self, number: u64, index: usize) {
        let Phase::Asking(asked) = &mut self.phase else { return };
        if self.number != number {
            return;
        }
        if let Some(asked) = asked.get_mut(index) {
            (asked.is_read, asked.error) = (true, None);
        }
        if asked.iter().any(|asked| !asked.source.is_files && asked.is_read)
            || asked.iter().filter(|asked| asked.source.is_files).all(|asked| asked.is_read)
                && asked.iter().any(|asked| asked.source.is_files)
        {
            self.phase = Phase::Over;
        }
    }

    /// Records why a source has not answered.
    pub(super) fn failed(&mut self, number: u64, index: usize, reason: String) {
        if let Phase::Asking(asked) = &mut self.phase
            && self.number == number
            && let Some(asked) = asked.get_mut(index)
        {
            (asked.is_read, asked.error) = (false, Some(reason));
        }
    }

    /// Records that the relay could serve a client.
    pub(super) fn end(&mut self) {
        self.phase = Phase::Over;
    }

    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        if matches!(self.phase, Phase::Asking(_)) && self.deadline().is_some_and(|at| at <= now) {
            self.phase = Phase::Over;
        }
        !matches!(self.phase, Phase::Asking(_))
    }

    /// Returns when the wait is over in any case.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let is_asking = matches!(self.phase, Phase::Asking(_));
        self.ready_after.filter(|_| is_asking).and_then(|after| self.began.checked_add(after))
    }

    /// Returns the reasons for waiting.
    pub(super) fn reasons(&self) -> impl Iterator<Item = NotReady> {
        let asked = match &self.phase {
            Phase::Asking(asked) => &asked[..],
            Phase::Unasked | Phase::Over => &[],
        };
        asked
            .iter()
            .filter(|asked| !asked.is_read)
            .map(|asked| NotReady::NoAnswerYet { source: asked.source.clone(), error: asked.error.clone() })
    }
}
