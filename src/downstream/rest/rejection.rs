//! The HTTP status of a poll that gets no resources (REST-9).

use http::StatusCode;
use weir_core::proto::code;
use weir_core::protocol::session::{BadRequest, CloseReason};
use weir_core::xds::Denied;

use crate::downstream::slot::Status;
use crate::relay::AdmissionError;

/// A status with a text for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::downstream) struct Rejection {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

impl Rejection {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }
}

impl From<AdmissionError> for Rejection {
    fn from(rejected: AdmissionError) -> Self {
        let text = rejected.to_string();
        match rejected {
            AdmissionError::NoNode | AdmissionError::BadNode => Self::bad_request(text),
            AdmissionError::Denied(denied) => Self::new(denial(&denied), text),
            AdmissionError::RefusedByServer(status) => Self::new(refusal(status.code), text),
            AdmissionError::TooManyViewsOfConnection { .. }
            | AdmissionError::TooManyViewsOfIdentity { .. }
            | AdmissionError::TooManyViewsOfTenant { .. }
            | AdmissionError::TooManyStreamsOfTenant { .. } => Self::new(StatusCode::TOO_MANY_REQUESTS, text),
            AdmissionError::TooManyViews { .. }
            | AdmissionError::NoMemory(_)
            | AdmissionError::Stopping
            | AdmissionError::ConfigurationChanged => Self::unavailable(text),
        }
    }
}

impl From<CloseReason> for Rejection {
    fn from(end: CloseReason) -> Self {
        let status = match &end {
            CloseReason::Denied(denied) => denial(denied),
            CloseReason::Refused(status) => refusal(status.code),
            CloseReason::BadRequest(BadRequest::TypeNotPermitted { .. }) => StatusCode::FORBIDDEN,
            CloseReason::BadRequest(_) => StatusCode::BAD_REQUEST,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, Status::from(end).message)
    }
}

/// A client without a proven identity gets 401, any other 403.
fn denial(denied: &Denied) -> StatusCode {
    match denied {
        Denied::NoRule { proved: false, .. } => StatusCode::UNAUTHORIZED,
        _ => StatusCode::FORBIDDEN,
    }
}

/// The same for a status of the control plane.
fn refusal(status: i32) -> StatusCode {
    match status {
        code::UNAUTHENTICATED => StatusCode::UNAUTHORIZED,
        _ => StatusCode::FORBIDDEN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_has_its_share_of_views_is_told_so_and_others_are_not_to_blame() {
        let status = |rejected: AdmissionError| Rejection::from(rejected).status.as_u16();
        assert_eq!(status(AdmissionError::TooManyViewsOfConnection { limit: 2, split: None }), 429);
        assert_eq!(status(AdmissionError::TooManyViewsOfIdentity { limit: 2, split: None }), 429);
        assert_eq!(status(AdmissionError::TooManyViewsOfTenant { limit: 2, split: None }), 429);
        assert_eq!(status(AdmissionError::TooManyStreamsOfTenant { limit: 2 }), 429);
        assert_eq!(status(AdmissionError::TooManyViews { limit: 2, split: None }), 503);
        assert_eq!(status(AdmissionError::NoNode), 400);
        for (proved, code) in [(false, 401), (true, 403)] {
            let denied = Denied::NoRule { peer: "10.0.0.1".into(), proved };
            assert_eq!(Rejection::from(CloseReason::Denied(Box::new(denied))).status.as_u16(), code);
        }
    }
}
