//! What the file says of control planes: lists of servers, the first choice first, and when the next one's turn comes.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use rustls::pki_types::ServerName;
use serde_saphyr::Spanned;

use super::bootstrap;
use super::check::Checker;
use super::raw::{self, OnMissing, Text};
use crate::protocol::ladder::{FallbackTimers, Rule};
use crate::protocol::session::Variant;
use crate::protocol::upstream::{BackoffTimes, InitialSet, OnResourceTimeout, ServerQuirks};
use crate::transcode::Transcoder;
use crate::upstream::{
    AdsServer, FilesOptions, FilesServer, Keepalive, LifeTimes, Lists, OwnCertificate, Plan, RestServer, SourcePlan,
    TlsFiles,
};

/// A server that is spoken to without TLS and of which nothing else is said.
pub(crate) fn plain_server(uri: Uri, message_bytes: usize) -> AdsServer {
    AdsServer {
        uri,
        tls: None,
        tokens: Vec::new(),
        variant: None,
        quirks: ServerQuirks::default(),
        features: BTreeSet::new(),
        connect_timeout: CONNECT_TIMEOUT,
        life: LifeTimes::default(),
        keepalive: Keepalive::default(),
        backoff: BackoffTimes::default(),
        message_bytes,
    }
}

/// Where a gRPC server is.
pub(crate) fn server_uri(text: &str) -> Result<Uri, String> {
    let uri = text.parse().ok().filter(|uri: &Uri| {
        let known = matches!(uri.scheme_str(), Some("http" | "https"));
        known && uri.host().is_some_and(|host| !host.is_empty())
    });
    match uri {
        None => Err(format!("{text:?} is no http:// or https:// URI")),
        Some(uri) if uri.path() != "/" || uri.query().is_some() => {
            Err(format!("{text:?} goes on behind the host; the paths are those of the protocol"))
        }
        Some(uri) => Ok(uri),
    }
}

/// Whom the certificate at a URI has to be for, unless something else is said.
pub(crate) fn name_in(uri: &Uri) -> Option<ServerName<'static>> {
    let host = uri.host()?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host.to_owned()).ok()
}

pub(super) fn rule(reachability_only: bool) -> Rule {
    if reachability_only { Rule::Reachability } else { Rule::Uncached }
}

/// Of all sources alike.
#[derive(Debug, Clone, Copy)]
pub(super) struct SourceLimits {
    pub message_bytes: usize,
    pub file_bytes: u64,
    /// Where nothing else is said of a server.
    pub backoff: BackoffTimes,
}

