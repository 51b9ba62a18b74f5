//! `weir diff --server`: what a relay has in a view, against what its server says directly.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::Args;
use serde_json::Value;
use weir_core::proto::discovery;
use weir_core::xds::{BodyStore, Resource, Type, TypeTable, short_type_name};

use super::admin::{AdminArgs, AdminError};
use super::endpoint::{EndpointError, TlsArgs};
use super::listening::{Patience, listen};
use super::note;
use super::printer::Printer;
use super::query_args::Output;
use super::query_state::{QueryState, Question, ReceivedResource};
use super::xds_client::Client;
use crate::plural::plural;
use crate::transcode::Transcoder;
use crate::upstream::AdsServer;

#[derive(Debug, Args)]
pub(super) struct ServerArgs {
    /// Compares what the relay has for one client's view with what this server says to the node of that view. Without a URI: the server that
    /// the view uses
    #[arg(long, value_name = "URI", num_args = 0..=1, default_missing_value = "")]
    server: Option<String>,
    /// With --server: a view instead of a client, by its words or its hash
    #[arg(long, requires = "server", conflicts_with = "clients")]
    pub(super) view: Option<String>,
    /// With --server: CAs that may sign its certificate, PEM [default: the system's]
    #[arg(long, value_name = "FILE", requires = "server")]
    server_ca: Option<PathBuf>,
    /// With --server: client certificate to show it, PEM; requires --server-key
    #[arg(long, value_name = "FILE", requires = "server", requires = "server_key")]
    server_cert: Option<PathBuf>,
    /// With --server: private key of that certificate, PEM
    #[arg(long, value_name = "FILE", requires = "server", requires = "server_cert")]
    server_key: Option<PathBuf>,
    /// With --server: JSON web token to send it; TLS only
    #[arg(long, value_name = "FILE", requires = "server")]
    server_token_file: Option<PathBuf>,
    /// With --server: longest wait for each type
    #[arg(long, value_parser = humantime::parse_duration, default_value = "15s")]
    timeout: Duration,
}

/// Why nothing can be compared.
#[derive(Debug, thiserror::Error)]
pub(super) enum CompareError {
    #[error(transparent)]
    Relay(#[from] AdminError),
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Arguments(Vec<EndpointError>),
    #[error("the relay has no view {0}")]
    NoView(String),
    #[error("the relay does not say what node its servers are shown; is it of this version?")]
    NoNode,
    #[error("the view has no server that can be asked ({0}): expected --server URI")]
    NoServer(String),
}

/// What is compared.
pub(super) struct Compared {
    /// What both have, as texts, without what is equal.
    pub(super) relay: String,
    pub(super) server: String,
    /// The name of the server.
    pub(super) whom: String,
    /// How many resources of how many types are equal.
    pub(super) same: String,
    /// What could not be found out.
    pub(super) failures: Vec<String>,
}

/// A resource, by what is shown of it and by its version, which is made from all of it.
#[derive(Debug, Clone, PartialEq)]
struct Shown {
    version: String,
    body: Value,
    /// The body may differ in what is not shown.
    is_part: bool,
}

/// Resources by their types and names.
type ShownByName = BTreeMap<(String, String), Shown>;

/// What a view requests of one type.
#[derive(Debug, Default, PartialEq, Eq)]
struct Requested {
    wildcard: bool,
    names: BTreeSet<String>,
}

impl ServerArgs {
    pub(super) fn is_given(&self) -> bool {
        self.server.is_some()
    }

