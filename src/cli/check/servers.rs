//! The resources that the relay would request from each server, and the order of the servers.

use std::fmt::Write;
use std::time::Duration;

use weir_core::protocol::ladder::Rule;
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::{InitialSet, OnResourceTimeout};

use crate::config::{Config, plain_server};
use crate::upstream::{
    AdsServer, FilesServer, HeaderSource, LifeMethod, Plan, RestServer, ServerHeader, SourcePlan, TenantCredentials,
};

/// Returns the ladder of the top level and of each authority.
pub(super) fn report(config: &Config) -> String {
    let plan = &config.upstream;
    let mut out = String::from("old-style names\n");
    ladder(&mut out, plan, &plan.top, Rule::default());
    for (name, authority) in &plan.authorities {
        let _ = write!(out, "\nxdstp://{name}/"); // writing to a String does not fail
        out.push_str(if authority.servers == plan.top { ", from the same servers\n" } else { "\n" });
        ladder(&mut out, plan, &authority.servers, authority.rule);
    }
    if plan.servers.len() > 1 {
        out.push_str(&fallback(plan));
    }
    out
}

fn ladder(out: &mut String, plan: &Plan, list: &[usize], rule: Rule) {
    for (number, server) in list.iter().filter_map(|index| plan.servers.get(*index)).enumerate() {
        let _ = writeln!(out, "  {}. {}", number + 1, server.name());
        let lines = match server {
            SourcePlan::Ads(server) => [credentials(server), variant(server), features(server), without_calls(server)],
            SourcePlan::Rest(server) => [credentials(&server.at), Some(pace(server)), features(&server.at), None],
            SourcePlan::Files(files) => [Some(evidence(files)), None, None, None],
        };
        for line in lines.into_iter().flatten() {
            let _ = writeln!(out, "     {line}");
        }
    }
    let rule = match rule {
        _ if list.len() < 2 => "fallback: none, there is no other server",
        Rule::Uncached => "fallback: if a server is unreachable and a requested resource is not cached",
        Rule::Reachability => "fallback: if a server is unreachable, even if everything is cached",
    };
    let _ = writeln!(out, "  {rule}");
}

fn pace(server: &RestServer) -> String {
    let [delay, longest] = [server.refresh_delay, server.refresh_delay * 2].map(humantime::format_duration);
    let timeout = humantime::format_duration(server.request_timeout);
    format!("polled for each type {delay} to {longest} after a response; timeout {timeout}")
}

fn evidence(files: &FilesServer) -> String {
    match files.authoritative {
        true => "resources that are not in them are absent".into(),
        false => "resources that are not in them may still exist".into(),
    }
}

fn credentials(server: &AdsServer) -> Option<String> {
    let mut text = match &server.tls {
        None => "no TLS".to_owned(),
        Some(tls) => {
            let ca = tls.ca.as_ref().map_or("the system's CAs".into(), |ca| ca.display().to_string());
            let own = tls.own.as_ref().map(|own| format!(", own certificate {}", own.certificate.display()));
            format!("TLS for {}, signed by {ca}{}", tls.server_name.to_str(), own.unwrap_or_default())
        }
    };
    for token in &server.tokens {
        let never = if server.tls.is_none() { ", never sent without TLS" } else { "" };
        let _ = write!(text, ", token from {}{never}", token.display());
    }
    let headers = |headers: &[ServerHeader]| headers.iter().map(header).collect::<Vec<_>>();
    for header in headers(&server.headers) {
        let _ = write!(text, ", {header}");
    }
    for TenantCredentials { tenants, own, tokens, headers: of_tenants } in &server.tenants {
        let names: Vec<_> = tenants.iter().map(ToString::to_string).collect();
        let own = own.iter().map(|own| format!("certificate {}", own.certificate.display()));
        let tokens = tokens.iter().map(|token| format!("token from {}", token.display()));
        let shown: Vec<_> = own.chain(tokens).chain(headers(of_tenants)).collect();
        let shown = if shown.is_empty() { "nothing".into() } else { shown.join(", ") };
        let _ = write!(text, "; for {}: {shown}", names.join(", "));
    }
    Some(text)
}

/// Names a header and the source of its value.
fn header(header: &ServerHeader) -> String {
    let name = &header.name;
    match &header.value {
        HeaderSource::Given(_) => format!("header {name}"),
        HeaderSource::Variable(variable, _) => format!("header {name} from ${variable}"),
        HeaderSource::File(file) => format!("header {name} from {}", file.display()),
    }
}