impl Checker<'_> {
    pub fn upstream(&mut self, raw: &Spanned<raw::Upstream>, limits: SourceLimits) -> Option<Plan> {
        let upstream = &raw.value;
        let backoff = self.backoff(upstream.backoff.as_ref(), limits.backoff, "upstream.backoff");
        let limits = SourceLimits { backoff, ..limits };
        let patience = FallbackTimers {
            delay: self.duration(&upstream.fallback.delay, "upstream.fallback.delay").unwrap_or_default(),
            hold_down: self.duration(&upstream.fallback.hold_down, "upstream.fallback.hold_down").unwrap_or_default(),
        };
        let alone = upstream.servers.is_none() && upstream.files.is_none() && upstream.authorities.is_empty();
        let asked = upstream.bootstrap_from_environment.as_ref().filter(|asked| asked.value);
        let lists = match (&upstream.bootstrap, asked) {
            (Some(_), Some(asked)) => {
                let reason = "it replaces bootstrap, and that is there too";
                self.fault(asked, "upstream.bootstrap_from_environment", reason);
                return None;
            }
            (Some(file), None) if alone => with_backoff(self.bootstrap(file, limits.message_bytes)?, backoff),
            (None, Some(asked)) if alone => {
                with_backoff(self.bootstrap_of_environment(asked, limits.message_bytes)?, backoff)
            }
            (Some(file), None) => {
                self.fault(file, "upstream.bootstrap", REPLACES);
                return None;
            }
            (None, Some(asked)) => {
                self.fault(asked, "upstream.bootstrap_from_environment", REPLACES);
                return None;
            }
            (None, None) => self.written(raw, limits)?,
        };
        let plan = Plan::new(lists, patience, upstream.fallback.on_missing == OnMissing::Keep);
        Some(Plan { shared: self.shared(&upstream.shared_authorities, &plan), ..plan })
    }

    fn shared(&mut self, names: &[Text], plan: &Plan) -> BTreeSet<String> {
        for (number, name) in names.iter().enumerate() {
            if !plan.authorities.contains_key(&name.value) {
                let reason = format!("there is no authority {:?}", name.value);
                self.fault(name, &format!("upstream.shared_authorities[{number}]"), &reason);
            }
        }
        names.iter().map(|name| name.value.clone()).collect()
    }

    /// Of types that are not built in, for what is read as JSON, YAML or text.
    pub fn transcoder(&mut self, files: &[Text]) -> Option<Arc<Transcoder>> {
        let mut sets = Vec::new();
        for (at, file) in files.iter().enumerate() {
            let path = self.beside(file);
            let read = std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()));
            // Each for itself first, so that it is told which of them is no good.
            let read = read.map(Bytes::from).and_then(|set| {
                let alone = Transcoder::with_descriptor_sets(std::slice::from_ref(&set));
                alone.map(|_| set).map_err(|error| error.to_string())
            });
            match read {
                Ok(set) => sets.push(set),
                Err(reason) => self.fault(file, &format!("upstream.descriptors[{at}]"), &reason),
            }
        }
        let last = files.last()?;
        let together = Transcoder::with_descriptor_sets(&sets);
        together.map_err(|error| self.fault(last, "upstream.descriptors", &error.to_string())).ok()
    }

    fn bootstrap(&mut self, file: &Text, message_bytes: usize) -> Option<Lists> {
        let path = self.beside(file);
        match std::fs::read_to_string(&path) {
            Ok(text) => self.bootstrap_text(&path, &text, message_bytes),
            Err(error) => {
                let reason = format!("cannot read {}: {error}", path.display());
                self.fault(file, "upstream.bootstrap", &reason);
                None
            }
        }
    }

    /// Sources as the file itself lists them.
    fn written(&mut self, raw: &Spanned<raw::Upstream>, limits: SourceLimits) -> Option<Lists> {
        let upstream = &raw.value;
        let top = match (&upstream.servers, &upstream.files) {
            (Some(_), Some(files)) => {
                let reason =
                    "these are the only source beside authorities, and there are servers too; files may be one of them";
                self.fault(files, "upstream.files", reason);
                return None;
            }
            (Some(servers), None) => self.top(servers, limits),
            (None, Some(files)) => self.files(files, "upstream.files", limits).into_iter().collect(),
            (None, None) => {
                self.fault(raw, "upstream", "servers are needed, or files, or a bootstrap file");
                return None;
            }
        };
        Some(Lists { top, authorities: self.authorities(&upstream.authorities, limits) })
    }

    /// What gRPC clients on this machine would go by: a file that one variable names, or else what another one holds (BOOT-1).
    fn bootstrap_of_environment(&mut self, asked: &Spanned<bool>, message_bytes: usize) -> Option<Lists> {
        const AT: &str = "upstream.bootstrap_from_environment";
        let set = |name| (self.environment)(name).filter(|value| !value.is_empty());
        match (set(BOOTSTRAP_FILE), set(BOOTSTRAP)) {
            (Some(file), _) => match std::fs::read_to_string(&file) {
                Ok(text) => self.bootstrap_text(Path::new(&file), &text, message_bytes),
                Err(error) => {
                    self.fault(asked, AT, &format!("cannot read {file}, which {BOOTSTRAP_FILE} names: {error}"));
                    None
                }
            },
            (None, Some(text)) => self.bootstrap_text(Path::new(BOOTSTRAP), &text, message_bytes),
            (None, None) => {
                self.fault(asked, AT, &format!("neither {BOOTSTRAP_FILE} nor {BOOTSTRAP} is set"));
                None
            }
        }
    }

    fn bootstrap_text(&mut self, path: &Path, text: &str, message_bytes: usize) -> Option<Lists> {
        bootstrap::read(path, text, message_bytes).map_err(|faults| self.faults.extend(faults)).ok()
    }

    fn top(&mut self, servers: &Spanned<Vec<raw::Server>>, limits: SourceLimits) -> Vec<SourcePlan> {
        if servers.value.is_empty() {
            self.fault(servers, "upstream.servers", "at least one server is needed");
        }
        self.servers(&servers.value, "upstream.servers", limits)
    }

    fn authorities(
        &mut self,
        authorities: &BTreeMap<String, raw::Authority>,
        limits: SourceLimits,
    ) -> BTreeMap<String, (Vec<SourcePlan>, Rule)> {
        let read = authorities.iter().map(|(name, authority)| {
            let at = format!("upstream.authorities[{name:?}].servers");
            let servers = self.servers(&authority.servers, &at, limits);
            (name.clone(), (servers, rule(authority.fallback_on_reachability_only)))
        });
        read.collect()
    }

    fn servers(&mut self, servers: &[raw::Server], at: &str, limits: SourceLimits) -> Vec<SourcePlan> {
        let servers = servers.iter().enumerate();
        servers.filter_map(|(number, raw)| self.source(raw, &format!("{at}[{number}]"), limits)).collect()
    }

    fn source(&mut self, raw: &raw::Server, at: &str, limits: SourceLimits) -> Option<SourcePlan> {
        if let (None, Some(pace)) = (&raw.rest, raw.refresh_delay.as_ref().or(raw.request_timeout.as_ref())) {
            self.fault(pace, at, "refresh_delay and request_timeout are for a server that is polled; it says rest");
        }
        match (&raw.uri, &raw.files, &raw.rest) {
            (Some(uri), None, None) => {
                self.server(raw, uri, &format!("{at}.uri"), at, limits).map(Box::new).map(SourcePlan::Ads)
            }
            (None, None, Some(uri)) => self.polled(raw, uri, at, limits).map(Box::new).map(SourcePlan::Rest),
            (None, Some(files), None) => {
                if raw.has_ways_of_a_server() {
                    self.fault(
                        files,
                        &format!("{at}.files"),
                        "nothing else can be said of files; the rest is for servers",
                    );
                }
                self.files(files, &format!("{at}.files"), limits)
            }
            (Some(text), _, _) | (None, Some(_), Some(text)) => {
                self.fault(text, at, "a source is one of uri, files and rest, and more than one is there");
                None
            }
            (None, None, None) => {
                self.fault_without_place(at, "a uri is needed, or files, or rest");
                None
            }
        }
    }

    fn files(&mut self, raw: &Spanned<raw::Paths>, at: &str, limits: SourceLimits) -> Option<SourcePlan> {
        let paths = &raw.value.0;
        if paths.is_empty() || paths.iter().any(String::is_empty) {
            self.fault(raw, at, "a path is needed");
            return None;
        }
        let folder = self.path.parent().unwrap_or(self.path);
        let paths = paths.iter().map(|path| folder.join(path)).collect();
        let options = FilesOptions { paths, files: MOST_FILES, file_bytes: limits.file_bytes };
        Some(SourcePlan::Files(FilesServer::new(options)))
    }

    /// A server that is polled. It may be said of it what may be said of others, but for what is about streams.
    fn polled(&mut self, raw: &raw::Server, text: &Text, at: &str, limits: SourceLimits) -> Option<RestServer> {
        let sets = raw.initial_set != raw::InitialSet::Auto;
        if raw.variant.is_some()
            || raw.node_in_every_request
            || !raw.supports_initial_resource_versions
            || !raw.supports_empty_subscription
            || sets
        {
            let reason = "variant, node_in_every_request, supports_initial_resource_versions, initial_set and supports_empty_subscription are for gRPC streams only";
            self.fault(text, &format!("{at}.rest"), reason);
        }
        if let Some(pings) = raw.liveness.as_ref().or(raw.keepalive.as_ref()) {
            self.fault(
                pings,
                at,
                "liveness and keepalive are about gRPC connections; a server that is polled has none",
            );
        }
        let refresh_delay = self.duration(&raw.refresh_delay, &format!("{at}.refresh_delay")).unwrap_or(REFRESH_DELAY);
        let request_timeout = self.duration(&raw.request_timeout, &format!("{at}.request_timeout"));
        let request_timeout = request_timeout.unwrap_or(REQUEST_TIMEOUT);
        for (given, least, key) in [
            (&raw.refresh_delay, refresh_delay, "refresh_delay"),
            (&raw.request_timeout, request_timeout, "request_timeout"),
        ] {
            if let Some(text) = given.as_ref().filter(|_| least < SHORTEST) {
                self.fault(text, &format!("{at}.{key}"), "it has to be 10 ms at least");
            }
        }
        let at = self.server(raw, text, &format!("{at}.rest"), at, limits)?;
        let connect_timeout = if raw.connect_timeout.is_some() { at.connect_timeout } else { request_timeout };
        Some(RestServer { at: AdsServer { connect_timeout, ..at }, refresh_delay, request_timeout })
    }

    fn server(
        &mut self,
        raw: &raw::Server,
        text: &Text,
        key: &str,
        at: &str,
        limits: SourceLimits,
    ) -> Option<AdsServer> {
        let uri = self.uri(text, key);
        let encrypted = uri.as_ref().is_some_and(|uri| uri.scheme_str() == Some("https"));
        let tls = match &raw.tls {
            Some(given) if uri.is_some() && !encrypted => {
                self.fault(given, &format!("{at}.tls"), "an http:// URI means no TLS; it has to be https://");
                None
            }
            given => self.tls(given.as_ref().map(|given| &given.value), text, uri.as_ref(), at),
        };
        if let Some(file) = raw.token_file.as_ref().filter(|_| uri.is_some() && !encrypted) {
            self.fault(
                file,
                &format!("{at}.token_file"),
                "a token is never sent without TLS; the URI has to be https://",
            );
        }
        let timeout = self.duration(&raw.connect_timeout, &format!("{at}.connect_timeout"));
        let life = self.life(raw.liveness.as_ref().map(|life| &life.value), &format!("{at}.liveness"));
        let keepalive = raw.keepalive.as_ref().map(|keepalive| &keepalive.value);
        let keepalive = self.keepalive(keepalive, &format!("{at}.keepalive"));
        let backoff = self.backoff(raw.backoff.as_ref(), limits.backoff, &format!("{at}.backoff"));
        let variant = raw.variant.map(|protocol| match protocol {
            raw::Variant::Delta => Variant::Delta,
            raw::Variant::Sotw => Variant::Sotw,
        });
        Some(AdsServer {
            tls: tls.filter(|_| encrypted),
            tokens: raw.token_file.iter().map(|file| self.beside(file)).collect(),
            variant,
            quirks: ServerQuirks {
                node_in_every_request: raw.node_in_every_request,
                supports_initial_resource_versions: raw.supports_initial_resource_versions,
                supports_empty_subscription: raw.supports_empty_subscription,
                ignore_deletions: raw.ignore_deletions,
                on_resource_timeout: if raw.resource_timer_is_transient_error {
                    OnResourceTimeout::TransientError
                } else {
                    OnResourceTimeout::Absent
                },
                fail_on_data_errors: raw.fail_on_data_errors,
                initial_set: raw.initial_set.into(),
                signals_completion: false,
                per_type_liveness: false,
            },
            connect_timeout: timeout.unwrap_or(CONNECT_TIMEOUT),
            life,
            keepalive,
            backoff,
            ..plain_server(uri?, limits.message_bytes)
        })
    }

    fn uri(&mut self, text: &Text, at: &str) -> Option<Uri> {
        server_uri(&text.value).map_err(|reason| self.fault(text, at, &reason)).ok()
    }

    fn tls(&mut self, raw: Option<&raw::Tls>, text: &Text, uri: Option<&Uri>, at: &str) -> Option<TlsFiles> {
        let given = raw.and_then(|raw| raw.server_name.as_ref());
        let server_name = match given {
            Some(name) => {
                let parsed = ServerName::try_from(name.value.clone());
                let reason = format!("{:?} is no host name or address", name.value);
                parsed.map_err(|_| self.fault(name, &format!("{at}.tls.server_name"), &reason)).ok()
            }
            None => {
                let host = name_in(uri?);
                if host.is_none() {
                    let reason = "its host is nothing that a certificate could be for; say tls.server_name";
                    self.fault(text, &format!("{at}.uri"), reason);
                }
                host
            }
        };
        let own = match raw.map(|raw| (&raw.certificate, &raw.key)) {
            Some((Some(certificate), Some(key))) => {
                Some(OwnCertificate { certificate: self.beside(certificate), key: self.beside(key) })
            }
            Some((Some(lonely), None)) | Some((None, Some(lonely))) => {
                self.fault(lonely, &format!("{at}.tls"), "certificate and key go together, and only one is there");
                None
            }
            _ => None,
        };
        let ca = raw.and_then(|raw| raw.ca.as_ref()).map(|ca| self.beside(ca));
        Some(TlsFiles { ca, own, server_name: server_name? })
    }

    /// A path as it is meant: from the folder of the configuration file.
    fn beside(&self, file: &Text) -> PathBuf {
        self.path.parent().unwrap_or(self.path).join(&file.value)
    }
}

