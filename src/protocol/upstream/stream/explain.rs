//! What a stream knows of one name: whether the server was asked for it, and what it has said.

use std::sync::Arc;

use super::Stream;
use crate::protocol::moment::Moment;
use crate::protocol::upstream::requested_names::NameState;
use crate::xds::{Name, Type};

/// One name on one upstream stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NameRequest {
    pub(crate) state: RequestState,
    /// What the server last sent of it could not be used.
    pub(crate) rejected: Option<Arc<str>>,
    /// The error that the server reported for it.
    pub(crate) error: Option<String>,
}

/// How far a request for a name has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestState {
    /// The server was asked, and has not answered. Its silence counts from then on, if the time runs.
    Waiting(Option<Moment>),
    /// It was silent about the name for the resource timer.
    Silent,
    /// It has reported that the name does not exist.
    Absent,
    /// It has sent the name, or has it stated.
    Given,
    /// It is asked for the whole set.
    OfWildcard,
    /// The request has no room for the name.
    LeftOut,
}

impl Stream {
    /// Returns what is known of a name; none if it is not requested on this stream.
    pub(crate) fn request_of(&self, kind: &Type, name: &Name) -> Option<NameRequest> {
        let of = self.types.get(kind)?;
        let collection = name.collection().filter(|glob| of.names.contains(glob));
        let state = if of.left_out.has(name) {
            RequestState::LeftOut
        } else if of.names.contains(name) || collection.is_some() {
            match of.requested.get(name).or_else(|| of.requested.get(&collection?)) {
                Some(NameState::Waiting { until, .. }) => RequestState::Waiting(until),
                Some(NameState::Silent) => RequestState::Silent,
                Some(NameState::Absent) => RequestState::Absent,
                None => RequestState::Given,
            }
        } else if of.wildcard {
            RequestState::OfWildcard
        } else {
            return None;
        };
        let rejected = of.rejected.names().find(|(rejected, _)| *rejected == name);
        Some(NameRequest {
            state,
            rejected: rejected.map(|(_, rejection)| rejection.reason.clone()),
            error: of.errors.get(name).map(|error| error.message.clone()),
        })
    }
}
