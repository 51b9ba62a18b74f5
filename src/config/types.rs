//! Entries of `types`: types that are not built in, and changes to built-in ones.

use weir_core::xds::{EmptyFirst, Type, TypeInfo, TypeTable};

use super::checker::{Checker, or};
use super::form::Located;
use super::raw::{self, VhdsWildcard};

pub(super) fn check(raw: &raw::Root, checker: &mut Checker) -> TypeTable {
    let known = TypeTable::new();
    let mut added: Vec<TypeInfo> = Vec::new();
    for entry in &raw.types.value {
        let Some(info) = type_entry(entry, &known, checker) else { continue };
        if added.iter().any(|other| other.name == info.name) {
            checker.fault(&entry.place, format!("duplicate type {}: expected one entry for it", info.name));
        }
        if let Some(other) = added.iter().find(|other| is_by_message_name(&info.name, &other.name)) {
            let reason = format!(
                "{} and {} are one type: a type with an entry for its message name is known by that",
                other.name, info.name
            );
            checker.fault(&entry.place, reason);
        }
        added.push(info);
    }
    let table = TypeTable::with(added).with_v2(raw.clients.v2.value);
    match raw.clients.vhds_wildcard.value {
        VhdsWildcard::SubscribedRoutes => table,
        VhdsWildcard::None => table.with_virtual_hosts_by_name(),
    }
}

/// Whether one of the names is a URL that ends with the other as its message name.
fn is_by_message_name(one: &str, other: &str) -> bool {
    let is = |url: &str, name: &str| url.rsplit_once('/').is_some_and(|(_, message)| message == name);
    is(one, other) || is(other, one)
}

/// Returns the built-in type of that name, or else an opaque type, with the changes of the entry (TYPE-7).
fn type_entry(entry: &raw::TypeEntry, known: &TypeTable, checker: &mut Checker) -> Option<TypeInfo> {
    let name = entry.name.0.as_ref()?;
    let base = known.resolve(&name.0);
    warn_of_less(entry, &base, known, checker);
    let mut info = base.info().clone();
    if let Some(other) = &entry.order_with {
        let before = known.resolve(&other.0);
        if !known.knows(before.name()) {
            checker.fault(&other.place, format!("unknown type {:?}: expected one that is built in", other.0));
        }
        let before = before.info();
        (info.rank, info.addition_rank, info.removal_rank) = (before.rank, before.addition_rank, before.removal_rank);
    }
    if let Some(field) = &entry.name_field {
        info.name_field = Some(field.0).filter(|field| *field != 0);
    }
    info.full_state = or(&entry.full_state, info.full_state);
    match entry.legacy_wildcard.as_ref().map(|given| given.value) {
        // Virtual hosts have a wildcard of a special kind, and keep it.
        Some(true) if !info.empty_first.is_wildcard() => info.empty_first = EmptyFirst::Everything,
        Some(false) => info.empty_first = EmptyFirst::Nothing,
        _ => {}
    }
    Some(info)
}

