//! The fuzz targets: functions for what peers and files send, which panic if something does not hold. docs/fuzzing.md describes them.
//!
//! They are compiled for the fuzzer and into `tests/fuzz_corpus.rs`. So they use crates that both have, and each other by `super`.

mod client_requests;
mod config;
mod load_reports;
mod message_rules;
mod messages;
mod names;
mod proxy_header;
mod references;
mod rest;
mod server_responses;
mod sharing_keys;
mod snapshots;

/// A function for any input.
#[derive(Debug)]
pub struct Target {
    /// The name of the target and of the folder with its corpus.
    pub name: &'static str,
    /// Panics if the input breaks a rule.
    pub run: fn(&[u8]),
    /// How many bytes of memory any input may take, and how many more for each of its bytes.
    #[allow(dead_code)] // the fuzzer alone measures memory; `tests/fuzz_corpus.rs` includes this file too
    pub memory: [usize; 2],
}

/// All targets.
pub const TARGETS: &[Target] = &[
    target("client_requests", client_requests::client_requests, [1 << 17, 128]),
    target("proxy_header", proxy_header::proxy_header, [1 << 14, 8]),
    target("server_responses", server_responses::server_responses, [1 << 16, 256]),
    target("names", names::names, [1 << 16, 128]),
    target("sharing_keys", sharing_keys::sharing_keys, [1 << 16, 256]),
    target("references", references::references, [1 << 16, 256]),
    target("bootstrap", config::bootstrap, [1 << 16, 256]),
    target("config", config::config, [1 << 20, 256]),
    target("rest_polls", rest::rest_polls, [1 << 16, 256]),
    target("rest_answers", rest::rest_answers, [1 << 16, 256]),
    target("messages", messages::messages, [1 << 17, 512]),
    target("resource_files", messages::resource_files, [1 << 17, 512]),
    target("snapshots", snapshots::snapshots, [16 << 20, 1024]),
    target("load_reports", load_reports::load_reports, [1 << 16, 128]),
];

const fn target(name: &'static str, run: fn(&[u8]), memory: [usize; 2]) -> Target {
    Target { name, run, memory }
}
