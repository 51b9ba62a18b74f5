//! Headers that servers are shown: headers of clients in the key, and the relay's own. Which servers may be shown them, and for which clients.

use weir_core::xds::{IdentityPattern, KeyField, KeyRule, PermissionRule, Permissions, Template};

use super::checker::Checker;
use super::form::Located;
use super::raw::{self, Headers, KeyEntry, Server};
use crate::relay::HeaderHasher;
use crate::upstream::{Plan, SourcePlan};

/// Returns the hasher of the headers in the key, if there are any.
pub(super) fn check(raw: &raw::Root, rule: &KeyRule, plan: &Plan, checker: &mut Checker) -> Option<HeaderHasher> {
    rule.headers().next()?;
    let entries = raw.views.key.iter().flat_map(|entries| &entries.0);
    let mut headers = entries.filter_map(|entry| match &entry.value {
        KeyEntry::Field(field @ KeyField::Header(_)) => Some((&entry.place, field)),
        _ => None,
    });
    let (place, name) = headers.next()?;
    for server in &plan.servers {
        let at = match server {
            SourcePlan::Ads(server) => server,
            SourcePlan::Rest(server) => &server.at,
            SourcePlan::Files(_) => continue,
        };
        if !at.may_be_shown_headers() {
            let reason = format!(
                "{name} requires servers with https://, on a Unix socket, or with http:// on this machine without a proxy: {} would be shown \
                 it in plain text",
                at.name()
            );
            checker.fault(place, reason);
        }
    }
    if let Some(shared) = raw.upstream.0.as_ref().and_then(|upstream| upstream.shared_authorities.first()) {
        let reason =
            format!("cannot be combined with {name} in views.key: what all views share is requested without it");
        checker.fault(&shared.place, reason);
    }
    let hasher = HeaderHasher::random();
    hasher.map_err(|error| checker.fault(place, format!("{name} is hashed in memory, and {error}"))).ok()
}

/// Checks the headers that servers are shown for all clients, or for the clients of a tenant.
pub(super) fn check_shared(raw: &raw::Root, rule: &KeyRule, permissions: &Permissions, checker: &mut Checker) {
    let servers: Vec<_> = raw.upstream.0.iter().flat_map(|upstream| upstream.all_servers()).collect();
    let are_ids_free = rule.fields().iter().any(KeyField::is_of_id) && !ties_ids(permissions);
    for server in servers {
        let all: Vec<_> = headers_of(server).collect();
        let is_meant = server.shared_credential.value;
        if let Some(place) = server.shared_credential.given().filter(|_| is_meant && all.is_empty()) {
            checker.fault(place, "requires headers: there is no credential that clients share");
        }
        for headers in all {
            let in_key = |name: &&String| rule.headers().any(|of_clients| of_clients.as_str() == name.as_str());
            if let Some(name) = headers.0.0.keys().find(in_key) {
                let reason = format!("cannot be combined with header.{name} in views.key: clients send their own");
                checker.fault(&headers.place, reason);
            }
            if are_ids_free && !is_meant {
                checker.fault(&headers.place, FREE_IDS);
            }
        }
    }
}

fn headers_of(server: &Server) -> impl Iterator<Item = &Located<Headers>> {
    let tenants = server.tenants.iter().flat_map(|tenants| &tenants.0);
    server.headers.iter().chain(tenants.filter_map(|tenant| tenant.headers.as_ref()))
}

/// Whether no client can freely choose the id that it states: each rule is for proved identities, and lists the ids that these may have.
fn ties_ids(permissions: &Permissions) -> bool {
    let is_any = |text: &Template| Template::parse("*").is_ok_and(|any| any == *text);
    let ids = |rule: &PermissionRule| {
        let bound = rule.node.iter().find(|bound| bound.field == KeyField::Id);
        bound.is_some_and(|bound| !bound.values.iter().any(is_any))
    };
    let rules = permissions.rules();
    !rules.is_empty() && rules.iter().all(|rule| ids(rule) && rule.identities.iter().all(IdentityPattern::is_proof))
}

