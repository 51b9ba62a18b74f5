//! A poll of a server and its answer, without a connection.

use weir_core::proto::discovery::{DiscoveryRequest, DiscoveryResponse};

use super::read::{self, Read};
use crate::transcode::{TranscodeError, Transcoder};
use crate::upstream::error_chain::chain;

/// Writes the body of a poll that the relay sends to a server.
pub fn write_poll(request: &DiscoveryRequest, transcoder: &Transcoder) -> Result<Vec<u8>, TranscodeError> {
    read::write(request, transcoder)
}

/// Reads a server's answer to a poll of this type URL. Returns the response, and why entries cannot be read: each of these is replaced by an
/// unusable one in the response.
pub fn read_answer(
    body: &[u8],
    type_url: &str,
    transcoder: &Transcoder,
) -> Result<(DiscoveryResponse, Vec<String>), String> {
    let Read { response, rejected, .. } = read::read(body, type_url, transcoder).map_err(|error| chain(&error))?;
    Ok((response, rejected))
}
