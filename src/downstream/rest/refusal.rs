//! Why a poll gets no resources, as HTTP says it (REST-9).

use http::StatusCode;

use crate::downstream::slot::Status;
use crate::protocol::session::End;
use crate::relay::Refused;

/// A status with a text for whoever looks into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::downstream) struct Refusal {
    pub status: StatusCode,
    pub message: String,
}

impl Refusal {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let text = refused.to_string();
        match refused {
            Refused::NoNode | Refused::BadNode => Self::bad_request(text),
            Refused::TooManyViews(_) | Refused::Stopping => Self::unavailable(text),
        }
    }
}

impl From<End> for Refusal {
    fn from(end: End) -> Self {
        let bad = matches!(end, End::Bad(_));
        let text = Status::from(end).message;
        if bad { Self::bad_request(text) } else { Self::unavailable(text) }
    }
}
