//! Other resources of a view that concern a name: what refers to it, what it refers to and the view lacks, and names that are similar.
//!
//! All of it is found on demand in a snapshot, outside of the view's task and of sessions.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Serialize;
use weir_core::protocol::session::similar_to;
use weir_core::protocol::view::{Class, Completeness, Lookup, Snapshot};
use weir_core::xds::{Authority, Name, Type, TypeTable, truncate};

use super::Reason;
use crate::plural::plural;

/// A search around a name.
pub(crate) struct Search {
    pub(crate) kind: Type,
    pub(crate) name: Name,
    /// The number of resources that refer to it, if that is counted. The search ends with the last of them.
    pub(crate) counted: Option<usize>,
    pub(crate) state: Arc<Snapshot>,
    pub(crate) types: Arc<TypeTable>,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Around {
    /// The present resources that refer to it, as `type name`: the first few, and how many there are.
    #[serde(rename = "referred_by")]
    pub(crate) from: Vec<String>,
    #[serde(rename = "referred_by_count")]
    pub(crate) from_count: usize,
    /// Names that it refers to and that the view lacks: the first few, and how many there are.
    #[serde(rename = "refers_to_missing")]
    pub(crate) missing: Vec<MissingReference>,
    #[serde(rename = "refers_to_missing_count")]
    pub(crate) missing_count: usize,
    /// Present names that differ by a letter or two, if the name is not present.
    pub(crate) similar: Vec<String>,
    /// Other views that have the name, if this client does not.
    pub(crate) other_views: OtherViews,
}

/// Views that have a resource: the hashes of the first few keys, and how many there are.
#[derive(Debug, Default, Serialize)]
pub(crate) struct OtherViews {
    views: Vec<String>,
    count: usize,
    /// How many views did not answer in time.
    left_out: usize,
    #[serde(skip)]
    words: Vec<String>,
}

/// A name that a resource refers to.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct MissingReference {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) state: MissingState,
}

/// What is known of a name that the view lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MissingState {
    /// There is evidence that it does not exist.
    Absent,
    /// The complete set does not have it.
    NotInSet,
    /// It has not arrived, and the set is not known to be complete.
    Unknown,
}

impl Search {
    /// Reads each resource that may refer to others once. If the name is not present, also the names of its type.
    pub(crate) fn run(&self) -> Around {
        let Self { kind, name, state, .. } = self;
        let mut around = Around::default();
        if self.counted != Some(0) && self.may_be_referred_to() {
            self.find_referring(&mut around);
        }
        self.find_missing(&mut around);
        let is_present = CLASSES.into_iter().any(|class| matches!(state.lookup(kind, class, name), Lookup::Present(_)));
        if !is_present {
            let tables = CLASSES.into_iter().filter_map(|class| state.resources(kind, class));
            let names = tables.flat_map(|table| table.present_names()).take(COMPARED);
            around.similar = similar_to(name, names, SIMILAR).iter().map(Name::to_string).collect();
        }
        around
    }

    /// Whether other resources can refer to resources of the type.
    fn may_be_referred_to(&self) -> bool {
        self.kind == self.types.clusters()
            || self.types.referred_by(&self.types.clusters()).as_ref() == Some(&self.kind)
    }

    fn find_referring(&self, around: &mut Around) {
        let Self { kind, name, counted, state, types } = self;
        let is_cluster = *kind == types.clusters();
        let mut named = HashSet::new();
        let mut found = 0;
        for (of, resource) in state.referring() {
            let by_next = || resource.refers_to.as_ref() == Some(name) && types.referred_by(of).as_ref() == Some(kind);
            if !(is_cluster && resource.body.clusters(of).binary_search(name).is_ok() || by_next()) {
                continue;
            }
            found += 1; // a resource of both classes is counted twice
            if named.insert((of, &resource.name)) {
                around.from_count += 1;
                if around.from.len() < NAMED {
                    around.from.push(format!("{} {}", of.name(), resource.name));
                }
            }
            if *counted == Some(found) {
                break;
            }
        }
    }

    fn find_missing(&self, around: &mut Around) {
        let Self { kind, name, state, types, .. } = self;
        let resource = CLASSES.into_iter().find_map(|class| match state.lookup(kind, class, name) {
            Lookup::Present(resource) => Some(resource),
            Lookup::Unknown | Lookup::Absent(_) => None,
        });
        let Some(resource) = resource else { return };
        let clusters = types.clusters();
        let clusters = resource.body.clusters(kind).iter().map(|name| (clusters.clone(), name.clone()));
        let next = types.referred_by(kind).filter(|kind| !kind.info().delta_only).zip(resource.refers_to.clone());
        for (of, name) in clusters.chain(next) {
            let Some(missing) = missing_state(&of, &name, state) else { continue };
            around.missing_count += 1;
            if around.missing.len() < NAMED {
                let (kind, name) = (of.name().to_owned(), name.to_string());
                around.missing.push(MissingReference { kind, name, state: missing });
            }
        }
    }
}

