//! Which events are traced. A random number decides before anything of the event is recorded.

use std::fmt;

use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

use crate::relay::traces::SpanIds;

/// The share of events that are traced. No event has a parent, so samplers that follow the parent use the setting for roots.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Sampling {
    All,
    None,
    Ratio(f64),
}

impl Sampling {
    /// Returns the sampler with this name; `ratio` is the argument of `traceidratio`.
    pub(super) fn named(name: &str, ratio: f64) -> Option<Self> {
        Some(match name {
            "always_on" | "parentbased_always_on" => Self::All,
            "always_off" | "parentbased_always_off" => Self::None,
            "traceidratio" | "parentbased_traceidratio" => Self::Ratio(ratio),
            _ => return None,
        })
    }

    /// Returns the ids of the next span, if it is sampled.
    pub(super) fn next(self, ids: &RandomIdGenerator) -> Option<SpanIds> {
        if self == Self::None {
            return None;
        }
        let trace = u128::from_be_bytes(ids.new_trace_id().to_bytes());
        self.takes(trace).then(|| SpanIds { trace, span: u64::from_be_bytes(ids.new_span_id().to_bytes()) })
    }

    /// Decides by the last bits of the trace id, like other samplers.
    fn takes(self, trace: u128) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Ratio(ratio) => (trace as u64 >> 1) < (ratio * (1_u64 << 63) as f64) as u64,
        }
    }
}

impl fmt::Display for Sampling {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => to.write_str("always_on"),
            Self::None => to.write_str("always_off"),
            Self::Ratio(ratio) => write!(to, "traceidratio {ratio}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_takes_its_share_and_the_ends_take_all_and_nothing() {
        let ids = RandomIdGenerator::default();
        let taken = |sampling: Sampling| (0..10_000).filter(|_| sampling.next(&ids).is_some()).count();
        assert_eq!([taken(Sampling::All), taken(Sampling::Ratio(1.0))], [10_000; 2]);
        assert_eq!([taken(Sampling::None), taken(Sampling::Ratio(0.0))], [0; 2]);
        let some = taken(Sampling::Ratio(0.1));
        assert!((800..1200).contains(&some), "{some}");
    }
}
