//! What each key of a server means, and what servers take from the rest of the file.

use http::{HeaderName, HeaderValue};
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::OnResourceTimeout;
use weir_core::xds::NamePattern;

use super::*;
use crate::upstream::{AdsServer, HeaderSource, Proxy, ProxyCredentials, ServerHeader, TenantCredentials};

fn server(keys: &str) -> AdsServer {
    let plan = parse(&format!("servers: [{{uri: 'https://one:1'{keys}}}]")).unwrap_or_else(|error| panic!("{error}"));
    plan.servers[0].ads().unwrap().clone()
}

#[test]
fn each_key_of_a_server_changes_one_thing_of_it() {
    let seven = Duration::from_secs(7);
    type Change<'c> = &'c dyn Fn(&mut AdsServer);
    let rows: [(&str, Change); 29] = [
        ("variant: delta", &|server| server.variant = Some(Variant::Delta)),
        ("variant: sotw", &|server| server.variant = Some(Variant::Sotw)),
        ("node_in_every_request: false", &|server| server.quirks.node_in_every_request = false),
        ("supports_initial_resource_versions: false", &|server| {
            server.quirks.supports_initial_resource_versions = false;
        }),
        ("supports_empty_subscription: false", &|server| server.quirks.supports_empty_subscription = false),
        ("ignore_deletions: true", &|server| server.quirks.ignore_deletions = true),
        ("resource_timer_is_transient_error: true", &|server| {
            server.quirks.on_resource_timeout = OnResourceTimeout::TransientError;
        }),
        ("fail_on_data_errors: true", &|server| server.quirks.fail_on_data_errors = true),
        ("initial_set: one_response", &|server| server.quirks.initial_set = InitialSet::OneResponse),
        ("initial_set: pieces", &|server| server.quirks.initial_set = InitialSet::Pieces),
        ("max_request_bytes: 5MiB", &|server| server.quirks.max_request_bytes = 5 << 20),
        ("max_streams_per_connection: 7", &|server| server.max_streams_per_connection = 7),
        ("proxy: {uri: 'http://proxy:3128'}", &|server| {
            server.proxy = Some(Proxy { uri: "http://proxy:3128".parse().unwrap(), tls: None, credentials: None });
        }),
        ("proxy: {uri: 'http://proxy:3128', credentials_file: c}", &|server| {
            let credentials = Some(ProxyCredentials::File("etc/c".into()));
            server.proxy = Some(Proxy { uri: "http://proxy:3128".parse().unwrap(), tls: None, credentials });
        }),
        ("drain: 7s", &|server| server.ages.drain = Some(seven)),
        ("drain: 0s", &|server| server.ages.drain = None),
        ("max_connection_age: 1h", &|server| server.ages.max = Some(Duration::from_secs(3600))),
        ("connect_timeout: 7s", &|server| server.connect_timeout = seven),
        ("liveness: {interval: 7s}", &|server| server.life.interval = Some(seven)),
        ("liveness: {timeout: 7s}", &|server| server.life.timeout = seven),
        ("keepalive: {interval: 7s}", &|server| server.keepalive.interval = Some(seven)),
        ("keepalive: {timeout: 7s}", &|server| server.keepalive.timeout = seven),
        ("backoff: {initial: 7s}", &|server| server.backoff.initial = seven),
        ("backoff: {max: 7s}", &|server| server.backoff.max = seven),
        ("backoff: {reset_after: 7s}", &|server| server.backoff.reset_after = seven),
        ("token_file: t", &|server| server.tokens = vec!["etc/t".into()]),
        ("headers: {x-b: {file: t}, x-a: {value: here}}", &|server| {
            let of = |name, value| ServerHeader { name: HeaderName::from_static(name), value };
            let given = HeaderSource::Given(HeaderValue::from_static("here"));
            server.headers = vec![of("x-a", given), of("x-b", HeaderSource::File("etc/t".into()))];
        }),
        ("tls: {ca: ca.pem}", &|server| server.tls.as_mut().unwrap().ca = Some("etc/ca.pem".into())),
        ("tls: {server_name: other}", &|server| {
            server.tls.as_mut().unwrap().server_name = "other".to_owned().try_into().unwrap();
        }),
    ];
    let bare = server("");
    for (key, change) in rows {
        let mut expected = bare.clone();
        change(&mut expected);
        assert_ne!(expected, bare, "{key}");
        assert_eq!(server(&format!(", {key}")), expected, "{key}");
    }
}

