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
    answered: Latencies,
    served: Latencies,
    health: Latencies,
    problems: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// From a change at the control plane to its arrival at the established client.
    Received,
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
    pub received: Option<Percentiles>,
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
            Time::Received => times.received.record(time),
            Time::Answered => times.answered.record(time),
            Time::Served => times.served.record(time),
            Time::Health => times.health.record(time),
        }
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
        running.record(Time::Received, Duration::from_millis(700));
        running.record(Time::Answered, Duration::from_millis(1));
        assert!(!first.is_well(), "no client was served");
        running.record(Time::Served, Duration::from_millis(1));
        assert!(first.is_well() && !phases.current().is_well());
        running.problem("late");
        assert!(!first.is_well());
        assert!(first.figures().received.unwrap().max > 690.0);
        assert!(phases.current().figures().received.is_none());
    }
}
