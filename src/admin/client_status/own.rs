//! The client's view: what the relay has of its servers, by view and authority (CSDS-3, CSDS-6).

use std::collections::BTreeMap;

use super::rows::{Rows, failure};
use crate::admin::grpc::Status;
use crate::proto::status::{ClientConfig, ClientResourceStatus, GenericXdsConfig, StatusNode};
use crate::protocol::view::{AbsenceEvidence, Entry, Presence};
use crate::relay::{RejectedReport, ViewReport, ViewSnapshot, Views};
use crate::xds::{Authority, Name, Type};

/// Returns an entry for each view and authority. None if the process is stopping.
pub(super) async fn configs(views: &Views, mut rows: Rows) -> Option<Result<Vec<ClientConfig>, Status>> {
    for source in views.dump_sources() {
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

fn add(report: &ViewReport, view: &ViewSnapshot, rows: &mut Rows) -> Result<(), Status> {
    let mut rejected = Rejected::new();
    for of in report.streams.iter().flat_map(|stream| &stream.types) {
        let named = of.rejected.iter().filter_map(|one| Some(((of.kind.as_str(), one.name.as_deref()?), one)));
        rejected.extend(named);
    }
    let mut by_authority = BTreeMap::<_, Vec<(&Type, &Name, &Entry)>>::new();
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
            describe(&mut row, entry, rejected.get(&(kind.name(), name.as_str())).copied());
            rows.add(row)?;
        }
        let missing = report.authorities.iter().filter(|of| of.authority == authority);
        for missing in missing.flat_map(|of| &of.missing) {
            rows.add(GenericXdsConfig {
                type_url: format!("type.googleapis.com/{}", missing.kind),
                name: missing.name.clone(),
                client_status: ClientResourceStatus::Requested.into(),
                ..GenericXdsConfig::default()
            })?;
        }
    }
    Ok(())
}

/// CSDS-4.
fn describe(row: &mut GenericXdsConfig, entry: &Entry, rejected: Option<&RejectedReport>) {
    let error = entry.error.as_ref().map(|(_, error)| error.message.as_str());
    let status = match (&entry.presence, rejected, error) {
        (_, Some(_), _) => ClientResourceStatus::Nacked,
        (_, None, Some(_)) => ClientResourceStatus::ReceivedError,
        (Presence::Present(_), None, None) => ClientResourceStatus::Acked,
        (Presence::Absent(_), None, None) if entry.absence == AbsenceEvidence::Silence => ClientResourceStatus::Timeout,
        (Presence::Absent(_), None, None) => ClientResourceStatus::DoesNotExist,
        (Presence::Unknown, None, None) => ClientResourceStatus::Requested,
    };
    row.client_status = status.into();
    row.error_state = match (rejected, error) {
        (Some(rejected), _) => Some(failure(&rejected.reason, rejected.version.as_deref().unwrap_or_default(), None)),
        (None, Some(error)) => Some(failure(error, "", None)),
        (None, None) => None,
    };
}
