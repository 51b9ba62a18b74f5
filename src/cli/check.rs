//! `weir check`: what a configuration comes to, above all whom the relay would ask for what, and in which order.

use std::fmt::Write;

use crate::config::Config;
use crate::protocol::ladder::Rule;
use crate::protocol::session::Variant;
use crate::protocol::upstream::OnResourceTimeout;
use crate::upstream::{AdsServer, FilesServer, Plan, RestServer, SourcePlan};

/// The ladder of the top level, and of each authority.
pub fn report(config: &Config) -> String {
    let plan = &config.upstream;
    let mut out = String::from("old-style names\n");
    ladder(&mut out, plan, &plan.top, Rule::default());
    for (name, authority) in &plan.authorities {
        let _ = write!(out, "\nxdstp://{name}/"); // a String takes everything
        out.push_str(if authority.servers == plan.top { ", from the same servers\n" } else { "\n" });
        ladder(&mut out, plan, &authority.servers, authority.rule);
    }
    if plan.servers.len() > 1 {
        out.push_str(&patience(plan));
    }
    if !config.warnings.is_empty() {
        out.push_str("\nwarnings\n");
    }
    for warning in &config.warnings {
        let _ = writeln!(out, "  {warning}");
    }
    out
}

fn ladder(out: &mut String, plan: &Plan, list: &[usize], rule: Rule) {
    for (number, server) in list.iter().filter_map(|at| plan.servers.get(*at)).enumerate() {
        let _ = writeln!(out, "  {}. {}", number + 1, server.name());
        let lines = match server {
            SourcePlan::Ads(server) => [credentials(server), variant(server), features(server)],
            SourcePlan::Rest(server) => [credentials(&server.at), Some(pace(server)), features(&server.at)],
            SourcePlan::Files(files) => [Some(evidence(files)), None, None],
        };
        for line in lines.into_iter().flatten() {
            let _ = writeln!(out, "     {line}");
        }
    }
    let rule = match rule {
        _ if list.len() < 2 => "there is no other server to turn to",
        Rule::Uncached => "fallback when a server is unreachable and something requested is not cached",
        Rule::Reachability => "fallback when a server is unreachable, whatever is cached",
    };
    let _ = writeln!(out, "  {rule}");
}

fn pace(server: &RestServer) -> String {
    let [delay, timeout] = [server.refresh_delay, server.request_timeout].map(humantime::format_duration);
    format!("each type is asked for again after {delay} to twice that; an answer may take {timeout}")
}

fn evidence(files: &FilesServer) -> String {
    match files.authoritative {
        true => "what they do not have is absent".into(),
        false => "what is not in them is not told as absent".into(),
    }
}

fn credentials(server: &AdsServer) -> Option<String> {
    let mut text = match &server.tls {
        None => "no TLS".to_owned(),
        Some(tls) => {
            let ca = tls.ca.as_ref().map_or("whom the system trusts".into(), |ca| ca.display().to_string());
            let own = tls.own.as_ref().map(|own| format!(", shown {}", own.certificate.display()));
            format!("TLS for {}, signed by {ca}{}", tls.server_name.to_str(), own.unwrap_or_default())
        }
    };
    for token in &server.tokens {
        let never = if server.tls.is_none() { ", never sent without TLS" } else { "" };
        let _ = write!(text, ", token from {}{never}", token.display());
    }
    Some(text)
}

fn variant(server: &AdsServer) -> Option<String> {
    Some(match server.variant? {
        Variant::Delta => "delta alone".into(),
        Variant::Sotw => "state of the world alone".into(),
    })
}

/// Only what is not as usual.
fn features(server: &AdsServer) -> Option<String> {
    let rules = &server.quirks;
    let known = [
        (rules.node_in_every_request, "node_in_every_request"),
        (!rules.supports_initial_resource_versions, "no initial_versions"),
        (!rules.supports_empty_subscription, "no supports_empty_subscription"),
        (rules.ignore_deletions, "ignore_deletions"),
        (rules.on_resource_timeout == OnResourceTimeout::TransientError, "resource_timer_is_transient_error"),
        (rules.fail_on_data_errors, "fail_on_data_errors"),
    ];
    let names =
        known.into_iter().filter_map(|(there, name)| there.then_some(name)).chain(server.features.iter().copied());
    let names: Vec<_> = names.collect();
    (!names.is_empty()).then(|| format!("features: {}", names.join(", ")))
}

fn patience(plan: &Plan) -> String {
    let (minimum, hold_down) = (plan.timers.delay, plan.timers.hold_down);
    let mut out = String::from("\n");
    if !minimum.is_zero() {
        let _ = writeln!(out, "fallback after a server was unreachable for {}", humantime::format_duration(minimum));
    }
    if !hold_down.is_zero() {
        let _ = writeln!(out, "after a return it is not left again for {}", humantime::format_duration(hold_down));
    }
    let held = if plan.hold_missing { "is kept" } else { "becomes absent" };
    let _ = writeln!(out, "what the next server has not, and the one before had, {held}");
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn each_ladder_is_shown_with_credentials_features_and_its_rule_in_words_and_then_what_may_not_be_meant() {
        let config = Config::parse(
            Path::new("etc/relay.yaml"),
            "listen: [{address: '127.0.0.1:0'}]
upstream:
  servers:
    - {uri: 'https://one:1', tls: {ca: ca.pem, certificate: weir.pem, key: weir.key}, token_file: token}
    - {uri: 'http://two:1', variant: sotw, fail_on_data_errors: true, supports_empty_subscription: false}
  authorities:
    bare: {fallback_on_reachability_only: true}
    own: {servers: [{uri: 'https://three'}]}
    some: {servers: [{files: [a, b.yaml]}]}
    told: {servers: [{rest: 'http://four', refresh_delay: 2s}]}
  fallback: {hold_down: 1m, on_missing: delete}
limits: {resource_timer: 5s}
",
        )
        .unwrap();
        let both = "  1. https://one:1
     TLS for one, signed by etc/ca.pem, shown etc/weir.pem, token from etc/token
  2. http://two:1
     no TLS
     state of the world alone
     features: no supports_empty_subscription, fail_on_data_errors
";
        let expected = format!(
            "old-style names
{both}  fallback when a server is unreachable and something requested is not cached

xdstp://bare/, from the same servers
{both}  fallback when a server is unreachable, whatever is cached

xdstp://own/
  1. https://three
     TLS for three, signed by whom the system trusts
  there is no other server to turn to

xdstp://some/
  1. files etc/a, etc/b.yaml
     what they do not have is absent
  there is no other server to turn to

xdstp://told/
  1. http://four (REST)
     no TLS
     each type is asked for again after 2s to twice that; an answer may take 10s
  there is no other server to turn to

after a return it is not left again for 1m
what the next server has not, and the one before had, becomes absent

warnings
  etc/relay.yaml:12:26: limits.resource_timer: below 15s, names that a control plane is slow to send may count as absent
"
        );
        assert_eq!(report(&config), expected);
    }
}
