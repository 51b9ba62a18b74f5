use std::time::Duration;

use super::*;

struct Bench {
    readiness: Arc<Readiness>,
    start: Instant,
}

fn report(answered: bool, down: bool) -> Report {
    Report { answered, down, state: if down { "down" } else { "trying" }, error: None }
}

fn authority(name: &str) -> Authority {
    if name.is_empty() { Authority::TopLevel } else { Authority::Named(name.into()) }
}

const WAITS: (bool, bool) = (false, false);
const DOWN_BEFORE_A_RESPONSE: (bool, bool) = (false, true);
const DOWN_AGAIN: (bool, bool) = (true, true);

impl Bench {
    fn new() -> Self {
        Self { readiness: Arc::default(), start: Instant::now() }
    }

    fn at(&self, seconds: f64) -> Instant {
        self.start + Duration::from_secs_f64(seconds)
    }

    /// Reports a view's ladders: whether each has had a response and whether it is down.
    fn reports(&self, view: u64, ladders: &[(&str, (bool, bool))], at: f64) {
        let reports = ladders.iter().map(|(name, (answered, down))| (authority(name), report(*answered, *down)));
        self.readiness.state().replace(view, &format!("v{view}").into(), reports.collect(), self.at(at));
    }

    fn response(&self, at: f64) {
        self.readiness.state().on_response(self.at(at));
    }

    fn is_ready(&self, at: f64) -> bool {
        let ready = self.readiness.state().is_ready(self.at(at));
        assert_eq!(ready, self.reasons(false, at).is_empty(), "whoever is not ready has a reason");
        ready
    }

