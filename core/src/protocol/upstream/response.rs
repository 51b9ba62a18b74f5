//! Applies responses: checks their structure, rejects bad resources one by one, and turns the good ones into updates (UP-22, UP-23). This file
//! has what both variants have in common.

mod delta;
mod sotw;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub(super) use self::delta::read_delta;
pub(super) use self::sotw::read_sotw;
use super::name_states::NameState;
use super::parsed_response::{ParsedResponse, ResourceSet};
use super::parts::{SubscriptionParts, absence, holds_by_name};
use super::quirks::ServerQuirks;
use super::rejected::Rejection;
use super::set_progress::{Delivery, NewContent};
use crate::proto::code::NOT_FOUND;
use crate::protocol::moment::Moment;
use crate::protocol::upstream::options::UpstreamOptions;
use crate::protocol::view::{Class, NamedError, Selector, Update};
use crate::xds::{Name, Type};

/// What a subscription needs to apply one response.
pub(super) struct ResponseContext<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) quirks: &'a ServerQuirks,
    pub(crate) options: &'a UpstreamOptions,
    /// The server is a relay, which compares stated versions. It sends endpoints again when their cluster has changed.
    pub(crate) is_relay: bool,
    pub(crate) now: Moment,
}

/// Records what is new in a response. `repeats` is set if the server ignores stated versions, so that it sends everything again.
fn record_progress(parts: &mut SubscriptionParts, read: &ParsedResponse, repeats: bool, context: &ResponseContext) {
    let (given, progress) = (&mut *parts.given, &mut *parts.progress);
    let begins = progress.is_to_begin() && read.good.names().any(|name| given.is_confirmed_as(name));
    if begins || repeats {
        progress.begin_repetition(repeats, || given.confirmed_names());
    }
    // Names that were requested later do not show how far the server has come with the others.
    let late = |name: &Name| matches!(parts.names.get(name), Some(NameState::Waiting { first: false, .. }));
    let is_asked_again = |name: &Name| parts.second_request.names().contains(name);
    let is_new = |name: &Name| {
        let unsaid = !given.has(name) && !late(name) || given.is_unconfirmed(name);
        unsaid || is_asked_again(name) || progress.to_be_repeated().contains(name)
    };
    let new = read.good.values().filter(|resource| is_new(&resource.name));
    let mut content = NewContent::default();
    for resource in new {
        content.names += 1;
        content.bytes += resource.body.bytes().len();
    }
    let any = content.names > 0 || read.rejected.keys().any(is_new);
    let held = read.names().any(|name| given.is_unconfirmed(name) || is_asked_again(name));
    if progress.on_response(any, held, content, context.now) {
        parts.deliveries.note(Delivery::Piece);
    }
    record_growth(parts, read);
    for name in read.names() {
        parts.given.confirm(name);
        parts.second_request.answered(name);
        parts.names.answered(name);
        parts.progress.on_sent(name);
    }
}

/// Records for the question for the end of the set what came. A name was stated if the server gave it before, or it was requested a second time.
fn record_growth(parts: &mut SubscriptionParts, read: &ParsedResponse) {
    let had_grown = parts.end_question.has_grown();
    for name in read.names() {
        let is_stated = parts.given.has(name) || parts.second_request.names().contains(name);
        parts.end_question.on_sent(name, is_stated);
    }
    if parts.end_question.has_grown() != had_grown {
        parts.second_request.recheck();
    }
}

fn refresh_updates(read: &ParsedResponse, kind: &Type, class: Class) -> Vec<Update> {
    let refresh = |(key, ttl): (&Name, &Option<Duration>)| {
        let (kind, key) = (kind.clone(), key.clone());
        Update::Refresh { kind, class, key, ttl: *ttl }
    };
    read.alive.iter().map(refresh).collect()
}

/// Returns the updates for usable resources. A named resource counts for each name under which it was requested: its own name and its aliases
/// (DELTA-22). Resources that were not requested are tolerated and not kept (UP-27).
fn upserts(parts: &mut SubscriptionParts, kind: &Type, good: ResourceSet) -> Vec<Update> {
    let class = parts.wanted.class();
    let upsert = |key: Name, resource| Update::Upsert { kind: kind.clone(), class, key, resource };
    if class == Class::Wildcard {
        return good.into_values().map(|resource| upsert(resource.name.clone(), resource)).collect();
    }
    let mut updates = Vec::new();
    for resource in good.into_values() {
        let keys = [&resource.name].into_iter().chain(resource.aliases());
        let mut keys: BTreeSet<Name> = keys.filter(|key| parts.wanted.names().contains(*key)).cloned().collect();
        if let Some(glob) = parts.wanted.globs().of(&resource.name).cloned() {
            parts.names.given(&glob);
            if parts.wanted.begin(&glob) {
                parts.progress.unsettle(); // the set may have been settled before
            }
            keys.insert(resource.name.clone());
        }
        for key in keys {
            parts.names.given(&key);
            parts.second_request.answered(&key);
            parts.rejected.remove_error(&key);
            if key != resource.name {
                parts.given.insert_alias(key.clone(), resource.name.clone());
            }
            updates.push(upsert(key, resource.clone()));
        }
    }
    updates
}

/// Returns the update for how much of a set is known after this response.
fn completeness_update(parts: &SubscriptionParts, of: Selector, ends: bool, context: &ResponseContext) -> Update {
    let completeness = parts.deliveries.completeness(context.quirks, &of, ends);
    Update::Progress { kind: context.kind.clone(), of, completeness }
}