/// Warns if a built-in type loses a property that its clients and servers rely on.
fn warn_of_less(entry: &raw::TypeEntry, base: &Type, known: &TypeTable, checker: &mut Checker) {
    if !known.knows(base.name()) {
        return;
    }
    let (name, info) = (base.name(), base.info());
    let is_off = |given: &&Located<bool>| !given.value;
    if let Some(given) = entry.full_state.as_ref().filter(is_off).filter(|_| info.full_state) {
        let reason = format!("{name} is a full-state type; with false, a SotW response removes nothing any more");
        checker.warn(&given.place, reason);
    }
    if let Some(given) = entry.legacy_wildcard.as_ref().filter(is_off).filter(|_| info.empty_first.is_wildcard()) {
        let reason = format!(
            "an empty first request for {name} is a wildcard; with false, clients that send one get no response to it"
        );
        checker.warn(&given.place, reason);
    }
    let named = info.name_field.unwrap_or_default();
    if let Some(given) = entry.name_field.as_ref().filter(|given| given.0 != named) {
        let reason = match named {
            0 => format!("{name} has no field for its name; names are read from field {} instead", given.0),
            _ => format!("{name} has its name in field {named}; with another, names are missing or wrong"),
        };
        checker.warn(&given.place, reason);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weir_core::xds::Role;

    use super::*;
    use crate::config::Config;

    fn parse(types: &str) -> Config {
        let text = format!(
            "listen: [{{address: '[::1]:1'}}]\nupstream: {{servers: [{{uri: 'http://cp:1'}}]}}\ntypes:\n{types}\n"
        );
        Config::parse(Path::new("relay.yaml"), &text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn warnings(config: &Config) -> Vec<String> {
        config.warnings.iter().map(ToString::to_string).collect()
    }

    const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
    const LISTENER: &str = "envoy.config.listener.v3.Listener";
    const VIRTUAL_HOST: &str = "envoy.config.route.v3.VirtualHost";

    #[test]
    fn type_7_an_entry_for_a_built_in_type_keeps_what_it_does_not_mention() {
        let config = parse(&format!("- {{name: type.googleapis.com/{CLUSTER}, order_with: {LISTENER}}}"));
        let (table, built_in) = (&config.views.table, TypeTable::new());
        let (changed, listener) = (table.resolve(CLUSTER), built_in.resolve(LISTENER));
        let info = changed.info();
        assert!(info.full_state && info.role == Role::Clusters && info.name_field == Some(1));
        assert_eq!(
            (info.empty_first, info.references),
            (EmptyFirst::Everything, built_in.resolve(CLUSTER).info().references)
        );
        assert_eq!((info.rank, info.removal_rank), (listener.info().rank, listener.info().removal_rank));
        assert_eq!(warnings(&config), [""; 0]);
    }

    #[test]
    fn type_7_each_key_of_an_entry_changes_one_thing() {
        let virtual_hosts = |more: &str| {
            let config = parse(&format!("- {{name: {VIRTUAL_HOST}{more}}}"));
            let kind = config.views.table.resolve(VIRTUAL_HOST);
            (kind.info().empty_first, kind.info().delta_only, kind.info().name_field)
        };
        assert_eq!(virtual_hosts(""), (EmptyFirst::UnderRoutes, true, None));
        assert_eq!(virtual_hosts(", legacy_wildcard: true"), (EmptyFirst::UnderRoutes, true, None));
        assert_eq!(virtual_hosts(", legacy_wildcard: false"), (EmptyFirst::Nothing, true, None));
        assert_eq!(virtual_hosts(", name_field: 2"), (EmptyFirst::UnderRoutes, true, Some(2)));
        let config = parse("- {name: own.Type, full_state: true}\n- {name: own.Other, name_field: 0}");
        let [own, other] = ["own.Type", "own.Other"].map(|name| config.views.table.resolve(name));
        assert!(own.info().full_state && own.info().name_field == Some(1));
        assert_eq!((own.info().empty_first, other.info().name_field), (EmptyFirst::Nothing, None));
        assert_eq!(warnings(&config), [""; 0], "nothing is expected of types that are not built in");
    }

    #[test]
    fn type_7_taking_something_from_a_built_in_type_is_a_warning_with_its_place() {
        let config = parse(&format!(
            "- {{name: {LISTENER}, full_state: true, legacy_wildcard: true, name_field: 1}}
- name: {CLUSTER}
  full_state: false
  legacy_wildcard: false
  name_field: 2"
        ));
        let info = config.views.table.resolve(CLUSTER).info().clone();
        assert_eq!((info.full_state, info.empty_first, info.name_field), (false, EmptyFirst::Nothing, Some(2)));
        let warnings = warnings(&config);
        let places = [
            "relay.yaml:6:15: types[1].full_state: ",
            "relay.yaml:7:20: types[1].legacy_wildcard: ",
            "relay.yaml:8:15: types[1].name_field: ",
        ];
        assert_eq!(warnings.len(), places.len(), "{warnings:?}");
        for (warning, place) in warnings.iter().zip(places) {
            assert!(warning.starts_with(place) && warning.contains(CLUSTER), "{place} is missing in {warning}");
        }
    }
}
