//! When the answer to a SotW response is sent. Some servers answer each NACK at once with the version that was NACKed, and that would go on without
//! end. So a NACK of the same version is held back for a moment. It is a short one: such servers send nothing of the type until they are answered.

use std::time::Duration;

use crate::protocol::moment::Moment;

#[derive(Debug, Default)]
pub(super) struct NackPace {
    /// The version of the last response, if that was NACKed.
    version: Option<String>,
    held_until: Option<Moment>,
}

impl NackPace {
    /// Records the answer to a response. An ACK, and the first NACK of a version, are sent at once. What is held back is held no longer because the
    /// server sends the version again.
    pub(super) fn on_answer(&mut self, version: &str, is_nack: bool, now: Moment) {
        if !is_nack || self.version.as_deref() != Some(version) {
            *self = Self { version: is_nack.then(|| version.to_owned()), held_until: None };
        } else if self.is_due(now) {
            self.held_until = Some(now + PAUSE);
        }
    }

    /// Holds nothing back until the next response.
    pub(super) fn release(&mut self) {
        self.held_until = None;
    }

    /// Whether the answer may be sent.
    pub(super) fn is_due(&self, now: Moment) -> bool {
        self.held_until.is_none_or(|until| until <= now)
    }

    /// Returns until when a NACK is held back.
    pub(super) fn held_until(&self) -> Option<Moment> {
        self.held_until
    }
}

const PAUSE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_20_a_version_is_nacked_at_once_the_first_time_and_then_after_a_pause() {
        let (mut pace, now) = (NackPace::default(), Moment::START + Duration::from_secs(1));
        let mut pause = |version: &str, is_nack: bool| {
            pace.on_answer(version, is_nack, now);
            assert_eq!(pace.is_due(now), pace.held_until().is_none());
            pace.held_until().map_or(0, |until| (until - now).as_secs())
        };
        assert_eq!([pause("1", true), pause("1", true), pause("1", true)], [0, 2, 2]);
        assert_eq!([pause("2", true), pause("2", true)], [0, 2], "another version");
        assert_eq!([pause("2", false), pause("2", true), pause("2", true)], [0, 0, 2], "it was good in between");
    }

    #[test]
    fn up_20_a_server_that_does_not_wait_for_answers_puts_none_of_them_off() {
        let (mut pace, at) = (NackPace::default(), |millis| Moment::START + Duration::from_millis(millis));
        for millis in [0, 100, 900, 1_500] {
            pace.on_answer("1", true, at(millis));
        }
        assert!(!pace.is_due(at(2_099)) && pace.is_due(at(2_100)));
    }
}
