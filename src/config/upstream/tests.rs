use std::path::Path;
use std::time::Duration;

use weir_core::protocol::ladder::{FallbackTimers, Rule};
use weir_core::protocol::sources::ServerPlan;
use weir_core::protocol::upstream::{BackoffTimes, InitialSet};

use crate::config::Config;
use crate::tls::OwnCertificate;
use crate::upstream::{Keepalive, LifeMethod, LifeTimes, Plan, RestServer, SourcePlan};

mod servers;

fn parse_at(path: &Path, upstream: &str) -> Result<Plan, String> {
    let text = format!("listen: [{{address: '127.0.0.1:0'}}]\nupstream:\n  {upstream}\n");
    Config::parse(path, &text).map(|config| config.upstream).map_err(|error| error.to_string())
}

fn parse(upstream: &str) -> Result<Plan, String> {
    parse_at(Path::new("etc/relay.yaml"), upstream)
}

/// Whether a name that these files lack counts as absent.
fn is_authoritative(server: &SourcePlan) -> bool {
    matches!(server, SourcePlan::Files(files) if files.authoritative)
}

#[test]
fn boot_9_and_boot_13_lists_share_the_servers_that_are_equal() {
    let plan = parse(
        "servers: [{uri: 'http://one:1'}, {uri: 'http://two:1'}, {uri: 'http://ONE:1/'}]
  authorities:
    bare: {}
    own.example: {servers: [{uri: 'http://three:1'}, {uri: 'http://one:1'}], fallback_on_reachability_only: true}
    other: {servers: [{uri: 'http://one:1', fail_on_data_errors: true}]}
  fallback: {delay: 2s, hold_down: 1m, on_missing: delete}",
    )
    .unwrap();
    let names: Vec<_> = plan.servers.iter().map(SourcePlan::name).collect();
    assert_eq!(names, ["http://one:1", "http://two:1", "http://one:1", "http://three:1"]);
    assert!(plan.servers[2].ads().unwrap().quirks.fail_on_data_errors);
    let own = |name: &str| (plan.authorities[name].servers.as_slice(), plan.authorities[name].rule);
    assert_eq!(plan.top, [0, 1]);
    assert_eq!(own("bare"), ([0, 1].as_slice(), Rule::Uncached));
    assert_eq!(own("own.example"), ([3, 0].as_slice(), Rule::Reachability));
    assert_eq!(own("other"), ([2].as_slice(), Rule::Uncached));
    let patience = FallbackTimers { delay: Duration::from_secs(2), hold_down: Duration::from_secs(60) };
    assert_eq!((plan.timers, plan.hold_missing), (patience, false));
}

#[test]
fn nothing_waits_and_what_is_missing_is_held_unless_something_else_is_said() {
    let plan = parse("servers: [{uri: 'http://one:1'}]").unwrap();
    assert_eq!((plan.timers, plan.hold_missing), (FallbackTimers::default(), true));
}

#[test]
fn files_are_meant_from_the_folder_of_the_configuration() {
    let tls = "{ca: ca.pem, certificate: /own/c.pem, key: keys/k.pem, server_name: other.example}";
    let plan = parse(&format!("servers: [{{uri: 'https://10.0.0.1', tls: {tls}, token_file: token}}]")).unwrap();
    let server = plan.servers[0].ads().unwrap();
    let tls = server.tls.clone().unwrap();
    let own = OwnCertificate { certificate: "/own/c.pem".into(), key: "etc/keys/k.pem".into() };
    assert_eq!((tls.ca, tls.own), (Some("etc/ca.pem".into()), Some(own)));
    assert_eq!(
        (&*tls.server_name.to_str(), server.tokens.as_slice()),
        ("other.example", ["etc/token".into()].as_slice())
    );
    let bare = parse("servers: [{uri: 'https://[::1]:7'}]").unwrap().servers[0].ads().unwrap().tls.clone().unwrap();
    assert_eq!((bare.ca, &*bare.server_name.to_str()), (None, "::1"));
}

