//! The parameters of a request.

use std::collections::BTreeMap;
use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::response::Response;
use http::request::Parts;
use percent_encoding::percent_decode_str;
use weir_core::xds::Type;
use weir_core::xds::type_by_word;

use super::answer::bad_request;
use crate::relay::Views;

/// Parameters by name. The last of equal names counts.
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

    /// Returns the type that `type` names. An error is the response to send.
    #[expect(clippy::result_large_err, reason = "it is made once, and sent")]
    pub(super) fn kind(&self, views: &Views) -> Result<Option<Type>, Response> {
        self.get("type").map(|text| type_by_word(views.types(), text)).transpose().map_err(bad_request)
    }

    /// Returns how many rows are requested. An error is the response to send.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        Query::of(&format!("/clients?{text}").parse().unwrap())
    }

    #[test]
    fn parameters_are_decoded_once_and_of_equal_ones_the_last_counts() {
        let of = |text: &str, key: &str| query(text).owned(key);
        assert_eq!(of("node=a+b%2Bc%252B", "node").as_deref(), Some("a b+c%2B"));
        assert_eq!(of("a=b=c&&d%26=e%3Df", "a").as_deref(), Some("b=c"));
        assert_eq!(of("a=b=c&&d%26=e%3Df", "d&").as_deref(), Some("e=f"));
        assert_eq!(of("node=one&view=x&node=two", "node").as_deref(), Some("two"));
        assert_eq!((of("", "node"), of("nodes=a", "node"), of("&", "")), (None, None, None));
    }

    #[test]
    fn a_switch_is_on_by_itself_and_by_three_words() {
        for (text, is_on) in [("strict", true), ("strict=", true), ("strict=true", true), ("strict=1", true)] {
            assert_eq!(query(text).has("strict"), is_on, "{text}");
        }
        for text in ["", "strict=false", "strict=0", "strict=no", "stricter"] {
            assert!(!query(text).has("strict"), "{text}");
        }
    }

    #[test]
    fn a_limit_is_from_one_to_the_largest() {
        let limit = |text: &str| query(text).limit(7, 20).map_err(|refusal| refusal.status().as_u16());
        assert_eq!(["", "limit=1", "limit=20"].map(limit), [Ok(7), Ok(1), Ok(20)]);
        for text in ["limit=0", "limit=21", "limit=", "limit=-1", "limit=ten"] {
            assert_eq!(limit(text), Err(400), "{text}");
        }
    }
}
