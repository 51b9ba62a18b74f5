//! One source: a gRPC server, a REST server, or files.

use std::time::Duration;

use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::{InitialSet, OnResourceTimeout, ServerQuirks};

use super::limits::SourceLimits;
use super::tls;
use crate::config::bounds::{LONGEST_MESSAGE, within};
use crate::config::checker::{Checker, or};
use crate::config::connection;
use crate::config::diagnostic::Place;
use crate::config::files;
use crate::config::form::{FilePath, Located, OneOrMore, Pause, Positive, ServerUri, Size};
use crate::config::plain_server::{CONNECT_TIMEOUT, MAX_STREAMS_PER_CONNECTION, plain_server};
use crate::config::raw::{self, Server};
use crate::upstream::{AdsServer, FilesOptions, FilesServer, RestServer, SourcePlan};

pub(super) fn source(raw: &Located<Server>, limits: SourceLimits, checker: &mut Checker) -> Option<SourcePlan> {
    match (&raw.uri, &raw.rest, &raw.files) {
        (Some(uri), None, None) => {
            only_with("rest", polled_keys(raw), checker);
            server(raw, uri, limits, checker).map(Box::new).map(SourcePlan::Ads)
        }
        (None, Some(uri), None) => {
            only_with("uri", streamed_keys(raw), checker);
            polled(raw, uri, limits, checker).map(Box::new).map(SourcePlan::Rest)
        }
        (None, None, Some(files)) => {
            let keys = polled_keys(raw).into_iter().chain(streamed_keys(raw)).chain(server_keys(raw));
            only_with("uri or rest", keys, checker);
            Some(file_source(files, limits, checker))
        }
        (None, None, None) => {
            checker.lacks(&raw.place, "missing source: expected uri, rest or files");
            None
        }
        (uri, rest, files) => {
            let places = [uri.as_ref().map(|uri| &uri.place), place(rest), place(files)];
            let mut places = places.into_iter().flatten();
            if let Some(second) = places.nth(1) {
                checker.fault(second, "more than one source: expected one of uri, rest and files");
            }
            None
        }
    }
}

pub(super) fn file_source(
    raw: &Located<OneOrMore<FilePath>>,
    limits: SourceLimits,
    checker: &mut Checker,
) -> SourcePlan {
    let paths = raw.0.iter().map(|path| checker.file(path, files::look_for)).collect();
    let options = FilesOptions { paths, files: MAX_FILES, file_bytes: limits.file_bytes };
    SourcePlan::Files(FilesServer::new(options))
}

fn only_with<'p>(kind: &str, keys: impl IntoIterator<Item = Option<&'p Place>>, checker: &mut Checker) {
    for place in keys.into_iter().flatten() {
        checker.fault(place, format!("only servers with {kind} have this key"));
    }
}

fn polled(raw: &Server, uri: &Located<ServerUri>, limits: SourceLimits, checker: &mut Checker) -> Option<RestServer> {
    let request_timeout = or(&raw.request_timeout, Pause(REQUEST_TIMEOUT)).0;
    let at = server(raw, uri, limits, checker)?;
    let connect_timeout = if raw.connect_timeout.is_some() { at.connect_timeout } else { request_timeout };
    Some(RestServer {
        at: AdsServer { connect_timeout, ..at },
        refresh_delay: or(&raw.refresh_delay, Pause(REFRESH_DELAY)).0,
        request_timeout,
    })
}