/// A bootstrap file says nothing of waits.
fn with_backoff(mut lists: Lists, backoff: BackoffTimes) -> Lists {
    let authorities = lists.authorities.values_mut().flat_map(|(servers, _)| servers);
    for source in lists.top.iter_mut().chain(authorities) {
        if let SourcePlan::Ads(server) = source {
            server.backoff = backoff;
        }
    }
    lists
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

impl raw::Server {
    /// Whether anything is said of how a server is to be spoken to.
    fn has_ways_of_a_server(&self) -> bool {
        let given = self.tls.is_some() || self.token_file.is_some() || self.variant.is_some();
        let changed = self.node_in_every_request
            || !self.supports_initial_resource_versions
            || !self.supports_empty_subscription
            || self.ignore_deletions;
        given
            || changed
            || self.connect_timeout.is_some()
            || self.liveness.is_some()
            || self.keepalive.is_some()
            || self.backoff.is_some()
            || self.initial_set != raw::InitialSet::Auto
            || self.resource_timer_is_transient_error
            || self.fail_on_data_errors
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const REFRESH_DELAY: Duration = Duration::from_secs(5);
/// Ten times what an Envoy waits, which asks for itself alone: sets for many are larger, and a relay has something to serve
/// meanwhile.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const SHORTEST: Duration = Duration::from_millis(10);
/// In all folders of one source.
const MOST_FILES: usize = 100_000;
const REPLACES: &str = "it replaces servers, files and authorities, and they are there too";
/// The variables of gRPC clients: the path of a file, and the JSON itself.
const BOOTSTRAP_FILE: &str = "GRPC_XDS_BOOTSTRAP";
const BOOTSTRAP: &str = "GRPC_XDS_BOOTSTRAP_CONFIG";

#[cfg(test)]
mod tests;
