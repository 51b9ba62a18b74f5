//! The terms on which a stream uses its server.

use std::sync::Arc;

use super::quirks::ServerQuirks;
use crate::protocol::session::Variant;
use crate::protocol::upstream::options::UpstreamOptions;

/// The terms on which a stream uses its server.
#[derive(Debug)]
pub(super) struct Terms {
    pub(crate) variant: Variant,
    pub(crate) quirks: Arc<ServerQuirks>,
    pub(crate) options: Arc<UpstreamOptions>,
}