#[test]
fn fs_6_files_are_alone_where_nobody_else_is_asked_and_one_source_wherever_they_are_named() {
    let plan = parse(
        "servers: [{uri: 'http://one:1'}, {files: ./last}]
  authorities:
    own: {servers: [{files: [./last]}, {files: ./last}]}
    bare: {}
    both: {servers: [{files: [a, /b.yaml]}, {files: ./last}]}",
    )
    .unwrap();
    let files: Vec<_> = plan.servers.iter().map(|server| (server.name(), is_authoritative(server))).collect();
    let last = "files etc/./last".to_owned();
    let expected =
        [("http://one:1".into(), false), (last.clone(), false), ("files etc/a, /b.yaml".into(), false), (last, true)];
    assert_eq!(files, expected);
    let own = |name: &str| plan.authorities[name].servers.clone();
    assert_eq!([own("bare"), own("both"), own("own")], [vec![0, 1], vec![2, 1], vec![3]]);
    let only = parse("files: ./resources").unwrap();
    assert!(only.top == [0] && is_authoritative(&only.servers[0]));
    assert!(matches!(only.for_views().servers[0], ServerPlan::LocalSet { authoritative: true }));
    assert!(matches!(plan.for_views().servers[1], ServerPlan::LocalSet { authoritative: false }));
}

#[test]
fn a_server_that_is_polled_may_be_any_in_a_list() {
    let plan = parse(
            "servers: [{rest: 'https://one', refresh_delay: 2s, request_timeout: 3s, ignore_deletions: true}, {uri: 'http://one'}]
  authorities: {a.b: {servers: [{rest: 'http://one:1'}]}}",
        )
        .unwrap();
    let [SourcePlan::Rest(one), SourcePlan::Ads(_), SourcePlan::Rest(two)] = plan.servers.as_slice() else {
        panic!("{plan:?}");
    };
    let times = |server: &RestServer| {
        [server.refresh_delay, server.request_timeout, server.at.connect_timeout].map(|time| time.as_secs())
    };
    assert_eq!((times(one), times(two)), ([2, 3, 3], [5, 10, 10]));
    assert!(one.at.tls.is_some() && plan.servers[0].name() == "https://one (REST)");
    let ServerPlan::Streams { quirks: rules, .. } = &plan.for_views().servers[0] else { panic!("no wire") };
    assert!(rules.per_type_liveness && rules.node_in_every_request && rules.ignore_deletions);
}

#[test]
fn what_cannot_be_meant_is_reported_all_at_once() {
    let message = parse(
        "servers: [{uri: 'http://one:1', tls: {}, token_file: t}, {uri: 'https://one:1', tls: {certificate: c}}]
  authorities:
    a.b: {servers: [{uri: 'https://one:1', tls: {key: k, server_name: 'no name'}}, {uri: 'http://one:1/path'}]}
  fallback: {delay: soon}",
    )
    .unwrap_err();
    let place = "upstream.authorities[\"a.b\"].servers";
    for part in [
        "etc/relay.yaml:3:40: upstream.servers[0].tls: requires an https:// URI",
        "etc/relay.yaml:3:56: upstream.servers[0].token_file: requires an https:// URI: a token is never sent without TLS",
        "etc/relay.yaml:3:102: upstream.servers[1].tls.certificate: missing key: certificate and key go together",
        &format!("etc/relay.yaml:5:55: {place}[0].tls.key: missing certificate: certificate and key go together"),
        &format!("etc/relay.yaml:5:71: {place}[0].tls.server_name: invalid host name \"no name\": expected a DNS name"),
        &format!("etc/relay.yaml:5:90: {place}[1].uri: invalid URI \"http://one:1/path\": expected nothing after"),
        "etc/relay.yaml:6:21: upstream.fallback.delay: invalid duration \"soon\": expected a number with a unit, such as 30s",
    ] {
        assert!(message.contains(part), "{part} is missing in:\n{message}");
    }
    assert_eq!(message.lines().count(), 7, "{message}");
}

#[test]
fn keys_of_connections_are_none_of_files() {
    for key in [
        "tls: {}",
        "token_file: f",
        "connect_timeout: 1s",
        "backoff: {initial: 1s}",
        "ignore_deletions: true",
        "resource_timer_is_transient_error: true",
        "fail_on_data_errors: true",
        "refresh_delay: 1s",
    ] {
        let message = parse(&format!("servers: [{{files: a, {key}}}]")).unwrap_err();
        let name = key.split(':').next().unwrap();
        let fault = format!("upstream.servers[0].{name}: only servers with uri or rest have this key");
        assert!(message.contains(&fault), "{message}");
    }
}

