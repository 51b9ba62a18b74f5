//! The relay as a client: the resources that its servers sent, by view and authority (CSDS-3, CSDS-6).

use std::collections::{BTreeMap, BTreeSet};

use weir_core::protocol::view::{AbsenceEvidence, Presence, TableEntry};
use weir_core::xds::{Authority, Name, Type, type_url};

use super::Failure;
use super::rows::{Rows, failure};
use crate::proto::status::{ClientConfig, ClientResourceStatus, GenericXdsConfig, StatusNode, UpdateFailureState};
use crate::relay::{RejectedReport, ViewReport, ViewSnapshot, Views, questions};

/// Returns an entry for each view and authority; `None` if the process is stopping.
pub(super) async fn configs(views: &Views, mut rows: Rows) -> Option<Result<Vec<ClientConfig>, Failure>> {
    for source in questions::dump_sources(views) {
        let Some((report, view)) = source.view().await else { continue };
        let added = tokio::task::spawn_blocking(move || add(&report, &view, &mut rows).map(|()| rows));
        rows = match added.await.ok()? {
            Ok(rows) => rows,
            Err(status) => return Some(Err(status)),
        };
    }
    Some(Ok(rows.done()))
}

/// Resources that servers sent and the relay rejected, by type and name.
type Rejected<'a> = BTreeMap<(&'a str, &'a str), &'a RejectedReport>;

fn add(report: &ViewReport, view: &ViewSnapshot, rows: &mut Rows) -> Result<(), Failure> {
    let mut rejected = Rejected::new();
    for of in report.streams.iter().flat_map(|stream| &stream.types) {
        let named = of.rejected.iter().filter_map(|one| Some(((of.kind.as_str(), one.name.as_deref()?), one)));
        rejected.extend(named);
    }
    // A name may be both in a set and requested by itself, so `rejected` keeps the errors of names that were shown.
    let mut unshown = rejected.clone();
    let mut expired = BTreeSet::new();
    let mut by_authority = BTreeMap::<_, Vec<(&Type, &Name, &TableEntry)>>::new();
    for (kind, _, table) in view.snapshot.tables() {
        for (name, entry) in table.entries() {
            by_authority.entry(Authority::of(name).name().to_owned()).or_default().push((kind, name, entry));
        }
    }
    for of in &report.authorities {
        by_authority.entry(of.authority.clone()).or_default();
    }
    for (authority, entries) in by_authority {
        let cluster = report.key_fields.get("cluster").cloned().unwrap_or_default();
        let node = StatusNode { id: format!("weir-{}", report.view), cluster };
        rows.begin(node, format!("view={} authority={authority}", report.view))?;
        for (kind, name, entry) in entries {
            let mut row = rows.row(kind, name, Some(entry), view.now);
            let key = (kind.name(), name.as_str());
            describe(&mut row, entry, rejected.get(&key).copied());
            unshown.remove(&key);
            expired.extend((entry.absence == AbsenceEvidence::Expired).then_some(key));
            rows.add(row)?;
        }
        let missing = report.authorities.iter().filter(|of| of.authority == authority);
        for missing in missing.flat_map(|of| &of.missing) {
            let key = (missing.kind.as_str(), missing.name.as_str());
            if !expired.contains(&key) {
                rows.add(not_cached(key, unshown.remove(&key)))?;
            }
        }
        let is_of = |name: &str| Authority::of(&name.into()).name() == authority;
        for (key, reason) in unshown.iter().filter(|((_, name), _)| is_of(name)) {
            rows.add(not_cached(*key, Some(reason)))?;
        }
    }
    Ok(())
}

/// Returns an entry for a name without a cached resource.
fn not_cached((kind, name): (&str, &str), rejected: Option<&RejectedReport>) -> GenericXdsConfig {
    let status = if rejected.is_some() { ClientResourceStatus::Nacked } else { ClientResourceStatus::Requested };
    GenericXdsConfig {
        type_url: type_url(kind).into_owned(),
        name: name.to_owned(),
        client_status: status.into(),
        error_state: rejected.map(refusal),
        ..GenericXdsConfig::default()
    }
}

fn refusal(rejected: &RejectedReport) -> UpdateFailureState {
    failure(&rejected.reason, rejected.version.as_deref().unwrap_or_default(), None)
}

/// Sets the status and its details (CSDS-4).
fn describe(row: &mut GenericXdsConfig, entry: &TableEntry, rejected: Option<&RejectedReport>) {
    let error = entry.error.as_ref().map(|(_, error)| error.message.as_str());
    let status = match (&entry.presence, rejected, error) {
        (_, Some(_), _) => ClientResourceStatus::Nacked,
        (_, None, Some(_)) => ClientResourceStatus::ReceivedError,
        (Presence::Present(_), None, None) => ClientResourceStatus::Acked,
        (Presence::Absent(_), None, None) => match entry.absence {
            AbsenceEvidence::Reported => ClientResourceStatus::DoesNotExist,
            AbsenceEvidence::Silence => ClientResourceStatus::Timeout,
            AbsenceEvidence::Expired => ClientResourceStatus::Requested, // the relay no longer knows anything of it
        },
        (Presence::Unknown, None, None) => ClientResourceStatus::Requested,
    };
    row.client_status = status.into();
    row.error_state = match (rejected, error) {
        (Some(rejected), _) => Some(refusal(rejected)),
        (None, Some(error)) => Some(failure(error, "", None)),
        (None, None) => None,
    };
}

#[cfg(test)]
mod tests;
