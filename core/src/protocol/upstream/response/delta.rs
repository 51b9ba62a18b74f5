//! Delta responses: changes and removals, under names and aliases.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ResponseContext, completeness_update, error_updates, record_progress, record_readable, record_rejected,
    refresh_updates, reported_names, unreadable_names, unreadable_updates, upserts, without_room_updates,
};
use crate::proto::discovery::DeltaDiscoveryResponse;
use crate::protocol::set_mark::SetMark;
use crate::protocol::upstream::parsed_response::ParsedResponse;
use crate::protocol::upstream::parts::{SubscriptionParts, absence};
use crate::protocol::upstream::quirks::InitialSet;
use crate::protocol::view::{Class, Selector, Update};
use crate::xds::Name;

pub(in crate::protocol::upstream) fn read_delta(
    parts: &mut SubscriptionParts,
    response: DeltaDiscoveryResponse,
    mut read: ParsedResponse,
    context: &ResponseContext,
) -> Vec<Update> {
    let (kind, options, class) = (context.kind, context.options, parts.wanted.class());
    let is_nothing = read.count == 0
        && response.removed_resources.is_empty()
        && response.removed_resource_names.is_empty()
        && response.resource_errors.is_empty();
    let mut versions = std::mem::take(&mut read.versions);
    let unresolved = take_bodyless(parts, &mut read, &mut versions, context);
    let mark = SetMark::of(&response.system_version_info).filter(|_| class == Class::Wildcard);
    let constrained = response.removed_resource_names.into_iter().map(|name| name.name);
    let removed = response.removed_resources.into_iter().chain(constrained);
    let removed = take_removed(parts, &mut read, removed, context);
    let mut errors = read.take_errors(kind, response.resource_errors);
    errors.retain(|(name, _)| !name.asks_for_end());
    if read.drop_end_questions() {
        parts.end_question.on_nonsense();
    }
    parts.wire.queue_ack(response.nonce, parts.given.accepted(), read.nack_message(), options);
    if !parts.is_read() {
        return Vec::new();
    }
    let reported = reported_names(class, &errors, context.quirks);
    let first = parts.progress.is_to_begin();
    let repeats =
        parts.wire.has_stated() && parts.given.is_repeated_by(&versions, |name| parts.progress.is_stated(name), first);
    if repeats && (first || !context.is_relay) {
        parts.progress.record_repetition();
        parts.second_request.recheck(); // the repetition may have begun after the first silence
    }
    if repeats {
        parts.end_question.on_repeated();
    }
    record_progress(parts, &read, repeats, context);
    let mut updates = error_updates(parts, errors, context);
    updates.extend(refresh_updates(&read, kind, class));
    for name in read.rejected.keys() {
        record_rejected(parts, name, &reported, versions.get(name).map_or("", |version| version), &read, options);
    }
    record_readable(parts, &read, "", options);
    let misnamed = read.good.values().filter(|resource| resource.name_mismatch).count();
    parts.given.count_misnamed(misnamed as u64);
    for name in &removed {
        parts.rejected.remove(name);
    }
    for (name, version) in versions {
        if let Some(resource) = read.good.get(&name).filter(|resource| parts.wanted.wants_resource(resource)) {
            parts.given.insert(name, version, resource.ttl.is_some());
        }
    }
    let sets = begin_sets(parts, &read);
    let unread = parts.rejected.take_unreadable(|name| parts.given.has(name));
    let unreadable = unreadable_names(&read, &reported);
    // The first response to `*` is complete if the server sends sets in one response, or if it is empty.
    let opens_again = parts.progress.take_mark(mark);
    let at_once = first && (context.quirks.initial_set == InitialSet::OneResponse || is_nothing);
    let at_end = parts.progress.is_marked_complete() || at_once && !parts.progress.is_marked_partial();
    let ends = at_end && read.unnamed.is_none();
    if ends && class == Class::Wildcard {
        parts.progress.complete();
    }
    updates.extend(upserts(parts, kind, read.good));
    let removed = removed_keys(parts, removed, unresolved).into_iter();
    updates.extend(removed.map(|key| absence(parts, kind, key, context.quirks)));
    updates.extend(opens_again.then(|| Update::Interrupted { kind: kind.clone(), of: Selector::Wildcard }));
    updates.extend(sets.into_iter().map(|of| completeness_update(parts, of, ends, context))); // complete with its removals
    updates.extend(unreadable_updates(parts, kind, &unreadable, unread));
    updates.extend(without_room_updates(parts, kind, read.without_room));
    updates
}

/// Sorts entries without a body. Returns the requested aliases that resolve to nothing (DELTA-39).
fn take_bodyless(
    parts: &SubscriptionParts,
    read: &mut ParsedResponse,
    versions: &mut BTreeMap<Name, String>,
    context: &ResponseContext,
) -> Vec<Name> {
    let mut unresolved = Vec::new();
    for mut entry in std::mem::take(&mut read.bodyless) {
        if let Some(name) = parts.given.heartbeat_of(&entry, context.kind) {
            read.alive.insert(name, entry.ttl);
        } else if !entry.aliases.is_empty() {
            unresolved.append(&mut entry.aliases);
        } else {
            versions.extend(entry.name.clone().map(|name| (name, entry.version.clone())));
            read.reject_bodyless(entry);
        }
    }
    unresolved
}

/// Returns the names that the response removes. The removal of a name that asks for the end of the set is an answer to that question.
fn take_removed(
    parts: &mut SubscriptionParts,
    read: &mut ParsedResponse,
    names: impl Iterator<Item = String>,
    context: &ResponseContext,
) -> BTreeSet<Name> {
    let mut removed = BTreeSet::new();
    for name in names.map(|name| Name::canonical(&name)) {
        if name.as_str().is_empty() && context.kind.unnamed().is_none() {
            continue; // no resource of the type is without a name
        }
        if name.asks_for_end() {
            parts.end_question.on_removed(&name, context.now);
        } else if !read.reject_if_sent(&name) {
            removed.insert(name);
        }
    }
    removed
}

/// Returns the sets of which the response has something.
fn begin_sets(parts: &mut SubscriptionParts, read: &ParsedResponse) -> BTreeSet<Selector> {
    if parts.wanted.class() == Class::Wildcard {
        return BTreeSet::from([Selector::Wildcard]);
    }
    let names = read.good.names().chain(read.rejected.keys());
    let globs: BTreeSet<Name> = names.filter_map(|name| parts.wanted.globs().of(name)).cloned().collect();
    for glob in &globs {
        parts.wanted.begin(glob);
    }
    globs.into_iter().map(Selector::Name).collect()
}

/// Returns the requested names that a removal concerns: the removed names, and their aliases.
fn removed_keys(parts: &mut SubscriptionParts, removed: BTreeSet<Name>, unresolved: Vec<Name>) -> BTreeSet<Name> {
    if parts.wanted.class() == Class::Wildcard {
        return removed;
    }
    let mut keys = parts.given.forget_removed(removed);
    keys.extend(unresolved);
    keys.retain(|key| parts.wanted.names().contains(key) || parts.wanted.globs().of(key).is_some());
    keys
}
