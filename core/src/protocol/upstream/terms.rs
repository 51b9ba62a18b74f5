//! On which terms the server of a stream is spoken to.

use std::sync::Arc;

use super::quirks::ServerQuirks;
use crate::protocol::session::Variant;
use crate::protocol::upstream::options::UpstreamOptions;

/// On which terms the server of a stream is spoken to.
#[derive(Debug)]
pub(super) struct Terms {
    pub(crate) variant: Variant,
    pub(crate) quirks: Arc<ServerQuirks>,
    pub(crate) options: Arc<UpstreamOptions>,
}
