//! A delta server without a wire: answers one client of the protocol out of a set of resources held in this process.
//!
//! Owns what that client requested and was told. Leaves where the set comes from, and carrying, to the edge. Always: additions go
//! out in the order of types and before all removals, which go the other way round (ORD-4); each answer is bounded; nothing is
//! said to be absent, and no `*` set to be whole, before everything that the set should hold has been read once.

mod sent;
mod snapshot;
mod type_subscription;

use crate::proto::code::UNAVAILABLE;
use crate::protocol::upstream::INCOMPLETE_MARKER;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use snapshot::{Item, Items, SourceSnapshot};

use self::type_subscription::{Pass, TypeSubscription};
use super::moment::Moment;
use crate::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, ResourceError, ResourceName, Status};
use crate::xds::{Type, TypeTable};

/// One stream of one client, as the server of it.
#[derive(Debug)]
pub(crate) struct Server {
    table: Arc<TypeTable>,
    snapshot: Arc<SourceSnapshot>,
    /// What is not in the set is nowhere. Otherwise there are other sources, and nobody here knows (FS-6).
    alone: bool,
    subscriptions: BTreeMap<Type, TypeSubscription>,
    responses: u64,
}

/// What comes of requesting the next response.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    Response(Box<DeltaDiscoveryResponse>),
    /// A good deal was looked at and nothing found yet: whoever else needs the thread may have it before the next call.
    Busy,
    Idle,
}

impl Server {
    pub(crate) fn new(table: Arc<TypeTable>, snapshot: Arc<SourceSnapshot>, alone: bool) -> Self {
        Self { table, snapshot, alone, subscriptions: BTreeMap::new(), responses: 0 }
    }

    pub(crate) fn on_request(&mut self, request: DeltaDiscoveryRequest) {
        let kind = self.table.resolve(&request.type_url);
        let subscription = self
            .subscriptions
            .entry(kind.clone())
            .or_insert_with(|| TypeSubscription::over(self.snapshot.set(&kind), self.alone));
        subscription.on_request(request);
    }

    /// Another set takes the place of the one that was there. Only what differs is told.
    pub(crate) fn on_snapshot(&mut self, snapshot: Arc<SourceSnapshot>) {
        self.snapshot = snapshot;
        for (kind, subscription) in &mut self.subscriptions {
            subscription.turn_to(self.snapshot.set(kind));
        }
    }

    pub(crate) fn on_time(&mut self, now: Moment) {
        self.subscriptions.values_mut().for_each(|subscription| subscription.on_time(now));
    }

    /// When something with a life of its own has to be told again.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        self.subscriptions.values().filter_map(TypeSubscription::next_deadline).min()
    }

    /// The next response, if there is anything to say.
    pub(crate) fn step(&mut self, now: Moment) -> Step {
        let knows_all = self.alone && self.snapshot.is_complete();
        let mut found = None;
        for (kind, subscription) in &mut self.subscriptions {
            match subscription.additions(now) {
                Pass::Some(resources) => {
                    let resource_errors = if subscription.is_complete() { Vec::new() } else { vec![more_to_come()] };
                    found = Some((kind, resources, Vec::new(), resource_errors));
                    break;
                }
                Pass::Busy => return Step::Busy,
                Pass::Nothing => {}
            }
        }
        if found.is_none() && knows_all {
            let mut subscriptions = self.subscriptions.iter_mut().rev();
            found = subscriptions.find_map(|(kind, subscription)| {
                let removed = subscription.removals()?;
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

/// As long as a `*` set is not complete, something of it is reported to be amiss, which ends when that is removed: with that
/// the protocol has a word for the end of a set after all.
fn more_to_come() -> ResourceError {
    let resource_name = Some(ResourceName { name: INCOMPLETE_MARKER.into(), ..ResourceName::default() });
    let message = "not all of the set is known".into();
    ResourceError { resource_name, error_detail: Some(Status { code: UNAVAILABLE, message, details: Vec::new() }) }
}

#[cfg(test)]
mod tests;