fn variant(server: &AdsServer) -> Option<String> {
    Some(match server.variant? {
        Variant::Delta => "delta only".into(),
        Variant::Sotw => "state of the world only".into(),
    })
}

/// Returns what is lost if a server has no liveness calls.
fn without_calls(server: &AdsServer) -> Option<String> {
    (server.life.method == LifeMethod::None).then(|| {
        "no liveness calls: a server that hangs is not left, and silence proves nothing: clients wait for a name that the server does not \
         mention, and keep what it has dropped without a word"
            .into()
    })
}

/// Lists the settings that differ from the defaults, by their keys.
fn features(server: &AdsServer) -> Option<String> {
    let quirks = &server.quirks;
    let known = [
        (!quirks.node_in_every_request, "no node_in_every_request"),
        (!quirks.supports_initial_resource_versions, "no supports_initial_resource_versions"),
        (!quirks.supports_empty_subscription, "no supports_empty_subscription"),
        (quirks.ignore_deletions, "ignore_deletions"),
        (quirks.on_resource_timeout == OnResourceTimeout::TransientError, "resource_timer_is_transient_error"),
        (quirks.fail_on_data_errors, "fail_on_data_errors"),
        (server.accept_compression, "accept_compression"),
    ];
    let names =
        known.into_iter().filter_map(|(there, name)| there.then_some(name)).chain(server.features.iter().copied());
    let mut names: Vec<_> = names.map(str::to_owned).collect();
    match quirks.initial_set {
        InitialSet::Auto => {}
        InitialSet::OneResponse => names.push("initial_set one_response".into()),
        InitialSet::Pieces => names.push("initial_set pieces".into()),
    }
    let usual = plain_server(server.uri.clone());
    if quirks.max_request_bytes != usual.quirks.max_request_bytes {
        names.push(format!("max_request_bytes {}", quirks.max_request_bytes));
    }
    if server.life.method == LifeMethod::Health {
        names.push("liveness.method health".into());
    }
    if server.max_streams_per_connection != usual.max_streams_per_connection {
        names.push(format!("max_streams_per_connection {}", server.max_streams_per_connection));
    }
    let time = |time: Option<Duration>| humantime::format_duration(time.unwrap_or_default()).to_string();
    let ages =
        [("drain", server.ages.drain, usual.ages.drain), ("max_connection_age", server.ages.max, usual.ages.max)];
    let differ = ages.into_iter().filter(|(_, is, usual)| is != usual);
    names.extend(differ.map(|(key, is, _)| format!("{key} {}", time(is))));
    names.extend(server.proxy.iter().map(|proxy| format!("proxy {}", proxy.uri.to_string().trim_end_matches('/'))));
    (!names.is_empty()).then(|| format!("features: {}", names.join(", ")))
}

