//! Warns of values that have no effect, or another effect than they seem to have, because of other values. A relay can run with them.

use std::net::IpAddr;

use super::checker::Checker;
use super::form::{Counted, Located, Section};
use super::{raw, views};
use crate::state::WhenOlder;
use crate::upstream::{LifeMethod, Plan};

pub(super) fn check(raw: &raw::Root, plan: &Plan, checker: &mut Checker) {
    if !raw.brakes.enabled.value {
        without_effect(&*raw.brakes, |key| key != "enabled", "brakes.enabled is false", checker);
    }
    if !raw.rest.enabled.value {
        without_effect(&*raw.rest, |key| key != "enabled", "rest.enabled is false", checker);
    }
    load_reports(&raw.load_reports, checker);
    brakes(&raw.brakes, checker);
    audit(&raw.views, checker);
    members(&raw.views, plan, checker);
    state(raw, checker);
    shares(&raw.limits, checker);
    let Some(upstream) = &raw.upstream.0 else { return };
    let lists = plan.authorities.values().map(|authority| authority.servers.len()).chain([plan.top.len()]);
    if lists.max() < Some(2) {
        without_effect(&*upstream.fallback, |_| true, "no list has a second server", checker);
    }
    upstream.all_servers().for_each(|server| of_server(server, checker));
}

/// Warns that keys have no effect, and why. These are the keys that `is_one` selects and that the file sets to other values than their defaults.
fn without_effect<S: Section>(section: &S, is_one: impl Fn(&str) -> bool, why: &str, checker: &mut Checker) {
    for ((row, place), value) in S::rows().into_iter().zip(section.given()).zip(section.values()) {
        if let Some(place) = place.filter(|_| is_one(row.key) && value != row.default) {
            checker.warn(place, format!("has no effect: {why}"));
        }
    }
}

fn load_reports(raw: &raw::LoadReports, checker: &mut Checker) {
    let mode = raw.mode.value;
    let is_other = |key: &str| match mode {
        raw::LoadsMode::PassThrough => ["max_outage", "bytes_per_view", "bytes_total"].contains(&key),
        raw::LoadsMode::Aggregate => ["streams", "streams_per_connection"].contains(&key),
        raw::LoadsMode::Off => key != "mode",
    };
    let named = match mode {
        raw::LoadsMode::PassThrough => "pass_through",
        raw::LoadsMode::Aggregate => "aggregate",
        raw::LoadsMode::Off => "off",
    };
    without_effect(raw, is_other, &format!("load_reports.mode is {named}"), checker);
}

fn brakes(raw: &raw::Brakes, checker: &mut Checker) {
    let (after, grace) = (raw.agree_after.0, raw.grace.0);
    if let Some(place) = raw.agree_after.given().filter(|_| raw.enabled.value && after >= grace) {
        let grace = humantime::format_duration(grace);
        checker.warn(place, format!("has no effect: brakes.grace is {grace}, and ends before"));
    }
}

fn audit(raw: &raw::Views, checker: &mut Checker) {
    let interval = &raw.audit.interval;
    if let Some(place) = interval.given().filter(|_| interval.0.is_some() && !views::shows_members(raw)) {
        checker.warn(place, "has no effect: views.node is key, and the nodes of clients are known with member alone");
    }
}

/// Warns of keys that show a client to servers where all servers are files: files are shown no client.
fn members(raw: &raw::Views, plan: &Plan, checker: &mut Checker) {
    if !views::shows_members(raw) || views::shows_nodes(Some(plan)) {
        return;
    }
    let audited = raw.audit.interval.given().filter(|_| raw.audit.interval.0.is_some());
    let node = raw.node.given().filter(|_| raw.node.value == raw::ViewNode::Member);
    for place in node.into_iter().chain(audited) {
        checker.warn(place, "has no effect: all servers are files, which are shown no node");
    }
}

