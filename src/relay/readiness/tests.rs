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

fn server(name: &str) -> StartSource {
    StartSource { name: name.into(), is_files: false }
}

fn files(name: &str) -> StartSource {
    StartSource { name: format!("files {name}"), is_files: true }
}

impl Bench {
    fn new() -> Self {
        let bench = Self { readiness: Arc::default(), start: Instant::now() };
        *bench.readiness.state() = ReadinessState::new(bench.start);
        bench
    }

    fn at(&self, seconds: f64) -> Instant {
        self.start + Duration::from_secs_f64(seconds)
    }

    /// Reports a view's ladders: whether each has had a response and whether it is down.
    fn reports(&self, view: u64, ladders: &[(&str, (bool, bool))], at: f64) {
        let reports = ladders.iter().map(|(name, (answered, down))| (authority(name), report(*answered, *down)));
        self.readiness.state().replace(view, &format!("v{view}").into(), reports.collect(), self.at(at));
    }

    /// Returns where the answers of these sources are reported.
    fn asks(&self, sources: &[StartSource]) -> StartReport {
        self.readiness.ask(sources.to_vec()).expect("it is ready already")
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
fn a_relay_is_ready_once_any_server_has_answered_and_stays_so() {
    let bench = Bench::new();
    let report = bench.asks(&[server("http://a"), server("http://b")]);
    assert!(!bench.is_ready(0.0) && !bench.is_ready(100_000.0), "nothing is concluded from a clock");
    report.failed(0, "refused".into());
    let waits = ["no answer from a server yet: http://a: refused", "no answer from a server yet: http://b"];
    assert_eq!(bench.reasons(false, 0.0), waits);
    report.answered(1);
    assert!(bench.is_ready(1.0));
    report.failed(0, "refused".into());
    bench.reports(1, &[("", DOWN_BEFORE_A_RESPONSE)], 2.0);
    assert!(bench.is_ready(100.0), "an outage is not its fault");
    assert!(bench.readiness.ask(vec![server("http://c")]).is_none(), "another configuration asks nobody");
}

#[test]
fn files_count_once_all_of_them_were_read_and_beside_servers_too() {
    let bench = Bench::new();
    let report = bench.asks(&[files("a"), server("http://b"), files("c")]);
    report.answered(0);
    report.failed(2, "it is missing".into());
    let waits = ["no answer from a server yet: http://b", "not read yet: files c: it is missing"];
    assert_eq!(bench.reasons(false, 0.0), waits);
    report.answered(2);
    assert!(bench.is_ready(1.0));
}

#[test]
fn warm_state_and_a_response_to_a_client_count_as_an_answer() {
    for is_warm in [true, false] {
        let bench = Bench::new();
        let _report = bench.asks(&[server("http://a")]);
        let mut view = bench.readiness.view("v", BTreeSet::new());
        view.update(false, [(Authority::TopLevel, report(false, false))].into());
        assert!(!bench.readiness.is_ready());
        match is_warm {
            true => bench.readiness.is_warm(),
            false => view.update(true, Reports::new()),
        }
        assert!(bench.readiness.is_ready());
    }
}

#[test]
fn a_relay_is_ready_after_a_time_only_if_that_is_configured() {
    let bench = Bench::new();
    bench.readiness.set_ready_after(Some(Duration::from_secs(60)));
    let report = bench.asks(&[server("http://a")]);
    assert!(!bench.is_ready(59.9) && bench.readiness.state().next_deadline(bench.at(1.0)) == Some(bench.at(60.0)));
    bench.readiness.set_ready_after(None);
    assert!(!bench.is_ready(61.0));
    bench.readiness.set_ready_after(Some(Duration::from_secs(70)));
    assert!(!bench.is_ready(61.0) && bench.is_ready(70.0));
    bench.readiness.set_ready_after(None);
    report.failed(0, "refused".into());
    assert!(bench.is_ready(71.0), "for good");
    assert_eq!(bench.readiness.state().next_deadline(bench.at(71.0)), None);
}

#[test]
fn the_answers_of_a_configuration_that_was_replaced_do_not_count() {
    let bench = Bench::new();
    let before = bench.asks(&[server("http://a")]);
    let now = bench.asks(&[server("http://b")]);
    before.failed(0, "refused".into());
    before.answered(0);
    assert_eq!(bench.reasons(false, 0.0), ["no answer from a server yet: http://b"]);
    now.answered(0);
    assert!(bench.is_ready(0.0));
}

#[test]
fn with_nobody_to_ask_a_relay_is_ready() {
    let bench = Bench::new();
    assert!(bench.is_ready(0.0) && bench.readiness.ask(Vec::new()).is_none() && bench.is_ready(0.0));
}

#[test]
fn ladders_that_wait_or_are_down_count_for_strict_readiness_alone() {
    let bench = Bench::new();
    bench.reports(1, &[("", WAITS), ("a", WAITS)], 0.0);
    bench.reports(2, &[("", WAITS)], 1.0);
    bench.reports(1, &[("", DOWN_BEFORE_A_RESPONSE), ("a", WAITS)], 1.5);
    assert!(bench.is_ready(2.0));
    assert_eq!(
        bench.reasons(true, 2.0),
        [
            "no response from a server yet: view=v1 authority=\"\" state=down",
            "no response from a server yet: view=v1 authority=\"a\" state=trying",
        ],
        "the second view may wait still"
    );
    bench.reports(1, &[], 4.0);
    bench.reports(2, &[("", DOWN_AGAIN)], 5.0);
    assert_eq!(bench.reasons(true, 5.0), ["no server reachable: view=v2 authority=\"\" state=down"]);
    bench.reports(2, &[], 6.0);
    assert_eq!(bench.reasons(true, 6.0), [""; 0]);
    bench.reports(1, &[("", WAITS)], 10.0);
    assert_eq!((bench.reasons(true, 11.9).len(), bench.reasons(true, 12.0).len()), (0, 1), "it waits anew");
}

#[test]
fn draining_is_for_good_and_reasons_are_counted_where_they_are_too_many() {
    let bench = Bench::new();
    let report = bench.asks(&[server("http://a"), server("http://b"), server("http://c"), server("http://d")]);
    bench.readiness.drain();
    let (reasons, count) = bench.readiness.state().reasons(false, 3, bench.at(10.0));
    assert_eq!((reasons.len(), count, &reasons[0]), (3, 5, &NotReady::Draining));
    report.answered(0);
    assert!(!bench.is_ready(1_000.0));
    assert_eq!(bench.reasons(false, 1_000.0), ["draining"]);
}

#[tokio::test]
async fn who_waits_for_a_change_is_woken_and_what_a_view_reports_goes_with_it() {
    let readiness: Arc<Readiness> = Arc::default();
    let report = readiness.ask(vec![server("http://a")]).unwrap();
    let view = readiness.view("v", BTreeSet::new());
    let (changed, over) = (readiness.clone(), report.clone());
    let waiting = tokio::spawn(async move { tokio::join!(changed.changed_from(false), over.is_over()) });
    tokio::task::yield_now().await; // it waits from here on
    report.answered(0);
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("nobody was told").unwrap();
    drop(view);
    assert!(readiness.is_ready() && readiness.state().is_empty());
}

#[tokio::test]
async fn another_configuration_ends_the_questions_of_the_one_before() {
    let readiness: Arc<Readiness> = Arc::default();
    let before = readiness.ask(vec![server("http://a")]).unwrap();
    let over = before.clone();
    let waiting = tokio::spawn(async move { over.is_over().await });
    tokio::task::yield_now().await;
    let _now = readiness.ask(vec![server("http://b")]).unwrap();
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it asks still").unwrap();
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
