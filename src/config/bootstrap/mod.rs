//! A gRPC xDS bootstrap file, read as it is (spec section 10; gRFC A27, A30, A47, A65, A71, A88, A95, A97).
//!
//! Takes what it says of servers and authorities. The node, certificate providers and name templates are for those who use
//! resources; of them it is only checked that a gRPC client could read the file as well. Paths in it are meant as gRPC means
//! them: as they are, from where the program runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use http::Uri;
use http::uri::Authority;
use serde_json::Value;

use super::Diagnostic;
use super::json::{JsonReader, Object};
use super::upstream::{name_in, plain_server, rule};
use crate::protocol::ladder::Rule;
use crate::protocol::upstream::{OnResourceTimeout, ServerQuirks};
use crate::upstream::{AdsServer, Lists, OwnCertificate, SourcePlan, TlsFiles};
use crate::xds::authority_of_template;

pub(super) fn read(path: &Path, text: &str, message_bytes: usize) -> Result<Lists, Vec<Diagnostic>> {
    let mut reader = JsonReader { path, faults: Vec::new() };
    let value: Value = serde_json::from_str(text).map_err(|error| {
        let line = u64::try_from(error.line()).ok();
        vec![Diagnostic { path: path.into(), line, at: "the file".into(), reason: error.to_string() }]
    })?;
    let root = reader.root(&value);
    let lists = root.map(|root| reader.bootstrap(&root, message_bytes)).unwrap_or_default();
    if reader.faults.is_empty() { Ok(lists) } else { Err(reader.faults) }
}

/// How a channel is to be protected, as far as it can be said without knowing where it leads.
enum Channel {
    Insecure,
    Tls { ca: Option<PathBuf>, own: Option<OwnCertificate> },
}

impl JsonReader<'_> {
    fn bootstrap(&mut self, root: &Object, message_bytes: usize) -> Lists {
        let top = self.needed_objects(root, "xds_servers", "at least one server is needed");
        let top = self.servers(&top, message_bytes);
        let authorities = self.authorities(root, message_bytes);
        self.object(root, "node");
        self.text(root, "client_default_listener_resource_name_template");
        self.text(root, "server_listener_resource_name_template");
        for (_, provider) in self.members(root, "certificate_providers") {
            self.certificate_provider(&provider);
        }
        Lists { top, authorities }
    }

    fn authorities(&mut self, root: &Object, message_bytes: usize) -> BTreeMap<String, (Vec<SourcePlan>, Rule)> {
        let mut authorities = BTreeMap::new();
        for (name, authority) in self.members(root, "authorities") {
            let template = "client_listener_resource_name_template";
            let given = self.text(&authority, template);
            if given.is_some_and(|given| authority_of_template(given).as_deref() != Some(name)) {
                let reason = format!("it has to begin with xdstp:// and this authority, {name:?} (BOOT-17)");
                self.fault(&authority.place(template), &reason);
            }
            let rule = rule(self.flag(&authority, "fallback_on_reachability_only"));
            let servers = self.objects(&authority, "xds_servers");
            authorities.insert(name.into(), (self.servers(&servers, message_bytes), rule));
        }
        authorities
    }

    fn servers(&mut self, servers: &[Object], message_bytes: usize) -> Vec<SourcePlan> {
        servers
            .iter()
            .filter_map(|server| self.server(server, message_bytes))
            .map(Box::new)
            .map(SourcePlan::Ads)
            .collect()
    }

    fn server(&mut self, server: &Object, message_bytes: usize) -> Option<AdsServer> {
        let target = self.needed_text(server, "server_uri");
        let target = target.filter(|target| !target.is_empty()).and_then(|target| {
            host_and_port(target).map_err(|reason| self.fault(&server.place("server_uri"), &reason)).ok()
        });
        let channel = self.channel(server);
        let tokens = self.tokens(server);
        let (rules, features) = self.features(server);
        let (target, channel) = (target?, channel?);
        let scheme = if matches!(channel, Channel::Insecure) { "http" } else { "https" };
        let uri = Uri::builder().scheme(scheme).authority(target).path_and_query("/").build().ok()?;
        let tls = match channel {
            Channel::Insecure => None,
            Channel::Tls { ca, own } => match name_in(&uri) {
                Some(server_name) => Some(TlsFiles { ca, own, server_name }),
                None => {
                    self.fault(&server.place("server_uri"), "its host is nothing that a certificate could be for");
                    return None;
                }
            },
        };
        if tls.is_none() && !tokens.is_empty() {
            tracing::warn!(server = %uri, "tokens are never sent without TLS; this server will see none (BOOT-7)");
        }
        Some(AdsServer { tls, tokens, quirks: rules, features, ..plain_server(uri, message_bytes) })
    }

    /// The first of the kinds that are supported (BOOT-4).
    fn channel(&mut self, server: &Object) -> Option<Channel> {
        let (known, place) = ("insecure and tls are supported", server.place("channel_creds"));
        let before = self.faults.len();
        let mut first = None;
        let mut others = Vec::new();
        for credentials in self.needed_objects(server, "channel_creds", &format!("one is needed; {known}")) {
            match self.needed_text(&credentials, "type") {
                Some("insecure" | "tls") if first.is_some() => {}
                Some("insecure") => first = Some(Some(Channel::Insecure)),
                Some("tls") => first = Some(self.tls(&credentials)),
                other => others.extend(other),
            }
        }
        if first.is_none() && self.faults.len() == before {
            self.fault(
                &place,
                &format!("{} is not supported, and nothing else is offered; {known}", others.join(", ")),
            );
        }
        first.flatten()
    }

    fn tls(&mut self, credentials: &Object) -> Option<Channel> {
        let Some(config) = self.object(credentials, "config") else {
            return Some(Channel::Tls { ca: None, own: None }); // all fields may be absent (BOOT-5)
        };
        let [ca, certificate, key] = self.certificate_files(&config);
        let own = certificate.zip(key).map(|(certificate, key)| OwnCertificate { certificate, key });
        Some(Channel::Tls { ca, own })
    }

    /// The same fields for a channel and for a certificate provider.
    fn certificate_files(&mut self, config: &Object) -> [Option<PathBuf>; 3] {
        let keys = ["ca_certificate_file", "certificate_file", "private_key_file"];
        let files = keys.map(|key| self.text(config, key).map(PathBuf::from));
        if config.has(keys[1]) != config.has(keys[2]) {
            let (there, missing) = if config.has(keys[1]) { (keys[1], keys[2]) } else { (keys[2], keys[1]) };
            self.fault(&config.place(missing), &format!("it goes together with {there}, and is missing"));
        }
        if self.text(config, "refresh_interval").is_some_and(|text| !is_duration(text)) {
            self.fault(&config.place("refresh_interval"), "invalid duration: expected seconds, such as \"600s\"");
        }
        files
    }

    /// All that are supported apply together, and those that are not are ignored (BOOT-6).
    fn tokens(&mut self, server: &Object) -> Vec<PathBuf> {
        let mut tokens = Vec::new();
        for credentials in self.objects(server, "call_creds") {
            if self.needed_text(&credentials, "type") != Some("jwt_token_file") {
                continue;
            }
            match self.object(&credentials, "config") {
                Some(config) => tokens.extend(self.needed_text(&config, "jwt_token_file").map(PathBuf::from)),
                None if credentials.has("config") => {}
                None => self.fault(&credentials.place("config"), "it is missing"),
            }
        }
        tokens
    }

    fn features(&mut self, server: &Object) -> (ServerQuirks, BTreeSet<&'static str>) {
        let (mut rules, mut features) = (ServerQuirks::default(), BTreeSet::new());
        for feature in self.list(server, "server_features").iter().filter_map(Value::as_str) {
            match feature {
                "fail_on_data_errors" => rules.fail_on_data_errors = true,
                "resource_timer_is_transient_error" => rules.on_resource_timeout = OnResourceTimeout::TransientError,
                _ => features.extend(WITHOUT_EFFECT.into_iter().find(|known| *known == feature)),
            }
        }
        (rules, features)
    }

    fn certificate_provider(&mut self, provider: &Object) {
        let plugin = self.needed_text(provider, "plugin_name");
        let config = self.object(provider, "config");
        if let Some(config) = config.filter(|_| plugin == Some("file_watcher")) {
            self.certificate_files(&config);
        }
    }
}