fn server(raw: &Server, uri: &Located<ServerUri>, limits: SourceLimits, checker: &mut Checker) -> Option<AdsServer> {
    let is_encrypted = uri.0.scheme_str() == Some("https");
    if !is_encrypted {
        tls::without_tls(raw, checker);
    }
    let tls = if is_encrypted { Some(tls::check(raw.tls.as_ref(), uri, checker)?) } else { None };
    within(&raw.max_request_bytes, SHORTEST_REQUEST, LONGEST_MESSAGE, "the longest message of gRPC", checker);
    let streams = or(&raw.max_streams_per_connection, Positive(MAX_STREAMS_PER_CONNECTION)).0;
    if let Some(max) = raw.max_streams_per_connection.as_ref().filter(|max| max.0 > MOST_STREAMS) {
        checker.fault(&max.place, format!("invalid number {}: expected {MOST_STREAMS} or less", max.0));
    }
    let backoff = raw.backoff.as_ref().map_or(limits.backoff, |raw| connection::backoff(raw, limits.backoff, checker));
    Some(AdsServer {
        tls,
        tokens: raw.token_file.iter().map(|file| checker.file(file, files::look_at_token)).collect(),
        tenants: tls::tenants(raw, checker),
        variant: raw.variant.as_ref().map(|variant| variant.value.into()),
        quirks: quirks(raw),
        connect_timeout: or(&raw.connect_timeout, Pause(CONNECT_TIMEOUT)).0,
        life: connection::life(raw.liveness.as_ref().map(|probe| &probe.value)),
        keepalive: connection::keepalive(raw.keepalive.as_ref().map(|probe| &probe.value)),
        backoff,
        max_streams_per_connection: streams,
        ..plain_server(uri.0.clone(), limits.message_bytes)
    })
}

fn quirks(raw: &Server) -> ServerQuirks {
    let on_resource_timeout = match or(&raw.resource_timer_is_transient_error, false) {
        true => OnResourceTimeout::TransientError,
        false => OnResourceTimeout::Absent,
    };
    let defaults = ServerQuirks::default();
    ServerQuirks {
        node_in_every_request: or(&raw.node_in_every_request, false),
        supports_initial_resource_versions: or(&raw.supports_initial_resource_versions, true),
        max_request_bytes: or(&raw.max_request_bytes, Size(defaults.max_request_bytes)).0,
        supports_empty_subscription: or(&raw.supports_empty_subscription, true),
        ignore_deletions: or(&raw.ignore_deletions, false),
        on_resource_timeout,
        fail_on_data_errors: or(&raw.fail_on_data_errors, false),
        initial_set: or(&raw.initial_set, raw::InitialSet::Auto).into(),
        per_type_liveness: false,
        skips_brakes: false,
    }
}

fn place<T>(given: &Option<Located<T>>) -> Option<&Place> {
    given.as_ref().map(|given| &given.place)
}

/// Keys for REST.
fn polled_keys(raw: &Server) -> [Option<&Place>; 2] {
    [place(&raw.refresh_delay), place(&raw.request_timeout)]
}

/// Keys for streams and connections.
fn streamed_keys(raw: &Server) -> [Option<&Place>; 10] {
    [
        place(&raw.variant),
        place(&raw.tenants),
        place(&raw.liveness),
        place(&raw.keepalive),
        place(&raw.node_in_every_request),
        place(&raw.supports_initial_resource_versions),
        place(&raw.initial_set),
        place(&raw.max_request_bytes),
        place(&raw.max_streams_per_connection),
        place(&raw.supports_empty_subscription),
    ]
}

/// Keys for servers of both kinds.
fn server_keys(raw: &Server) -> [Option<&Place>; 7] {
    [
        place(&raw.tls),
        place(&raw.token_file),
        place(&raw.connect_timeout),
        place(&raw.backoff),
        place(&raw.ignore_deletions),
        place(&raw.resource_timer_is_transient_error),
        place(&raw.fail_on_data_errors),
    ]
}

impl From<raw::InitialSet> for InitialSet {
    fn from(raw: raw::InitialSet) -> Self {
        match raw {
            raw::InitialSet::Auto => Self::Auto,
            raw::InitialSet::OneResponse => Self::OneResponse,
            raw::InitialSet::Pieces => Self::Pieces,
        }
    }
}

impl From<raw::Variant> for Variant {
    fn from(raw: raw::Variant) -> Self {
        match raw {
            raw::Variant::Delta => Self::Delta,
            raw::Variant::Sotw => Self::Sotw,
        }
    }
}

const REFRESH_DELAY: Duration = Duration::from_secs(5);
/// Ten times the default of Envoy, which polls for itself alone: sets for many clients are larger, and a relay can serve its cache
/// meanwhile.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Room for a large node, and names beside it.
const SHORTEST_REQUEST: usize = 128 << 10;
/// More streams of 1 MiB than this do not fit into the largest window of a connection (2 GiB).
const MOST_STREAMS: usize = 1000;
/// The limit over all folders of one source.
const MAX_FILES: usize = 100_000;
