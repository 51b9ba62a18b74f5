//! Fuzz target: the bodies of polls.

use super::request;
use crate::transcode::Transcoder;
use crate::upstream::fuzzing::written;

/// The body of a poll. What is read comes back if it is written as a poll of the relay's own.
pub(crate) fn poll(body: &[u8]) {
    let transcoder = Transcoder::envoy();
    let Ok(request) = request::parse(body, &transcoder) else { return };
    assert!(request.response_nonce.is_empty() && request.error_detail.is_none());
    let written = written(&request, &transcoder);
    assert_eq!(request::parse(&written, &transcoder).ok(), Some(request), "{}", String::from_utf8_lossy(&written));
}
