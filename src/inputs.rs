//! Input from peers and files, parsed as the relay does, without a connection and without a relay: for the fuzz targets.

pub use crate::config::inputs::{read_bootstrap, read_json, review_config};
pub use crate::downstream::inputs::{
    RequestLimits, check_load_report, check_request, read_messages, read_poll, read_proxy_header,
};
pub use crate::state::inputs::MemoryStateFile;
pub use crate::upstream::inputs::{read_answer, write_poll};
