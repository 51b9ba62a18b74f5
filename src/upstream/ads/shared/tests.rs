use std::sync::Arc;

use futures_util::FutureExt;

use super::*;

const LONG: Duration = Duration::from_secs(3600);

fn shared(timeout: Duration) -> Arc<Shared> {
    let life = LifeTimes { interval: None, timeout, method: LifeMethod::Call };
    Arc::new(Shared::new(life, Arc::new(Semaphore::new(1))))
}

/// Starts a wait of an hour, and returns how it has ended after a second and a half; `None` if it has not.
async fn waits(
    shared: &Arc<Shared>,
    stage: AttemptStage,
    least: Duration,
    what: impl FnOnce(&Shared),
) -> Option<Waited> {
    let (before, waiting) = (shared.reachability(), shared.clone());
    shared.ended(stage);
    let waiting = tokio::spawn(async move { waiting.wait(stage, before, LONG, least).await });
    tokio::task::yield_now().await;
    what(shared);
    tokio::time::timeout(WAKE_SPREAD.mul_f64(1.5), waiting).await.ok().map(|waited| waited.unwrap())
}

#[tokio::test(start_paused = true)]
async fn fb_20_a_connection_wakes_those_who_had_none_and_a_response_those_who_had_none() {
    use AttemptStage::*;
    let nothing = Duration::ZERO;
    let [one, two, three, four, five, six, seven] = std::array::from_fn(|_| shared(LONG));
    let woken = Some(Waited::Woken);
    let outcomes = tokio::join!(
        waits(&one, Unreached, nothing, Shared::reached),
        waits(&two, Rejected, nothing, Shared::answered),
        waits(&three, Rejected, nothing, Shared::reached),
        waits(&four, Answered, nothing, |shared| {
            shared.ended(Rejected);
            shared.answered();
        }),
        waits(&five, Unreached, LONG, Shared::reached),
        waits(&six, Unreached, nothing, |_| {}),
        waits(&seven, Unreached, nothing, Shared::answered), // over a connection that was there
    );
    assert_eq!(outcomes, (woken, woken, None, None, None, None, woken));
    assert_eq!(one.wait(Unreached, one.reachability(), nothing, LONG).await, Waited::Out);
    assert_eq!(one.waiting.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn what_was_found_during_the_attempt_counts_and_what_goes_well_anyway_is_no_news() {
    let shared = shared(LONG);
    let before = shared.reachability();
    shared.reached();
    assert_eq!(shared.reachability(), before, "no attempt had failed");
    shared.ended(AttemptStage::Unreached);
    shared.reached();
    assert_eq!(shared.wait(AttemptStage::Unreached, before, LONG, Duration::ZERO).await, Waited::Woken);
}

#[tokio::test]
async fn a_doubt_reaches_all_others_and_is_not_repeated_before_they_had_time() {
    let shared = shared(LONG);
    let (mut own, mut other) = (shared.doubts(), shared.doubts());
    shared.unconfirmed(Some(&mut own));
    shared.ended(AttemptStage::Unreached);
    assert_eq!(*shared.doubts.borrow(), 1);
    other.next().await;
    assert!(own.next().now_or_never().is_none(), "it asks already");

    let impatient = self::shared(Duration::ZERO);
    let mut other = impatient.doubts();
    impatient.unconfirmed(None);
    impatient.ended(AttemptStage::Unreached);
    assert_eq!(*impatient.doubts.borrow(), 2, "a connection that could not be made is a doubt");
    other.next().await;
}

#[tokio::test]
async fn one_stream_at_a_time_has_the_duty_and_the_next_when_it_is_gone() {
    let shared = shared(LONG);
    let duty = shared.duty().await;
    assert!(shared.duty().now_or_never().is_none());
    drop(duty);
    assert!(shared.duty().now_or_never().is_some());
}

#[test]
fn calls_that_are_not_routed_to_the_server_are_news_once() {
    let shared = shared(LONG);
    assert!(shared.is_unrouted("one") && !shared.is_unrouted("another"));
    assert_eq!(shared.unrouted().as_deref(), Some("another"));
    shared.is_routed();
    assert_eq!(shared.unrouted(), None);
    assert!(shared.is_unrouted("one"), "after an answer it is news again");
}

#[test]
fn a_server_that_is_found_again_is_news_once_for_each_time_that_it_was_lost() {
    let shared = shared(LONG);
    let counts = |reached, answered| ReachabilityCounts { reached, answered };
    shared.ended(AttemptStage::Unreached);
    shared.ended(AttemptStage::Unreached);
    for _ in 0..2 {
        shared.reached();
        shared.answered();
    }
    assert_eq!(shared.reachability(), counts(1, 0), "all streams had their responses");
    shared.ended(AttemptStage::Rejected);
    for _ in 0..2 {
        shared.reached();
        shared.answered();
    }
    assert_eq!(shared.reachability(), counts(1, 1), "and all had their connections");
    shared.ended(AttemptStage::Answered);
    shared.reached();
    shared.answered();
    assert_eq!(shared.reachability(), counts(1, 1));
    shared.ended(AttemptStage::Unreached);
    shared.reached();
    assert_eq!(shared.reachability(), counts(2, 1));
}
