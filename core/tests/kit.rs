//! What the tests share does what its values say: the habits of the scripted control plane, and the manners of the Envoy, in both variants. What
//! judges the core says the rest in words of `support`, and names nothing inside of the core.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use support::envoy::{Answer, Envoy, Lack, Manner, nonce_of};
use support::random::Random;
use support::server::{Habit, Health, Name, Removals, Server, ServerStream, Stated};
use support::streams::text_of_request;
use support::{Bench, CDS, EDS, RDS};
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use weir_core::proto::{Any, Request, Response};
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{Reply, Variant};
use weir_core::protocol::view::SessionId;

const BOTH: [Variant; 2] = [Variant::Sotw, Variant::Delta];
const PAUSE: Duration = Duration::from_secs(7);

/// A cluster whose name is one letter, and whose content is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Letter(char);

impl Name for Letter {
    type Kind = ();
    type Content = u32;

    fn kind(self) {}

    fn text(self) -> String {
        self.0.to_string()
    }

    fn read(_: (), text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    fn kind_of(_: &str) {}

    fn url(_: ()) -> &'static str {
        CDS
    }

    fn is_full_state(_: ()) -> bool {
        true
    }

    fn packed(self, content: u32) -> Any {
        Any { type_url: CDS.into(), value: content.to_be_bytes().to_vec().into() }
    }

    fn version(content: u32, replica: u64) -> String {
        format!("{content}.{replica}")
    }
}

fn plain() -> Habit<()> {
    Habit {
        compares: true,
        removes_stated: Stated::IfItCompares,
        removes_unknown: false,
        says_nothing_is_new: false,
        replicas: false,
        pieces: None,
        removals: Removals::InLastPiece,
        unanswered: BTreeSet::new(),
    }
}

/// Returns a server that has `a` and `b`.
fn server(habit: Habit<()>) -> Server<Letter> {
    Server::new(habit, BTreeMap::from([(Letter('a'), 1), (Letter('b'), 1)]))
}

/// Requests everything, and states these versions; in SotW the first one is that of the set.
fn everything(variant: Variant, stated: &[(&str, &str)]) -> Request {
    match variant {
        Variant::Sotw => Request::Sotw(DiscoveryRequest {
            type_url: CDS.into(),
            version_info: stated.first().map(|(_, version)| (*version).to_owned()).unwrap_or_default(),
            ..Default::default()
        }),
        Variant::Delta => Request::Delta(DeltaDiscoveryRequest {
            type_url: CDS.into(),
            initial_resource_versions: stated.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
            ..Default::default()
        }),
    }
}

fn named(on: &[&str]) -> Request {
    let resource_names_subscribe = on.iter().map(ToString::to_string).collect();
    Request::Delta(DeltaDiscoveryRequest { type_url: CDS.into(), resource_names_subscribe, ..Default::default() })
}

/// Returns the responses on a stream, each as `seconds: names -removed`. A version follows its name or set, and `?` a name without a body.
fn said(stream: &mut ServerStream<Letter>) -> Vec<String> {
    let text = |(at, response): (Moment, Response)| {
        let seconds = (at - Moment::START).as_secs();
        match response {
            Response::Sotw(of) => format!("{seconds}: {} of {}", of.resources.len(), of.version_info),
            Response::Delta(of) => {
                let mark = |bare: bool| if bare { "?" } else { "" };
                let names =
                    of.resources.iter().map(|of| format!("{}={}{}", of.name, of.version, mark(of.resource.is_none())));
                format!("{seconds}: {} -{}", names.collect::<Vec<_>>().join(","), of.removed_resources.join(","))
            }
        }
    };
    stream.out.drain(..).map(text).collect()
}

/// Returns what a server says to the first request of a new stream.
fn first_words(server: &mut Server<Letter>, request: &Request) -> Vec<String> {
    let mut stream = server.accept();
    server.hear(request, &mut stream, Moment::START);
    said(&mut stream)
}

#[test]
fn a_server_sends_what_it_has_and_then_what_changes() {
    for variant in BOTH {
        let (mut server, is_sotw) = (server(plain()), variant == Variant::Sotw);
        let mut stream = server.accept();
        server.hear(&everything(variant, &[]), &mut stream, Moment::START);
        assert!(stream.is_set(()));
        assert_eq!(said(&mut stream), [if is_sotw { "0: 2 of 1-0" } else { "0: a=1.0,b=1.0 -" }]);
        server.content.insert(Letter('b'), 2);
        server.changes.insert((), 1);
        server.push(Letter('b'), is_sotw, &mut stream, Moment::START);
        assert_eq!(said(&mut stream), [if is_sotw { "0: 2 of 2-0" } else { "0: b=2.0 -" }]);
        server.content.remove(&Letter('b'));
        server.changes.insert((), 2);
        server.push(Letter('b'), is_sotw, &mut stream, Moment::START);
        assert_eq!(said(&mut stream), [if is_sotw { "0: 1 of 3-0" } else { "0:  -b" }]);
        assert_eq!(stream.next(Moment::START), None);
    }
}

