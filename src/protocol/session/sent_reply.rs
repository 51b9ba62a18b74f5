//! What a session remembers of a reply.

use super::carried::Carried;
use crate::protocol::moment::Moment;
use crate::protocol::view::Revision;
use crate::xds::SetVersion;

/// A reply that was sent, as far as it is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SentReply {
    pub(crate) nonce: u64,
    /// The version of what the client has of the type with it, the `version_info` of SotW.
    pub(crate) version: SetVersion,
    /// The snapshot that it was made from.
    pub(crate) revision: Revision,
    /// It has all that the client may have of the type.
    pub(crate) is_full_set: bool,
    /// When it was handed to the transport.
    pub(crate) sent: Moment,
    pub(crate) carried: Carried,
}
