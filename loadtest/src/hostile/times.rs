//! What honest clients notice in one phase: before, during or after a behaviour.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::measure::Latencies;

/// The current phase. An event counts for the phase in which it began, even if it ends later.
#[derive(Clone, Default)]
pub struct Phases(Arc<Mutex<Arc<Phase>>>);

#[derive(Default)]
pub struct Phase(Mutex<Times>);

/// The recorded times of a phase.
#[derive(Default)]
struct Times {
    received: Latencies,
    direct: Latencies,
    later: Latencies,
    answered: Latencies,
    served: Latencies,
    health: Latencies,
    problems: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// From the ACK of a change and the request after it to the response to that request.
    Answered,
    /// From a new client's attempt to connect to its first resource.
    Served,
    /// From a request for `/healthz` to its response.
    Health,
}

/// The figures of a phase.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Figures {
    /// From a change at the control plane to its arrival at the established client.
    pub received: Option<Percentiles>,
    /// From the same changes to their arrival at a client of the control plane itself.
    pub direct: Option<Percentiles>,
    /// How much later than at that client a change arrived at the established one. It is judged.
    pub later: Option<Percentiles>,
    pub answered: Option<Percentiles>,
    pub served: Option<Percentiles>,
    pub health: Option<Percentiles>,
    /// Late responses and ended streams, by description, with counts.
    pub problems: BTreeMap<String, u64>,
}

/// Percentiles in milliseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Percentiles {
    pub count: u64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Phases {
    pub fn current(&self) -> Arc<Phase> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins another phase, and returns the new phase.
    pub fn begin(&self) -> Arc<Phase> {
        let phase = Arc::<Phase>::default();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = phase.clone();
        phase
    }
}

impl Phase {
    pub fn record(&self, what: Time, time: Duration) {
        let mut times = self.times();
        match what {
            Time::Answered => times.answered.record(time),
            Time::Served => times.served.record(time),
            Time::Health => times.health.record(time),
        }
    }

    /// Records when a change arrived at the established client, and when at a client of the control plane itself, if it did in time.
    pub fn record_change(&self, received: Duration, direct: Option<Duration>) {
        let mut times = self.times();
        times.received.record(received);
        direct.into_iter().for_each(|time| times.direct.record(time));
        times.later.record(received.saturating_sub(direct.unwrap_or_default()));
    }

    pub fn problem(&self, what: impl Into<String>) {
        *self.times().problems.entry(what.into()).or_default() += 1;
    }

    /// Whether a change was received and answered, and a new client was served, all without a problem.
    pub fn is_well(&self) -> bool {
        let times = self.times();
        times.problems.is_empty()
            && [&times.received, &times.answered, &times.served].iter().all(|times| times.count() > 0)
    }

    pub fn figures(&self) -> Figures {
        let times = self.times();
        Figures {
            received: Percentiles::of(&times.received),
            direct: Percentiles::of(&times.direct),
            later: Percentiles::of(&times.later),
            answered: Percentiles::of(&times.answered),
            served: Percentiles::of(&times.served),
            health: Percentiles::of(&times.health),
            problems: times.problems.clone(),
        }
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Figures {
    /// Returns how many changes have no time at the client of the control plane itself. Their whole times count.
    pub fn whole(&self) -> u64 {
        let [changes, direct] = [self.later, self.direct].map(|times| times.map_or(0, |times| times.count));
        changes.saturating_sub(direct)
    }
}

impl Percentiles {
    fn of(times: &Latencies) -> Option<Self> {
        let ms = |percentile| times.percentile(percentile).as_secs_f64() * 1e3;
        let count = times.count();
        (count > 0).then(|| Self { count, p50: ms(50.0), p99: ms(99.0), max: times.max().as_secs_f64() * 1e3 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_in_a_phase_counts_for_it() {
        let phases = Phases::default();
        let first = phases.begin();
        let running = phases.current();
        phases.begin();
        running.record_change(Duration::from_millis(700), None);
        running.record(Time::Answered, Duration::from_millis(1));
        assert!(!first.is_well(), "no client was served");
        running.record(Time::Served, Duration::from_millis(1));
        assert!(first.is_well() && !phases.current().is_well());
        running.problem("late");
        assert!(!first.is_well());
        assert!(first.figures().received.unwrap().max > 690.0);
        assert!(phases.current().figures().received.is_none());
    }

    /// Returns the figures of changes with these milliseconds.
    fn changes(times: &[(u64, Option<u64>)]) -> Figures {
        let phase = Phase::default();
        for (received, direct) in times {
            phase.record_change(Duration::from_millis(*received), direct.map(Duration::from_millis));
        }
        phase.figures()
    }

    #[test]
    fn a_change_is_compared_with_a_client_of_the_control_plane() {
        let is_near = |times: Option<Percentiles>, ms: f64| (times.unwrap().max - ms).abs() < 1.0;
        let figures = changes(&[(180, Some(150)), (20, Some(90))]);
        assert!(is_near(figures.received, 180.0) && is_near(figures.direct, 150.0), "{figures:?}");
        assert!(is_near(figures.later, 30.0) && figures.later.unwrap().count == 2, "{figures:?}");
        assert_eq!(figures.whole(), 0);
        assert!(changes(&[(20, Some(90))]).later.unwrap().max < 0.01, "it was earlier");
    }

    #[test]
    fn without_a_time_at_that_client_the_whole_time_counts() {
        let figures = changes(&[(180, None)]);
        assert!(figures.direct.is_none());
        assert!((figures.later.unwrap().max - 180.0).abs() < 1.0, "{figures:?}");
        assert_eq!((figures.whole(), changes(&[(180, None), (9, Some(8))]).whole()), (1, 1));
    }
}
