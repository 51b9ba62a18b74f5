//! One source: a gRPC server, a REST server, or files.

use std::path::PathBuf;

use weir_core::protocol::upstream::{OnResourceTimeout, ServerQuirks};

use super::limits::SourceLimits;
use super::{headers, proxy, tls};
use crate::config::bounds::{LONGEST_MESSAGE, within};
use crate::config::checker::Checker;
use crate::config::connection;
use crate::config::files;
use crate::config::form::{FilePath, Located, OneOrMore, Section, ServerSocket, ServerUri};
use crate::config::plain_server::{self, plain_server};
use crate::config::raw::{self, Server};
use crate::upstream::{AdsServer, FilesOptions, FilesServer, RestServer, SourcePlan};

pub(super) fn source(raw: &Located<Server>, limits: SourceLimits, checker: &mut Checker) -> Option<SourcePlan> {
    match (&raw.uri, &raw.rest, &raw.files) {
        (Some(uri), None, None) => {
            only_for_others(raw, "uri", checker);
            server(raw, uri, limits, checker).map(Box::new).map(SourcePlan::Ads)
        }
        (None, Some(uri), None) => {
            only_for_others(raw, "rest", checker);
            polled(raw, uri, limits, checker).map(Box::new).map(SourcePlan::Rest)
        }
        (None, None, Some(files)) => {
            only_for_others(raw, FILES, checker);
            Some(file_source(files, limits, checker))
        }
        (None, None, None) => {
            checker.lacks(&raw.place, "missing source: expected uri, rest or files");
            None
        }
        (uri, rest, files) => {
            let places = [
                uri.as_ref().map(|uri| &uri.place),
                rest.as_ref().map(|uri| &uri.place),
                files.as_ref().map(|files| &files.place),
            ];
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
    // The relay watches these files later, so a missing one does not make the configuration invalid.
    let paths = raw.0.iter().map(|file| {
        let path = checker.path(file);
        checker.look(&file.place, || files::look_for(&path));
        path
    });
    let paths = paths.collect();
    let options = FilesOptions { paths, files: MAX_FILES, file_bytes: limits.file_bytes };
    SourcePlan::Files(FilesServer::new(options))
}

/// Reports keys that only servers of other kinds have.
fn only_for_others(raw: &Server, kind: &str, checker: &mut Checker) {
    for ((_, kinds), place) in raw::KINDS.iter().zip(raw.given()) {
        let (Some(place), Some(kinds)) = (place, kinds) else { continue };
        if !kinds.split(", ").any(|of| of == kind) {
            let kinds = if kind == FILES { "uri or rest".to_owned() } else { kinds.replace(", ", " or ") };
            checker.fault(place, format!("only servers with {kinds} have this key"));
        }
    }
}

fn polled(raw: &Server, uri: &Located<ServerUri>, limits: SourceLimits, checker: &mut Checker) -> Option<RestServer> {
    let request_timeout = raw.request_timeout.0;
    let at = server(raw, uri, limits, checker)?;
    let connect_timeout = raw.connect_timeout.or(request_timeout).0;
    Some(RestServer { at: AdsServer { connect_timeout, ..at }, refresh_delay: raw.refresh_delay.0, request_timeout })
}

fn server(raw: &Server, uri: &Located<ServerUri>, limits: SourceLimits, checker: &mut Checker) -> Option<AdsServer> {
    let is_encrypted = uri.uri.scheme_str() == Some("https");
    if !is_encrypted {
        tls::without_tls(raw, checker);
    }
    let tls = if is_encrypted { Some(tls::check(raw.tls.as_ref(), uri, checker)?) } else { None };
    within(&raw.max_request_bytes, SHORTEST_REQUEST, LONGEST_MESSAGE, "the longest message of gRPC", checker);
    let streams = raw.max_streams_per_connection.0;
    if let Some(place) = raw.max_streams_per_connection.given().filter(|_| streams > MOST_STREAMS) {
        checker.fault(place, format!("invalid number {streams}: expected {MOST_STREAMS} or less"));
    }
    let backoff = raw.backoff.as_ref().map_or(limits.backoff, |raw| connection::backoff(raw, limits.backoff, checker));
    let usual = plain_server(uri.uri.clone());
    let socket = uri.socket.as_ref().map(|socket| socket_of(socket, checker));
    let server = AdsServer {
        socket,
        proxy: proxy::proxy(raw, uri, checker),
        tls,
        tokens: raw.token_file.iter().map(|file| checker.file(file, files::look_at_token)).collect(),
        headers: headers::check(&raw.headers, checker),
        tenants: tls::tenants(raw, checker),
        variant: raw.variant.as_ref().map(|variant| variant.value),
        quirks: quirks(raw),
        connect_timeout: raw.connect_timeout.0,
        life: raw.liveness.as_ref().map_or(usual.life, |raw| plain_server::life(raw)),
        keepalive: raw.keepalive.as_ref().map_or(usual.keepalive, |raw| plain_server::keepalive(raw)),
        backoff,
        accept_compression: raw.accept_compression.value,
        max_streams_per_connection: streams,
        ages: plain_server::ages(raw),
        message_bytes: limits.message_bytes,
        ..usual
    };
    if let Some(headers) = raw.headers.as_ref().filter(|_| !server.may_be_shown_headers()) {
        checker.fault(&headers.place, "requires https://, a Unix socket, or http:// on this machine without a proxy");
    }
    Some(server)
}

/// Returns the path of a socket. An abstract socket's path begins with a zero byte.
fn socket_of(socket: &ServerSocket, checker: &mut Checker) -> PathBuf {
    match socket {
        ServerSocket::Path(path) => checker.path(path),
        ServerSocket::Abstract(name) => format!("\0{name}").into(),
    }
}

fn quirks(raw: &Server) -> ServerQuirks {
    let on_resource_timeout = match raw.resource_timer_is_transient_error.value {
        true => OnResourceTimeout::TransientError,
        false => OnResourceTimeout::Absent,
    };
    ServerQuirks {
        node_in_every_request: raw.node_in_every_request.value,
        supports_initial_resource_versions: raw.supports_initial_resource_versions.value,
        max_request_bytes: raw.max_request_bytes.0,
        supports_empty_subscription: raw.supports_empty_subscription.value,
        ignore_deletions: raw.ignore_deletions.value,
        on_resource_timeout,
        fail_on_data_errors: raw.fail_on_data_errors.value,
        initial_set: raw.initial_set.value,
        per_type_liveness: false,
        skips_brakes: false,
        tries_types_apart: true,
    }
}

/// The kind of server whose section has no other key.
const FILES: &str = "files";
/// Room for a large node, and names beside it.
const SHORTEST_REQUEST: usize = 128 << 10;
/// This many streams with windows of 1 MiB take half of the largest window of a connection (2 GiB).
const MOST_STREAMS: usize = 1000;
/// The limit over all folders of one source.
const MAX_FILES: usize = 100_000;
