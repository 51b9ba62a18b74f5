//! SotW responses: a full set, or the requested names.

use std::collections::BTreeSet;

use super::ResponseContext;
use crate::proto::discovery::DiscoveryResponse;
use crate::protocol::faults::Fault;
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::protocol::upstream::parsed_response::ParsedResponse;
use crate::protocol::upstream::requested_names::NameState;
use crate::protocol::upstream::set_progress::NewContent;
use crate::protocol::upstream::type_subscription::TypeSubscription;
use crate::protocol::view::{Class, Retain, Selector, Update};
use crate::protocol::visits::visit;
use crate::xds::Name;

impl TypeSubscription {
    pub(crate) fn read_sotw(
        &mut self,
        response: DiscoveryResponse,
        mut read: ParsedResponse,
        reader: &mut ResponseContext,
    ) -> Vec<Update> {
        let (kind, limits) = (reader.kind, reader.limits);
        // A heartbeat has the version that was accepted last, in the wrapper or in the response.
        let same = response.version_info == self.accepted;
        let beats = |version: &String| same || *version == self.accepted;
        for entry in std::mem::take(&mut read.bodyless) {
            match &entry.name {
                Some(name) if beats(&entry.version) && self.holds(name) && !kind.info().by_alias => {
                    read.alive.insert(name.clone(), entry.ttl);
                }
                _ => read.reject_bodyless(entry),
            }
        }
        if limits.faults.has(Fault::VersionsFromUpstream) {
            read.overwrite_versions(&response.version_info);
        }
        let reported = read.take_errors(response.resource_errors, limits);
        let nack = read.nack_message(limits);
        let version = response.version_info;
        if nack.is_none() {
            self.accepted.clone_from(&version);
        }
        self.wire.queue_ack(response.nonce, self.accepted.clone(), nack, limits);
        if !self.is_wanted() {
            return Vec::new();
        }
        let full = kind.info().full_state;
        let said = self.reported_names(&reported, reader.quirks);
        let same_names = self.is_same_set(&read) && reported.is_empty();
        if same_names {
            self.progress.on_response(false, false, NewContent::default(), reader.now);
        } else {
            self.record_progress(&read, false, reader);
        }
        let mut updates = self.error_updates(reported, reader);
        // A response of heartbeats alone extends those resources and is no evidence about others.
        let heartbeats_alone = read.good.is_empty() && !read.alive.is_empty();
        if self.class == Class::Wildcard && full && !heartbeats_alone {
            self.rejected.keep_only(|name| read.rejected.contains_key(name)); // names outside of this set do not exist
        }
        self.record_rejected(&read, &said, &version, limits);
        // With an entry that has no readable name, it is not known what is missing (UP-25).
        let gap = read.unnamed.is_some();
        let unread = self.rejected.take_unreadable(|name| self.versions.contains_key(name));
        let unreadable: BTreeSet<Name> =
            read.rejected.keys().filter(|name| !said.contains_key(*name)).cloned().collect();
        if self.class == Class::Wildcard && full && read.alive.is_empty() && !gap {
            if !same_names {
                self.versions.retain(|name, _| read.rejected.contains_key(name));
            }
            self.unconfirmed.clear();
            self.second_request.conclude_all();
        }
        if !same_names {
            let (names, wildcard) = (&self.names, self.class == Class::Wildcard);
            let wanted = read.good.values().filter(|resource| {
                wildcard || [&resource.name].into_iter().chain(resource.aliases()).any(|key| names.contains(key))
            });
            self.versions.extend(wanted.map(|resource| (resource.name.clone(), String::new())));
        }
        updates.extend(self.refresh_updates(&read, kind));
        match self.class {
            _ if heartbeats_alone => {}
            Class::Wildcard if full && !gap => {
                let kept = match reader.quirks.ignore_deletions {
                    true => Retain::Everything,
                    false => Retain::These(read.alive.into_keys().chain(read.rejected.into_keys()).collect()),
                };
                updates.push(Update::FullSet {
                    kind: kind.clone(),
                    resources: read.good.into_values().collect(),
                    retain: kept,
                });
            }
            Class::Wildcard => {
                updates.extend(self.wildcard_updates(kind, read.good));
                updates.push(self.completeness_update(kind, Selector::Wildcard, false, reader.quirks));
            }
            Class::Named => {
                let absent = if full && !gap { self.absent_from(&read, limits) } else { Vec::new() };
                let absent = self.without_recent(absent, reader.now);
                updates.extend(self.named_updates(kind, read.good));
                updates.extend(absent.into_iter().map(|key| self.absence(kind, key, reader.quirks)));
            }
        }
        updates.extend(self.unreadable_updates(kind, &unreadable, unread));
        updates
    }

    /// Returns the names that a full-state response shows to be absent, if it can be a response to their request (UP-24): the
    /// name was in the first request on this opening, was given since, or was requested long enough ago.
    pub(super) fn absent_from(&self, read: &ParsedResponse, limits: &Limits) -> Vec<Name> {
        let present = |name: &Name| read.good.get(name).is_some() || read.alive.contains_key(name);
        let absent = |name: &Name| !present(name) && !read.rejected.contains_key(name);
        let any = limits.faults.has(Fault::AbsenceDeletesTheUnanswered);
        let known = |name: &Name| match self.requested.get(name) {
            None | Some(NameState::Silent | NameState::Waiting { first: true, .. }) => true,
            Some(NameState::Waiting { first: false, .. }) => any,
            Some(NameState::Absent) => false, // reported already
        };
        let all = self.names.iter().inspect(|_| visit());
        all.filter(|name| known(name) && absent(name) && !self.globs.has(name)).cloned().collect()
    }

    /// Removes names that were unsubscribed and subscribed again a moment ago: an older response may lack them although they
    /// exist. The server is made to send those again.
    pub(super) fn without_recent(&mut self, mut absent: Vec<Name>, now: Moment) -> Vec<Name> {
        let recent: Vec<_> = absent.extract_if(.., |name| self.recently_left.is_recent(name, now)).collect();
        if !recent.is_empty() {
            self.second_request.recheck();
        }
        self.unconfirmed.extend(recent.into_iter().filter(|name| self.versions.contains_key(name)));
        absent
    }
}
