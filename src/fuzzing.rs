//! The fuzz targets: entry functions for what peers and files send, which panic if something does not hold. docs/fuzzing.md describes them.

pub use crate::transcode::fuzzing::check_message;

use weir_core::{protocol, xds};

use crate::transcode::Transcoder;
use crate::{config, downstream, state, transcode, upstream};

/// A function for any input.
#[derive(Debug)]
pub struct Target {
    /// The name of the target and of the folder with its corpus.
    pub name: &'static str,
    /// Panics if the input breaks a rule.
    pub run: fn(&[u8]),
    /// How many bytes of memory any input may take, and how many more for each of its bytes.
    pub memory: [usize; 2],
}

/// All targets.
pub const TARGETS: &[Target] = &[
    target("client_requests", downstream::fuzzing::client_requests, [1 << 16, 128]),
    target("proxy_header", downstream::fuzzing::proxy_header, [1 << 14, 8]),
    target("server_responses", protocol::upstream::fuzzing::server_responses, [1 << 16, 256]),
    target("names", xds::fuzzing::names, [1 << 16, 128]),
    target("sharing_keys", xds::fuzzing::sharing_keys, [1 << 16, 256]),
    target("references", references, [1 << 16, 256]),
    target("bootstrap", config::fuzzing::bootstrap, [1 << 16, 256]),
    target("config", config::fuzzing::config, [1 << 20, 256]),
    target("rest_polls", downstream::fuzzing::poll, [1 << 16, 256]),
    target("rest_answers", upstream::fuzzing::answer, [1 << 16, 256]),
    target("messages", transcode::fuzzing::messages, [1 << 17, 512]),
    target("resource_files", transcode::fuzzing::files, [1 << 17, 512]),
    target("snapshots", state::fuzzing::snapshots, [16 << 20, 1024]),
    target("load_reports", protocol::loads::fuzzing::load_reports, [1 << 16, 128]),
];

const fn target(name: &'static str, run: fn(&[u8]), memory: [usize; 2]) -> Target {
    Target { name, run, memory }
}

fn references(data: &[u8]) {
    xds::fuzzing::references(data, |message, body| Transcoder::envoy().canonical(message, body).ok());
}
