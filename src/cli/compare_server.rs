//! `weir diff --server`: compares what a relay has in a view with what its server sends directly.

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
use super::differences::Difference;
use super::endpoint::{EndpointError, TlsArgs};
use super::listening::{Patience, listen};
use super::note;
use super::printer::Printer;
use super::query_args::Output;
use super::query_state::{NameStatus, QueryState, Question, ReceivedResource};
use super::xds_client::Client;
use crate::plural::plural;
use crate::transcode::Transcoder;
use crate::upstream::{AdsServer, TlsWords};

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
    /// With --server: name expected in its certificate [default: host of its URI]
    #[arg(long, value_name = "NAME", requires = "server")]
    server_certificate_name: Option<String>,
    /// With --server: longest wait for each type
    #[arg(long, value_parser = humantime::parse_duration, default_value = "15s")]
    timeout: Duration,
}

/// Why the comparison is impossible.
#[derive(Debug, thiserror::Error)]
pub(super) enum CompareError {
    #[error(transparent)]
    Relay(#[from] AdminError),
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Arguments(Vec<EndpointError>),
    #[error("the relay has no view {0}")]
    NoView(String),
    #[error(
        "the relay does not show what node its servers see: it is that of a client (views.node), or the relay is of another version"
    )]
    NoNode,
    #[error("the view has no server that can be asked ({0}): expected --server URI")]
    NoServer(String),
}

/// The result of a comparison.
pub(super) struct Compared {
    /// The resources of both sides, as texts, without those that are equal.
    pub(super) relay: String,
    pub(super) server: String,
    /// The name of the server.
    pub(super) whom: String,
    /// A text of how many resources of how many types are equal.
    pub(super) same: String,
    pub(super) equal: usize,
    /// For each resource that differs, what both sides have.
    pub(super) differences: Vec<Difference>,
    /// What could not be found out.
    pub(super) failures: Vec<String>,
}

/// A resource: what is shown of it, and its version, which is computed from the whole resource.
#[derive(Debug, Clone, PartialEq)]
struct ShownResource {
    version: String,
    body: Value,
    /// Whether `body` shows only a part, so that resources may differ in what is not shown.
    is_part: bool,
}

/// A resource by its type, its name, and the subscription that brings it: a server may answer `*` and the name differently.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    kind: String,
    name: String,
    by_name: bool,
}

type ShownByName = BTreeMap<Key, ShownResource>;
/// The versions of the relay's resources.
type Versions = BTreeMap<Key, String>;

/// The subscriptions of a view to one type.
#[derive(Debug, Default, PartialEq, Eq)]
struct Requested {
    wildcard: bool,
    names: BTreeSet<String>,
}

impl ServerArgs {
    pub(super) fn is_given(&self) -> bool {
        self.server.is_some()
    }