fn fallback(plan: &Plan) -> String {
    let (delay, hold_down) = (plan.timers.delay, plan.timers.hold_down);
    let mut out = String::from("\n");
    if !delay.is_zero() {
        let _ = writeln!(out, "fallback delay: {}", humantime::format_duration(delay));
    }
    if !hold_down.is_zero() {
        let _ = writeln!(out, "no fallback for {} after a return", humantime::format_duration(hold_down));
    }
    let fate = if plan.hold_missing { "kept" } else { "deleted" };
    let _ = writeln!(out, "resources that only the previous server had are {fate}");
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn each_ladder_is_shown_with_credentials_features_and_its_rule_in_words() {
        let config = Config::parse(
            Path::new("etc/relay.yaml"),
            "listen: [{address: '127.0.0.1:0'}]
upstream:
  servers:
    - {uri: 'https://one:1', tls: {ca: ca.pem, certificate: weir.pem, key: weir.key}, token_file: token, headers: {x-a: {file: a}, x-b: {value: hush}}}
    - {uri: 'http://two:1', variant: sotw, fail_on_data_errors: true, supports_empty_subscription: false}
  authorities:
    bare: {fallback_on_reachability_only: true}
    own: {servers: [{uri: 'https://three'}]}
    some: {servers: [{files: [a, b.yaml]}]}
    told: {servers: [{rest: 'http://four', refresh_delay: 2s}]}
  fallback: {hold_down: 1m, on_missing: delete}
",
        )
        .unwrap();
        let both = "  1. https://one:1
     TLS for one, signed by etc/ca.pem, own certificate etc/weir.pem, token from etc/token, header x-a from etc/a, header x-b
  2. http://two:1
     no TLS
     state of the world only
     features: no supports_empty_subscription, fail_on_data_errors
";
        let expected = format!(
            "old-style names
{both}  fallback: if a server is unreachable and a requested resource is not cached

xdstp://bare/, from the same servers
{both}  fallback: if a server is unreachable, even if everything is cached

xdstp://own/
  1. https://three
     TLS for three, signed by the system's CAs
  fallback: none, there is no other server

xdstp://some/
  1. files etc/a, etc/b.yaml
     resources that are not in them are absent
  fallback: none, there is no other server

xdstp://told/
  1. http://four (REST)
     no TLS
     polled for each type 2s to 4s after a response; timeout 10s
  fallback: none, there is no other server

no fallback for 1m after a return
resources that only the previous server had are deleted
"
        );
        assert_eq!(report(&config), expected);
    }

    #[test]
    fn every_key_that_makes_a_server_differ_from_others_is_among_its_features() {
        let shown = |keys: &str| {
            let text = format!(
                "listen: [{address}]\nupstream: {{servers: [{{uri: 'http://one:1'{keys}}}]}}\n",
                address = "{address: '127.0.0.1:0'}"
            );
            let report = report(&Config::parse(Path::new("relay.yaml"), &text).unwrap());
            report.lines().find_map(|line| line.trim().strip_prefix("features: ")).unwrap_or_default().to_owned()
        };
        for (key, value, feature) in [
            ("node_in_every_request", "false", "no node_in_every_request"),
            ("supports_initial_resource_versions", "false", "no supports_initial_resource_versions"),
            ("supports_empty_subscription", "false", "no supports_empty_subscription"),
            ("ignore_deletions", "true", "ignore_deletions"),
            ("resource_timer_is_transient_error", "true", "resource_timer_is_transient_error"),
            ("fail_on_data_errors", "true", "fail_on_data_errors"),
            ("accept_compression", "true", "accept_compression"),
            ("initial_set", "one_response", "initial_set one_response"),
            ("initial_set", "pieces", "initial_set pieces"),
            ("max_request_bytes", "5MiB", "max_request_bytes 5242880"),
            ("max_streams_per_connection", "7", "max_streams_per_connection 7"),
            ("proxy", "{uri: 'http://proxy:3128'}", "proxy http://proxy:3128"),
            ("liveness", "{method: health}", "liveness.method health"),
            ("drain", "0s", "drain 0s"),
            ("max_connection_age", "1h", "max_connection_age 1h"),
        ] {
            assert_eq!(shown(&format!(", {key}: {value}")), feature);
        }
        assert_eq!(shown(", initial_set: auto, max_streams_per_connection: 50"), "");
    }

    #[test]
    fn what_is_lost_without_liveness_calls_is_said() {
        let shown = |keys: &str| {
            let text = format!(
                "listen: [{{address: '127.0.0.1:0'}}]\nupstream: {{servers: [{{uri: 'http://one:1'{keys}}}]}}\n"
            );
            report(&Config::parse(Path::new("relay.yaml"), &text).unwrap())
        };
        let said = "     no liveness calls: a server that hangs is not left, and silence proves nothing";
        assert!(shown(", liveness: {method: none}").contains(said));
        assert!(!shown(", liveness: {interval: 0s}").contains("no liveness calls"));
    }

    #[test]
    fn credentials_of_tenants_and_the_times_of_a_fallback_are_shown() {
        let text = "listen: [{address: '127.0.0.1:0'}]
upstream:
  servers:
  - uri: 'https://one:1'
    tenants: [{names: [pay, 'bill*'], certificate: p.pem, key: p.key, token_file: t, headers: {x-a: {file: a}}}, {names: ['*']}]
  - {files: x}
  fallback: {delay: 5s}
views: {key: [cluster, tenant]}
permissions: [{name: a, identities: [{uid: 1}], free: [cluster]}]
";
        let report = report(&Config::parse(Path::new("/etc/relay.yaml"), text).unwrap());
        let tenants =
            "; for pay, bill*: certificate /etc/p.pem, token from /etc/t, header x-a from /etc/a; for *: nothing\n";
        assert!(report.contains(tenants), "{report}");
        assert!(
            report.contains("  2. files /etc/x\n     resources that are not in them may still exist\n"),
            "{report}"
        );
        let end = "\nfallback delay: 5s\nresources that only the previous server had are kept\n";
        assert!(report.ends_with(end), "{report}");
    }
}
