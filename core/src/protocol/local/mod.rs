//! A delta server without a connection: serves one client from a set of resources in this process.
//!
//! Owns what the client requested and was sent. Leaves reading the resources, and transport, to the edge. Invariants: additions go out in
//! the order of types and before all removals, which go in the reverse order (ORD-4); each response is bounded; no name is reported as
//! absent, and no `*` set as complete, before everything that the set should hold has been read once.

mod sent;
mod served_type;
mod snapshot;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use snapshot::{Item, Items, SourceSnapshot};

use self::served_type::{Pass, ServedType};
use super::moment::Moment;
use crate::proto::code::UNAVAILABLE;
use crate::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, ResourceError, ResourceName, Status};
use crate::protocol::upstream::INCOMPLETE_MARKER;
use crate::xds::{Type, TypeTable};

/// The server's side of one stream of one client.
#[derive(Debug)]
pub struct Server {
    table: Arc<TypeTable>,
    snapshot: Arc<SourceSnapshot>,
    /// Whether a name that is not in the set is absent. If false, other sources may have it (FS-6).
    alone: bool,
    types: BTreeMap<Type, ServedType>,
    responses: u64,
}

/// The result of asking for the next response.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// The next response.
    Response(Box<DeltaDiscoveryResponse>),
    /// Many names were checked and none had to be sent yet. The caller may yield the thread before the next call.
    Busy,
    /// There is nothing to send until something changes, or until the next deadline.
    Idle,
}

impl Server {
    /// Serves a snapshot to a client that has requested nothing yet.
    pub fn new(table: Arc<TypeTable>, snapshot: Arc<SourceSnapshot>, alone: bool) -> Self {
        Self { table, snapshot, alone, types: BTreeMap::new(), responses: 0 }
    }

    /// Applies a request.
    pub fn on_request(&mut self, request: DeltaDiscoveryRequest) {
        let kind = self.table.resolve(&request.type_url);
        let served =
            self.types.entry(kind.clone()).or_insert_with(|| ServedType::over(self.snapshot.set(&kind), self.alone));
        served.on_request(request);
    }

    /// Replaces the snapshot. Only the differences are sent.
    pub fn on_snapshot(&mut self, snapshot: Arc<SourceSnapshot>) {
        self.snapshot = snapshot;
        for (kind, served) in &mut self.types {
            served.turn_to(self.snapshot.set(kind));
        }
    }

    /// Makes resources due whose TTL has to be renewed by now.
    pub fn on_time(&mut self, now: Moment) {
        self.types.values_mut().for_each(|served| served.on_time(now));
    }

    /// When a resource with a TTL has to be sent again.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.types.values().filter_map(ServedType::next_deadline).min()
    }

    /// Returns the next response, if one is due.
    pub fn step(&mut self, now: Moment) -> Step {
        let knows_all = self.alone && self.snapshot.is_complete();
        let mut found = None;
        for (kind, served) in &mut self.types {
            match served.additions(now) {
                Pass::Some(resources) => {
                    let resource_errors = if served.is_complete() { Vec::new() } else { vec![more_to_come()] };
                    found = Some((kind, resources, Vec::new(), resource_errors));
                    break;
                }
                Pass::Busy => return Step::Busy,
                Pass::Nothing => {}
            }
        }
        if found.is_none() && knows_all {
            let mut types = self.types.iter_mut().rev();
            found = types.find_map(|(kind, served)| {
                let removed = served.removals()?;
                Some((kind, Vec::new(), removed, Vec::new()))
            });
        }
        let Some((kind, resources, removed_resources, resource_errors)) = found else { return Step::Idle };
        self.responses += 1;
        Step::Response(Box::new(DeltaDiscoveryResponse {
            type_url: format!("type.googleapis.com/{}", kind.name()),
            nonce: self.responses.to_string(),
            resources,
            removed_resources,
            resource_errors,
            ..DeltaDiscoveryResponse::default()
        }))
    }
}

/// A `*` set that is not complete carries an error under a reserved name, and the removal of that name ends the set. Delta itself has no
/// message for the end of a set.
fn more_to_come() -> ResourceError {
    let resource_name = Some(ResourceName { name: INCOMPLETE_MARKER.into(), ..ResourceName::default() });
    let message = "not all of the set is known".into();
    ResourceError { resource_name, error_detail: Some(Status { code: UNAVAILABLE, message }) }
}

#[cfg(test)]
mod tests;
