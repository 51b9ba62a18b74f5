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
}

/// The keys of the sections that are shown key by key.
#[derive(Debug, Clone, Default)]
pub(crate) struct InForce {
    pub(crate) views: Vec<ShownKey>,
    pub(crate) limits: Vec<ShownKey>,
    pub(crate) brakes: Vec<ShownKey>,
}

impl InForce {
    pub(super) fn of(raw: &Root) -> Self {
        Self { views: keys(&raw.views.value), limits: keys(&raw.limits.value), brakes: keys(&raw.brakes.value) }
    }
}

fn keys<S: Section>(section: &S) -> Vec<ShownKey> {
    let rows = S::rows().into_iter().zip(section.values());
    let shown = rows.map(|(row, value)| ShownKey {
        key: row.key,
        value: value.as_ref().map(as_written).or(row.absent.map(str::to_owned)),
        default: row.default.as_ref().map(as_written),
    });
    shown.collect()
}
