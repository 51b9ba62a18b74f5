//! What is wrong in views: equal troubles of several views are one.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::xds::{Type, TypeTable, short_type_name};

use crate::problems::{ProblemKind, Sighting};
use crate::relay::{BrakeWatch, Instead, WatchedView};

/// Sightings of all views, by kind, subject and reason.
#[derive(Default)]
struct Together(BTreeMap<(ProblemKind, String, String), Sighting>);

/// Returns what is wrong in the views. Types that are not known are one, since clients can invent them.
pub(super) fn troubles(views: &[Arc<WatchedView>], types: &TypeTable, brakes: &BrakeWatch) -> Vec<Sighting> {
    let mut seen = Together::default();
    let mut instead: BTreeMap<(String, String), Instead> = BTreeMap::new();
    for view in views {
        let troubles = view.troubles();
        for away in troubles.away {
            let of = instead.entry((away.server.clone(), away.error.clone())).or_insert(away.instead);
            *of = away.instead.max(*of);
            let sighting = seen.of(ProblemKind::ServerAway, &away.server, &away.error);
            sighting.servers.add_other(&away.server);
            add(sighting, view, view.clients());
            sighting.say(noticed(*of), &["weir", "status"]);
        }
        if let Some(status) = troubles.refused {
            let sighting = seen.of(ProblemKind::Refused, "views", &status);
            add(sighting, view, view.clients());
            sighting.say(REFUSED_VIEW, &["weir", "status"]);
        }
        for (kind, status) in troubles.refused_types {
            let name = word(&kind, types);
            let sighting = seen.of(ProblemKind::Refused, &name, &status);
            add(sighting, view, 0);
            sighting.say(REFUSED_TYPE, &["weir", "status", "--type", kind.name()]);
        }
        if troubles.dangling_count > 0 {
            let sighting = seen.of(ProblemKind::Dangling, "clusters", "no server has them");
            add(sighting, view, view.clients());
            troubles.dangling.iter().for_each(|name| sighting.names.add_other(name.as_str()));
            sighting.names.count = sighting.names.count.max(troubles.dangling_count);
            sighting.say(ERRORS, &["weir", "dangling"]);
        }
        for (kind, reasons) in view.nacks() {
            let (name, others) =
                (word(&kind, types), (reasons.others > 0).then_some(("other reasons", reasons.others)));
            let named = reasons.named.iter().map(|(reason, streams)| (&**reason, *streams));
            for (reason, streams) in named.chain(others) {
                let sighting = seen.of(ProblemKind::Nacks, &name, reason);
                add(sighting, view, streams);
                sighting.say(NACKS, &["weir", "nacks", "--type", kind.name()]);
            }
        }
    }
    add_brakes(&mut seen, views, brakes);
    seen.0.into_values().collect()
}

fn add_brakes(seen: &mut Together, views: &[Arc<WatchedView>], brakes: &BrakeWatch) {
    let held = brakes.held_by_view();
    if held.is_empty() {
        return;
    }
    let by_hash: BTreeMap<_, _> = views.iter().map(|view| (&*view.view, view)).collect();
    for (hash, by_type) in held {
        for (kind, removals) in by_type {
            let sighting =
                seen.of(ProblemKind::BrakeHeld, &short_type_name(&kind), "a push would remove much of a set");
            match by_hash.get(&*hash) {
                Some(view) => add(sighting, view, view.clients()),
                None => sighting.views.add(&*hash),
            }
            sighting.names.count += removals;
            sighting.say(HELD, &["weir", "brakes"]);
        }
    }
}

fn add(sighting: &mut Sighting, view: &WatchedView, clients: usize) {
    sighting.views.add(&*view.words);
    sighting.clients += clients;
}

/// Returns the short name of a type of the table.
fn word(kind: &Type, types: &TypeTable) -> String {
    if types.knows(kind.name()) { short_type_name(kind.name()) } else { "other types".into() }
}

fn noticed(instead: Instead) -> &'static str {
    match instead {
        Instead::Fallback => "nothing: another server serves them",
        Instead::Cache => "they keep what they have, and changes do not arrive; new ones are served from the cache",
        Instead::Nothing => "what is not cached is missing",
    }
}

impl Together {
    fn of(&mut self, kind: ProblemKind, subject: &str, reason: &str) -> &mut Sighting {
        let id = (kind, subject.to_owned(), reason.to_owned());
        self.0.entry(id).or_insert_with(|| Sighting::new(kind, subject, reason))
    }
}

const REFUSED_VIEW: &str = "new streams get this status; those that are connected keep what they have";
const REFUSED_TYPE: &str = "clients lack resources of this type, and have all others";
const ERRORS: &str = "requests on these routes fail";
const NACKS: &str = "they keep what they had before";
const HELD: &str = "nothing: they keep what would be removed";