#[test]
fn sources_that_do_not_go_together_or_lack_something_are_reported() {
    for (none, part) in [
        ("fallback: {}", "etc/relay.yaml:3:3: upstream: missing source: expected servers, files or bootstrap"),
        ("files: f\n  servers: [{uri: 'http://one'}]", "upstream.files: cannot be combined with servers"),
        (
            "servers: [{uri: 'http://one:1', max_request_bytes: 100KiB}]",
            "upstream.servers[0].max_request_bytes: invalid size 100KiB: expected 128KiB or more",
        ),
        (
            "servers: [{uri: 'http://one:1', max_streams_per_connection: 1001}]",
            "upstream.servers[0].max_streams_per_connection: invalid number 1001: expected 1000 or less",
        ),
        (
            "servers: [{uri: 'http://one:1', max_streams_per_connection: 0}]",
            "upstream.servers[0].max_streams_per_connection: invalid number 0: expected a whole number of 1 or more",
        ),
        (
            "servers: [{rest: 'http://one:1', max_streams_per_connection: 4}]",
            "upstream.servers[0].max_streams_per_connection: only servers with uri have this key",
        ),
        (
            "servers: [{uri: 'http://one:1', proxy: direct}]",
            "upstream.servers[0].proxy: invalid value \"direct\": expected environment, or a mapping with uri",
        ),
        (
            "servers: [{uri: 'unix:one', proxy: environment}]",
            "upstream.servers[0].proxy: a Unix socket is not reached through a proxy",
        ),
        ("servers: [{uri: 'http://one:1', proxy: {}}]", "upstream.servers[0].proxy: missing key \"uri\""),
        (
            "servers: [{uri: 'http://one:1', proxy: {uri: 'unix:p'}}]",
            "upstream.servers[0].proxy.uri: invalid proxy: expected http:// or https:// and a host",
        ),
        (
            "servers: [{uri: 'http://one:1', proxy: {uri: 'http://user:secret@p:1'}}]",
            "upstream.servers[0].proxy.uri: invalid URI \"http://[redacted]@p:1\": expected no user and no password in it, \
             which metrics and logs would show; a token for a server is in its token_file",
        ),
        ("servers: [{files: f, drain: 1m}]", "upstream.servers[0].drain: only servers with uri or rest have this key"),
        (
            "servers: [{rest: 'http://one:1', max_request_bytes: 4MiB}]",
            "upstream.servers[0].max_request_bytes: only servers with uri have this key",
        ),
        ("files: []", "upstream.files: empty list: expected at least one item"),
        ("files: ''", "upstream.files: invalid path \"\": expected text that is not empty"),
        (
            "servers: [{files: a, uri: 'http://one'}]",
            "etc/relay.yaml:3:21: upstream.servers[0].files: more than one source: expected one of",
        ),
        ("servers: [{rest: 'http://one', files: a}]", "upstream.servers[0].files: more than one source"),
        ("servers: [{rest: 'one:1'}]", "upstream.servers[0].rest: invalid URI \"one:1\": expected http:// or https://"),
        (
            "servers: [{rest: 'http://one', variant: sotw}]",
            "upstream.servers[0].variant: only servers with uri have this key",
        ),
        (
            "servers: [{rest: 'http://one', refresh_delay: 0s}]",
            "upstream.servers[0].refresh_delay: invalid duration \"0s\": expected 10ms or more",
        ),
        (
            "servers: [{uri: 'http://one', request_timeout: 1s}]",
            "upstream.servers[0].request_timeout: only servers with rest have this key",
        ),
        (
            "servers: [{files: a, variant: sotw}]",
            "upstream.servers[0].variant: only servers with uri or rest have this key",
        ),
        ("servers: [{}]", "etc/relay.yaml:3:13: upstream.servers[0]: missing source: expected uri, rest or files"),
        (
            "servers: [{files: 5}]",
            "upstream.servers[0].files: invalid path 5: expected text; quotes make it text: \"5\"",
        ),
        ("servers: []", "upstream.servers: empty list: expected at least one item"),
        (
            "bootstrap: b.json\n  servers: [{uri: 'http://one'}]",
            "upstream.bootstrap: cannot be combined with servers, files or authorities",
        ),
        ("bootstrap: b.json\n  authorities: {a: {}}", "upstream.bootstrap: cannot be combined with servers"),
        ("bootstrap: none.json", "etc/relay.yaml:3:14: upstream.bootstrap: cannot read etc/none.json: no such file"),
    ] {
        let message = parse(none).unwrap_err();
        assert!(message.contains(part), "{part} is missing in:\n{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn boot_1_the_file_that_the_environment_names_comes_before_what_it_says_itself() {
    let folder = std::env::temp_dir().join(format!("weir-boot-1-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let of = |host: &str| {
        format!(r#"{{"xds_servers": [{{"server_uri": "{host}:1", "channel_creds": [{{"type": "insecure"}}]}}]}}"#)
    };
    let file = folder.join("b.json").display().to_string();
    std::fs::write(&file, of("file")).unwrap();
    let parse_in = |file: &str, json: &str, more: &str| {
        let variables = [("GRPC_XDS_BOOTSTRAP", file.to_owned()), ("GRPC_XDS_BOOTSTRAP_CONFIG", json.to_owned())];
        let environment = |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| value.clone());
        let text =
            format!("listen: [{{address: '127.0.0.1:0'}}]\nupstream:\n  bootstrap_from_environment: true\n  {more}\n");
        let config = Config::parse_in(Path::new("relay.yaml"), &text, &environment);
        config.map(|config| config.upstream.servers[0].name()).map_err(|error| error.to_string())
    };
    assert_eq!(parse_in(&file, &of("json"), "").unwrap(), "http://file:1");
    assert_eq!(parse_in("", &of("json"), "").unwrap(), "http://json:1", "an empty variable is none");
    let at = "relay.yaml:3:31: upstream.bootstrap_from_environment: ";
    for (file, json, more, part) in [
        ("", "", "", format!("{at}no bootstrap: expected GRPC_XDS_BOOTSTRAP or GRPC_XDS_BOOTSTRAP_CONFIG to be set")),
        (
            "/no/such",
            "",
            "",
            format!("{at}cannot read /no/such: no such file or folder, which GRPC_XDS_BOOTSTRAP names"),
        ),
        (
            "",
            "{}",
            "",
            "GRPC_XDS_BOOTSTRAP_CONFIG:1:1: missing item in \"xds_servers\": expected at least one server".to_owned(),
        ),
        ("", "{}", "files: f", format!("{at}cannot be combined with servers, files or authorities")),
        ("", "{}", "bootstrap: b.json", format!("{at}cannot be combined with bootstrap")),
    ] {
        let message = parse_in(file, json, more).unwrap_err();
        assert!(message.contains(&part), "{part} is missing in:\n{message}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_bootstrap_file_takes_the_place_of_servers_and_its_faults_stand_beside_the_others() {
    let folder = std::env::temp_dir().join(format!("weir-bootstrap-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let config = folder.join("relay.yaml");
    let write = |text: &str| std::fs::write(folder.join("b.json"), text).unwrap();
    write(r#"{"xds_servers": [{"server_uri": "cp:1", "channel_creds": [{"type": "tls"}]}], "authorities": {"a": {}}}"#);
    let plan = parse_at(&config, "bootstrap: b.json\n  fallback: {hold_down: 5s}").unwrap();
    assert_eq!((plan.servers[0].name().as_str(), plan.timers.hold_down.as_secs()), ("https://cp:1", 5));
    assert!(plan.authorities.contains_key("a"));
    write(r#"{"xds_servers": 5}"#);
    let message = parse_at(&config, "bootstrap: b.json\n  fallback: {hold_down: soon}").unwrap_err();
    for part in
        ["relay.yaml:4:25: upstream.fallback.hold_down", "b.json:1:17: xds_servers: invalid value 5: expected a list"]
    {
        assert!(message.contains(part), "{part} is missing in:\n{message}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn up_33_connections_go_by_what_is_said_of_the_server_or_of_all_or_by_the_defaults() {
    let plan = parse(
        "servers:
    - {uri: 'http://one:1'}
    - uri: 'http://two:1'
      liveness: {interval: 0s, timeout: 2s}
      keepalive: {interval: 10m}
      backoff: {factor: 2, max: 10s}
    - {rest: 'http://three:1', backoff: {initial: 4s}}
  backoff: {initial: 2s, jitter: 0}",
    )
    .unwrap();
    let [one, two] = [0, 1].map(|at| plan.servers[at].ads().unwrap());
    let seconds = Duration::from_secs;
    assert_eq!(
        (one.life, one.keepalive),
        (
            LifeTimes { interval: Some(seconds(10)), timeout: seconds(5), method: LifeMethod::Call },
            Keepalive { interval: Some(seconds(300)), timeout: seconds(20) }
        )
    );
    assert_eq!(one.backoff, BackoffTimes { initial: seconds(2), jitter: 0.0, ..BackoffTimes::default() });
    assert_eq!(two.life, LifeTimes { interval: None, timeout: seconds(2), method: LifeMethod::Call });
    assert_eq!(two.keepalive, Keepalive { interval: Some(seconds(600)), timeout: seconds(20) });
    assert_eq!(two.backoff, BackoffTimes { factor: 2.0, max: seconds(10), ..one.backoff });
    let SourcePlan::Rest(three) = &plan.servers[2] else { panic!("{plan:?}") };
    assert_eq!(three.at.backoff, BackoffTimes { initial: seconds(4), ..one.backoff });
    let message = parse(
        "servers:
    - {uri: 'http://one:1', liveness: {interval: 1ms, timeout: 0s}, keepalive: {interval: soon}}
    - {uri: 'http://two:1', backoff: {initial: 3m, factor: 0.5, jitter: .nan}}
    - {files: a, liveness: {}}
    - {rest: 'http://three:1', keepalive: {}}
  backoff: {max: 1ms, initial: 2s}",
    )
    .unwrap_err();
    for part in [
        "relay.yaml:4:50: upstream.servers[0].liveness.interval: invalid duration \"1ms\": expected 10ms or more, or 0s",
        "relay.yaml:4:64: upstream.servers[0].liveness.timeout: invalid duration \"0s\": expected 10ms or more",
        "relay.yaml:4:91: upstream.servers[0].keepalive.interval: invalid duration \"soon\"",
        "relay.yaml:5:48: upstream.servers[1].backoff.initial: invalid backoff: max is 1ms, expected at least 3m",
        "relay.yaml:5:60: upstream.servers[1].backoff.factor: invalid factor 0.5: expected a number from 1 to 100",
        "relay.yaml:5:73: upstream.servers[1].backoff.jitter: invalid jitter NaN: expected a number from 0 to 1",
        "relay.yaml:6:28: upstream.servers[2].liveness: only servers with uri or rest have this key",
        "relay.yaml:7:43: upstream.servers[3].keepalive: only servers with uri have this key",
        "relay.yaml:8:18: upstream.backoff.max: invalid backoff: max is 1ms, expected at least 2s",
    ] {
        assert!(message.contains(part), "{part} is missing in:\n{message}");
    }
    assert_eq!(message.lines().count(), 9, "{message}");
}

#[test]
fn the_proxy_of_the_environment_is_used_only_where_the_file_says_so_and_weir_check_says_what_is_not_used() {
    let of = |variables: &[(&str, &str)], keys: &str| {
        let variables: Vec<_> = variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let environment = move |name: &str| variables.iter().find(|(of, _)| of == name).map(|(_, value)| value.clone());
        let text = format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nupstream: {{servers: [{{uri: 'https://cp.example:1'{keys}}}]}}\n"
        );
        let review = crate::config::load::review(Path::new("relay.yaml"), &text, &environment, true);
        let warnings: Vec<_> = review.warnings.iter().map(ToString::to_string).collect();
        let faults: Vec<_> = review.faults.iter().map(ToString::to_string).collect();
        let proxy = review.config.and_then(|config| config.upstream.servers[0].ads().unwrap().proxy.clone());
        (proxy.map(|proxy| proxy.uri.to_string()), [warnings, faults].concat().join("\n"))
    };
    let some = [("HTTPS_PROXY", "http://user:secret@proxy:3128")];
    let (used, unused) = (Some("http://proxy:3128/".to_owned()), "HTTPS_PROXY is set and not used");
    for (variables, keys, proxy, said) in [
        (&[][..], "", None, ""),
        (&some[..], "", None, unused),
        (&some[..], ", proxy: environment", used.clone(), ""),
        (&[("https_proxy", "proxy:3128")][..], ", proxy: environment", used.clone(), ""),
        (&[][..], ", proxy: environment", None, "HTTPS_PROXY is not set"),
        (&[some[0], ("NO_PROXY", "other,.example")][..], ", proxy: environment", None, ""),
        (&[some[0], ("no_proxy", "*")][..], "", None, ""),
        (
            &[("HTTPS_PROXY", "socks5://user:secret@proxy")][..],
            ", proxy: environment",
            None,
            "invalid value of HTTPS_PROXY",
        ),
    ] {
        let (found, text) = of(variables, keys);
        assert_eq!(found, proxy, "{variables:?} {keys}");
        assert!(text.contains(said) && text.is_empty() == said.is_empty() && !text.contains("secret"), "{text}");
    }
}
