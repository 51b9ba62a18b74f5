//! When the answer to a SotW response is sent. Some servers answer each NACK at once with the version that was NACKed, and that would go on without
//! end. So a NACK of the same version is held back, longer each time.

use std::time::Duration;

use crate::protocol::moment::Moment;

#[derive(Debug, Default)]
pub(super) struct NackPace {
    /// The version of the last response, if that was NACKed.
    version: Option<String>,
    /// How often in a row the version was NACKed again.
    times: u32,
    held_until: Option<Moment>,
}

impl NackPace {
    /// Records the answer to a response. An ACK, and the first NACK of a version, are sent at once.
    pub(super) fn on_answer(&mut self, version: &str, is_nack: bool, now: Moment) {
        if is_nack && self.version.as_deref() == Some(version) {
            let pause = FIRST_PAUSE * 2_u32.pow(self.times);
            self.held_until = Some(now + pause.min(LONGEST_PAUSE));
            self.times = (self.times + 1).min(LONGEST_AFTER);
        } else {
            *self = Self { version: is_nack.then(|| version.to_owned()), ..Self::default() };
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

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// After this many pauses the next one would be longer than the longest.
const LONGEST_AFTER: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_20_a_version_is_nacked_at_once_the_first_time_and_then_less_and_less_often() {
        let (mut pace, now) = (NackPace::default(), Moment::START + Duration::from_secs(1));
        let mut pause = |version: &str, is_nack: bool| {
            pace.on_answer(version, is_nack, now);
            assert_eq!(pace.is_due(now), pace.held_until().is_none());
            pace.held_until().map_or(0, |until| (until - now).as_secs())
        };
        let pauses: Vec<_> = (0..9).map(|_| pause("1", true)).collect();
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!([pause("2", true), pause("2", true)], [0, 1], "another version");
        assert_eq!([pause("2", false), pause("2", true), pause("2", true)], [0, 0, 1], "it was good in between");
    }
}
