//! SotW responses: a full set, or resources under the requested names.

use std::collections::BTreeMap;

use super::{
    ResponseContext, completeness_update, error_updates, record_progress, record_readable, record_rejected,
    refresh_updates, reported_names, unreadable_names, unreadable_updates, upserts, without_room_updates,
};
use crate::proto::discovery::DiscoveryResponse;
use crate::protocol::upstream::name_states::NameState;
use crate::protocol::upstream::parsed_response::ParsedResponse;
use crate::protocol::upstream::parts::{SubscriptionParts, absence, holds_by_name};
use crate::protocol::upstream::set_progress::NewContent;
use crate::protocol::view::{Class, Retain, Selector, Update};
use crate::protocol::visits::visit;
use crate::xds::Name;

pub(in crate::protocol::upstream) fn read_sotw(
    parts: &mut SubscriptionParts,
    response: DiscoveryResponse,
    mut read: ParsedResponse,
    context: &ResponseContext,
) -> Vec<Update> {
    let (kind, options, class) = (context.kind, context.options, parts.wanted.class());
    let version = response.version_info;
    take_heartbeats(parts, &mut read, &version, context);
    let errors = read.take_errors(kind, response.resource_errors);
    let nack = read.nack_message();
    if nack.is_none() {
        parts.given.accept(&version);
    }
    parts.wire.pace_nack(&version, nack.is_some(), context.now);
    parts.wire.queue_ack(response.nonce, parts.given.accepted(), nack, options);
    if !parts.is_read() {
        return Vec::new();
    }
    let full = kind.info().full_state;
    let reported = reported_names(class, &errors, context.quirks);
    let same_names = is_same_set(parts, &read) && errors.is_empty();
    if same_names {
        parts.progress.on_response(false, false, NewContent::default(), context.now);
    } else {
        record_progress(parts, &read, false, context);
    }
    let mut updates = error_updates(parts, errors, context);
    // A response of heartbeats alone extends those resources, and is no evidence about others.
    let heartbeats_alone = read.good.is_empty() && !read.alive.is_empty();
    if class == Class::Wildcard && full && !heartbeats_alone {
        parts.rejected.keep_only(|name| read.rejected.contains_key(name)); // names outside of this set do not exist
    }
    for name in read.rejected.keys() {
        record_rejected(parts, name, &reported, &version, &read, options);
    }
    parts.rejected.clear_unnamed(); // without full sets, a missing name is no evidence
    record_readable(parts, &read, &version, options);
    // If an entry has no readable name, it is not known which names are missing (UP-25).
    let gap = read.unnamed.is_some() || has_nameless_beside_names(parts, &read, &reported);
    let unread = parts.rejected.take_unreadable(|name| parts.given.has(name));
    let unreadable = unreadable_names(&read, &reported);
    let without_room = std::mem::take(&mut read.without_room);
    if class == Class::Wildcard && full && read.alive.is_empty() && !gap {
        if !same_names {
            parts.given.retain(|name| read.rejected.contains_key(name));
        }
        parts.given.confirm_all();
        parts.second_request.conclude_all();
    }
    if !same_names {
        let wanted = read.good.values().filter(|resource| parts.wanted.wants_by_key(resource));
        parts.given.extend(wanted.map(|resource| resource.name.clone()));
    }
    updates.extend(refresh_updates(&read, kind, class));
    match class {
        _ if heartbeats_alone => {}
        Class::Wildcard if full && !gap => {
            let retain = match context.quirks.ignore_deletions {
                true => Retain::Everything,
                false => Retain::These(read.alive.into_keys().chain(read.rejected.into_keys()).collect()),
            };
            updates.push(Update::FullSet { kind: kind.clone(), resources: read.good.into_values().collect(), retain });
        }
        Class::Wildcard => {
            updates.extend(upserts(parts, kind, read.good));
            updates.push(completeness_update(parts, Selector::Wildcard, false, context));
        }
        Class::Named => {
            let absent = if full && !gap { absent_from(parts, &read, context) } else { Vec::new() };
            updates.extend(upserts(parts, kind, read.good));
            updates.extend(absent.into_iter().map(|key| absence(parts, kind, key, context.quirks)));
        }
    }
    updates.extend(unreadable_updates(parts, kind, &unreadable, unread));
    updates.extend(without_room_updates(parts, kind, without_room));
    updates
}