/// Returns the updates for names whose resource came and cannot be read. The resource exists, whatever the server reported before.
fn unreadable_updates(
    parts: &SubscriptionParts,
    kind: &Type,
    rejected: &BTreeSet<Name>,
    unread: Option<BTreeSet<Name>>,
) -> Vec<Update> {
    match parts.wanted.class() {
        Class::Wildcard => {
            let unread = unread.map(|names| Update::Unreadable { kind: kind.clone(), of: Selector::Wildcard, names });
            unread.into_iter().collect()
        }
        Class::Named => {
            let was_absent = |name: &&Name| parts.names.get(name) == Some(NameState::Absent);
            let doubtful = rejected.iter().filter(was_absent).filter(|name| !parts.wanted.globs().has(name));
            let of = doubtful.cloned().map(Selector::Name);
            of.map(|of| Update::Interrupted { kind: kind.clone(), of }).collect()
        }
    }
}

/// Returns the updates for resources without room, so that their lack does not count against the server.
fn without_room_updates(parts: &SubscriptionParts, kind: &Type, names: BTreeMap<Name, Vec<Name>>) -> Vec<Update> {
    let class = parts.wanted.class();
    let update = |key: Name| Update::WithoutRoom { kind: kind.clone(), class, key };
    if class == Class::Wildcard {
        return names.into_keys().map(update).collect();
    }
    let is_requested = |key: &Name| parts.wanted.names().contains(key);
    let mut updates = Vec::new();
    for (name, aliases) in names {
        updates.extend(aliases.into_iter().filter(is_requested).map(update));
        updates.extend(Some(name).filter(|name| parts.wanted.wants(name)).map(update));
    }
    updates
}

/// Returns the names whose resource came and cannot be read, except those for which the server reports errors.
fn unreadable_names(read: &ParsedResponse, reported: &BTreeMap<Name, bool>) -> BTreeSet<Name> {
    read.rejected.keys().filter(|name| !reported.contains_key(*name)).cloned().collect()
}

/// Records a resource that cannot be used. It exists: no timer makes it absent (UP-38), and no set is complete without it.
fn record_rejected(
    parts: &mut SubscriptionParts,
    name: &Name,
    reported: &BTreeMap<Name, bool>,
    version: &str,
    read: &ParsedResponse,
    options: &UpstreamOptions,
) {
    let is_wanted = parts.wanted.names().contains(name);
    let unreadable = !reported.contains_key(name);
    if unreadable && is_wanted && parts.names.get(name) != Some(NameState::Absent) {
        parts.names.given(name);
    }
    let in_a_set = parts.wanted.class() == Class::Wildcard || parts.wanted.globs().of(name).is_some();
    let has_none = reported.get(name) == Some(&true);
    if in_a_set && !has_none || unreadable && is_wanted {
        let reason = read.rejected.get(name).cloned().unwrap_or_default();
        parts.rejected.insert(name, Rejection { version: version.to_owned(), reason }, options.rejected_names);
    }
}

fn record_readable(parts: &mut SubscriptionParts, read: &ParsedResponse, version: &str, options: &UpstreamOptions) {
    for name in read.good.names() {
        parts.rejected.remove(name);
    }
    if let Some(reason) = read.unnamed.clone() {
        parts.rejected.insert_unnamed(Rejection { version: version.to_owned(), reason }, options.rejected_names);
    }
}

/// Applies the errors that the server reports for single names (UP-44): the resource does not exist, is not allowed, or has a transient error.
/// Only the first of these makes a cached resource absent, unless the server is configured so that the second does too.
fn error_updates(
    parts: &mut SubscriptionParts,
    reported: Vec<(Name, NamedError)>,
    context: &ResponseContext,
) -> Vec<Update> {
    let mut updates = Vec::new();
    let (kind, quirks, class) = (context.kind, context.quirks, parts.wanted.class());
    for (key, error) in reported {
        if class == Class::Wildcard {
            if means_absent(class, &error, quirks) {
                updates.push(absence(parts, kind, key, quirks));
            }
            continue;
        }
        let by_name = parts.wanted.names().contains(&key);
        // Members of collections count only if they are cached: there is no limit to the errors of others.
        let held_member = parts.wanted.is_member_alone(&key) && parts.given.has(&key);
        if !by_name && !held_member {
            continue;
        }
        let held = holds_by_name(parts.wanted, parts.names, &key) || held_member;
        let gives_up = error.code == NOT_FOUND || !held || quirks.fail_on_data_errors;
        if error.is_about_data() && gives_up {
            updates.push(absence(parts, kind, key.clone(), quirks));
        } else {
            // Any other error shows that the server is alive, and not that the resource is absent.
            match held {
                true => parts.names.given(&key),
                false => parts.names.request(key.clone()),
            }
        }
        let error = Arc::new(error);
        if by_name {
            parts.rejected.insert_error(key.clone(), error.clone());
        }
        updates.push(Update::Error { kind: kind.clone(), key, error });
    }
    updates
}

/// Returns the names for which the server reports errors, each with whether the error means absence: a set without those names can be complete.
fn reported_names(class: Class, reported: &[(Name, NamedError)], quirks: &ServerQuirks) -> BTreeMap<Name, bool> {
    reported.iter().map(|(name, error)| (name.clone(), means_absent(class, error, quirks))).collect()
}

/// Whether an error means absence. For `*` only "not found" does by default, since it is not known here what other servers have of the set, or
/// what clients hold. For a requested name "not allowed" means it too.
fn means_absent(class: Class, error: &NamedError, quirks: &ServerQuirks) -> bool {
    match class {
        Class::Wildcard => error.code == NOT_FOUND || error.is_about_data() && quirks.fail_on_data_errors,
        Class::Named => error.is_about_data(),
    }
}
