use weir_core::proto::discovery::Status;

use super::*;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const REFRESH: Duration = Duration::from_secs(5);

struct Rig {
    subscriptions: Polls,
    table: TypeTable,
    now: Instant,
}

impl Rig {
    fn new() -> Self {
        let subscriptions = Polls::new(PollSchedule { refresh: REFRESH, failures: 3 });
        Self { subscriptions, table: TypeTable::new(), now: Instant::now() }
    }

    fn want(&mut self, url: &str, names: &[&str], version: &str) -> Accepted {
        let request = DiscoveryRequest {
            node: (version.is_empty()).then(|| Bytes::from_static(b"node")),
            type_url: url.into(),
            resource_names: names.iter().map(ToString::to_string).collect(),
            version_info: version.into(),
            ..DiscoveryRequest::default()
        };
        self.subscriptions.take(request, &self.table, self.now)
    }

    /// Returns the polls that are due now.
    fn requested(&mut self) -> Vec<Poll> {
        self.now = self.now.max(Instant::now());
        self.subscriptions.due(self.now)
    }

    fn one(&mut self) -> Poll {
        let mut requested = self.requested();
        assert_eq!(requested.len(), 1, "{requested:?}");
        requested.remove(0)
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Lets time pass until the next polls are due, and answers those for these types; the others fail. Returns whether the server counts as
    /// unreachable, and the types that were polled.
    fn round(&mut self, answered: &[&str]) -> (bool, Vec<String>) {
        self.now = self.subscriptions.next_due().unwrap();
        let (requested, mut is_unreachable) = (self.requested(), false);
        for question in &requested {
            if answered.contains(&question.url.as_str()) {
                self.subscriptions.answered(question, false, self.now, 1.0);
            } else {
                is_unreachable |= self.subscriptions.failed(question, true, self.now, 0.5);
            }
        }
        (is_unreachable, requested.into_iter().map(|question| question.url).collect())
    }
}

#[test]
fn rest_10_a_poll_comes_again_after_the_delay_and_up_to_as_much_again() {
    for (random, after) in [(0.0, REFRESH), (0.5, REFRESH * 3 / 2), (1.0, REFRESH * 2)] {
        let mut rig = Rig::new();
        rig.want(CDS, &[], "");
        let question = rig.one();
        assert_eq!((question.path.as_str(), &question.request.node), ("/v3/discovery:clusters", &Some("node".into())));
        assert_eq!((rig.requested(), rig.subscriptions.next_due()), (Vec::new(), None), "one at a time");
        rig.subscriptions.answered(&question, false, rig.now, random);
        assert_eq!(rig.subscriptions.next_due(), Some(rig.now + after));
        rig.pass(after);
        assert_eq!(rig.one().request.node, Some("node".into()), "in each request (REST-4)");
    }
}

#[test]
fn rest_5_and_rest_8_a_version_is_stated_for_the_same_question_alone_and_only_when_it_was_answered() {
    let mut rig = Rig::new();
    rig.want(EDS, &["a"], "from before"); // of an earlier opening
    let question = rig.one();
    assert_eq!(question.request.version_info, "");
    rig.subscriptions.answered(&question, false, rig.now, 0.0);
    rig.want(EDS, &["a"], "7"); // the answer was ACKed
    rig.pass(REFRESH);
    let question = rig.one();
    assert_eq!(question.request.version_info, "7");
    rig.want(EDS, &["a", "b"], "7");
    assert_eq!(rig.requested(), []);
    rig.subscriptions.answered(&question, false, rig.now, 0.0);
    let question = rig.one();
    assert_eq!((question.request.resource_names.len(), question.request.version_info.as_str()), (2, ""), "at once");
    rig.subscriptions.failed(&question, true, rig.now, 0.0);
    rig.pass(REFRESH);
    let question = rig.one();
    assert_eq!(question.request.version_info, "");
    rig.subscriptions.answered(&question, false, rig.now, 0.0);
    rig.pass(REFRESH);
    assert_eq!(rig.one().request.version_info, "7");
}

#[test]
fn rest_8_a_name_that_was_left_and_is_wanted_again_is_requested_again() {
    let mut rig = Rig::new();
    rig.want(EDS, &["a"], "");
    let question = rig.one();
    rig.subscriptions.answered(&question, false, rig.now, 0.0);
    rig.want(EDS, &["a"], "7");
    rig.want(EDS, &[], "7");
    rig.want(EDS, &["a"], "7");
    let question = rig.one();
    assert_eq!(question.request.version_info, "", "what it had was forgotten");
    // The same while a poll is under way.
    rig.want(EDS, &[], "7");
    rig.want(EDS, &["a"], "7");
    rig.subscriptions.answered(&question, false, rig.now, 0.0);
    let question = rig.one();
    assert_eq!(question.request.version_info, "");
    rig.subscriptions.answered(&question, false, rig.now, 0.0);
    rig.pass(REFRESH);
    assert_eq!(rig.one().request.version_info, "7");
}

#[test]
fn rest_7_and_up_40_after_a_rejection_and_of_what_has_an_end_everything_is_requested_again() {
    let mut rig = Rig::new();
    rig.want(CDS, &[], "");
    let question = rig.one();
    rig.subscriptions.answered(&question, false, rig.now, 0.0);
    rig.want(CDS, &[], "1");
    let nack = DiscoveryRequest {
        type_url: CDS.into(),
        version_info: "1".into(),
        error_detail: Some(Status::default()),
        ..DiscoveryRequest::default()
    };
    rig.subscriptions.take(nack, &rig.table, rig.now);
    rig.pass(REFRESH);
    let question = rig.one();
    assert_eq!(question.request.version_info, "", "some of what was refused may have been taken over");
    rig.subscriptions.answered(&question, true, rig.now, 0.0);
    rig.want(CDS, &[], "3");
    rig.pass(REFRESH);
    let question = rig.one();
    assert_eq!(question.request.version_info, "", "it is to be given again before it ends");
    rig.subscriptions.answered(&question, false, rig.now, 0.0);
    rig.want(CDS, &[], "4");
    rig.pass(REFRESH);
    assert_eq!(rig.one().request.version_info, "4");
}

#[test]
fn a_type_is_refused_until_its_poll_fails_otherwise() {
    let mut rig = Rig::new();
    rig.want(CDS, &[], "");
    let question = rig.one();
    assert!(rig.subscriptions.refused(&question));
    rig.subscriptions.not_refused(&question);
    let other = Poll { url: "unknown".into(), ..question };
    assert!(!rig.subscriptions.refused(&other), "one type is not");
}

#[test]
fn rest_11_no_names_are_everything_first_and_nothing_after_names() {
    let mut rig = Rig::new();
    rig.want(CDS, &[], "");
    let question = rig.one();
    rig.subscriptions.answered(&question, false, rig.now, 0.0);
    // `*` is unsubscribed on a stream by its name first, and then by an empty list.
    rig.want(CDS, &["*"], "1");
    assert_eq!(rig.subscriptions.next_due(), Some(rig.now + REFRESH));
    rig.want(CDS, &[], "1");
    assert_eq!(rig.subscriptions.next_due(), None, "nothing is wanted");
    rig.pass(REFRESH * 10);
    assert_eq!(rig.requested(), []);
    rig.want(CDS, &["*"], "1");
    assert_eq!(rig.one().request.resource_names, Vec::<String>::new());

    let mut rig = Rig::new();
    rig.want(EDS, &["a"], "");
    rig.want(EDS, &[], "");
    assert_eq!((rig.requested(), rig.subscriptions.probes()), (Vec::new(), Vec::new()));
}

#[test]
fn a_type_without_a_path_is_not_requested() {
    let mut rig = Rig::new();
    for url in ["type.googleapis.com/envoy.config.route.v3.VirtualHost", "x/own.Type"] {
        assert_eq!(rig.want(url, &["a"], ""), Accepted::NoPath, "{url}");
    }
    assert_eq!(rig.requested(), []);
}

#[test]
fn up_31_so_many_failures_in_a_row_are_one_too_many_and_one_answer_takes_them_all_back() {
    let mut rig = Rig::new();
    rig.want(CDS, &[], "");
    rig.want(EDS, &["a"], "");
    let [clusters, endpoints] = rig.requested().try_into().unwrap();
    let now = rig.now;
    assert!(
        !rig.subscriptions.failed(&endpoints, true, now, 0.5) && !rig.subscriptions.failed(&endpoints, true, now, 0.5)
    );
    rig.subscriptions.answered(&clusters, false, now, 0.0);
    assert!(
        !rig.subscriptions.failed(&endpoints, true, now, 0.5) && !rig.subscriptions.failed(&clusters, true, now, 0.5)
    );
    assert!(rig.subscriptions.failed(&endpoints, true, now, 0.5));
    let probe = rig.subscriptions.probes().swap_remove(0);
    assert_eq!((probe.path, probe.request.version_info), (clusters.path, String::new()));
}

#[test]
fn up_31_i8_a_type_that_fails_alone_is_no_reason_to_leave_a_server_that_answers_another_however_seldom_it_is_polled() {
    for has_answered in [false, true] {
        let mut rig = Rig::new();
        rig.subscriptions = Polls::new(PollSchedule { refresh: Duration::from_secs(3600), failures: 3 });
        rig.want(CDS, &[], "");
        rig.want(EDS, &["a"], "");
        if has_answered {
            assert!(!rig.round(&[CDS, EDS]).0);
            rig.want(EDS, &["a", "b"], "1"); // it is polled at once
        }
        let begun = rig.now;
        for round in 0..30 {
            let (is_unreachable, polled) = rig.round(&[CDS]);
            assert!(!is_unreachable, "{round}");
            // After two failures in a row the other type is polled beside the next one.
            let are_both = round % 2 == 0 && (round > 0 || !has_answered);
            let expected: &[&str] = if are_both { &[CDS, EDS] } else { &[EDS] };
            assert_eq!(polled, expected, "{round}");
        }
        assert!(rig.now - begun > Duration::from_secs(600), "less and less often");
    }
}

#[test]
fn up_31_a_server_that_answers_nothing_any_more_is_left_with_the_third_failure_though_a_type_was_not_due() {
    let mut rig = Rig::new();
    rig.want(EDS, &["a"], "");
    assert!(!rig.round(&[EDS]).0);
    rig.want(CDS, &[], "");
    let begun = rig.now;
    for (is_left, expected) in [(false, &[CDS][..]), (false, &[CDS][..]), (true, &[CDS, EDS][..])] {
        let (is_unreachable, polled) = rig.round(&[]);
        assert_eq!(polled, expected);
        assert_eq!(is_unreachable, is_left, "{polled:?}");
    }
    assert!(rig.now - begun < REFRESH, "when endpoints would have been due");
}

#[test]
fn a_poll_that_fails_is_tried_again_sooner_and_ever_later() {
    let mut rig = Rig::new();
    rig.want(CDS, &[], "");
    let mut pauses = Vec::new();
    for _ in 0..6 {
        let question = rig.one();
        rig.subscriptions.failed(&question, true, rig.now, 0.5);
        let pause = rig.subscriptions.next_due().unwrap() - rig.now;
        pauses.push(pause);
        rig.pass(pause);
    }
    assert!(pauses[0] == Duration::from_secs(1) && pauses.is_sorted() && pauses[5] == REFRESH, "{pauses:?}");
    let question = rig.one();
    rig.subscriptions.answered(&question, false, rig.now, 0.0);
    rig.pass(REFRESH);
    let question = rig.one();
    rig.subscriptions.failed(&question, true, rig.now, 0.5);
    assert_eq!(rig.subscriptions.next_due(), Some(rig.now + pauses[0]), "it has answered since");
}

#[test]
fn up_31_an_error_of_one_type_is_no_silence_and_never_the_last_straw() {
    let mut rig = Rig::new();
    rig.want(CDS, &[], "");
    rig.want(EDS, &["a"], "");
    let [clusters, endpoints] = rig.requested().try_into().unwrap();
    let now = rig.now;
    let mut fails = |question: &Poll, silent| rig.subscriptions.failed(question, silent, now, 0.5);
    assert_eq!([(); 5].map(|()| fails(&endpoints, false)), [false; 5]);
    assert_eq!([(); 2].map(|()| fails(&clusters, true)), [false; 2], "none of the others counts");
    assert!(!fails(&endpoints, false));
    assert!(fails(&clusters, true));
    assert!(!fails(&endpoints, false), "the server has answered this one");
}

#[test]
fn a_server_that_is_polled_often_has_a_second_after_a_failure() {
    let mut rig = Rig::new();
    rig.subscriptions = Polls::new(PollSchedule { refresh: Duration::from_millis(10), failures: 3 });
    rig.want(CDS, &[], "");
    let question = rig.one();
    rig.subscriptions.failed(&question, true, rig.now, 0.5);
    assert_eq!(rig.subscriptions.next_due(), Some(rig.now + Duration::from_secs(1)));
    rig.pass(Duration::from_secs(1));
    let question = rig.one();
    rig.subscriptions.answered(&question, false, rig.now, 0.0);
    assert_eq!(rig.subscriptions.next_due(), Some(rig.now + Duration::from_millis(10)));
}

#[test]
fn a_server_is_tested_by_what_it_has_answered_if_that_is_still_wanted() {
    let mut rig = Rig::new();
    rig.want(CDS, &[], "");
    rig.want(EDS, &["a"], "");
    let [_, endpoints] = rig.requested().try_into().unwrap();
    assert_eq!(rig.subscriptions.answered(&endpoints, false, rig.now, 0.0), 1);
    rig.want(EDS, &["a"], "7");
    let probe = rig.subscriptions.probes().swap_remove(0);
    assert_eq!(
        (probe.url.as_str(), probe.request.resource_names.len()),
        (EDS, 1),
        "clusters may be what it cannot answer"
    );
    assert_eq!((probe.request.version_info, probe.request.node), (String::new(), Some("node".into())));
    rig.want(EDS, &[], "7");
    assert_eq!(rig.subscriptions.probes().swap_remove(0).url, CDS);
}

#[test]
fn a_server_is_tested_by_what_it_has_answered_last() {
    let mut rig = Rig::new();
    rig.want(CDS, &[], "");
    rig.want(EDS, &["a"], "");
    let [clusters, endpoints] = rig.requested().try_into().unwrap();
    for question in [&clusters, &endpoints, &clusters, &endpoints] {
        rig.subscriptions.answered(question, false, rig.now, 0.0);
        assert_eq!(rig.subscriptions.probes().swap_remove(0).url, question.url, "the other one may have failed since");
        assert_eq!(rig.subscriptions.probes().len(), 2);
    }
}

#[test]
fn up_31_i8_a_server_is_not_left_before_the_first_poll_of_each_type_has_ended() {
    let mut rig = Rig::new();
    rig.want(CDS, &[], "");
    rig.want(EDS, &["a"], "");
    let [clusters, _] = rig.requested().try_into().unwrap();
    for failure in 0..5 {
        let question = Poll { url: EDS.into(), ..clusters.clone() };
        assert!(!rig.subscriptions.failed(&question, true, rig.now, 0.5), "{failure}: clusters take longer");
    }
    assert!(rig.subscriptions.failed(&clusters, true, rig.now, 0.5));
}

#[test]
fn no_two_answers_have_one_number() {
    let mut rig = Rig::new();
    rig.want(CDS, &[], "");
    rig.want(EDS, &["a"], "");
    let [clusters, endpoints] = rig.requested().try_into().unwrap();
    let numbers = [&clusters, &endpoints, &clusters].map(|of| rig.subscriptions.answered(of, false, rig.now, 0.0));
    assert_eq!(numbers, [1, 2, 3], "a NACK of one must not be taken for one of another");
}
