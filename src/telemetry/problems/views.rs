//! Problems of views. Equal problems of several views are one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_core::xds::{Type, TypeTable, short_type_name};

use crate::problems::{CountedSample, ProblemKind, Sighting, shortened};
use crate::relay::{AuditReport, BrakeWatch, ServedInstead, WatchedView};

/// One problem, gathered over all views.
struct Gathered {
    sighting: Sighting,
    views: BTreeSet<u64>,
    names: BTreeSet<String>,
    /// How many views have which reason.
    reasons: BTreeMap<String, usize>,
}

/// The sightings of all views, by kind and by what distinguishes sightings of a kind.
#[derive(Default)]
struct Together(BTreeMap<(ProblemKind, String), Gathered>);

/// Returns the problems of the views. All unknown types are one, since clients can invent types.
pub(super) fn troubles(views: &[Arc<WatchedView>], types: &TypeTable, brakes: &BrakeWatch) -> Vec<Sighting> {
    let mut seen = Together::default();
    let mut instead: BTreeMap<String, ServedInstead> = BTreeMap::new();
    for view in views {
        let troubles = view.troubles();
        for away in troubles.away {
            let of = instead.entry(away.server.clone()).or_insert(away.instead);
            *of = away.instead.max(*of);
            let gathered = seen.of(ProblemKind::ServerAway, &away.server, &away.server);
            gathered.sighting.say(noticed(*of), &["weir", "status"]);
            gathered.add(view, view.clients());
            gathered.add_reason(&away.error);
        }
        if let Some((code, status)) = troubles.refused {
            let gathered = seen.of(ProblemKind::Refused, &format!("views {code}"), "views");
            gathered.sighting.say(REFUSED_VIEW, &["weir", "status"]);
            gathered.add(view, view.clients());
            gathered.add_reason(&status);
        }
        for (kind, (code, status)) in troubles.refused_types {
            let name = word(&kind, types);
            let gathered = seen.of(ProblemKind::Refused, &format!("{name} {code}"), &name);
            gathered.sighting.say(REFUSED_TYPE, &["weir", "status", "--type", kind.name()]);
            gathered.add(view, 0);
            gathered.add_reason(&status);
        }
        if troubles.dangling_count > 0 {
            let gathered = seen.of(ProblemKind::Dangling, "", "clusters");
            gathered.sighting.say(ERRORS, &["weir", "dangling"]);
            gathered.add(view, view.clients());
            gathered.add_reason("no server has them");
            gathered.sighting.names.count = gathered.sighting.names.count.max(troubles.dangling_count);
            let room = MOST_NAMES.saturating_sub(gathered.names.len());
            gathered.names.extend(troubles.dangling.iter().take(room).map(|name| name.as_str().to_owned()));
        }
        for (kind, reasons) in view.nacks() {
            let name = word(&kind, types);
            let others = (reasons.others > 0).then_some(("other reasons", reasons.others));
            let named = reasons.named.iter().map(|(reason, streams)| (&**reason, *streams));
            for (reason, streams) in named.chain(others) {
                let reason = shortened(reason.to_owned());
                let gathered = seen.of(ProblemKind::Nacks, &format!("{name} {reason}"), &name);
                gathered.sighting.say(NACKS, &["weir", "nacks", "--type", kind.name()]);
                gathered.add(view, streams);
                gathered.add_reason(&reason);
            }
        }
    }
    add_brakes(&mut seen, views, brakes);
    seen.0.into_values().map(Gathered::seen).collect()
}

fn add_brakes(seen: &mut Together, views: &[Arc<WatchedView>], brakes: &BrakeWatch) {
    let held = brakes.held_by_view();
    if held.is_empty() {
        return;
    }
    let by_hash: BTreeMap<_, _> = views.iter().map(|view| (&*view.view, view)).collect();
    for (hash, by_type) in held {
        for (kind, removals) in by_type {
            let name = short_type_name(&kind);
            let gathered = seen.of(ProblemKind::BrakeHeld, &name, &name);
            gathered.sighting.say(HELD, &["weir", "brakes"]);
            gathered.add_reason("a push would remove much of a set");
            gathered.sighting.names.count += removals;
            if let Some(view) = by_hash.get(&*hash) {
                gathered.add(view, view.clients());
            }
        }
    }
}

