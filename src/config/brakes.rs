//! Brakes: which removals are held, and for how long.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_core::protocol::view::BrakeRules;
use weir_core::xds::TypeTable;

use super::checker::Checker;
use super::raw;

pub(super) fn check(raw: &raw::Brakes, table: &TypeTable, checker: &mut Checker) -> BrakeRules {
    let rules = BrakeRules {
        types: braked_types(raw, table, checker),
        share: raw.share.0,
        count: raw.count.0,
        window: raw.window.0,
        grace: raw.grace.0,
        empty_grace: raw.empty_grace.0,
        agree_after: raw.agree_after.0,
        after_outage: if raw.enabled.value { raw.after_outage.0 } else { Duration::ZERO },
        ..BrakeRules::default()
    };
    let given = raw.empty_grace.given().or(raw.grace.given());
    if let Some(place) = given.filter(|_| rules.empty_grace < rules.grace) {
        let [given, least] = [rules.empty_grace, rules.grace].map(humantime::format_duration);
        checker.fault(place, format!("invalid brakes.empty_grace {given}: expected at least brakes.grace, {least}"));
    }
    rules
}

fn braked_types(raw: &raw::Brakes, table: &TypeTable, checker: &mut Checker) -> BTreeSet<Box<str>> {
    let enabled = raw.enabled.value;
    let Some(given) = &raw.types else {
        return if enabled { BY_DEFAULT.map(Into::into).into() } else { BTreeSet::new() };
    };
    let mut types = BTreeSet::new();
    for name in &given.0 {
        if table.resolve(&name.0).info().full_state {
            types.insert(name.0.as_str().into());
        } else {
            let reason =
                format!("invalid type {:?}: expected one whose sets are full state, such as {}", name.0, BY_DEFAULT[1]);
            checker.fault(&name.place, reason);
        }
    }
    if enabled { types } else { BTreeSet::new() }
}

const BY_DEFAULT: [&str; 3] = [
    "envoy.config.listener.v3.Listener",
    "envoy.config.cluster.v3.Cluster",
    "envoy.config.route.v3.ScopedRouteConfiguration",
];