    /// Asks the relay for a view and a server for the same. `view` is found in the page of the views, which this asks for.
    pub(super) async fn compare(
        &self,
        relay: &AdminArgs,
        view: &str,
        upstreams: &Value,
    ) -> Result<Compared, CompareError> {
        let found = upstreams.as_array().into_iter().flatten().find(|of| of["view"] == view);
        let found = found.ok_or_else(|| CompareError::NoView(view.to_owned()))?;
        let node = found["node"].as_str().and_then(|node| STANDARD.decode(node).ok()).ok_or(CompareError::NoNode)?;
        let server = self.endpoint(found)?;
        if found["key_fields"].as_object().is_some_and(|fields| fields.keys().any(|field| field.starts_with("header.")))
        {
            note("the server is not shown the headers in the key of the view, which the relay has of its clients");
        }
        let (requested, left_out) = requested(relay, view, found).await?;
        if left_out > 0 {
            note(&format!("{} of other authorities are left out", plural(left_out, "name")));
        }
        let dump = relay.get("/config_dump", &[("view", view), ("include_eds", "1")]).await?;
        let of_relay = shown_in(&dump);
        let (mut of_server, mut failures) = (ShownByName::new(), Vec::new());
        let whom = server.name();
        for (kind, requested) in requested {
            let kind = TypeTable::new().resolve(&kind);
            // What a server says to `*` and to a name may differ.
            let all = requested.wildcard.then(Vec::new);
            let named = Some(requested.names.into_iter().collect::<Vec<_>>()).filter(|names| !names.is_empty());
            for names in named.into_iter().chain(all) {
                let question = Question {
                    type_url: kind.url().into_owned(),
                    kind: kind.clone(),
                    names,
                    node: Bytes::from(node.clone()),
                };
                let mut client = Client::start(server.clone(), QueryState::new(question));
                let patience = Patience { timeout: self.timeout, quiet_period: QUIET_PERIOD };
                if let Err(error) = listen(&mut client, patience).await {
                    failures.push(format!("{whom}: {}: {error}", short_type_name(kind.name())));
                }
                let received = client.query().received().iter();
                of_server.extend(
                    received.map(|(name, of)| ((kind.name().to_owned(), name.clone()), shown(&kind, name, of))),
                );
            }
        }
        Ok(compared(of_relay, of_server, whom, failures))
    }