/// Returns, for each server, the views of which an audited client would be given something else.
pub(super) fn audits(found: &[(Arc<str>, AuditReport)], views: &[Arc<WatchedView>]) -> Vec<Sighting> {
    let mut seen = Together::default();
    let by_hash: BTreeMap<_, _> = views.iter().map(|view| (&*view.view, view)).collect();
    for (hash, report) in found {
        let gathered = seen.of(ProblemKind::AuditDiffers, &report.server, &report.server);
        gathered.sighting.say(OF_ANOTHER, &["weir", "status"]);
        gathered.add_reason(&match report.node_fields.is_empty() {
            true => "views.key lacks a field that matters".to_owned(),
            false => format!("views.key lacks a field that matters, one of {}", report.node_fields.join(", ")),
        });
        let places = report.differences.iter().map(|of| match of.path.as_str() {
            "" => format!("{} {}", short_type_name(&of.kind), of.name),
            path => format!("{} {}: {path}", short_type_name(&of.kind), of.name),
        });
        let room = MOST_NAMES.saturating_sub(gathered.names.len());
        gathered.names.extend(places.map(shortened).take(room));
        gathered.sighting.names.count = gathered.sighting.names.count.max(report.differences_count);
        if let Some(view) = by_hash.get(&**hash) {
            gathered.add(view, view.clients());
        }
    }
    seen.0.into_values().map(Gathered::seen).collect()
}

/// Returns the short name of a type in the table, and the same text for all other types.
fn word(kind: &Type, types: &TypeTable) -> String {
    if types.knows(kind.name()) { short_type_name(kind.name()) } else { "other types".into() }
}

fn noticed(instead: ServedInstead) -> &'static str {
    match instead {
        ServedInstead::Fallback => "nothing: another server serves them",
        ServedInstead::Cache => {
            "they keep what they have, and changes do not arrive; new ones are served from the cache"
        }
        ServedInstead::Nothing => "what is not cached is missing",
    }
}

impl Together {
    fn of(&mut self, kind: ProblemKind, group: &str, subject: &str) -> &mut Gathered {
        self.0.entry((kind, group.to_owned())).or_insert_with(|| Gathered {
            sighting: Sighting { group: group.to_owned(), ..Sighting::new(kind, subject, "") },
            views: BTreeSet::new(),
            names: BTreeSet::new(),
            reasons: BTreeMap::new(),
        })
    }
}

impl Gathered {
    /// Adds a view, only once, and this many of its clients.
    fn add(&mut self, view: &WatchedView, clients: usize) {
        if self.views.insert(view.number) {
            self.sighting.views.add(&*view.words);
        }
        self.sighting.clients += clients;
    }

    fn add_reason(&mut self, reason: &str) {
        *self.reasons.entry(shortened(reason.to_owned())).or_default() += 1;
    }

    /// Returns the sighting with the reason that most views have.
    fn seen(self) -> Sighting {
        let Self { mut sighting, names, reasons, .. } = self;
        let others = reasons.len().saturating_sub(1);
        let most = reasons.into_iter().max_by_key(|(_, views)| *views).map(|(reason, _)| reason).unwrap_or_default();
        sighting.reason = if others > 0 { format!("{most}; others differ") } else { most };
        if !names.is_empty() {
            let count = sighting.names.count.max(names.len()); // the views name some of theirs
            sighting.names = CountedSample { count, ..CountedSample::of(names) };
        }
        sighting
    }
}

