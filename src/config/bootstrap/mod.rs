//! Reads the bootstrap file of gRPC clients (gRFC A27, A30, A47, A65, A71, A88, A95, A97).
//!
//! Uses its servers and authorities. Node, certificate providers and name templates are for clients: Weir only checks that a gRPC client could read
//! the file. Relative paths start at the working directory of the program, as in gRPC.

mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use http::Uri;
use http::uri::Authority;
use weir_core::protocol::ladder::Rule;
use weir_core::protocol::upstream::{OnResourceTimeout, ServerQuirks};
use weir_core::xds::authority_of_template;

use self::target::Target;
use super::diagnostic::{Diagnostic, Diagnostics};
use super::files::{look_at_cas, look_at_certificates, look_at_key, look_at_pair, look_at_token};
use super::json::{JsonReader, Object};
use super::plain_server::{name_in, plain_server, rule};
use crate::tls::OwnCertificate;
use crate::upstream::{AdsServer, Lists, SourcePlan, TlsFiles, TlsWords};

/// The content of a bootstrap file, and what the checks found: the files that it names, warnings, and, only with `opens_files`, files that cannot be
/// used now.
pub(super) struct Bootstrap {
    pub(crate) lists: Lists,
    pub(crate) others: Diagnostics,
}

pub(super) fn read(
    path: &Path,
    text: &str,
    message_bytes: usize,
    opens_files: bool,
) -> Result<Bootstrap, Vec<Diagnostic>> {
    let mut reader = JsonReader::of(path, opens_files);
    let tree = reader.parse(text);
    let root = tree.as_ref().and_then(|tree| reader.root(tree));
    let lists = root.map(|root| lists(&root, message_bytes, &mut reader)).unwrap_or_default();
    let others = reader.into_diagnostics();
    if others.faults.is_empty() { Ok(Bootstrap { lists, others }) } else { Err(others.faults) }
}

/// How a channel is secured, independent of its target.
enum Channel {
    Insecure,
    Tls { ca: Option<PathBuf>, own: Option<OwnCertificate> },
}

fn lists(root: &Object, message_bytes: usize, reader: &mut JsonReader) -> Lists {
    let top = reader.needed_objects(root, "xds_servers", "at least one server");
    let top = list(&top, message_bytes, reader);
    let authorities = authority_lists(root, message_bytes, reader);
    reader.object(root, "node");
    reader.text(root, "client_default_listener_resource_name_template");
    reader.text(root, "server_listener_resource_name_template");
    for (_, provider) in reader.members(root, "certificate_providers") {
        certificate_provider(&provider, reader);
    }
    Lists { top, authorities }
}

fn authority_lists(
    root: &Object,
    message_bytes: usize,
    reader: &mut JsonReader,
) -> BTreeMap<String, (Vec<SourcePlan>, Rule)> {
    let mut authorities = BTreeMap::new();
    for (name, authority) in reader.members(root, "authorities") {
        let template = "client_listener_resource_name_template";
        let given = reader.text(&authority, template);
        if given.is_some_and(|given| authority_of_template(given).as_deref() != Some(name)) {
            let reason = format!("invalid template: expected it to begin with xdstp:// and the authority {name:?}");
            reader.fault(authority.place(template), reason); // BOOT-17
        }
        let rule = rule(reader.flag(&authority, "fallback_on_reachability_only"));
        let servers = reader.objects(&authority, "xds_servers");
        authorities.insert(name.into(), (list(&servers, message_bytes, reader), rule));
    }
    authorities
}

fn list(servers: &[Object], message_bytes: usize, reader: &mut JsonReader) -> Vec<SourcePlan> {
    servers
        .iter()
        .filter_map(|server| ads_server(server, message_bytes, reader))
        .map(Box::new)
        .map(SourcePlan::Ads)
        .collect()
}

fn ads_server(server: &Object, message_bytes: usize, reader: &mut JsonReader) -> Option<AdsServer> {
    let target = reader.needed_text(server, "server_uri");
    let target = target.filter(|target| !target.is_empty()).and_then(|target| {
        Target::of(target).map_err(|error| reader.fault(server.place("server_uri"), error.to_string())).ok()
    });
    let channel = supported_channel(server, reader);
    let tokens = token_files(server, reader);
    let (quirks, features) = quirks(server, reader);
    let (target, channel) = (target?, channel?);
    let scheme = if matches!(channel, Channel::Insecure) { "http" } else { "https" };
    let (authority, socket) = match target {
        Target::Host(authority) => (authority, None),
        Target::Socket(path) => (Authority::from_static("localhost"), Some(path)),
    };
    let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query("/").build().ok()?;
    let tls = match channel {
        Channel::Insecure => None,
        Channel::Tls { .. } if socket.is_some() => {
            reader.fault(server.place("channel_creds"), "no TLS over a Unix socket: expected insecure");
            return None;
        }
        Channel::Tls { ca, own } => match name_in(&uri) {
            Some(server_name) => Some(TlsFiles { ca, own, server_name, words: TlsWords::CONFIGURATION }),
            None => {
                reader.fault(server.place("server_uri"), "the host cannot be the name in a certificate");
                return None;
            }
        },
    };
    if tls.is_none() && !tokens.is_empty() {
        reader.warn(server.place("call_creds"), format!("call_creds need TLS: {uri} is sent no token")); // BOOT-7
    }
    Some(AdsServer { socket, tls, tokens, quirks, features, message_bytes, ..plain_server(uri) })
}