/// What the relay has no use for: it speaks v3 anyway, and passes deletions and all resources on (BOOT-19, BOOT-20).
const WITHOUT_EFFECT: [&str; 3] = ["xds_v3", "ignore_resource_deletion", "trusted_xds_server"];

/// Where a gRPC target leads. Names are resolved by DNS, which is also what a target without a scheme means.
fn host_and_port(target: &str) -> Result<Authority, String> {
    const KNOWN: &str = "host:port and dns:///host:port are supported";
    let host = match target.strip_prefix("dns:") {
        Some(rest) => match rest.strip_prefix("//") {
            Some(rest) => rest.strip_prefix('/').ok_or("a DNS server of its own is not supported")?,
            None => rest,
        },
        None => target,
    };
    let other =
        OTHER_SCHEMES.iter().find(|scheme| host.strip_prefix(**scheme).is_some_and(|rest| rest.starts_with(':')));
    if let Some(scheme) = other.copied().or_else(|| host.split_once("://").map(|(scheme, _)| scheme)) {
        return Err(format!("{scheme}: targets are not supported; {KNOWN}"));
    }
    let with_port = |authority: &Authority| authority.port_u16().is_some();
    let authority =
        host.parse().ok().filter(|authority: &Authority| !authority.host().is_empty() && !host.contains('@'));
    let authority = match authority {
        Some(authority) if with_port(&authority) => Some(authority),
        // What gRPC takes where no port is given.
        Some(_) => format!("{host}:443").parse().ok().filter(with_port),
        None => None,
    };
    authority.ok_or_else(|| format!("{target:?} is no host and port; {KNOWN}"))
}

const OTHER_SCHEMES: [&str; 7] = ["unix", "unix-abstract", "vsock", "ipv4", "ipv6", "xds", "google-c2p"];

/// Seconds as proto JSON writes them.
fn is_duration(text: &str) -> bool {
    let digits = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|letter| letter.is_ascii_digit())
    };
    let Some(seconds) = text.strip_suffix('s') else { return false };
    match seconds.split_once('.') {
        Some((whole, fraction)) => digits(whole, 12) && digits(fraction, 9),
        None => digits(seconds, 12),
    }
}

#[cfg(test)]
mod tests;