#[test]
fn a_server_that_compares_sends_nothing_that_is_stated_and_one_that_does_not_sends_all() {
    for (compares, sotw, delta) in [(true, None, "0: b=1.0 -c"), (false, Some("0: 2 of 1-0"), "0: a=1.0,b=1.0 -")] {
        let mut server = server(Habit { compares, ..plain() });
        let stated = everything(Variant::Sotw, &[("", "1-0")]);
        assert_eq!(first_words(&mut server, &stated), sotw.into_iter().collect::<Vec<_>>());
        let stated = everything(Variant::Delta, &[("a", "1.0"), ("b", "other"), ("c", "other")]);
        assert_eq!(first_words(&mut server, &stated), [delta]);
    }
}

#[test]
fn a_server_removes_what_is_stated_or_requested_by_its_habit() {
    for (removes_stated, compares, gone) in [
        (Stated::IfItCompares, true, "own,other"),
        (Stated::IfItCompares, false, ""),
        (Stated::InOwnVersions, false, "own"),
        (Stated::All, false, "own,other"),
    ] {
        let mut server = server(Habit { removes_stated, compares, ..plain() });
        let words = first_words(&mut server, &everything(Variant::Delta, &[("own", "1.0"), ("other", "weir-unknown")]));
        let sorted: BTreeSet<_> = gone.split(',').collect();
        let removed: BTreeSet<_> = words[0].split_once(" -").unwrap().1.split(',').collect();
        assert_eq!(removed, sorted, "{removes_stated:?}, {compares}");
    }
    for (removes_unknown, words) in [(true, "0: a=1.0 -x"), (false, "0: a=1.0 -")] {
        let mut server = server(Habit { removes_unknown, ..plain() });
        assert_eq!(first_words(&mut server, &named(&["a", "x"])), [words]);
    }
}

#[test]
fn a_server_to_which_nothing_is_new_says_so_or_is_silent() {
    for variant in BOTH {
        let stated = match variant {
            Variant::Sotw => everything(variant, &[("", "1-0")]),
            Variant::Delta => everything(variant, &[("a", "1.0"), ("b", "1.0")]),
        };
        let mut silent = server(plain());
        assert_eq!(first_words(&mut silent, &stated), [""; 0], "{variant:?}");
        let mut server = server(Habit { says_nothing_is_new: true, ..plain() });
        assert_eq!(first_words(&mut server, &stated).len(), 1, "{variant:?}");
    }
}

#[test]
fn each_stream_to_replicas_has_versions_of_its_own() {
    for variant in BOTH {
        for replicas in [true, false] {
            let mut server = server(Habit { replicas, ..plain() });
            let words = [(); 2].map(|()| first_words(&mut server, &everything(variant, &[])));
            assert_eq!(words[0] != words[1], replicas, "{variant:?}");
        }
    }
}

#[test]
fn a_set_in_pieces_has_its_removals_where_the_habit_puts_them() {
    for (removals, words) in [
        (Removals::InFirstPiece, vec!["0: a=1.0 -x", "7: b=1.0 -"]),
        (Removals::InLastPiece, vec!["0: a=1.0 -", "7: b=1.0 -x"]),
        (Removals::Apart, vec!["0: a=1.0 -", "7: b=1.0 -", "14:  -x"]),
    ] {
        let mut server = server(Habit { pieces: Some(PAUSE), removals, ..plain() });
        let mut stream = server.accept();
        server.hear(&everything(Variant::Delta, &[("x", "1.0")]), &mut stream, Moment::START);
        server.push(Letter('a'), false, &mut stream, Moment::START);
        assert_eq!(said(&mut stream), words, "{removals:?}: and nothing again that was given");
    }
}

#[test]
fn a_type_may_be_unanswered_and_a_resource_without_a_body() {
    for variant in BOTH {
        let mut server = server(Habit { unanswered: [()].into(), ..plain() });
        assert_eq!(first_words(&mut server, &everything(variant, &[])), [""; 0], "{variant:?}");
    }
    let mut server = server(plain());
    server.broken.insert(Letter('a'));
    assert_eq!(first_words(&mut server, &everything(Variant::Delta, &[])), ["0: a=1.0?,b=1.0 -"]);
}

