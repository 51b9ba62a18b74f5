//! Resources that come under another name than the one by which they were requested.

use weir_core::proto::Response;
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::ServerQuirks;

use super::{delta, error, requested, wrapped};

#[test]
fn delta_22_delta_29_and_delta_39_a_removal_of_what_was_requested_by_alias_reaches_the_alias() {
    let vhds = "type.googleapis.com/envoy.config.route.v3.VirtualHost";
    let mut bench = requested(Variant::Delta, vhds, &["r/alias", "r/plain"], ServerQuirks::default());
    let aliased = wrapped(vhds, "r/host", "1", |resource| resource.aliases = vec!["r/alias".into()]);
    assert_eq!(bench.respond(0, aliased), ["Named r/alias set"]);
    assert_eq!(bench.respond(0, delta(vhds, &["r/plain"], &[], "2")), ["Named r/plain set"]);
    bench.end(0);
    bench.open();
    assert_eq!(bench.requests(0), ["V +[r/alias,r/plain] -[] {r/host:1,r/plain:2} n"]);
    let gone = bench.respond(0, delta(vhds, &[], &["r/host", "r/plain"], "3"));
    assert_eq!(gone, ["Named r/alias gone", "Named r/plain gone"]);
    let nowhere = wrapped(vhds, "r/alias", "4", |resource| {
        resource.aliases = vec!["r/alias".into()];
        resource.resource = None;
    });
    assert_eq!(bench.respond(0, nowhere), ["Named r/alias gone"], "DELTA-39, DELTA-40: and no heartbeat");
}

#[test]
fn up_14_what_came_for_an_alias_that_was_given_up_is_not_stated_when_it_is_wanted_by_its_own_name() {
    let vhds = "type.googleapis.com/envoy.config.route.v3.VirtualHost";
    for aliases in [vec!["r/alias"], vec!["r/alias", "r/other"]] {
        let mut bench = requested(Variant::Delta, vhds, &aliases, ServerQuirks::default());
        let names: Vec<_> = aliases.iter().map(ToString::to_string).collect();
        bench.respond(0, wrapped(vhds, "r/host", "1", |resource| resource.aliases = names));
        bench.want(vhds, "r/alias", false);
        bench.requests(0);
        assert_eq!(bench.end(0), [""; 0]);
        bench.want(vhds, "r/host", true);
        bench.open();
        let first = bench.requests(0);
        match aliases.len() {
            1 => assert_eq!(first, ["V +[r/host] -[] {} n"]),
            _ => assert_eq!(first, ["V +[r/host,r/other] -[] {r/host:1} n"], "the other alias has it"),
        }
    }
}

#[test]
fn delta_22_an_alias_that_leads_elsewhere_now_is_not_gone() {
    let vhds = "type.googleapis.com/envoy.config.route.v3.VirtualHost";
    let mut bench = requested(Variant::Delta, vhds, &["r/alias"], ServerQuirks::default());
    let led_to = |name: &str, removed: &[&str]| {
        let Response::Delta(mut response) =
            wrapped(vhds, name, "1", |resource| resource.aliases = vec!["r/alias".into()])
        else {
            unreachable!()
        };
        response.removed_resources = removed.iter().map(ToString::to_string).collect();
        Response::Delta(response)
    };
    assert_eq!(bench.respond(0, led_to("r/one", &[])), ["Named r/alias set"]);
    assert_eq!(bench.respond(0, led_to("r/two", &["r/one"])), ["Named r/alias set"]);
    assert_eq!(bench.respond(0, delta(vhds, &[], &["r/one"], "3")), [""; 0]);
    assert_eq!(bench.respond(0, delta(vhds, &[], &["r/two"], "4")), ["Named r/alias gone"]);
}

#[test]
fn up_14_what_came_for_an_alias_is_stated_for_as_long_as_one_name_of_it_is_wanted() {
    let vhds = "type.googleapis.com/envoy.config.route.v3.VirtualHost";
    let mut bench = requested(Variant::Delta, vhds, &["r/alias", "r/host"], ServerQuirks::default());
    bench.respond(0, wrapped(vhds, "r/host", "1", |resource| resource.aliases = vec!["r/alias".into()]));
    bench.want(vhds, "r/alias", false);
    bench.requests(0);
    assert_eq!(bench.end(0), [""; 0]);
    bench.open();
    assert_eq!(bench.requests(0), ["V +[r/host] -[] {r/host:1} n"], "it is wanted by its own name");
}

#[test]
fn up_44_an_error_of_a_name_that_was_not_requested_says_nothing_though_its_resource_came_by_an_alias() {
    let vhds = "type.googleapis.com/envoy.config.route.v3.VirtualHost";
    let mut bench = requested(Variant::Delta, vhds, &["r/alias"], ServerQuirks::default());
    let aliased = wrapped(vhds, "r/host", "1", |resource| resource.aliases = vec!["r/alias".into()]);
    assert_eq!(bench.respond(0, aliased), ["Named r/alias set"]);
    let Response::Delta(mut response) = delta(vhds, &[], &[], "2") else { unreachable!() };
    response.resource_errors = error(14);
    response.resource_errors[0].resource_name.as_mut().unwrap().name = "r/host".into();
    assert_eq!(bench.respond(0, Response::Delta(response)), [""; 0]);
}
