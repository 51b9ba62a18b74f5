//! The parameters of a request.

use std::collections::BTreeMap;
use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::response::Response;
use http::request::Parts;
use percent_encoding::percent_decode_str;

use super::answer::bad_request;
use crate::relay::Views;
use crate::xds::Type;

/// Parameters by name. Of equal ones the last counts.
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    fn of(uri: &http::Uri) -> Self {
        let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(key, value)| (decode(key), decode(value)))
                .collect(),
        )
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    pub(super) fn owned(&self, key: &str) -> Option<String> {
        self.0.get(key).cloned()
    }

    /// Whether a switch is on: `?strict`, `?strict=true` and `?strict=1`.
    pub(super) fn has(&self, key: &str) -> bool {
        matches!(self.get(key), Some("" | "true" | "1"))
    }

    /// Returns the type that `type` names. An error is the response.
    #[expect(clippy::result_large_err, reason = "it is made once, and sent")]
    pub(super) fn kind(&self, views: &Views) -> Result<Option<Type>, Response> {
        self.get("type").map(|text| views.type_of(text)).transpose().map_err(bad_request)
    }

    /// Returns how many rows are wanted. An error is the response.
    #[expect(clippy::result_large_err, reason = "it is made once, and sent")]
    pub(super) fn limit(&self, usual: usize, most: usize) -> Result<usize, Response> {
        let limit = self.get("limit").map_or(Ok(usual), str::parse).ok();
        let limit = limit.filter(|limit| (1..=most).contains(limit));
        limit.ok_or_else(|| bad_request(format_args!("invalid limit: expected a number from 1 to {most}")))
    }
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.uri))
    }
}