    /// Asks the relay for a view, and a server for the same resources. `view` is searched in the page of the views, which this requests.
    pub(super) async fn compare(
        &self,
        relay: &AdminArgs,
        view: &str,
        upstreams: &Value,
    ) -> Result<Compared, CompareError> {
        let found = upstreams.as_array().into_iter().flatten().find(|of| of["view"] == view);
        let found = found.ok_or_else(|| CompareError::NoView(view.to_owned()))?;
        let node = found["node"].as_str().filter(|node| !node.is_empty());
        let node = node.and_then(|node| STANDARD.decode(node).ok()).ok_or(CompareError::NoNode)?;
        let server = self.endpoint(found)?;
        if found["key_fields"].as_object().is_some_and(|fields| fields.keys().any(|field| field.starts_with("header.")))
        {
            note("the server is not shown the headers in the key of the view, which the relay has of its clients");
        }
        let (requested, versions, left_out) = requested(relay, view, found).await?;
        let not_asked = missing_beyond(found);
        if left_out > 0 {
            note(&format!("{} of other authorities are left out", plural(left_out, "name")));
        }
        let dump = relay.get("/config_dump", &[("view", view), ("include_eds", "1")]).await?;
        let mut of_relay = shown_in(&dump, versions);
        let (mut of_server, mut failures, mut unknown) = (ShownByName::new(), Vec::new(), Vec::new());
        let whom = server.name();
        if not_asked > 0 {
            let count = plural(not_asked, "missing name");
            failures.push(format!("{whom}: not asked for {count}, as the relay lists only the first"));
        }
        for (kind, requested) in requested {
            let kind = TypeTable::new().resolve(&kind);
            let all = requested.wildcard.then(Vec::new);
            let named = Some(requested.names.into_iter().collect::<Vec<_>>()).filter(|names| !names.is_empty());
            for names in named.into_iter().chain(all) {
                let by_name = !names.is_empty();
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
                    unknown.push((kind.name().to_owned(), unanswered(client.query())));
                }
                let key = |name: &String| Key { kind: kind.name().to_owned(), name: name.clone(), by_name };
                let received = client.query().received().iter();
                of_server.extend(received.map(|(name, of)| (key(name), shown(&kind, name, of))));
            }
        }
        for all in [&mut of_relay, &mut of_server] {
            all.retain(|key, _| is_compared(&key.name));
            unknown.iter().for_each(|(kind, names)| drop_unknown(all, kind, names.as_ref()));
        }
        Ok(compared(of_relay, of_server, whom, failures))
    }

    /// Returns the endpoint of the given server, or else of the server that the view uses.
    fn endpoint(&self, view: &Value) -> Result<AdsServer, CompareError> {
        let given = self.server.as_deref().filter(|uri| !uri.is_empty());
        let authorities = view["authorities"].as_array().into_iter().flatten();
        let top = authorities.into_iter().find(|of| of["authority"] == "");
        let used = top.and_then(|top| top["server"].as_str());
        let uri = match given.or(used) {
            Some(uri) if given.is_some() || can_be_asked(uri) => uri,
            other => return Err(CompareError::NoServer(other.unwrap_or("none is active").to_owned())),
        };
        let own = self.server_cert.clone().zip(self.server_key.clone());
        let tls = TlsArgs::of(self.server_ca.clone(), own, self.server_certificate_name.clone());
        let mut faults = Vec::new();
        if !uri.starts_with("https://") {
            let files = [
                ("--server-ca", &self.server_ca),
                ("--server-cert", &self.server_cert),
                ("--server-token-file", &self.server_token_file),
            ];
            let unused = files.into_iter().filter(|(_, file)| file.is_some()).map(|(flag, _)| flag);
            let name = self.server_certificate_name.as_ref().map(|_| "--server-certificate-name");
            faults.extend(unused.chain(name).map(|flag| EndpointError::RequiresTls(flag, "--server")));
        }
        if !faults.is_empty() {
            return Err(CompareError::Arguments(faults));
        }
        let server = tls.endpoint_in(WORDS, "--server", uri).map_err(CompareError::Arguments)?;
        Ok(AdsServer { tokens: self.server_token_file.iter().cloned().collect(), ..server })
    }
}

/// Returns what a view requests of the top-level list of servers, by type; the versions that it has; and how many names belong to other lists.
async fn requested(
    relay: &AdminArgs,
    view: &str,
    found: &Value,
) -> Result<(BTreeMap<String, Requested>, Versions, usize), AdminError> {
    let (mut requested, mut versions): (BTreeMap<String, Requested>, _) = (BTreeMap::new(), Versions::new());
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
            let key = Key { kind: of(row, "type"), name: of(row, "name"), by_name: row["subscription"] != "wildcard" };
            match key.by_name {
                false => requested.entry(of(row, "type")).or_default().wildcard = true,
                true => drop(requested.entry(of(row, "type")).or_default().names.insert(of(row, "name"))),
            }
            versions.extend(row["version"].as_str().map(|version| (key, version.to_owned())));
        }
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() {
            break;
        }
    }
    let before: usize = requested.values().map(|of| of.names.len()).sum();
    requested.values_mut().for_each(|of| of.names.retain(|name| is_compared(name)));
    requested.retain(|_, of| *of != Requested::default());
    let left: usize = requested.values().map(|of| of.names.len()).sum();
    Ok((requested, versions, before - left))
}

/// Whether a server of a view is a gRPC server, by its name.
fn can_be_asked(server: &str) -> bool {
    (server.contains("://") || server.starts_with("unix:")) && !server.ends_with(" (REST)")
}

/// Returns the names that a server has not answered; `None` if the server was asked for all.
fn unanswered(query: &QueryState) -> Option<BTreeSet<String>> {
    let names = query.statuses().iter().filter(|(_, status)| **status == NameStatus::Unknown);
    (!query.is_open_ended()).then(|| names.map(|(name, _)| name.to_string()).collect())
}

/// Drops the resources of which the server's state is unknown, since they are no difference: these names of a type, or its whole wildcard set.
fn drop_unknown(all: &mut ShownByName, kind: &str, names: Option<&BTreeSet<String>>) {
    all.retain(|key, _| {
        let is_asked = key.kind == kind && key.by_name == names.is_some();
        !is_asked || names.is_some_and(|names| !names.contains(&key.name))
    });
}