const FREE_IDS: &str = "clients state the id that they like, and would have what these headers may read of it: expected permissions that tie \
                        id to identities, header.<name> in views.key in place of these, or shared_credential: true if it is meant";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::Config;

    fn faults(upstream: &str, field: &str) -> String {
        faults_with(upstream, &format!("views: {{key: [id, {field}]}}"))
    }

    fn faults_with(upstream: &str, rest: &str) -> String {
        let text = format!("listen: [{{address: ':9'}}]\nupstream: {{{upstream}}}\n{rest}\n");
        Config::parse(Path::new("relay.yaml"), &text).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn a_header_for_all_clients_needs_ids_that_are_tied_to_identities_or_a_word_that_it_is_meant() {
        let server =
            |keys: &str| format!("servers: [{{uri: 'https://cp:1', headers: {{x-token: {{file: t}}}}{keys}}}]");
        let id = "views: {key: [id]}";
        let rule =
            |identity: &str, ids: &str| format!("{id}\npermissions: [{{name: a, identities: [{identity}], {ids}}}]");
        let (process, network) = ("{uid: 1}", "{network: 10.0.0.0/8}");
        let free = "relay.yaml:2:53: upstream.servers[0].headers: clients state the id that they like";
        for rest in
            [id, &rule(process, "free: [id]"), &rule(process, "node: {id: '*'}"), &rule(network, "node: {id: a}")]
        {
            let said = faults_with(&server(""), rest);
            assert!(said.starts_with(free) && said.lines().count() == 1, "{rest}: {said}");
            assert_eq!(faults_with(&server(", shared_credential: true"), rest), "");
        }
        for rest in
            ["views: {key: [cluster]}", &rule(process, "node: {id: 'a-*'}"), &rule(process, "node: {id: [a, b]}")]
        {
            assert_eq!(faults_with(&server(""), rest), "", "{rest}");
        }
        let unused = faults_with("servers: [{uri: 'https://cp:1', shared_credential: true}]", id);
        assert!(
            unused.ends_with("shared_credential: requires headers: there is no credential that clients share"),
            "{unused}"
        );
    }

    #[test]
    fn a_header_for_all_clients_is_not_sent_in_plain_text_and_is_none_of_those_that_clients_send() {
        let of = |uri: &str| format!("servers: [{{uri: '{uri}', headers: {{x-token: {{file: t}}}}}}]");
        let cluster = "views: {key: [cluster]}";
        for uri in ["https://cp.example:1", "http://127.0.0.1:1", "unix:/run/cp"] {
            assert_eq!(faults_with(&of(uri), cluster), "", "{uri}");
        }
        assert_eq!(faults_with(&of("https://cp:1").replace("uri", "rest"), cluster), "");
        let plain = faults_with(&of("http://cp.example:1"), cluster);
        assert!(
            plain.contains("upstream.servers[0].headers: requires https://, a Unix socket, or http:// on this machine"),
            "{plain}"
        );
        let both = faults_with(&of("https://cp:1"), "views: {key: [cluster, header.x-token]}");
        assert!(both.contains("cannot be combined with header.x-token in views.key: clients send their own"), "{both}");
    }

    #[test]
    fn no_message_quotes_a_value() {
        let of = |entry: &str| {
            faults_with(&format!("servers: [{{uri: 'https://cp:1', headers: {{{entry}}}}}]"), "views: {key: [cluster]}")
        };
        for (entry, said) in [
            (
                "x-token: 4711",
                "headers[\"x-token\"]: invalid value: expected a mapping with one of value, file, environment",
            ),
            (
                "x-token: {value: 4711}",
                "value: invalid value \"[redacted]\": expected text in quotes that is not empty",
            ),
            ("x-token: {value: \"47\\n11\"}", "value: invalid value: expected one line of text, of at most 4 KiB"),
            (
                "x-token: {value: '4711', file: f}",
                "headers[\"x-token\"]: expected exactly one of value, file, environment",
            ),
            ("x-token: {}", "headers[\"x-token\"]: expected exactly one of value, file, environment"),
            ("X-Token: {file: f}", "invalid header \"X-Token\": expected a name of small letters"),
            ("authorization: {file: f}", "invalid header \"authorization\": expected another header"),
            (
                "'x-token=4711': {file: f}",
                "servers[0].headers: invalid name of a header: expected a name of small letters",
            ),
            (
                "'x-token: 4711': {file: f}",
                "servers[0].headers: invalid name of a header: expected a name of small letters",
            ),
            (
                "'x-token:4711': {file: f}",
                "servers[0].headers: invalid name of a header: expected a name of small letters",
            ),
            ("x-token=4711: ", "servers[0].headers: invalid name of a header: expected a name of small letters"),
            ("'x-token: 4711': {}", "servers[0].headers: invalid name of a header: expected a name of small letters"),
            ("'x-token: 4711': something", "servers[0].headers: invalid value: expected a mapping with one of value"),
            ("'x-token: 4711': {fiel: f}", "servers[0].headers.fiel: unknown key \"fiel\""),
            ("'x-token: 4711': {file: ''}", "servers[0].headers.file: invalid path"),
            (
                "'x-token: 4711': {value: \"a\\nb\"}",
                "servers[0].headers.value: invalid value: expected one line of text",
            ),
            ("'x-token: 4711': {environment: WEIR_NO_SUCH}", "servers[0].headers.environment: undefined environment"),
            (
                "'x-token: 4711': {file: f}, 'x-token: 4711': {file: f}",
                "servers[0].headers: duplicate key: already in line",
            ),
            ("x-token: {environment: WEIR_NO_SUCH_VARIABLE}", "undefined environment variable WEIR_NO_SUCH_VARIABLE"),
            ("x-token: {environment: 4711-ab}", "undefined environment variable: expected the name of one"),
            ("x-token: {environment: 4711ab}", "undefined environment variable: expected the name of one"),
            ("x-token: {environment: 4711}", "environment: invalid value \"[redacted]\": expected text in quotes"),
        ] {
            let found = of(entry);
            assert!(found.contains(said) && !found.contains("11"), "{entry}: {found}");
        }
        let tenant = "tenants: [{names: [a], headers: 'x-token: 4711'}]";
        for keys in ["headers: 'x-token: 4711'", "headers: 4711", tenant] {
            let found = faults_with(&format!("servers: [{{uri: 'https://cp:1', {keys}}}]"), "views: {key: [tenant]}");
            let said = "headers: invalid value: expected a mapping of names, each with one of value, file, environment";
            assert!(found.contains(said) && !found.contains("11"), "{keys}: {found}");
        }
    }

    #[test]
    fn every_header_that_cannot_be_shown_is_a_fault_with_its_place_and_name_all_at_once() {
        let reserved = "a header of the client's own: this one belongs to HTTP, to gRPC or to relays";
        let names = [
            ("te", reserved),
            ("content-type", reserved),
            ("grpc-timeout", reserved),
            ("host", reserved),
            (":path", "a name of small letters, digits, hyphens, underscores and points"),
            ("x-data-bin", "a header of text: values of names that end with -bin are bytes"),
            ("authorization", "another header: authorization has a key of its own, token_file"),
        ];
        let fields: String = names.iter().map(|(name, _)| format!("  - 'header.{name}'\n")).collect();
        let entries: String = names.iter().map(|(name, _)| format!("      '{name}': {{value: '4711'}}\n")).collect();
        let start = "listen: [{address: ':9'}]\nviews:\n  key:\n  - cluster\n";
        let servers = "upstream:\n  servers:\n  - uri: 'https://cp:1'\n    shared_credential: true\n    headers:\n";
        let text = format!("{start}{fields}{servers}{entries}");
        let Err(error) = Config::parse(Path::new("relay.yaml"), &text) else { panic!("no fault in {text}") };
        let said = error.to_string();
        assert!(!said.contains("4711"), "{said}");
        for (at, (name, expected)) in names.into_iter().enumerate() {
            let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let key = if is_plain { format!(".{name}") } else { format!("[{name:?}]") };
            for (line, path, written) in [
                (5 + at, format!("views.key[{}]", at + 1), format!("header.{name}")),
                (10 + names.len() + at, format!("upstream.servers[0].headers{key}"), name.to_owned()),
            ] {
                let start = format!("relay.yaml:{line}:");
                let end = format!(": {path}: invalid header {written:?}: expected {expected}");
                assert!(said.lines().any(|fault| fault.starts_with(&start) && fault.ends_with(&end)), "{end}: {said}");
            }
        }
    }

    #[test]
    fn a_header_in_the_key_is_for_servers_that_nobody_can_listen_to_on_the_way() {
        let token = "header.x-token";
        for uri in
            ["https://cp.example:1", "http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "unix:/run/cp"]
        {
            assert_eq!(faults(&format!("servers: [{{uri: '{uri}'}}]"), token), "", "{uri}");
        }
        assert_eq!(faults("files: resources", token), "");
        let plain = "relay.yaml:3:19: views.key[1]: header.x-token requires servers with https://, on a Unix socket, or with http:// on this \
                     machine without a proxy: http://cp.example:1 would be shown it in plain text";
        assert_eq!(faults("servers: [{uri: 'http://cp.example:1'}]", token), plain);
        assert_eq!(faults("servers: [{rest: 'https://cp.example:1'}]", token), "");
        assert_eq!(faults("servers: [{rest: 'http://cp.example:1'}]", token), plain);
        let shared = "servers: [{uri: 'https://a:1'}], authorities: {x: {}}, shared_authorities: [x]";
        let said = faults(shared, token);
        assert!(
            said.starts_with("relay.yaml:2:") && said.contains("cannot be combined with header.x-token in views.key"),
            "{said}"
        );
    }

    #[test]
    fn a_header_that_is_not_a_clients_own_is_a_fault() {
        for (name, expected) in [
            ("authorization", "another header: authorization has a key of its own, token_file"),
            ("X-Token", "a name of small letters, digits, hyphens, underscores and points"),
            ("grpc-timeout", "a header of the client's own: this one belongs to HTTP, to gRPC or to relays"),
            ("connection", "a header of the client's own: this one belongs to HTTP, to gRPC or to relays"),
            ("x-bin", "a header of text: values of names that end with -bin are bytes"),
        ] {
            let said = faults("files: resources", &format!("header.{name}"));
            assert_eq!(
                said,
                format!("relay.yaml:3:19: views.key[1]: invalid header \"header.{name}\": expected {expected}")
            );
        }
    }
}