    /// Returns where the server is that was given, or that the view uses.
    fn endpoint(&self, view: &Value) -> Result<AdsServer, CompareError> {
        let given = self.server.as_deref().filter(|uri| !uri.is_empty());
        let authorities = view["authorities"].as_array().into_iter().flatten();
        let top = authorities.into_iter().find(|of| of["authority"] == "");
        let used = top.and_then(|top| top["server"].as_str());
        let uri = match given.or(used) {
            Some(uri) if given.is_some() || uri.contains("://") => uri,
            other => return Err(CompareError::NoServer(other.unwrap_or("none is active").to_owned())),
        };
        let tls = TlsArgs::of(self.server_ca.clone(), self.server_cert.clone().zip(self.server_key.clone()));
        let mut faults = Vec::new();
        if !uri.starts_with("https://") {
            let files = [
                ("--server-ca", &self.server_ca),
                ("--server-cert", &self.server_cert),
                ("--server-token-file", &self.server_token_file),
            ];
            let unused = files.into_iter().filter(|(_, file)| file.is_some());
            faults.extend(unused.map(|(flag, _)| EndpointError::RequiresTls(flag, "--server")));
        }
        if !faults.is_empty() {
            return Err(CompareError::Arguments(faults));
        }
        let server = tls.endpoint("--server", uri).map_err(CompareError::Arguments)?;
        Ok(AdsServer { tokens: self.server_token_file.iter().cloned().collect(), ..server })
    }
}

/// Returns what a view requests of the top-level list of servers, by type, and of how many names the servers are others.
async fn requested(
    relay: &AdminArgs,
    view: &str,
    found: &Value,
) -> Result<(BTreeMap<String, Requested>, usize), AdminError> {
    let mut requested: BTreeMap<String, Requested> = BTreeMap::new();
    let of = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let streams = found["streams"].as_array().into_iter().flatten();
    for kind in streams.flat_map(|stream| stream["types"].as_array().into_iter().flatten()) {
        requested.entry(of(kind, "type")).or_default().wildcard |= kind["wildcard"] == true;
    }
    let authorities = found["authorities"].as_array().into_iter().flatten();
    for missing in authorities.flat_map(|of| of["missing"].as_array().into_iter().flatten()) {
        match of(missing, "name") {
            name if name == "*" => requested.entry(of(missing, "type")).or_default().wildcard = true,
            name => drop(requested.entry(of(missing, "type")).or_default().names.insert(name)),
        }
    }
    let mut after = None;
    loop {
        let next = after.as_deref().map(|after| ("after", after));
        let parameters: Vec<_> = [("view", view), ("limit", "10000")].into_iter().chain(next).collect();
        let page = relay.get("/resources", &parameters).await?;
        for row in page["resources"].as_array().into_iter().flatten() {
            match row["subscription"] == "wildcard" {
                true => requested.entry(of(row, "type")).or_default().wildcard = true,
                false => drop(requested.entry(of(row, "type")).or_default().names.insert(of(row, "name"))),
            }
        }
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() {
            break;
        }
    }
    let before: usize = requested.values().map(|of| of.names.len()).sum();
    requested.values_mut().for_each(|of| of.names.retain(|name| !name.starts_with("xdstp:")));
    requested.retain(|_, of| *of != Requested::default());
    let left: usize = requested.values().map(|of| of.names.len()).sum();
    Ok((requested, before - left))
}

/// Returns the resources of a dump.
fn shown_in(dump: &Value) -> ShownByName {
    let mut all = ShownByName::new();
    for part in dump["configs"].as_array().into_iter().flatten() {
        for entry in part.as_object().into_iter().flat_map(|part| part.values()).filter_map(Value::as_array).flatten() {
            let state = entry.get("active_state").unwrap_or(entry);
            let single = BODIES.iter().find_map(|key| state.get(*key));
            let Some(body) = single.or_else(|| entry["scoped_route_configs"].get(0)) else { continue };
            let kind = body["@type"].as_str().and_then(|url| url.rsplit('/').next()).unwrap_or_default();
            let name = [&entry["name"], &body["name"], &body["cluster_name"]].into_iter().find_map(Value::as_str);
            let (version, is_part) = (state["version_info"].as_str().unwrap_or_default().to_owned(), false);
            let key = (kind.to_owned(), name.unwrap_or_default().to_owned());
            all.insert(key, Shown { version, body: body.clone(), is_part });
        }
    }
    all
}

/// Returns what a server has sent, in the form of a dump, and under the version that the relay gives to it.
fn shown(kind: &Type, name: &str, received: &ReceivedResource) -> Shown {
    let transcoder = Transcoder::envoy();
    let mut body = match transcoder.dumped_json(kind.name(), &received.resource.value) {
        Ok(body) => body,
        Err(error) => serde_json::json!({"[not shown]": error.to_string()}),
    };
    body["@type"] = kind.url().into_owned().into();
    let wrapper = discovery::Resource {
        name: name.to_owned(),
        aliases: received.aliases.clone(),
        metadata: received.metadata.clone(),
        resource: Some(received.resource.clone()),
        ..Default::default()
    };
    let resource = Resource::from_wrapper(0, wrapper, kind, &Arc::<BodyStore>::default());
    let version = resource.map(|resource| resource.full.to_string()).unwrap_or_default();
    let printer = Printer { transcoder, output: Output::Json, secrets: false };
    Shown { version, body, is_part: printer.has_secrets(received) }
}

fn compared(of_relay: ShownByName, of_server: ShownByName, whom: String, failures: Vec<String>) -> Compared {
    let keys: BTreeSet<_> = of_relay.keys().chain(of_server.keys()).collect();
    let (mut relay, mut server, mut same) = (Vec::new(), Vec::new(), BTreeMap::<&str, usize>::new());
    for key in &keys {
        let (one, other) = (of_relay.get(*key), of_server.get(*key));
        if let (Some(one), Some(other)) = (one, other)
            && (one.version == other.version || one.body == other.body && !other.is_part)
        {
            *same.entry(&key.0).or_default() += 1;
            continue;
        }
        let is_shown = one.map(|of| &of.body) != other.map(|of| &of.body);
        let text = |of: &Shown| {
            let hidden =
                if is_shown { String::new() } else { format!("\nversion {}, by what is not shown", of.version) };
            format!("{} {}: {:#}{hidden}", short_type_name(&key.0), key.1, of.body)
        };
        relay.extend(one.map(text));
        server.extend(other.map(text));
    }
    let same = format!("{} of {}", plural(same.values().sum(), "resource"), plural(same.len(), "type"));
    Compared { relay: relay.join("\n"), server: server.join("\n"), whom, same, failures }
}

/// Under which keys a dump has bodies.
const BODIES: [&str; 7] =
    ["cluster", "ecds_filter", "endpoint_config", "listener", "route_config", "secret", "xds_config"];
/// The silence after a response that ends a set.
const QUIET_PERIOD: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn by_name(all: &[(&str, &str, Value, bool)]) -> ShownByName {
        let of = |(name, version, body, is_part): &(&str, &str, Value, bool)| {
            let shown = Shown { version: (*version).into(), body: body.clone(), is_part: *is_part };
            (("envoy.config.cluster.v3.Cluster".to_owned(), (*name).to_owned()), shown)
        };
        all.iter().map(of).collect()
    }