/// Whether a resource or an error came without a name, and it is not known which resource it is about: the server has other resources of the
/// type, with names; or the resource without a name was rejected, as it is if several came and differ.
fn has_nameless_beside_names(
    parts: &SubscriptionParts,
    read: &ParsedResponse,
    reported: &BTreeMap<Name, bool>,
) -> bool {
    let none = Name::from("");
    let (is_good, is_reported) = (read.good.get(&none).is_some(), reported.contains_key(&none));
    let is_rejected = read.rejected.contains_key(&none) && !is_reported;
    let has_others = read.good.len() > usize::from(is_good) || parts.given.has_other_than(&none);
    is_rejected || (is_good || is_reported) && has_others
}

/// Takes heartbeats. A heartbeat has the version that was accepted last, in the wrapper or in the response.
fn take_heartbeats(parts: &SubscriptionParts, read: &mut ParsedResponse, version: &str, context: &ResponseContext) {
    let accepted = parts.given.accepted();
    let beats = |entry: &str| version == accepted || entry == accepted;
    let holds = |name: &Name| parts.given.has(name) || holds_by_name(parts.wanted, parts.names, name);
    for entry in std::mem::take(&mut read.bodyless) {
        match &entry.name {
            Some(name) if beats(&entry.version) && holds(name) && !context.kind.info().by_alias => {
                read.alive.insert(name.clone(), entry.ttl);
            }
            _ => read.reject_bodyless(entry),
        }
    }
}

/// Whether a response has exactly the names that the server gave before, and nothing is open about any of them. Most sets that are sent again
/// are like that. What is known of the names does not change then.
fn is_same_set(parts: &SubscriptionParts, read: &ParsedResponse) -> bool {
    let nothing_open = !parts.progress.is_to_begin()
        && parts.progress.to_be_repeated().is_empty()
        && parts.second_request.is_empty()
        && !parts.second_request.is_to_ask()
        && parts.rejected.is_empty();
    let all_good = read.alive.is_empty() && read.rejected.is_empty() && read.unnamed.is_none();
    parts.wanted.class() == Class::Wildcard && nothing_open && all_good && parts.given.is_same_set(read)
}

/// Returns the names that a full-state response shows to be absent. The response must be able to answer their request (UP-24): the name was in
/// the first request on this opening, was given since, or was requested long enough ago. Names that were unsubscribed and subscribed again a
/// moment ago are requested again: an older response may lack them although they exist.
fn absent_from(parts: &mut SubscriptionParts, read: &ParsedResponse, context: &ResponseContext) -> Vec<Name> {
    let present = |name: &Name| read.good.get(name).is_some() || read.alive.contains_key(name);
    let absent = |name: &Name| !present(name) && !read.rejected.contains_key(name);
    let known = |name: &Name| match parts.names.get(name) {
        None | Some(NameState::Silent | NameState::Waiting { first: true, .. }) => true,
        Some(NameState::Waiting { first: false, .. }) => false,
        Some(NameState::Absent) => false, // was reported already
    };
    let all = parts.wanted.names().iter().inspect(|_| visit());
    let missing = all.filter(|name| known(name) && absent(name) && !parts.wanted.globs().has(name));
    let is_recent = |name: &Name| parts.names.is_recently_left(name, context.now);
    let (recent, absent): (Vec<_>, Vec<_>) = missing.cloned().partition(is_recent);
    if !recent.is_empty() {
        parts.second_request.recheck();
    }
    parts.given.unconfirm(recent.into_iter());
    absent
}
