//! Headers of clients in the key: which servers may be shown them.

use weir_core::xds::{KeyField, KeyRule};

use super::checker::Checker;
use super::raw;
use crate::relay::HeaderHasher;
use crate::upstream::{Plan, SourcePlan};

/// Returns what makes the hashes of headers in the key, if there are any.
pub(super) fn check(raw: &raw::Root, rule: &KeyRule, plan: &Plan, checker: &mut Checker) -> Option<HeaderHasher> {
    rule.headers().next()?;
    let fields = raw.views.key.iter().flat_map(|fields| &fields.0);
    let field = fields.into_iter().find(|field| matches!(field.value, KeyField::Header(_)))?;
    let (place, name) = (&field.place, &field.value);
    for server in &plan.servers {
        match server {
            SourcePlan::Ads(server) if !server.may_be_shown_headers() => {
                let reason = format!(
                    "{name} requires servers with https://, on a Unix socket, or with http:// on this machine without a proxy: {} would be \
                     shown it in plain text",
                    server.name()
                );
                checker.fault(place, reason);
            }
            SourcePlan::Rest(server) => {
                let reason = format!("{name} requires servers with uri or files: {} is not shown it", server.name());
                checker.fault(place, reason);
            }
            SourcePlan::Ads(_) | SourcePlan::Files(_) => {}
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::Config;

    fn faults(upstream: &str, field: &str) -> String {
        let text = format!("listen: [{{address: ':9'}}]\nupstream: {{{upstream}}}\nviews: {{key: [id, {field}]}}\n");
        Config::parse(Path::new("relay.yaml"), &text).map_or_else(|error| error.to_string(), |_| String::new())
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
        let polled = "relay.yaml:3:19: views.key[1]: header.x-token requires servers with uri or files: https://cp.example:1 (REST) is not shown it";
        assert_eq!(faults("servers: [{rest: 'https://cp.example:1'}]", token), polled);
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