impl OtherViews {
    pub(crate) fn leaving_out(left_out: usize) -> Self {
        Self { left_out, ..Self::default() }
    }

    pub(crate) fn add(&mut self, view: &str, words: &str) {
        self.count += 1;
        if self.views.len() < SHORT {
            self.views.push(view.to_owned());
            self.words.push(if words.is_empty() {
                view.to_owned()
            } else {
                format!("{} ({view})", truncate(words, WORDS))
            });
        }
    }

    fn reason(&self) -> Option<Reason> {
        let left_out = (self.left_out > 0).then(|| format!("{} did not answer in time", plural(self.left_out, "view")));
        let text = match self.count {
            0 => return left_out.map(|text| Reason::of("views_left_out", text)),
            1 => format!("another view has it: {}", self.words.join(", ")),
            count => {
                let more = count - self.words.len();
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("{count} other views have it: {}{more}", self.words.join(", "))
            }
        };
        let left_out = left_out.map(|text| format!("; {text}")).unwrap_or_default();
        Some(Reason::of("in_other_views", format!("{text}{left_out}")))
    }
}

/// Returns what is known of a name that is not present. `None` if it is present, or if nothing shows that it should have arrived.
fn missing_state(kind: &Type, name: &Name, state: &Snapshot) -> Option<MissingState> {
    let found = CLASSES.map(|class| state.lookup(kind, class, name));
    if found.iter().any(|of| matches!(of, Lookup::Present(_))) {
        return None;
    }
    if found.iter().any(|of| matches!(of, Lookup::Absent(_))) {
        return Some(MissingState::Absent);
    }
    let coverage = state.resources(kind, Class::Wildcard)?.coverage();
    let is_of_wildcard = Authority::of(name) == Authority::TopLevel; // `*` says nothing of names of other authorities
    match coverage.completeness() {
        Completeness::Unknown => None,
        Completeness::Complete if coverage.is_readable() && is_of_wildcard => Some(MissingState::NotInSet),
        _ => Some(MissingState::Unknown),
    }
}

impl Around {
    /// Returns the references to the name, its own references that lead nowhere, and the other views that have the name.
    pub(super) fn reasons(&self) -> impl Iterator<Item = Reason> {
        let referring = (self.from_count > 0).then(|| {
            let from = short(&self.from, self.from_count);
            Reason::of("referred_by", format!("{from} {} to it", if self.from_count == 1 { "refers" } else { "refer" }))
        });
        let states = [
            (MissingState::NotInSet, "refers_to_missing", "it refers to what the complete set does not have"),
            (MissingState::Absent, "refers_to_missing", "it refers to what does not exist"),
            (
                MissingState::Unknown,
                "refers_to_unknown",
                "it refers to what has not come, and the set is not known to be complete",
            ),
        ];
        let missing = states.into_iter().filter_map(|(state, code, text)| {
            let names: Vec<_> =
                self.missing.iter().filter(|of| of.state == state).map(MissingReference::text).collect();
            let others = self.missing_count - self.missing.len();
            let more = if others > 0 { format!(" ({others} more were not looked at)") } else { String::new() };
            (!names.is_empty()).then(|| Reason::of(code, format!("{text}: {}{more}", names.join(", "))))
        });
        referring.into_iter().chain(missing).chain(self.other_views.reason())
    }

    /// Returns the end of a text that says that a name is not present: the similar names.
    pub(super) fn similar(&self) -> String {
        match &*self.similar {
            [] => String::new(),
            [one] => format!("; {one} exists"),
            [first @ .., last] => format!("; {} and {last} exist", first.join(", ")),
        }
    }
}

impl MissingReference {
    fn text(&self) -> String {
        format!("{} {}", last_part(&self.kind), self.name)
    }
}

/// Returns the first few as text, and how many others there are.
fn short(all: &[String], count: usize) -> String {
    let named = all.iter().take(SHORT).map(|text| match text.split_once(' ') {
        Some((kind, name)) => format!("{} {name}", last_part(kind)),
        None => text.clone(),
    });
    let named: Vec<_> = named.collect();
    match count - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn last_part(kind: &str) -> &str {
    kind.rsplit('.').next().unwrap_or(kind)
}

const CLASSES: [Class; 2] = [Class::Wildcard, Class::Named];
/// How many names of a list are kept, and how many of these a text shows.
const NAMED: usize = 10;
const SHORT: usize = 3;
/// The longest description of a view, in bytes.
const WORDS: usize = 100;
/// How many names are suggested, and how many are compared for that.
const SIMILAR: usize = 3;
const COMPARED: usize = 200_000;
