//! The HTTP status of a poll that gets no resources (REST-9).

use http::StatusCode;

use crate::downstream::slot::Status;
use crate::protocol::session::CloseReason;
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
            AdmissionError::TooManyViews(_) | AdmissionError::Stopping => Self::unavailable(text),
        }
    }
}

impl From<CloseReason> for Rejection {
    fn from(end: CloseReason) -> Self {
        let bad = matches!(end, CloseReason::BadRequest(_));
        let text = Status::from(end).message;
        if bad { Self::bad_request(text) } else { Self::unavailable(text) }
    }
}