#[test]
fn tenants_have_the_credentials_of_their_entry_in_the_order_of_the_list() {
    let entries = "[{names: [pay, 'bill*'], certificate: p.pem, key: p.key}, {names: ['*'], token_file: t, headers: {x-a: {file: h}}}]";
    let servers = |scheme: &str| format!("servers: [{{uri: '{scheme}://one:1', tenants: {entries}}}]\n");
    let rules = "views: {key: [cluster, tenant]}\npermissions: [{name: a, identities: [{uid: 1}], free: [cluster]}]";
    let plan = parse(&format!("{}{rules}", servers("https"))).unwrap();
    let names = |names: &[&str]| names.iter().map(|name| NamePattern::parse(name)).collect::<Vec<_>>();
    let own = OwnCertificate { certificate: "etc/p.pem".into(), key: "etc/p.key".into() };
    let file = HeaderSource::File("etc/h".into());
    let headers = vec![ServerHeader { name: HeaderName::from_static("x-a"), value: file }];
    let expected = [
        TenantCredentials {
            tenants: names(&["pay", "bill*"]),
            own: Some(own),
            tokens: Vec::new(),
            headers: Vec::new(),
        },
        TenantCredentials { tenants: names(&["*"]), own: None, tokens: vec!["etc/t".into()], headers },
    ];
    assert_eq!(plan.servers[0].ads().unwrap().tenants, expected);
    for (text, fault) in [
        (servers("https"), "tenants: requires tenant in views.key: without it, clients of all tenants share views"),
        (
            format!("{}{rules}", servers("http")),
            "tenants: requires an https:// URI: certificates and tokens are for TLS",
        ),
    ] {
        let message = parse(&text).unwrap_err();
        assert!(message.contains(&format!("upstream.servers[0].{fault}")) && message.lines().count() == 1, "{message}");
    }
}

#[test]
fn servers_of_every_list_have_the_waits_and_the_message_size_of_the_file_those_of_a_bootstrap_too() {
    let folder = std::env::temp_dir().join(format!("weir-bootstrap-waits-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let entry = |host: &str| format!(r#"{{"server_uri": "{host}:1", "channel_creds": [{{"type": "insecure"}}]}}"#);
    let (top, own) = (entry("top"), entry("own"));
    let bootstrap = format!(r#"{{"xds_servers": [{top}], "authorities": {{"a": {{"xds_servers": [{own}]}}}}}}"#);
    std::fs::write(folder.join("b.json"), bootstrap).unwrap();
    let listed = "servers: [{uri: 'http://top:1'}]\n  authorities: {a: {servers: [{uri: 'http://own:1'}]}}";
    for sources in ["bootstrap: b.json", listed] {
        let rest = "  backoff: {initial: 7s, factor: 3}\nlimits: {message_bytes: 5MiB}";
        let plan = parse_at(&folder.join("relay.yaml"), &format!("{sources}\n{rest}")).unwrap();
        let servers: Vec<_> = plan.servers.iter().map(|server| server.ads().unwrap()).collect();
        let backoff = BackoffTimes { initial: Duration::from_secs(7), factor: 3.0, ..BackoffTimes::default() };
        assert_eq!(servers.len(), 2, "{sources}");
        for server in servers {
            assert_eq!((server.backoff, server.message_bytes), (backoff, 5 << 20), "{sources}: {}", server.name());
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_password_in_a_uri_is_a_fault_that_does_not_show_it() {
    for kind in ["uri", "rest"] {
        let error = parse(&format!("servers: [{{{kind}: 'https://ops:geheim@cp:1'}}]")).unwrap_err();
        assert!(error.contains("\"https://[redacted]@cp:1\"") && error.contains("token_file"), "{error}");
        assert!(!error.contains("geheim") && !error.contains("ops"), "{error}");
    }
}
