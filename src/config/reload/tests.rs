use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;

struct File(std::path::PathBuf);

impl File {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("weir-in-use-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn reload(&self, before: &Value, after: &Value) -> Result<Reloaded, ReloadError> {
        let path = self.0.join("relay.yaml");
        let config = Config::parse(&path, &before.to_string()).unwrap_or_else(|error| panic!("{error}"));
        std::fs::write(&path, after.to_string()).unwrap();
        InUse::of(&config).reload(&path).result
    }

    /// Compares the file with what a running relay shows.
    fn foretell(&self, before: &Value, after: &Value) -> Result<Reloaded, ReloadError> {
        let path = self.0.join("relay.yaml");
        let running = Config::parse(&path, &before.to_string()).unwrap_or_else(|error| panic!("{error}")).shown;
        let page: Value = serde_json::from_str(&running.config.to_string()).unwrap();
        let new = Config::parse(&path, &after.to_string()).unwrap_or_else(|error| panic!("{error}"));
        InUse::of_shown(&page, running.bootstrap).unwrap().compare(&path, &after.to_string(), new)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_is_valid_only_together_is_said_with_whole_keys_where_a_section_is_missing() {
    let mut before = base();
    before["limits"] = json!({"incomplete_request_bytes": "32MiB", "message_bytes": "16MiB"});
    let error = File::new("together").reload(&before, &base()).unwrap_err().to_string();
    assert!(error.contains("(limits.incomplete_request_bytes)"), "{error}");
    assert!(error.ends_with("invalid size 32MiB: expected at least 64MiB, which is limits.message_bytes"), "{error}");
}

/// A file with every key, except for those of sections that exclude one another.
fn base() -> Value {
    json!({
        "listen": [{"address": "127.0.0.1:0"}],
        "admin": {"address": "127.0.0.1:0"},
        "probes": {"address": "127.0.0.1:0"},
        "upstream": {"servers": [{"uri": "http://one:1"}]},
        "permissions": [{"name": "all", "identities": [{"network": "10.0.0.0/8"}], "free": ["cluster", "id"]}],
        "state": {"path": "state"},
        "views": {"key": ["cluster"]},
    })
}

/// Values for keys whose form alone does not give one.
fn values() -> BTreeMap<&'static str, Value> {
    let tls =
        json!({"certificate": "c.pem", "key": "c.key", "client_ca": "ca.pem", "may_read": [{"dns": "a.example"}]});
    BTreeMap::from([
        ("access", json!([{"types": ["envoy.config.cluster.v3.Cluster"], "allow_from": ["10.0.0.0/8"]}])),
        ("admin.address", json!("127.0.0.1:1")),
        ("admin.hosts", json!(["weir.example"])),
        ("admin.socket", json!("admin.sock")),
        ("admin.tls", tls),
        ("brakes.empty_grace", json!("20m")),
        ("brakes.types", json!(["envoy.config.cluster.v3.Cluster"])),
        ("clients.control_plane_identifier", json!("other")),
        ("limits.cached_bytes", json!("600MiB")),
        ("ready_after", json!("5m")),
        ("limits.incomplete_request_bytes", json!("600MiB")),
        ("limits.memory", json!("64MiB")),
        ("limits.outdated_reply_bytes", json!("600MiB")),
        ("limits.stated_versions_bytes", json!("600MiB")),
        ("load_reports.bytes_total", json!("600MiB")),
        ("rest.cache_bytes", json!("60MiB")),
        ("rest.response_bytes", json!("300MiB")),
        ("upstream.backoff.factor", json!(3.0)),
        ("limits.connections", json!(7)),
        ("listen", json!([{"address": "127.0.0.1:1"}])),
        ("permissions", json!([{"name": "few", "identities": [{"network": "10.1.0.0/16"}], "free": ["cluster"]}])),
        ("probes.address", json!("127.0.0.1:1")),
        ("shards", json!(5)),
        ("state.key", json!("state.key")),
        ("state.max_age", json!("1h")),
        ("state.path", json!("other")),
        ("types", json!([{"name": "a.B"}])),
        ("views.preset", json!("envoy-gateway")),
        ("upstream.authorities", json!({"one.example": {"servers": [{"uri": "http://two:1"}]}})),
        ("upstream.servers", json!([{"uri": "http://two:1"}])),
        ("views.key", json!(["id"])),
    ])
}

/// Keys that other keys exclude, or that name files which have to exist.
const ELSEWHERE: [&str; 5] = [
    "upstream.bootstrap",
    "upstream.bootstrap_from_environment",
    "upstream.descriptors",
    "upstream.files",
    "upstream.shared_authorities",
];

/// Returns a value other than the default.
fn other_than(default: &Value, schema: &Value) -> Option<Value> {
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().find(|word| *word != default).cloned();
    }
    match default {
        Value::Bool(flag) => Some(json!(!flag)),
        Value::Number(number) => Some(number.as_u64().map_or(json!(0.5), |number| json!(number + 1))),
        Value::String(text) if text.ends_with('B') => {
            Some(json!(text.replace(|digit: char| digit.is_ascii_digit(), "")))
                .map(|unit| json!(format!("3{}", unit.as_str().unwrap_or_default())))
        }
        Value::String(text) if text.ends_with(['s', 'm', 'h']) => {
            Some(json!(if text == "20s" { "21s" } else { "20s" }))
        }
        _ => None,
    }
}