#[test]
fn a_server_in_trouble_answers_calls_or_speaks_or_neither() {
    for (health, answers_calls, speaks) in [
        (Health::Fine, true, true),
        (Health::AnswersOnce, true, true),
        (Health::Refuses, true, false), // there are no connections for calls
        (Health::Mute, true, false),
        (Health::Rejects, true, false),
        (Health::Hangs, false, false),
        (Health::HalfOpen, false, false),
    ] {
        assert_eq!((health.answers_calls(), health.speaks()), (answers_calls, speaks), "{health:?}");
    }
}

/// Returns an Envoy on a bench whose server has one cluster.
fn envoy(manner: Manner) -> (Bench, SessionId, Envoy) {
    let mut bench = Bench::new();
    let (id, envoy) = (bench.client(manner.variant), Envoy::new(manner));
    bench.request(id, envoy.first());
    bench.whole(CDS, &[("c0", "1")]);
    (bench, id, envoy)
}

/// Sends endpoints of the cluster and routes, if they are requested. One route refers to another cluster.
fn serve(bench: &mut Bench) {
    for requested in bench.asked_upstream() {
        match requested.as_str() {
            "+c0" => bench.set(EDS, &[("c0", "1")]),
            "+r0" | "+r1" => bench.set(RDS, &[(&requested[1..], "c0")]),
            "+r2" => bench.set(RDS, &[("r2", "c1")]),
            _ => {}
        }
    }
}

fn next_reply(bench: &mut Bench, id: SessionId) -> Reply {
    let now = bench.poll(id);
    now.or_else(|| {
        bench.later(5_000); // longer than any wait of a session
        bench.poll(id)
    })
    .expect("a reply")
}

/// Gives the next reply to an Envoy, and its requests to the relay. Returns these as texts, with the type and the answered nonce.
fn take(bench: &mut Bench, id: SessionId, envoy: &mut Envoy, answer: Answer) -> Vec<String> {
    let reply = next_reply(bench, id);
    let requests = envoy.take(&reply, answer);
    let text = |request: &Request| {
        let (_, kind) = request.type_url().rsplit_once('.').unwrap();
        format!("{kind} {} n{}", text_of_request(request), nonce_of(request))
    };
    let texts = requests.iter().map(text).collect();
    requests.into_iter().for_each(|request| bench.request(id, request));
    serve(bench);
    texts
}

#[test]
fn an_envoy_acks_clusters_at_once_or_when_they_are_warm() {
    for variant in BOTH {
        let [ack, subscription] = match variant {
            Variant::Sotw => ["Cluster [] v n1", "ClusterLoadAssignment [c0] v n"],
            Variant::Delta => ["Cluster +[] -[] {} n1", "ClusterLoadAssignment +[c0] -[] {} n"],
        };
        for acknowledges_first in [true, false] {
            let (mut bench, id, mut envoy) = envoy(Manner { variant, acknowledges_first, starts_cold: false });
            let requests = take(&mut bench, id, &mut envoy, Answer::Ack);
            assert_eq!(requests, if acknowledges_first { vec![ack, subscription] } else { vec![subscription] });
            let requests = take(&mut bench, id, &mut envoy, Answer::Ack);
            assert!(requests[0].starts_with("ClusterLoadAssignment") && requests[0].ends_with("n2"), "{requests:?}");
            assert!(requests[1].starts_with("RouteConfiguration") && requests[1].ends_with(" n"), "{requests:?}");
            assert_eq!(requests[2..], [ack][usize::from(acknowledges_first)..]);
        }
    }
}

#[test]
fn an_envoy_that_starts_cold_requests_routes_with_its_first_endpoints() {
    for variant in BOTH {
        for starts_cold in [true, false] {
            let (mut bench, id, mut envoy) = envoy(Manner { variant, acknowledges_first: true, starts_cold });
            bench.whole(CDS, &[("c0", "1"), ("c1", "1")]); // c1 has no endpoints
            take(&mut bench, id, &mut envoy, Answer::Ack);
            let requests = take(&mut bench, id, &mut envoy, Answer::Ack);
            assert_eq!(requests.iter().any(|text| text.starts_with("Route")), starts_cold, "{requests:?}");
        }
    }
}

