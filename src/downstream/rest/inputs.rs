//! Reader for the body of a poll, without a connection.

use weir_core::proto::discovery::DiscoveryRequest;

use super::request;
use crate::transcode::Transcoder;

/// Reads the body of a client's poll. An error is the text that the client is sent.
pub fn read_poll(body: &[u8], transcoder: &Transcoder) -> Result<DiscoveryRequest, String> {
    request::parse(body, transcoder).map_err(|rejection| rejection.message)
}
