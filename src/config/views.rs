//! The sharing key: the entries of `views.key` or a preset's fields, and whether clients that share a view may get each other's secrets.

use weir_core::xds::{IdPart, KeyField, KeyRule, Permissions};

use super::checker::Checker;
use super::diagnostic::FilePosition;
use super::form::{Located, MetadataPath};
use super::presets::Preset;
use super::raw::{self, ExceptEntry, IdPartEntry, KeyEntry, ViewNode};
use crate::upstream::{Plan, SourcePlan};

/// Returns the key rule of the file, with the preset that it comes from, if any.
pub(super) fn check(raw: &raw::Views, checker: &mut Checker) -> (KeyRule, Option<Preset>) {
    let preset = raw.preset.as_ref().map(|name| Preset::of(name.value));
    if let (Some(name), Some(_)) = (&raw.preset, &raw.key) {
        checker.fault(&name.place, "cannot be combined with key: a preset stands for a key");
    }
    let rule = match (&raw.key, &preset) {
        (Some(entries), _) => KeyRule::of(fields_of(&entries.0, checker)),
        (None, Some(preset)) => KeyRule::of(preset.key.clone()),
        (None, None) => KeyRule::default(),
    };
    (rule, preset)
}

/// Checks that a file with a preset that needs audits either configures them or switches them off.
pub(super) fn check_audit(raw: &raw::Views, plan: Option<&Plan>, checker: &mut Checker) {
    let preset = raw.preset.as_ref().filter(|name| Preset::of(name.value).needs_audit && shows_nodes(plan));
    if let Some(name) = preset.filter(|_| raw.audit.interval.given().is_none()) {
        checker.fault(&name.place, "needs audit.interval, such as 24h: a field of the node that is left out and counts is found by nothing else; 0s switches that off");
    }
}

/// Whether the file, or its preset, shows servers the nodes of clients.
pub(super) fn shows_members(raw: &raw::Views) -> bool {
    raw.node.value == ViewNode::Member || preset_shows_members(raw)
}

/// Whether any source is shown a node; files are not. True if the sources are not known.
pub(super) fn shows_nodes(plan: Option<&Plan>) -> bool {
    let servers = plan.map_or(&[][..], |plan| plan.servers.as_slice());
    servers.is_empty() || servers.iter().any(|server| !matches!(server, SourcePlan::Files(_)))
}

/// Checks that the file does not set another node than its preset needs.
pub(super) fn check_node(raw: &raw::Views, checker: &mut Checker) {
    let differs = raw.node.value != ViewNode::Member && preset_shows_members(raw);
    if let Some(place) = raw.node.given().filter(|_| differs) {
        checker.fault(place, "expected member: this preset is for a server that has to be shown a real proxy");
    }
}

fn preset_shows_members(raw: &raw::Views) -> bool {
    raw.preset.as_ref().is_some_and(|name| Preset::of(name.value).member)
}

/// Returns where the file has a field of the key: at the field itself, or at the preset that contains it.
pub(super) fn place_of(raw: &raw::Views, is_meant: impl Fn(&KeyField) -> bool) -> Option<&FilePosition> {
    let entries = raw.key.iter().flat_map(|entries| &entries.0);
    let mut named = entries.filter(|entry| matches!(&entry.value, KeyEntry::Field(field) if is_meant(field)));
    let of_preset = raw.preset.as_ref().filter(|name| Preset::of(name.value).key.iter().any(&is_meant));
    named.next().map(|entry| &entry.place).or(of_preset.map(|name| &name.place))
}

/// Checks that clients that share a view although their ids may differ are of one tenant, or show the server the same credential.
///
/// A server that is shown a real client makes all resources for that client. Rules about secrets hold back only some of what is meant for it alone.
pub(super) fn check_identity(
    raw: &raw::Views,
    plan: Option<&Plan>,
    rule: &KeyRule,
    permissions: &Permissions,
    checker: &mut Checker,
) {
    let is_shown_one = shows_members(raw) && shows_nodes(plan);
    let Some(place) = place_of_sharing(raw, is_shown_one).filter(|_| !checker.has_fault_within("views.key")) else {
        return;
    };
    if is_shown_one && !tells_clients_apart(rule) {
        checker.fault(place, MADE_FOR_ONE);
    } else if may_mix_secrets(rule, permissions) {
        checker.fault(place, MIXED);
    }
}

/// Whether clients with the same key may be different clients to the control plane, and may have secrets that it gives to one of them.
pub(crate) fn may_mix_secrets(rule: &KeyRule, permissions: &Permissions) -> bool {
    let rules = permissions.rules();
    let has_secrets = rules.is_empty() || rules.iter().any(|rule| !rule.secrets.is_empty());
    has_secrets && !tells_clients_apart(rule)
}

fn tells_clients_apart(rule: &KeyRule) -> bool {
    rule.fields().iter().any(|field| matches!(field, KeyField::Id | KeyField::Tenant | KeyField::Header(_)))
}

