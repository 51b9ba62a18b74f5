//! Brakes: which removals are held, and for how long.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_core::protocol::view::BrakeRules;
use weir_core::xds::TypeTable;

use super::checker::{Checker, or};
use super::form::{Pause, Percent, Positive, Wait};
use super::raw;

pub(super) fn check(raw: &raw::Brakes, table: &TypeTable, checker: &mut Checker) -> BrakeRules {
    let rules = BrakeRules {
        types: braked_types(raw, table, checker),
        share: or(&raw.share, Percent(SHARE)).0,
        count: or(&raw.count, Positive(COUNT)).0,
        window: or(&raw.window, Pause(WINDOW)).0,
        grace: or(&raw.grace, Pause(GRACE)).0,
        empty_grace: or(&raw.empty_grace, Pause(EMPTY_GRACE)).0,
        agree_after: or(&raw.agree_after, Wait(AGREE_AFTER)).0,
        ..BrakeRules::default()
    };
    if let Some(place) =
        raw.empty_grace.as_ref().map(|given| &given.place).or(raw.grace.as_ref().map(|given| &given.place))
        && rules.empty_grace < rules.grace
    {
        let (given, least) = (rules.empty_grace, rules.grace);
        let text = |time: Duration| humantime::format_duration(time).to_string();
        let reason =
            format!("invalid brakes.empty_grace {}: expected at least brakes.grace, {}", text(given), text(least));
        checker.fault(place, reason);
    }
    rules
}

fn braked_types(raw: &raw::Brakes, table: &TypeTable, checker: &mut Checker) -> BTreeSet<Box<str>> {
    let enabled = or(&raw.enabled, true);
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
/// A tenth or a fifth of a fleet's clusters may go in one change, when a namespace or a zone is given up. Half of them, or a third, go when
/// a control plane has lost a part of its sources.
const SHARE: u8 = 30;
/// Small fleets change by large shares. Nine removals are a change that a person makes.
const COUNT: usize = 10;
/// Longer than a rollout takes from its first step to its last.
const WINDOW: Duration = Duration::from_secs(600);
/// Long enough for an alert to reach an operator, and short enough that nothing that is meant is delayed by much.
const GRACE: Duration = Duration::from_secs(300);
const EMPTY_GRACE: Duration = Duration::from_secs(900);
/// A server that restarts again and again, or that fills its set from its own sources, is quicker than this.
const AGREE_AFTER: Duration = Duration::from_secs(60);