/// How many names are distinguished over all views. Beyond that the count is only a lower bound.
const MOST_NAMES: usize = 1_000;
const REFUSED_VIEW: &str = "new streams get this status; those that are connected keep what they have";
const REFUSED_TYPE: &str = "clients lack resources of this type, and have all others";
const ERRORS: &str = "requests on these routes fail";
const NACKS: &str = "they keep what they had before";
const OF_ANOTHER: &str = "some may have the configuration of another one";
const HELD: &str = "nothing: they keep what would be removed";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problems::ProblemBoard;
    use crate::relay::{AuditDifference, AwayServer, TroubleWatch, ViewTroubles};

    fn seen(troubles: &[(usize, ViewTroubles)]) -> Vec<Sighting> {
        let watch = Arc::new(TroubleWatch::default());
        let views = troubles.iter().enumerate().map(|(at, (clients, troubles))| {
            let mut view = watch.view(format!("{at}").into(), format!("cluster=c{at}"), Arc::default());
            view.report(*clients, troubles.clone());
            view
        });
        let _kept: Vec<_> = views.collect();
        super::troubles(&watch.views(), &TypeTable::new(), &BrakeWatch::default())
    }

    #[test]
    fn a_server_is_one_problem_whatever_its_views_were_told() {
        let away = |error: &str, instead| {
            let (server, error) = ("http://a".into(), error.into());
            ViewTroubles { away: vec![AwayServer { server, error, instead }], ..ViewTroubles::default() }
        };
        let all = [
            (3, away("refused", ServedInstead::Cache)),
            (2, away("refused", ServedInstead::Nothing)),
            (1, away("reset", ServedInstead::Fallback)),
        ];
        let [seen] = &seen(&all)[..] else { panic!("one problem") };
        assert_eq!((seen.reason.as_str(), seen.clients, seen.views.count), ("refused; others differ", 6, 3));
        assert_eq!(seen.noticed, noticed(ServedInstead::Nothing), "what is worst");
    }

    #[test]
    fn views_that_are_not_the_same_for_all_their_clients_are_one_with_places_and_fields() {
        let watch = Arc::new(TroubleWatch::default());
        let mut view = watch.view("1a".into(), "cluster=gateway".into(), Arc::default());
        view.report(7, ViewTroubles::default());
        let difference = |name: &str, path: &str| AuditDifference {
            kind: "envoy.config.listener.v3.Listener".into(),
            name: name.into(),
            path: path.into(),
        };
        let report = AuditReport {
            server: "http://a".into(),
            differences: vec![difference("one", "address.socket_address"), difference("two", "")],
            differences_count: 30,
            node_fields: vec!["id".into(), "metadata.NAME".into()],
        };
        let [seen] = &audits(&[("1a".into(), report.clone()), ("2b".into(), report)], &watch.views())[..] else {
            panic!("one problem")
        };
        assert!(seen.reason.ends_with("one of id, metadata.NAME"), "{}", seen.reason);
        assert_eq!((seen.subject.as_str(), seen.clients, seen.names.count), ("http://a", 7, 30));
        assert_eq!(seen.names.first, ["LDS one: address.socket_address", "LDS two"]);
    }

    #[test]
    fn refusals_are_one_by_their_code_and_missing_clusters_by_name() {
        let refused =
            |code, words: &str| ViewTroubles { refused: Some((code, words.into())), ..ViewTroubles::default() };
        let found =
            seen(&[(1, refused(7, "request 7: no")), (1, refused(7, "request 8: no")), (1, refused(16, "who?"))]);
        assert_eq!(found.iter().map(|of| of.clients).collect::<Vec<_>>(), [1, 2]);
        let dangling = |names: &[&str]| ViewTroubles {
            dangling: names.iter().map(|name| (*name).into()).collect(),
            dangling_count: names.len(),
            ..ViewTroubles::default()
        };
        let (first, others) = (dangling(&["a", "b", "c", "d", "e"]), dangling(&["f", "g", "h"]));
        let found = seen(&[(1, first), (1, others.clone()), (1, others)]);
        assert_eq!((found[0].names.count, found[0].views.count, found[0].clients), (8, 3, 3));
    }

    /// The time of one check and one page in the worst case: 1,000 views, each with problems of its own. The number of clients does not matter, since
    /// no client is asked. docs/record/performance.md has the figures.
    #[test]
    #[ignore = "means something only in a release build, and alone"]
    fn figures_of_a_look() {
        let (watch, board, table) = (Arc::new(TroubleWatch::default()), ProblemBoard::default(), TypeTable::new());
        let views: Vec<_> = (0..1_000)
            .map(|at| {
                let away = (0..3).map(|server| AwayServer {
                    server: format!("http://cp-{server}"),
                    error: format!("Unavailable: request {at}: connection refused"),
                    instead: ServedInstead::Cache,
                });
                let dangling = (0..100).map(|name| format!("cluster-{at}-{name}").as_str().into()).collect();
                let refused_types =
                    [(table.resolve(&format!("made.Up{at}")), (2, format!("no such type {at}")))].into();
                let troubles =
                    ViewTroubles { away: away.collect(), refused: None, refused_types, dangling, dangling_count: 100 };
                let mut view = watch.view(format!("{at}").into(), format!("cluster=c{at}"), Arc::default());
                view.report(100, troubles);
                view
            })
            .collect();
        let mut times: Vec<_> = (0..20)
            .map(|_| {
                let began = std::time::Instant::now();
                let seen = super::troubles(&watch.views(), &table, &BrakeWatch::default());
                board.note(seen, began);
                let page = serde_json::to_vec(&board.page(200, began)).unwrap();
                assert!(!page.is_empty());
                began.elapsed()
            })
            .collect();
        times.sort();
        println!("a look and a page: {:?} ({:?} to {:?})", times[10], times[0], times[19]);
        drop(views);
    }

    #[test]
    fn one_view_with_many_types_that_clients_have_made_up_is_one_view() {
        let table = TypeTable::new();
        let types = (0..10).map(|number| (table.resolve(&format!("made.Up{number}")), (2, "no such type".to_owned())));
        let found = seen(&[(4, ViewTroubles { refused_types: types.collect(), ..ViewTroubles::default() })]);
        assert_eq!((found.len(), found[0].subject.as_str(), found[0].views.count), (1, "other types", 1));
    }
}