fn leaves(schema: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    match schema["properties"].as_object() {
        Some(properties) if path != "admin.tls" => properties.iter().for_each(|(key, schema)| {
            let dot = if path.is_empty() { "" } else { "." };
            leaves(schema, &format!("{path}{dot}{key}"), found);
        }),
        _ => found.push((path.to_owned(), schema.clone())),
    }
}

fn with(mut file: Value, path: &str, value: Value) -> Value {
    let pointer = path.split('.').fold(&mut file, |place, step| {
        if place.is_null() {
            *place = json!({});
        }
        &mut place[step]
    });
    *pointer = value;
    file
}

#[test]
fn a_change_of_each_key_counts_or_is_pending_as_the_table_says() {
    let (mut all, values, file) = (Vec::new(), values(), File::new("each"));
    leaves(schema(), "", &mut all);
    let mut wrong = Vec::new();
    all.retain(|(key, _)| !ELSEWHERE.contains(&key.as_str()));
    assert!(all.len() > 80, "{all:?}");
    for (key, schema) in &all {
        let value = values.get(key.as_str()).cloned().or_else(|| other_than(&schema["default"], schema));
        // Limits of tenants need tenants, as does a view that shows one of its clients. A preset cannot be beside a key.
        let base = || match key.as_str() {
            "views.preset" => {
                let mut open = with(base(), "views", json!({}));
                open.as_object_mut().unwrap().remove("permissions"); // they would have to free every field
                open
            }
            "views.node" => with(base(), "views.key", json!(["cluster", "tenant"])),
            key if key.starts_with("limits.") && key.contains("tenant") => {
                with(base(), "views.key", json!(["cluster", "tenant"]))
            }
            _ => base(),
        };
        let after = with(base(), key, value.unwrap_or_else(|| panic!("no value for {key}: {schema}")));
        let Reloaded { config, changed, pending } = match file.reload(&base(), &after) {
            Ok(reloaded) => reloaded,
            Err(error) => {
                wrong.push(format!("{key}: {error}"));
                continue;
            }
        };
        match file.foretell(&base(), &after) {
            Ok(said) if (&said.changed, &said.pending) == (&changed, &pending) => {}
            said => wrong.push(format!("{key}: foretold {said:?}, and came {changed:?}, {pending:?}")),
        }
        let alone = |found: &[String]| found.len() == 1 && key.starts_with(&found[0]);
        let (is_as_said, in_use) = match applies(key) {
            Applies::Restart => (changed.is_empty() && alone(&pending), base()),
            Applies::AtOnce | Applies::NewStreams => (pending.is_empty() && alone(&changed), after),
        };
        if !is_as_said || comparable_of(&config) != comparable_of(&parsed(&in_use)) {
            wrong.push(format!("{key}: {changed:?}, {pending:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn comparable_of(config: &Config) -> Value {
    InUse::of(config).comparable(&config.tree)
}

fn parsed(file: &Value) -> Config {
    Config::parse(Path::new("relay.yaml"), &file.to_string()).unwrap()
}

#[test]
fn what_is_foretold_waits_where_the_reload_waits_and_fails_where_it_fails() {
    let file = File::new("foretold");
    let mut open = base();
    open.as_object_mut().unwrap().remove("permissions");
    let both = with(with(base(), "limits.new_streams_per_second", json!(7)), "limits.linger", json!("1m"));
    for (before, after) in [(base(), open.clone()), (open, base()), (base(), both.clone()), (both, base())] {
        let (said, came) = (file.foretell(&before, &after).unwrap(), file.reload(&before, &after).unwrap());
        assert_eq!((said.changed, said.pending), (came.changed, came.pending));
        assert_eq!(said.config.drain, came.config.drain);
    }
    let mut before = base();
    before["limits"] = json!({"incomplete_request_bytes": "32MiB", "message_bytes": "16MiB"});
    let (said, came) = (file.foretell(&before, &base()), file.reload(&before, &base()));
    // The text that a relay shows has other columns than the file.
    let words =
        |error: ReloadError| error.to_string().split(": ").filter(|part| !part.contains(".yaml:")).collect::<String>();
    assert_eq!(words(said.unwrap_err()), words(came.unwrap_err()));
}

#[test]
fn what_operators_may_not_see_is_not_compared() {
    let file = File::new("hidden");
    let at = |user: &str| with(base(), "upstream.servers", json!([{"uri": format!("http://{user}@one:1")}]));
    if Config::parse(Path::new("relay.yaml"), &at("a:b").to_string()).is_ok() {
        assert_eq!(file.reload(&at("a:b"), &at("a:c")).unwrap().changed, ["upstream.servers"]);
        assert_eq!(file.foretell(&at("a:b"), &at("a:c")).unwrap().changed, [""; 0]);
    }
}

#[test]
fn what_is_pending_stays_so_and_the_rest_of_its_section_counts() {
    let file = File::new("section");
    let before = with(base(), "limits.new_streams_per_second", json!(5));
    let after = with(with(base(), "limits.new_streams_per_second", json!(7)), "limits.linger", json!("1m"));
    let Reloaded { config, changed, pending } = file.reload(&before, &after).unwrap();
    assert_eq!(
        (changed, pending),
        (vec!["limits.linger".to_owned()], vec!["limits.new_streams_per_second".to_owned()])
    );
    assert_eq!(
        (config.downstream.connections.new_streams_per_second, config.views.protocol.view.linger.as_secs()),
        (5, 60)
    );
    // A key that is removed from the file gets its default only after a restart.
    let Reloaded { config, pending, .. } = file.reload(&before, &base()).unwrap();
    assert_eq!(
        (config.downstream.connections.new_streams_per_second, pending),
        (5, vec!["limits.new_streams_per_second".to_owned()])
    );
}

#[test]
fn rules_do_not_come_or_go_altogether_without_a_restart() {
    let file = File::new("rules");
    let mut open = base();
    open.as_object_mut().unwrap().remove("permissions");
    let Reloaded { config, changed, pending } = file.reload(&base(), &open).unwrap();
    assert_eq!((changed.len(), pending), (0, vec!["permissions".to_owned()]));
    assert_eq!(config.views.permissions.rules().len(), 1);
    let Reloaded { config, pending, .. } = file.reload(&open, &base()).unwrap();
    assert!(config.views.permissions.rules().is_empty() && pending == ["permissions"]);
}

#[test]
fn another_bootstrap_file_under_the_same_name_is_a_change() {
    let file = File::new("bootstrap");
    let servers =
        |uri: &str| json!({"xds_servers": [{"server_uri": uri, "channel_creds": [{"type": "insecure"}]}]}).to_string();
    let bootstrap = file.0.join("bootstrap.json");
    std::fs::write(&bootstrap, servers("one:1")).unwrap();
    let text = json!({"listen": [{"address": "127.0.0.1:0"}], "upstream": {"bootstrap": bootstrap}});
    let path = file.0.join("relay.yaml");
    let config = Config::parse(&path, &text.to_string()).unwrap();
    std::fs::write(&path, text.to_string()).unwrap();
    assert!(InUse::of(&config).reload(&path).result.unwrap().changed.is_empty());
    let shown = InUse::of_shown(&config.shown.config, config.shown.bootstrap.clone()).unwrap();
    let foretold = || {
        let new = Config::parse(&path, &text.to_string()).unwrap();
        shown.compare(&path, &text.to_string(), new).unwrap().changed
    };
    assert!(foretold().is_empty());
    std::fs::write(&bootstrap, servers("two:1")).unwrap();
    assert_eq!(foretold(), ["upstream"]);
    assert_eq!(InUse::of(&config).reload(&path).result.unwrap().changed, ["upstream"]);
    let drained = json!({"grace": "7s"}); // which alone would apply at once
    let text = json!({"listen": text["listen"], "upstream": text["upstream"], "drain": drained});
    std::fs::write(&path, text.to_string()).unwrap();
    assert_eq!(InUse::of(&config).reload(&path).result.unwrap().changed, ["drain.grace", "upstream"]);
}

#[test]
fn what_is_pending_is_so_again_in_later_reloads_until_the_file_says_what_is_in_use() {
    let file = File::new("again");
    let path = file.0.join("relay.yaml");
    let reload = |in_use: &InUse, text: &Value| {
        std::fs::write(&path, text.to_string()).unwrap();
        in_use.reload(&path).result.unwrap()
    };
    let before = Config::parse(&path, &base().to_string()).unwrap();
    let lingering = with(base(), "limits.linger", json!("1m"));
    let after = with(lingering.clone(), "limits.new_streams_per_second", json!(7));
    let streams = vec!["limits.new_streams_per_second".to_owned()];
    let first = reload(&InUse::of(&before), &after);
    assert_eq!((first.changed, first.pending), (vec!["limits.linger".to_owned()], streams.clone()));
    let second = reload(&InUse::of(&first.config), &after);
    assert_eq!((second.changed, second.pending), (Vec::<String>::new(), streams));
    assert_eq!(
        second.config.downstream.connections.new_streams_per_second,
        before.downstream.connections.new_streams_per_second
    );
    let back = reload(&InUse::of(&second.config), &lingering);
    assert_eq!((back.changed, back.pending), (Vec::<String>::new(), Vec::<String>::new()));
    assert_eq!(back.config.views.protocol.view.linger.as_secs(), 60);
}

#[test]
fn with_something_pending_operators_are_shown_what_is_in_use_and_warned_of_what_counts() {
    let file = File::new("shown");
    let before = with(base(), "limits.new_streams_per_second", json!(5));
    let after = with(with(base(), "limits.new_streams_per_second", json!(7)), "limits.resource_timer", json!("1s"));
    let Reloaded { config, changed, pending } = file.reload(&before, &after).unwrap();
    assert_eq!(
        (changed, pending),
        (vec!["limits.resource_timer".to_owned()], vec!["limits.new_streams_per_second".to_owned()])
    );
    assert_eq!(config.shown.config["limits"]["new_streams_per_second"], 5);
    assert_eq!(config.shown.sha256, crate::config::hash_of(after.to_string().as_bytes()), "the hash is of the file");
    let warnings: Vec<_> = config.warnings.iter().map(|warning| warning.at.as_str()).collect();
    assert!(warnings.contains(&"limits.resource_timer"), "{warnings:?}");
    // The section is present, without a key.
    let Reloaded { config, pending, .. } = file.reload(&before, &with(base(), "limits", Value::Null)).unwrap();
    assert_eq!(
        (config.downstream.connections.new_streams_per_second, pending),
        (5, vec!["limits.new_streams_per_second".to_owned()])
    );
}

#[test]
fn certificates_of_addresses_count_at_once_unless_anything_else_of_the_addresses_changes() {
    let file = File::new("tls");
    let tls = |name: &str| json!({"certificate": format!("{name}.pem"), "key": "k.pem"});
    let listen = |places: Value| with(base(), "listen", places);
    let one = json!({"address": "127.0.0.1:0", "tls": tls("one")});
    let plain = json!({"address": "127.0.0.1:1"});
    let before = listen(json!([one, plain]));
    let renewed = json!({"address": "127.0.0.1:0", "tls": tls("two")});
    let (at_once, restart, none): (&[&str], &[&str], &[&str]) = (&["listen.tls"], &["listen"], &[]);
    for (after, changed, pending) in [
        (json!([renewed, plain]), at_once, none),
        (json!([one, {"address": "127.0.0.1:1", "tls": tls("one")}]), none, restart),
        (json!([{"address": "127.0.0.1:0"}, plain]), none, restart),
        (json!([renewed, {"address": "127.0.0.1:2"}]), none, restart),
        (json!([renewed]), none, restart),
        (json!([renewed, plain, {"address": "127.0.0.1:2"}]), none, restart),
        (json!([one, plain]), none, none),
    ] {
        let reloaded = file.reload(&before, &listen(after.clone())).unwrap();
        assert_eq!((reloaded.changed, reloaded.pending), (strings(changed), strings(pending)), "{after}");
        let in_use =
            reloaded.config.listen.iter().map(|listen| listen.tls.as_ref().map(|tls| &*tls.own[0].certificate));
        let expected = if changed.is_empty() { "one.pem" } else { "two.pem" };
        let expected = file.0.join(expected);
        assert_eq!(in_use.collect::<Vec<_>>(), [Some(expected.as_path()), None], "{after}");
    }
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}