/// Whether a name belongs to the top-level list of servers. Other authorities have servers of their own.
fn is_compared(name: &str) -> bool {
    !name.starts_with("xdstp:")
}

/// Returns how many missing names of the top-level list of servers `/upstreams` only counts and does not list.
fn missing_beyond(view: &Value) -> usize {
    let authorities = view["authorities"].as_array().into_iter().flatten();
    let of = |authority: &Value| {
        let listed = authority["missing"].as_array().map_or(0, Vec::len);
        (authority["missing_count"].as_u64().unwrap_or_default() as usize).saturating_sub(listed)
    };
    authorities.filter(|of| of["authority"] == "").map(of).sum()
}

/// Returns the relay's resources, with their bodies from a dump.
fn shown_in(dump: &Value, versions: Versions) -> ShownByName {
    let bodies = bodies_in(dump);
    let of = |(key, version): (Key, String)| {
        let body = bodies.get(&(key.kind.clone(), version.clone())).cloned();
        let body = body.unwrap_or_else(|| serde_json::json!({"[not shown]": "the relay has replaced it meanwhile"}));
        (key, ShownResource { version, body, is_part: false })
    };
    versions.into_iter().map(of).collect()
}

/// Returns the bodies of a dump by type and version, because not all lists have the names.
fn bodies_in(dump: &Value) -> BTreeMap<(String, String), Value> {
    let (mut all, types) = (BTreeMap::new(), TypeTable::new());
    for part in dump["configs"].as_array().into_iter().flatten() {
        for entry in part.as_object().into_iter().flat_map(|part| part.values()).filter_map(Value::as_array).flatten() {
            let state = entry.get("active_state").unwrap_or(entry);
            let single = BODIES.iter().find_map(|key| state.get(*key));
            let Some(body) = single.or_else(|| entry["scoped_route_configs"].get(0)) else { continue };
            let kind = types.resolve(body["@type"].as_str().unwrap_or_default());
            let version = state["version_info"].as_str().unwrap_or_default();
            all.insert((kind.name().to_owned(), version.to_owned()), body.clone());
        }
    }
    all
}

/// Returns a resource that a server has sent, in the form of a dump and with the version that the relay would compute.
fn shown(kind: &Type, name: &str, received: &ReceivedResource) -> ShownResource {
    let transcoder = Transcoder::envoy();
    let url = kind.url();
    let body = match transcoder.dumped_json(kind.name(), &received.resource.value) {
        Ok(Value::Object(mut fields)) => {
            fields.insert("@type".to_owned(), (*url).into());
            Value::Object(fields)
        }
        Ok(other) => serde_json::json!({"@type": url, "value": other}),
        Err(error) => serde_json::json!({"@type": url, "[not shown]": error.to_string()}),
    };
    let constraints = received.constraints.clone();
    let wrapper = discovery::Resource {
        name: name.to_owned(),
        resource_name: constraints.map(|constraints| discovery::ResourceName {
            name: name.to_owned(),
            dynamic_parameter_constraints: Some(constraints),
        }),
        aliases: received.aliases.clone(),
        metadata: received.metadata.clone(),
        cache_control: received.do_not_cache.then_some(discovery::resource::CacheControl { do_not_cache: true }),
        resource: Some(received.resource.clone()),
        ..Default::default()
    };
    let resource = Resource::from_wrapper(0, wrapper, kind, &Arc::<BodyStore>::default());
    let version = resource.map(|resource| resource.full.to_string()).unwrap_or_default();
    let printer = Printer { transcoder, output: Output::Json, secrets: false };
    ShownResource { version, body, is_part: printer.has_secrets(received) }
}

fn compared(of_relay: ShownByName, of_server: ShownByName, whom: String, failures: Vec<String>) -> Compared {
    let keys: BTreeSet<_> = of_relay.keys().chain(of_server.keys()).collect();
    let (mut relay, mut server, mut same) = (Vec::new(), Vec::new(), BTreeMap::<&str, usize>::new());
    let mut differences = Vec::new();
    for key in &keys {
        let (one, other) = (of_relay.get(*key), of_server.get(*key));
        if let (Some(one), Some(other)) = (one, other)
            && (one.version == other.version || one.body == other.body && !other.is_part)
        {
            *same.entry(&key.kind).or_default() += 1;
            continue;
        }
        let is_shown = one.map(|of| &of.body) != other.map(|of| &of.body);
        let other_class = Key { by_name: false, ..(*key).clone() };
        let is_second = key.by_name && (of_relay.contains_key(&other_class) || of_server.contains_key(&other_class));
        let by_name = if is_second { ", requested by name" } else { "" };
        let text = |of: &ShownResource| {
            let hidden =
                if is_shown { String::new() } else { format!("\nversion {}, by what is not shown", of.version) };
            format!("{} {}{by_name}: {:#}{hidden}", short_type_name(&key.kind), key.name, of.body)
        };
        relay.extend(one.map(text));
        server.extend(other.map(text));
        let sides = [one, other].map(|of| of.map(|of| serde_json::json!({"version": of.version, "body": of.body})));
        differences.push(Difference::in_view(&key.kind, key.by_name, &key.name, sides));
    }
    let equal: usize = same.values().sum();
    let same = format!("{} of {}", plural(equal, "resource"), plural(same.len(), "type"));
    Compared { relay: relay.join("\n"), server: server.join("\n"), whom, same, equal, differences, failures }
}

