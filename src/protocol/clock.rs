//! A time that passes only while the server could do something about what waits.

use std::time::Duration;

use crate::protocol::moment::Moment;

/// Stands still while the server is away, so that no wait runs out meanwhile. It does not start over: a server that restarts again and
/// again delays nothing for ever.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock {
    passed: Duration,
    runs_since: Option<Moment>,
}

impl Clock {
    pub(crate) fn running(now: Moment) -> Self {
        Self { passed: Duration::ZERO, runs_since: Some(now) }
    }

    /// A clock that has shown `passed`, and stands.
    pub(crate) fn standing(passed: Duration) -> Self {
        Self { passed, runs_since: None }
    }

    pub(crate) fn read(&self, now: Moment) -> Duration {
        self.passed + self.runs_since.map_or(Duration::ZERO, |since| now - since)
    }

    pub(crate) fn stop(&mut self, now: Moment) {
        *self = Self::standing(self.read(now));
    }

    pub(crate) fn start(&mut self, now: Moment) {
        self.runs_since.get_or_insert(now);
    }

    pub(crate) fn runs(&self) -> bool {
        self.runs_since.is_some()
    }

    /// Returns when it will show `reading`, if it runs.
    pub(crate) fn when(&self, reading: Duration) -> Option<Moment> {
        self.runs_since.map(|since| since + reading.saturating_sub(self.passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::START + Duration::from_secs(seconds)
    }

    #[test]
    fn it_stands_still_and_goes_on() {
        let mut clock = Clock::running(at(10));
        assert_eq!(clock.when(Duration::from_secs(60)), Some(at(70)));
        clock.stop(at(30));
        assert_eq!((clock.read(at(90)), clock.when(Duration::from_secs(60))), (Duration::from_secs(20), None));
        clock.start(at(100));
        clock.start(at(110));
        assert_eq!(
            (clock.read(at(115)), clock.when(Duration::from_secs(60))),
            (Duration::from_secs(35), Some(at(140)))
        );
    }
}
