//! The values that are in force, key by key, as `weir check` shows them.

use super::form::{Section, as_written};
use super::raw::{self, Root};

/// A key of a section with one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownKey {
    pub(crate) key: &'static str,
    /// `None` for a list, which the relay may interpret in another way than it is written.
    pub(crate) value: Option<String>,
    pub(crate) default: Option<String>,
    /// Whether the file sets the key.
    pub(crate) is_set: bool,
}

/// The keys of the sections that are shown key by key.
#[derive(Debug, Clone, Default)]
pub(crate) struct InForce {
    pub(crate) views: Vec<ShownKey>,
    pub(crate) limits: Vec<ShownKey>,
    pub(crate) brakes: Vec<ShownKey>,
    /// Other sections, by their names.
    pub(crate) others: Vec<(String, Vec<ShownKey>)>,
}

impl InForce {
    pub(super) fn of(raw: &Root) -> Self {
        let mut others = vec![
            ("clients".to_owned(), keys(&raw.clients.value)),
            ("rest".to_owned(), keys(&raw.rest.value)),
            ("load_reports".to_owned(), keys(&raw.load_reports.value)),
            ("drain".to_owned(), keys(&raw.drain.value)),
            ("reload".to_owned(), keys(&raw.reload.value)),
        ];
        others.extend(raw.state.iter().map(|state| ("state".to_owned(), keys(&state.value))));
        others.extend(raw.upstream.0.iter().flat_map(|of| upstream(of)));
        let alone = keys(raw).into_iter().filter(|shown| ["shards", "watchdog", "ready_after"].contains(&shown.key));
        others.push(("process".to_owned(), alone.collect()));
        others.push(("views.audit".to_owned(), plain(&raw.views.audit.value)));
        let views = keys(&raw.views.value).into_iter().filter(|shown| shown.key != "audit").collect();
        Self { views, limits: keys(&raw.limits.value), brakes: keys(&raw.brakes.value), others }
    }

    /// Returns every key, with its section.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &ShownKey)> {
        let own = [("views", &self.views), ("limits", &self.limits), ("brakes", &self.brakes)];
        let others = self.others.iter().map(|(section, keys)| (section.as_str(), keys));
        own.into_iter().chain(others).flat_map(|(section, keys)| keys.iter().map(move |key| (section, key)))
    }
}

/// Returns the numbers, times and words of the upstream side. Texts are left out because they may come from a variable that is a secret. Lists of
/// servers are shown elsewhere, as the relay interprets them.
fn upstream(raw: &raw::Upstream) -> Vec<(String, Vec<ShownKey>)> {
    let mut found = vec![
        ("upstream.fallback".to_owned(), plain(&raw.fallback.value)),
        ("upstream.backoff".to_owned(), plain(&raw.backoff.value)),
    ];
    for server in raw.all_servers() {
        let (path, server) = (&server.place.path, &server.value);
        found.push((path.clone(), plain(server)));
        found.extend(server.liveness.iter().map(|of| (format!("{path}.liveness"), plain(&of.value))));
        found.extend(server.keepalive.iter().map(|of| (format!("{path}.keepalive"), plain(&of.value))));
        found.extend(server.backoff.iter().map(|of| (format!("{path}.backoff"), plain(&of.value))));
    }
    found
}

fn plain<S: Section>(section: &S) -> Vec<ShownKey> {
    keys(section).into_iter().filter(|shown| shown.default.is_some()).collect()
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