    fn reasons(&self, strict: bool, at: f64) -> Vec<String> {
        self.readiness.state().reasons(strict, 9, self.at(at)).0.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn a_relay_without_clients_is_ready_and_the_first_client_does_not_make_it_flap() {
    let bench = Bench::new();
    assert!(bench.is_ready(0.0) && bench.is_ready(1_000.0));
    bench.reports(1, &[("", WAITS)], 1_000.0);
    assert!(bench.is_ready(1_000.0) && bench.is_ready(1_001.9));
    assert_eq!(bench.readiness.state().next_deadline(bench.at(1_001.0)), Some(bench.at(1_002.0)));
    bench.reports(1, &[], 1_001.9);
    bench.response(1_001.9);
    assert!(bench.is_ready(1_001.9) && bench.is_ready(1_002.1));
}

#[test]
fn a_relay_whose_first_ladders_wait_is_not_ready_until_all_of_them_have_had_a_response() {
    let bench = Bench::new();
    bench.reports(1, &[("", WAITS), ("a", WAITS)], 0.0);
    bench.reports(2, &[("", WAITS)], 1.0);
    bench.reports(1, &[("", DOWN_BEFORE_A_RESPONSE), ("a", WAITS)], 1.5);
    assert_eq!(
        bench.reasons(false, 2.0),
        [
            "no response from a server yet: view=v1 authority=\"\" state=down",
            "no response from a server yet: view=v1 authority=\"a\" state=trying",
        ],
        "the second view may wait still"
    );
    bench.response(4.0);
    bench.reports(1, &[("a", WAITS)], 4.0);
    assert_eq!(bench.reasons(false, 4.0).len(), 2);
    bench.reports(2, &[], 5.0);
    assert!(!bench.is_ready(5.0));
    bench.reports(1, &[], 6.0);
    assert!(bench.is_ready(6.0));
}

#[test]
fn an_outage_after_the_start_counts_for_strict_readiness_alone() {
    let bench = Bench::new();
    bench.reports(1, &[("", WAITS)], 0.0);
    bench.reports(1, &[], 0.1);
    bench.response(0.1);
    bench.reports(1, &[("", DOWN_AGAIN)], 100.0);
    assert!(bench.is_ready(200.0));
    assert_eq!(bench.reasons(true, 100.0), ["no server reachable: view=v1 authority=\"\" state=down"]);
    bench.reports(1, &[], 300.0);
    assert_eq!(bench.reasons(true, 300.0), [""; 0]);
}

#[test]
fn a_ladder_that_wakes_after_the_first_response_does_not_count() {
    let bench = Bench::new();
    bench.reports(1, &[("", WAITS)], 0.0);
    bench.reports(2, &[("", WAITS)], 0.0);
    bench.reports(1, &[], 0.1);
    bench.response(0.1);
    bench.reports(3, &[("", DOWN_BEFORE_A_RESPONSE)], 0.2);
    assert!(!bench.is_ready(10.0), "the second was there before");
    bench.reports(2, &[], 11.0);
    assert!(bench.is_ready(11.0) && bench.is_ready(1_000.0), "the third was not");
    assert_eq!(bench.reasons(true, 11.0).len(), 1);
}

#[test]
fn what_sleeps_again_or_goes_is_not_waited_for_and_nobody_is_waited_for_for_ever() {
    let bench = Bench::new();
    bench.reports(1, &[("", WAITS)], 0.0);
    assert!(!bench.is_ready(2.0));
    bench.reports(1, &[], 3.0);
    assert!(bench.is_ready(3.0), "nothing is wanted any more");
    bench.reports(1, &[("", WAITS)], 10.0);
    assert!(bench.is_ready(11.9) && !bench.is_ready(12.0), "it waits anew");
    bench.reports(2, &[("", WAITS)], 12.0);
    bench.reports(2, &[], 13.0);
    bench.response(13.0);
    assert!(!bench.is_ready(72.9));
    assert_eq!(bench.readiness.state().next_deadline(bench.at(72.9)), Some(bench.at(73.0)));
    assert!(bench.is_ready(73.0), "one ladder that is never answered does not keep a relay from all others");
    assert_eq!(bench.readiness.state().next_deadline(bench.at(73.0)), None);
}

#[test]
fn without_any_response_a_relay_stays_as_it_is() {
    let bench = Bench::new();
    bench.reports(1, &[("", DOWN_BEFORE_A_RESPONSE)], 0.0);
    assert!(!bench.is_ready(100_000.0));
}

#[test]
fn draining_is_for_good_and_reasons_are_counted_where_they_are_too_many() {
    let bench = Bench::new();
    for view in 0..5 {
        bench.reports(view, &[("", WAITS), ("a", DOWN_BEFORE_A_RESPONSE)], 0.0);
    }
    bench.readiness.drain();
    let (reasons, count) = bench.readiness.state().reasons(false, 3, bench.at(10.0));
    assert_eq!((reasons.len(), count, &reasons[0]), (3, 11, &NotReady::Draining));
    bench.response(10.0);
    assert!(!bench.is_ready(1_000.0));
    assert_eq!(bench.reasons(false, 1_000.0), ["draining"]);
}

#[tokio::test]
async fn what_a_view_reports_goes_with_it_and_a_waiter_is_woken_by_a_change() {
    let readiness: Arc<Readiness> = Arc::default();
    let mut view = readiness.view("v", BTreeSet::new());
    view.update(false, [(Authority::TopLevel, report(false, false))].into());
    tokio::time::timeout(Duration::from_secs(20), readiness.changed_from(true)).await.expect("it is ready still");
    assert!(!readiness.is_ready());
    let change = tokio::spawn({
        let readiness = readiness.clone();
        async move { readiness.changed_from(false).await }
    });
    tokio::task::yield_now().await; // it waits from here on
    drop(view);
    tokio::time::timeout(Duration::from_secs(20), change).await.expect("nobody was told").unwrap();
    assert!(readiness.is_ready() && readiness.state().is_empty());
}

#[tokio::test]
async fn a_drain_wakes_who_waits_for_a_change() {
    let readiness: Arc<Readiness> = Arc::default();
    let change = tokio::spawn({
        let readiness = readiness.clone();
        async move { readiness.changed_from(true).await }
    });
    tokio::task::yield_now().await;
    readiness.drain();
    tokio::time::timeout(Duration::from_secs(20), change).await.expect("it is not ready any more").unwrap();
}