#[test]
fn an_envoy_keeps_its_routes_when_it_nacks_and_says_nothing_when_it_is_silent() {
    for variant in BOTH {
        for (answer, routes, requests) in [(Answer::Ack, 3, 1), (Answer::Nack, 0, 1), (Answer::Silence, 3, 0)] {
            let (mut bench, id, mut envoy) = envoy(Manner { variant, acknowledges_first: true, starts_cold: false });
            (0..2).for_each(|_| drop(take(&mut bench, id, &mut envoy, Answer::Ack)));
            let reply = next_reply(&mut bench, id);
            let said = envoy.take(&reply, answer);
            assert_eq!((envoy.routes.len(), said.len()), (routes, requests), "{variant:?}, {answer:?}");
            assert_eq!(said.iter().any(Request::is_nack), answer == Answer::Nack, "{variant:?}");
        }
    }
}

#[test]
fn a_route_into_the_void_is_seen_until_its_cluster_has_endpoints() {
    for variant in BOTH {
        let (mut bench, id, mut envoy) = envoy(Manner { variant, acknowledges_first: true, starts_cold: false });
        let voids =
            |envoy: &Envoy| envoy.voids().map(|(_, cluster, lack)| (cluster.to_owned(), lack)).collect::<Vec<_>>();
        (0..3).for_each(|_| drop(take(&mut bench, id, &mut envoy, Answer::Ack)));
        assert_eq!(voids(&envoy), [("c1".to_owned(), Lack::Cluster)], "{variant:?}");
        assert!(envoy.early.contains("c1"), "{variant:?}: its first version leads there");
        bench.whole(CDS, &[("c0", "1"), ("c1", "1")]);
        take(&mut bench, id, &mut envoy, Answer::Ack);
        assert_eq!(voids(&envoy), [("c1".to_owned(), Lack::Endpoints)], "{variant:?}");
        bench.set(EDS, &[("c1", "1")]);
        take(&mut bench, id, &mut envoy, Answer::Ack);
        assert_eq!((voids(&envoy), envoy.early.len()), (Vec::new(), 0), "{variant:?}");
    }
}

/// Other numbers would make other histories of each seed.
#[test]
fn random_numbers_stay_what_they_are() {
    let mut random = Random::of(4711);
    assert_eq!([(); 5].map(|()| random.below(1_000)), [693, 598, 770, 378, 98]);
    let mut items = [0, 1, 2, 3, 4];
    random.shuffle(&mut items);
    assert_eq!(items, [1, 0, 3, 4, 2]);
}

/// The types inside of the core by which servers, views and clients agree. A core that is built anew has others.
const INNER: &[&str] = &[
    "Claim",
    "Claimed",
    "Class",
    "Completeness",
    "Evidence",
    "Lookup",
    "Presence",
    "Retain",
    "RowPosition",
    "SavedSet",
    "Selector",
    "Stage",
    "TrialEnd",
    "Update",
    "UpdateUnit",
];

/// What may name some of them.
const EXCEPTIONS: [(&str, &[&str]); 4] = [
    ("upstream/main.rs", &["Claim", "Claimed", "Evidence", "Retain", "Selector", "Update"]), // the bench of that program
    ("rules/stages.rs", &["RowPosition", "Stage", "UpdateUnit"]),                            // ends with the stages
    ("fallback/cached.rs", &["TrialEnd"]), // these two lose the trials of types with the trials
    ("fallback/steady.rs", &["TrialEnd"]),
];

fn inner_types_in(text: &str) -> BTreeSet<&str> {
    let code =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).filter_map(|line| line.split(" //").next());
    let words = code.flat_map(|code| code.split(|letter: char| !letter.is_alphanumeric() && letter != '_'));
    words.filter(|word| INNER.contains(word)).collect()
}

/// Otherwise the tests would have to change in the commits that they judge.
#[test]
fn judges_name_nothing_that_is_inside_of_the_core() {
    let text = "use view::{Class, SubClass}; // Update\n/// Retain\nlet name = \"xdstp://x\"; Selector::Name\n";
    assert_eq!(Vec::from_iter(inner_types_in(text)), ["Class", "Selector"]);
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let in_folder = |folder: &str| fs::read_dir(tests.join(folder)).unwrap().map(|file| file.unwrap().path());
    let files = ["rules", "fallback", "upstream"].into_iter().flat_map(in_folder).chain([tests.join("growth.rs")]);
    let mut named = BTreeMap::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let words: Vec<_> = inner_types_in(&text).into_iter().map(str::to_owned).collect();
        if !words.is_empty() {
            named.insert(path.strip_prefix(&tests).unwrap().to_str().unwrap().to_owned(), words);
        }
    }
    let allowed = EXCEPTIONS.map(|(path, words)| (path.to_owned(), words.iter().map(ToString::to_string).collect()));
    assert_eq!(
        named,
        BTreeMap::from(allowed),
        "say it by `Set`, `Extent` and the verbs of the bench in support/says.rs"
    );
}