/// Returns where the file states that clients with different ids share what a server makes for one of them. A list of plain fields has the same
/// effect and is not returned: it is right wherever the server makes nothing for a single client, which many existing files rely on.
fn place_of_sharing(raw: &raw::Views, is_shown_one: bool) -> Option<&FilePosition> {
    let entries = raw.key.iter().flat_map(|entries| &entries.0);
    let mut in_parts = entries.filter(|entry| matches!(entry.value, KeyEntry::Parts(_)));
    let preset = raw.preset.as_ref().filter(|name| Preset::of(name.value).member);
    let member = raw.node.given().filter(|_| is_shown_one && raw.node.value == ViewNode::Member);
    in_parts.next().map(|entry| &entry.place).or(preset.map(|name| &name.place)).or(member)
}

const MIXED: &str = "clients who share a view would have each other's secrets: expected tenant or header.<name> in views.key, or permissions \
                     of which no rule gives secrets; these do not hold back private keys in other resources, such as listeners";
const MADE_FOR_ONE: &str = "clients who share a view would be given what the control plane makes for one of them, private keys in listeners \
                            too: expected id, tenant or header.<name> in views.key";

fn fields_of(entries: &[Located<KeyEntry>], checker: &mut Checker) -> Vec<KeyField> {
    let mut found: Vec<(&FilePosition, KeyField)> = Vec::new();
    for entry in entries {
        let field = match &entry.value {
            KeyEntry::Field(field) => Some(field.clone()),
            KeyEntry::Parts(parts) => match (&parts.metadata, &parts.id) {
                (Some(metadata), None) => metadata_except(metadata, checker),
                (None, Some(id)) => id_part(id),
                _ => {
                    checker.lacks(&entry.place, "expected exactly one of metadata, id");
                    None
                }
            },
        };
        found.extend(field.map(|field| (&entry.place, field)));
    }
    for (at, (place, field)) in found.iter().enumerate() {
        if let Some(reason) = contradiction(field, &found[..at], &found) {
            checker.fault(place, reason);
        }
    }
    found.into_iter().map(|(_, field)| field).collect()
}

fn id_part(entry: &IdPartEntry) -> Option<KeyField> {
    let (part, of) = (entry.part.0.as_ref()?, entry.of.0.as_ref()?);
    IdPart::new(part.value.0.try_into().ok()?, &of.value.0).map(KeyField::IdPart)
}

fn metadata_except(entry: &ExceptEntry, checker: &mut Checker) -> Option<KeyField> {
    let paths = &entry.except.0.as_ref()?.value.0;
    for (at, path) in paths.iter().enumerate() {
        let covers = |(other, whole): (usize, &Located<MetadataPath>)| {
            let is_other = if whole.value == path.value { other < at } else { other != at };
            (is_other && path.value.0.starts_with(&whole.value.0)).then(|| KeyField::path_text(&whole.value.0))
        };
        if let Some(whole) = paths.iter().enumerate().find_map(covers) {
            checker.fault(&path.place, format!("has no effect: {whole:?} is left out"));
        }
        if let [first, rest @ ..] = path.value.0.as_slice()
            && first == "metadata"
            && !rest.is_empty()
        {
            let (whole, meant, rest) = (in_metadata(&path.value.0), in_metadata(rest), KeyField::path_text(rest));
            let reason = format!("leaves out {whole}: expected {rest:?} if {meant} is meant");
            checker.warn(&path.place, reason);
        }
    }
    Some(KeyField::metadata_except(paths.iter().map(|path| path.value.0.clone()).collect()))
}

fn in_metadata(path: &[String]) -> String {
    KeyField::MetadataPath(path.to_vec()).to_string()
}

/// Returns why a field cannot be in a key together with the others.
fn contradiction(
    field: &KeyField,
    before: &[(&FilePosition, KeyField)],
    all: &[(&FilePosition, KeyField)],
) -> Option<String> {
    let has = |field: &KeyField| all.iter().any(|(_, other)| other == field);
    match field {
        KeyField::IdPart(_) if has(&KeyField::Id) => {
            Some("cannot be combined with id, which has all of its parts".into())
        }
        KeyField::IdPart(part) => before.iter().find_map(|(place, other)| match other {
            KeyField::IdPart(other) if other == part => Some(format!("duplicate part of id: it is {} too", place.path)),
            KeyField::IdPart(other) if other.separator() != part.separator() => {
                let (of, expected) = (part.separator(), other.separator());
                Some(format!(
                    "parts of id have one separator: expected of: {expected:?} as in {}, not {of:?}",
                    place.path
                ))
            }
            _ => None,
        }),
        KeyField::MetadataExcept(_) if has(&KeyField::Metadata) => {
            Some("cannot be combined with metadata, which leaves nothing out".into())
        }
        KeyField::MetadataExcept(paths) => {
            let other = before.iter().find(|(_, other)| matches!(other, KeyField::MetadataExcept(_)));
            let listed = all.iter().find_map(|(_, other)| match other {
                KeyField::MetadataPath(listed) => {
                    paths.iter().find(|path| path.starts_with(listed)).map(|path| (path, other))
                }
                _ => None,
            });
            match (other, listed) {
                (Some((place, _)), _) => {
                    Some(format!("cannot be combined with {}: expected one list of what is left out", place.path))
                }
                (None, Some((path, other))) => {
                    Some(format!("leaving out {:?} has no effect: {other} is in the key", KeyField::path_text(path)))
                }
                (None, None) => None,
            }
        }
        _ => None,
    }
}