fn state(raw: &raw::Root, checker: &mut Checker) {
    let Some(state) = &raw.state else { return };
    let when_older = state.when_older.value;
    match (&state.max_age, state.when_older.given()) {
        (Some(age), _) if when_older == WhenOlder::Serve => {
            checker.warn(&age.place, "has no effect: state.when_older is serve");
        }
        (None, Some(place)) if when_older != WhenOlder::Serve => {
            checker.warn(place, "has no effect: without state.max_age no view is too old");
        }
        _ => {}
    }
    if let Some(ready) =
        raw.ready_after.as_ref().filter(|_| when_older == WhenOlder::NotReady && state.max_age.is_some())
    {
        let after = humantime::format_duration(ready.value.0);
        checker.warn(
            &ready.place,
            format!("the relay is ready after {after}, also with views that state.when_older says not_ready of"),
        );
    }
}

fn shares(raw: &raw::Limits, checker: &mut Checker) {
    let streams = raw.streams.amount();
    if let Some(connections) = raw.connections.as_ref().filter(|of| of.amount() > streams) {
        let reason = format!("more than limits.streams, {streams}: not all of them could have a stream at a time");
        checker.warn(&connections.place, reason);
    }
}

fn of_server(server: &Located<raw::Server>, checker: &mut Checker) {
    if let Some(liveness) = server.liveness.as_ref().filter(|of| of.method.value == LifeMethod::None) {
        without_effect(&**liveness, |key| key != "method", "liveness.method is none", checker);
    }
    if let Some(keepalive) = server.keepalive.as_ref().filter(|of| of.interval.0.is_none()) {
        without_effect(&**keepalive, |key| key == "timeout", "keepalive.interval is 0s", checker);
    }
    let uri = server.uri.as_ref().or(server.rest.as_ref());
    let host = uri.and_then(|uri| uri.uri.host()).unwrap_or_default().trim_matches(['[', ']']);
    let is_address = host.parse::<IpAddr>().is_ok() && server.proxy.is_none(); // a proxy resolves the server's name to several addresses
    if is_address && server.drain.0.is_some() {
        let why = "the host of the server is an address, and not the name of several";
        without_effect(&**server, |key| key == "drain", why, checker);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::Config;

    /// Returns the warnings of a file with these servers and the lines of `rest`.
    fn of(servers: &str, rest: &str) -> Vec<String> {
        let text = format!("listen: [{{address: '127.0.0.1:1'}}]\nupstream:\n  servers: [{servers}]\n{rest}");
        let config = Config::parse(Path::new("relay.yaml"), &text).unwrap();
        config.warnings.iter().map(|warning| format!("{}: {}", warning.at, warning.reason)).collect()
    }

    const ONE: &str = "{uri: 'http://cp:1'}";
    const TWO: &str = "{uri: 'http://cp:1'}, {uri: 'http://cp:2'}";

    #[test]
    fn what_another_value_leaves_without_effect_is_told_at_its_place() {
        for (rest, expected) in [
            ("brakes: {enabled: false, count: 5}\n", "brakes.count: has no effect: brakes.enabled is false"),
            ("rest: {enabled: false, long_poll: 5s}\n", "rest.long_poll: has no effect: rest.enabled is false"),
            (
                "load_reports: {mode: aggregate, streams: 7}\n",
                "load_reports.streams: has no effect: load_reports.mode is aggregate",
            ),
            (
                "load_reports: {max_outage: 7m}\n",
                "load_reports.max_outage: has no effect: load_reports.mode is pass_through",
            ),
            (
                "load_reports: {mode: off, bytes_total: 1MiB}\n",
                "load_reports.bytes_total: has no effect: load_reports.mode is off",
            ),
            (
                "brakes: {grace: 50s, agree_after: 50s}\n",
                "brakes.agree_after: has no effect: brakes.grace is 50s, and ends before",
            ),
            (
                "views: {audit: {interval: 24h}}\n",
                "views.audit.interval: has no effect: views.node is key, and the nodes of clients are known with member alone",
            ),
            ("state: {path: /a/b, max_age: 1h}\n", "state.max_age: has no effect: state.when_older is serve"),
            (
                "state: {path: /a/b, when_older: not_ready}\nready_after: 5m\n",
                "state.when_older: has no effect: without state.max_age no view is too old",
            ),
            (
                "state: {path: /a/b, max_age: 1h, when_older: not_ready}\nready_after: 5m\n",
                "ready_after: the relay is ready after 5m, also with views that state.when_older says not_ready of",
            ),
            (
                "limits: {connections: 200, streams: 100, streams_per_connection: 10}\n",
                "limits.connections: more than limits.streams, 100: not all of them could have a stream at a time",
            ),
        ] {
            assert_eq!(of(ONE, rest), [expected], "{rest}");
        }
        for (server, expected) in [
            ("liveness: {method: none, interval: 7s}", "liveness.interval: has no effect: liveness.method is none"),
            ("keepalive: {interval: 0s, timeout: 7s}", "keepalive.timeout: has no effect: keepalive.interval is 0s"),
        ] {
            let servers = format!("{{uri: 'http://cp:1', {server}}}");
            assert_eq!(of(&servers, ""), [format!("upstream.servers[0].{expected}")], "{server}");
        }
        let drained = of("{uri: 'http://[::1]:1', drain: 1m}", "");
        let expected = "upstream.servers[0].drain: has no effect: the host of the server is an address, and not the name of several";
        assert_eq!(drained, [expected]);
        let fallback = "  fallback: {delay: 7s, on_missing: delete}\n";
        let expected = ["delay", "on_missing"]
            .map(|key| format!("upstream.fallback.{key}: has no effect: no list has a second server"));
        assert_eq!(of(ONE, fallback), expected);
    }

    #[test]
    fn the_audit_that_a_preset_requires_has_an_effect() {
        let fields =
            "id, cluster, locality, metadata, user_agent, extensions, client_features, dynamic_parameters, unknown";
        let rest = format!(
            "views: {{preset: istio-gateway, audit: {{interval: 24h}}}}\n\
             permissions: [{{name: a, identities: [{{network: 10.0.0.0/8}}], free: [{fields}]}}]\n"
        );
        let found = of(ONE, &rest);
        assert!(!found.iter().any(|warning| warning.starts_with("views.")), "{found:?}");
    }

    #[test]
    fn files_are_shown_no_client() {
        let views = "views: {key: [cluster], node: member, audit: {interval: 24h}}\n";
        let expected = ["views.node", "views.audit.interval"]
            .map(|key| format!("{key}: has no effect: all servers are files, which are shown no node"));
        assert_eq!(of("{files: [/a/b]}", views), expected, "and no fault about whose the clients are");
        let found = of("{files: [/a/b]}, {uri: 'http://cp:1'}", &views.replace("cluster", "cluster, id"));
        assert!(!found.iter().any(|warning| warning.starts_with("views.")), "{found:?}");
    }

    #[test]
    fn what_has_an_effect_or_says_the_default_is_no_warning() {
        for rest in [
            "brakes: {enabled: false, count: 10}\n",
            "brakes: {grace: 50s}\n",
            "rest: {long_poll: 5s}\n",
            "views: {key: [cluster, tenant], node: member, audit: {interval: 24h}}\n\
             permissions: [{name: a, identities: [{network: 10.0.0.0/8}], tenant: a, free: [cluster]}]\n",
            "views: {audit: {interval: 0s}}\n",
            "load_reports: {mode: aggregate, streams: 10000, max_outage: 7m}\n",
            "state: {path: /a/b, max_age: 1h, when_older: refuse}\nready_after: 5m\n",
        ] {
            assert_eq!(of(ONE, rest), [""; 0], "{rest}");
        }
        assert_eq!(of(TWO, "  fallback: {delay: 7s}\n"), [""; 0]);
        let authority =
            "  fallback: {delay: 7s}\n  authorities: {a: {servers: [{uri: 'http://a:1'}, {uri: 'http://b:1'}]}}\n";
        assert_eq!(of(ONE, authority), [""; 0], "the list of an authority counts");
        for server in [
            "{uri: 'http://cp:1', drain: 1m}",
            "{uri: 'http://10.0.0.1:1', drain: 0s}",
            "{uri: 'http://10.0.0.1:1', drain: 1m, proxy: {uri: 'http://proxy:3128'}}",
            "{uri: 'http://cp:1', liveness: {method: none, interval: 10s}}",
        ] {
            assert_eq!(of(server, ""), [""; 0], "{server}");
        }
    }
}