/// The keys of a dump that contain bodies.
const BODIES: [&str; 7] =
    ["cluster", "ecds_filter", "endpoint_config", "listener", "route_config", "secret", "xds_config"];
const WORDS: TlsWords = TlsWords {
    client: "the client",
    no_ca: "--server-ca is not given",
    no_certificate: "--server-cert is not given",
    server_name: "--server-certificate-name",
};
/// The silence after a response that ends a set.
const QUIET_PERIOD: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weir_core::proto::discovery::{DeltaDiscoveryResponse, ResourceName};
    use weir_core::proto::{Any, Response};

    use super::*;

    fn by_name(all: &[(&str, &str, Value, bool)]) -> ShownByName {
        let of = |(name, version, body, is_part): &(&str, &str, Value, bool)| {
            let shown = ShownResource { version: (*version).into(), body: body.clone(), is_part: *is_part };
            let kind = "envoy.config.cluster.v3.Cluster".to_owned();
            (Key { kind, name: (*name).to_owned(), by_name: false }, shown)
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
        let found = serde_json::to_value(&compared.differences).unwrap();
        let names: Vec<_> = found.as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect();
        assert_eq!((names, compared.equal), (vec!["changed", "only", "other", "secret"], 2));
        let changed = json!({
            "type": "envoy.config.cluster.v3.Cluster", "subscription": "wildcard", "name": "changed",
            "first": {"version": "1", "body": {"a": 1}}, "second": {"version": "2", "body": {"a": 2}},
        });
        assert_eq!((&found[0], &found[1]["second"], &found[2]["first"]), (&changed, &Value::Null, &Value::Null));
        let same = super::compared(relay.clone(), relay, "server".into(), Vec::new());
        assert_eq!((same.relay.as_str(), same.server.as_str(), same.same.as_str()), ("", "", "5 resources of 1 type"));
    }

    #[test]
    fn a_server_over_grpc_is_known_by_its_name() {
        for server in ["http://cp:1", "https://cp", "unix:/run/cp.sock"] {
            assert!(can_be_asked(server), "{server}");
        }
        for server in ["http://cp:1 (REST)", "unix:/run/cp.sock (REST)", "unix-abstract:cp", "what all views share"] {
            assert!(!can_be_asked(server), "{server}");
        }
    }

    fn also_named(all: ShownByName) -> ShownByName {
        let named = all.clone().into_iter().map(|(key, of)| (Key { by_name: true, ..key }, of));
        named.chain(all).collect()
    }

    #[test]
    fn what_is_said_to_a_name_is_not_compared_with_what_is_said_to_the_wildcard() {
        let relay = also_named(by_name(&[("a", "1", json!({"a": 1}), false)]));
        let server = by_name(&[("a", "1", json!({"a": 1}), false)]);
        let changed = by_name(&[("a", "2", json!({"a": 2}), false)]);
        let changed = changed.into_iter().map(|(key, of)| (Key { by_name: true, ..key }, of));
        let compared = compared(relay, server.into_iter().chain(changed).collect(), "server".into(), Vec::new());
        assert_eq!(compared.same, "1 resource of 1 type");
        assert_eq!(compared.relay, "CDS a, requested by name: {\n  \"a\": 1\n}");
        assert_eq!(compared.server, "CDS a, requested by name: {\n  \"a\": 2\n}");
    }

    #[test]
    fn what_is_not_known_of_a_server_is_left_out() {
        let all = also_named(by_name(&[("a", "1", json!({}), false), ("b", "1", json!({}), false)]));
        let left = |kind: &str, names: Option<&BTreeSet<String>>| {
            let mut all = all.clone();
            drop_unknown(&mut all, kind, names);
            all.into_keys().map(|key| format!("{} {}", key.name, key.by_name)).collect::<Vec<_>>()
        };
        let cluster = "envoy.config.cluster.v3.Cluster";
        assert_eq!(left(cluster, Some(&BTreeSet::from(["a".to_owned()]))), ["a false", "b false", "b true"]);
        assert_eq!(left(cluster, None), ["a true", "b true"]);
        assert_eq!(left("other", None).len(), 4);
    }

    #[test]
    fn missing_names_that_the_relay_only_counts_are_counted() {
        let of = |authority: &str, count: usize| json!({"authority": authority, "missing": [{}, {}], "missing_count": count});
        assert_eq!(missing_beyond(&json!({"authorities": [of("", 9), of("other", 30)]})), 7);
        assert_eq!(missing_beyond(&json!({"authorities": [of("", 2)]})), 0);
        assert_eq!(missing_beyond(&json!({})), 0);
    }

    /// Returns what is shown of a resource that was received under the name `s`.
    fn received(kind: &Type, wrapper: discovery::Resource) -> ShownResource {
        let (type_url, names) = (kind.url().into_owned(), Vec::new());
        let mut query = QueryState::new(Question { type_url, kind: kind.clone(), names, node: Bytes::new() });
        query.apply(Response::Delta(DeltaDiscoveryResponse { resources: vec![wrapper], ..Default::default() }));
        shown(kind, "s", &query.received()["s"])
    }

    #[test]
    fn a_version_is_made_from_all_that_travels_beside_the_body() {
        let kind = TypeTable::new().resolve("google.protobuf.StringValue");
        let constraints = Some(Bytes::from_static(b"\x0a\x00"));
        let name = ResourceName { name: "s".into(), dynamic_parameter_constraints: constraints };
        let wrapper = discovery::Resource {
            name: "s".into(),
            resource_name: Some(name),
            aliases: vec!["t".into()],
            cache_control: Some(discovery::resource::CacheControl { do_not_cache: true }),
            resource: Some(Any { type_url: kind.url().into_owned(), value: Bytes::new() }),
            ..Default::default()
        };
        let relays = Resource::from_wrapper(0, wrapper.clone(), &kind, &BodyStore::default()).unwrap();
        assert_eq!(received(&kind, wrapper.clone()).version, relays.full.to_string());
        let other = discovery::Resource { cache_control: None, ..wrapper };
        assert_ne!(received(&kind, other).version, relays.full.to_string());
    }

    #[test]
    fn a_body_that_is_no_object_in_json_is_shown_as_a_dump_has_it() {
        let kind = TypeTable::new().resolve("google.protobuf.StringValue");
        let resource = Any { type_url: kind.url().into_owned(), value: Bytes::from_static(b"\x0a\x01a") };
        let wrapper = discovery::Resource { name: "s".into(), resource: Some(resource), ..Default::default() };
        assert_eq!(
            received(&kind, wrapper).body,
            json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "a"})
        );
    }

    #[test]
    fn bodies_are_found_in_every_list_of_a_dump() {
        let body = |kind: &str| json!({"@type": format!("type.googleapis.com/{kind}"), "name": "own"});
        let dump = json!({"configs": [
            {"@type": "x", "version_info": "9", "dynamic_active_clusters": [{"version_info": "1", "cluster": body("a.Cluster")}]},
            {"dynamic_listeners": [{"name": "l", "active_state": {"version_info": "2", "listener": body("a.Listener")}}]},
            {"dynamic_endpoint_configs": [{"version_info": "3", "endpoint_config": {"@type": "t/a.Load", "cluster_name": "e"}}]},
            {"dynamic_scoped_route_configs": [{"name": "s", "version_info": "4", "scoped_route_configs": [body("a.Scope")]}]},
            {"generic_xds_configs": [{"name": "g", "version_info": "5", "xds_config": body("a.Own")}]},
        ]});
        let found: Vec<_> = bodies_in(&dump).into_keys().map(|(kind, version)| format!("{kind} {version}")).collect();
        assert_eq!(found, ["a.Cluster 1", "a.Listener 2", "a.Own 5", "a.Scope 4", "t/a.Load 3"]);
        let key = |kind: &str| Key { kind: kind.to_owned(), name: "wrapped".to_owned(), by_name: true };
        let versions = Versions::from([(key("a.Cluster"), "1".to_owned()), (key("a.Own"), "6".to_owned())]);
        let shown: Vec<_> = shown_in(&dump, versions).into_values().map(|shown| shown.body).collect();
        assert_eq!(shown, [body("a.Cluster"), json!({"[not shown]": "the relay has replaced it meanwhile"})]);
    }
}