    #[test]
    fn what_is_equal_is_left_out_and_what_differs_in_secret_is_said_to() {
        let relay = by_name(&[
            ("alike", "1", json!({"a": 1}), false),
            ("beside", "1", json!({"a": 1}), false),
            ("changed", "1", json!({"a": 1}), false),
            ("only", "1", json!({"a": 1}), false),
            ("secret", "1", json!({"a": "[redacted]"}), false),
        ]);
        let server = by_name(&[
            ("alike", "1", json!({"a": 1}), false),
            ("beside", "2", json!({"a": 1}), false),
            ("changed", "2", json!({"a": 2}), false),
            ("other", "1", json!({}), false),
            ("secret", "2", json!({"a": "[redacted]"}), true),
        ]);
        let compared = compared(relay.clone(), server, "server".into(), Vec::new());
        assert_eq!(compared.same, "2 resources of 1 type");
        let secret =
            |version| format!("CDS secret: {{\n  \"a\": \"[redacted]\"\n}}\nversion {version}, by what is not shown");
        let relays = format!("CDS changed: {{\n  \"a\": 1\n}}\nCDS only: {{\n  \"a\": 1\n}}\n{}", secret(1));
        assert_eq!(compared.relay, relays);
        assert_eq!(compared.server, format!("CDS changed: {{\n  \"a\": 2\n}}\nCDS other: {{}}\n{}", secret(2)));
        let same = super::compared(relay.clone(), relay, "server".into(), Vec::new());
        assert_eq!((same.relay.as_str(), same.server.as_str(), same.same.as_str()), ("", "", "5 resources of 1 type"));
    }

    #[test]
    fn resources_are_found_in_every_list_of_a_dump() {
        let body = |kind: &str| json!({"@type": format!("type.googleapis.com/{kind}"), "name": "own"});
        let dump = json!({"configs": [
            {"@type": "x", "version_info": "9", "dynamic_active_clusters": [{"version_info": "1", "cluster": body("a.Cluster")}]},
            {"dynamic_listeners": [{"name": "l", "active_state": {"version_info": "2", "listener": body("a.Listener")}}]},
            {"dynamic_endpoint_configs": [{"version_info": "3", "endpoint_config": {"@type": "t/a.Load", "cluster_name": "e"}}]},
            {"dynamic_scoped_route_configs": [{"name": "s", "version_info": "4", "scoped_route_configs": [body("a.Scope")]}]},
            {"generic_xds_configs": [{"name": "g", "version_info": "5", "xds_config": body("a.Own")}]},
        ]});
        let found: Vec<_> = shown_in(&dump)
            .into_iter()
            .map(|((kind, name), shown)| format!("{kind} {name} {}", shown.version))
            .collect();
        assert_eq!(found, ["a.Cluster own 1", "a.Listener l 2", "a.Load e 3", "a.Own g 5", "a.Scope s 4"]);
    }
}