/// Returns the first channel type that is supported (BOOT-4).
fn supported_channel(server: &Object, reader: &mut JsonReader) -> Option<Channel> {
    let before = reader.faults().len();
    let mut first = None;
    let mut others = Vec::new();
    for credentials in reader.needed_objects(server, "channel_creds", SUPPORTED) {
        match reader.needed_text(&credentials, "type") {
            Some("insecure" | "tls") if first.is_some() => {}
            Some("insecure") => first = Some(Some(Channel::Insecure)),
            Some("tls") => first = Some(tls(&credentials, reader)),
            other => others.extend(other),
        }
    }
    if first.is_none() && reader.faults().len() == before {
        let reason = format!("unsupported credentials {}: expected {SUPPORTED}", others.join(", "));
        reader.fault(server.place("channel_creds"), reason);
    }
    first.flatten()
}

fn tls(credentials: &Object, reader: &mut JsonReader) -> Option<Channel> {
    let Some(config) = reader.object(credentials, "config") else {
        return Some(Channel::Tls { ca: None, own: None }); // all fields may be absent (BOOT-5)
    };
    let [ca, certificate, key] = certificate_files(&config, reader);
    reader.look(&config, "ca_certificate_file", &ca, look_at_cas);
    reader.look(&config, "certificate_file", &certificate, look_at_certificates);
    reader.look(&config, "private_key_file", &key, look_at_key);
    if let Some(certificate) = &certificate {
        reader.look(&config, "private_key_file", &key, |key| look_at_pair(certificate, key));
    }
    let own = certificate.zip(key).map(|(certificate, key)| OwnCertificate { certificate, key });
    Some(Channel::Tls { ca, own })
}

/// Reads the fields that channels and certificate providers have in common.
fn certificate_files(config: &Object, reader: &mut JsonReader) -> [Option<PathBuf>; 3] {
    let keys = ["ca_certificate_file", "certificate_file", "private_key_file"];
    let files = keys.map(|key| reader.text(config, key).map(PathBuf::from));
    if config.has(keys[1]) != config.has(keys[2]) {
        let (there, missing) = if config.has(keys[1]) { (keys[1], keys[2]) } else { (keys[2], keys[1]) };
        reader.fault(config.place(there), format!("missing field {missing:?}: it goes together with {there}"));
    }
    if reader.text(config, "refresh_interval").is_some_and(|text| !is_duration(text)) {
        reader.fault(config.place("refresh_interval"), "invalid duration: expected seconds, such as \"600s\"");
    }
    files
}

/// All supported credentials are used together; others are ignored (BOOT-6).
fn token_files(server: &Object, reader: &mut JsonReader) -> Vec<PathBuf> {
    let mut tokens = Vec::new();
    for credentials in reader.objects(server, "call_creds") {
        if reader.needed_text(&credentials, "type") != Some("jwt_token_file") {
            continue;
        }
        match reader.object(&credentials, "config") {
            Some(config) => {
                let file = reader.needed_text(&config, "jwt_token_file").map(PathBuf::from);
                reader.look(&config, "jwt_token_file", &file, look_at_token);
                tokens.extend(file);
            }
            None if credentials.has("config") => {}
            None => reader.fault(credentials.place("config"), "missing field \"config\""),
        }
    }
    tokens
}

fn quirks(server: &Object, reader: &mut JsonReader) -> (ServerQuirks, BTreeSet<&'static str>) {
    let (mut quirks, mut features) =
        (ServerQuirks { tries_types_apart: true, ..ServerQuirks::default() }, BTreeSet::new());
    for feature in reader.texts(server, "server_features") {
        match feature {
            "fail_on_data_errors" => quirks.fail_on_data_errors = true,
            "resource_timer_is_transient_error" => quirks.on_resource_timeout = OnResourceTimeout::TransientError,
            _ => features.extend(WITHOUT_EFFECT.into_iter().find(|known| *known == feature)),
        }
    }
    (quirks, features)
}

fn certificate_provider(provider: &Object, reader: &mut JsonReader) {
    let plugin = reader.needed_text(provider, "plugin_name");
    let config = reader.object(provider, "config");
    if let Some(config) = config.filter(|_| plugin == Some("file_watcher")) {
        certificate_files(&config, reader);
    }
}

const SUPPORTED: &str = "insecure or tls";
/// Features without effect: Weir always uses v3, and passes on deletions and all resources (BOOT-19, BOOT-20).
const WITHOUT_EFFECT: [&str; 3] = ["xds_v3", "ignore_resource_deletion", "trusted_xds_server"];

/// Whether a text is a number of seconds as proto JSON writes it.
fn is_duration(text: &str) -> bool {
    let digits = |text: &str, limit: usize| {
        (1..=limit).contains(&text.len()) && text.bytes().all(|letter| letter.is_ascii_digit())
    };
    let Some(seconds) = text.strip_suffix('s') else { return false };
    match seconds.split_once('.') {
        Some((whole, fraction)) => digits(whole, 12) && digits(fraction, 9),
        None => digits(seconds, 12),
    }
}

#[cfg(test)]
mod tests;
