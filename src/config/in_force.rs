//! The values that are in force, key by key, as `weir check` shows them.

use super::form::{Section, as_written};
use super::raw::Root;

/// A key of a section with one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownKey {
    pub(crate) key: &'static str,
    /// None for a list, which the relay may understand otherwise than it is written.
    pub(crate) value: Option<String>,
    pub(crate) default: Option<String>,
    /// The file has it.
    pub(crate) is_set: bool,
}

/// The keys of the sections that are shown key by key.
#[derive(Debug, Clone, Default)]
pub(crate) struct InForce {
    pub(crate) views: Vec<ShownKey>,
    pub(crate) limits: Vec<ShownKey>,
    pub(crate) brakes: Vec<ShownKey>,
    /// Other sections by their names.
    pub(crate) others: Vec<(&'static str, Vec<ShownKey>)>,
}

impl InForce {
    pub(super) fn of(raw: &Root) -> Self {
        let mut others = vec![
            ("clients", keys(&raw.clients.value)),
            ("rest", keys(&raw.rest.value)),
            ("load_reports", keys(&raw.load_reports.value)),
            ("drain", keys(&raw.drain.value)),
            ("reload", keys(&raw.reload.value)),
        ];
        others.extend(raw.state.iter().map(|state| ("state", keys(&state.value))));
        let alone = keys(raw).into_iter().filter(|shown| ["watchdog", "ready_after"].contains(&shown.key));
        others.push(("process", alone.collect()));
        Self { views: keys(&raw.views.value), limits: keys(&raw.limits.value), brakes: keys(&raw.brakes.value), others }
    }

    /// Returns every key with its section.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &ShownKey)> {
        let own = [("views", &self.views), ("limits", &self.limits), ("brakes", &self.brakes)];
        let others = self.others.iter().map(|(section, keys)| (*section, keys));
        own.into_iter().chain(others).flat_map(|(section, keys)| keys.iter().map(move |key| (section, key)))
    }
}

fn keys<S: Section>(section: &S) -> Vec<ShownKey> {
    let rows = S::rows().into_iter().zip(section.values()).zip(section.given());
    let shown = rows.map(|((row, value), given)| ShownKey {
        key: row.key,
        value: value.as_ref().map(as_written).or(row.absent.map(str::to_owned)),
        default: row.default.as_ref().map(as_written),
        is_set: given.is_some(),
    });
    shown.collect()
}
