use super::*;
use crate::upstream::server::LifeTimes;

const SHORT: Duration = Duration::from_secs(29);

fn shared() -> Shared {
    Shared::new(LifeTimes { interval: None, timeout: Duration::from_secs(1) })
}

impl<'a> Retry<'a> {
    /// With waits that double, without jitter.
    fn doubling(shared: &'a Shared) -> Self {
        let backoff = Backoff::new(BackoffTimes { factor: 2.0, jitter: 0.0, ..BackoffTimes::default() });
        let (stage, least, waited) = (Stage::Unreached, Duration::ZERO, Waited::Out);
        Self { shared, backoff, stage, least, unproductive: backoff, waited }
    }
}

#[test]
fn up_33_a_stream_that_was_merely_opened_resets_no_wait_and_one_with_a_response_does() {
    let shared = shared();
    let mut retry = Retry::doubling(&shared);
    for (stage, seconds) in [
        (Stage::Unreached, 1),
        (Stage::Rejected, 2),
        (Stage::Rejected, 4),
        (Stage::Unreached, 8),
        (Stage::Rejected, 16),
        (Stage::Answered, 1),
        (Stage::Rejected, 2),
    ] {
        retry.ended(stage, SHORT);
        assert_eq!(retry.backoff.next(0.5).as_secs(), seconds, "{stage:?}");
    }
}

#[test]
fn early_attempts_that_fail_are_made_less_and_less_until_one_has_a_response() {
    let shared = shared();
    let mut retry = Retry::doubling(&shared);
    retry.waited = Waited::Woken;
    let stages = [Stage::Unreached, Stage::Rejected, Stage::Rejected, Stage::Answered, Stage::Unreached];
    let leasts = stages.map(|stage| {
        retry.ended(stage, SHORT);
        retry.least.as_secs()
    });
    assert_eq!(leasts, [1, 2, 4, 0, 1]);
}
