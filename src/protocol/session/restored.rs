//! What a client is sent of resources that were loaded from disk, while no server has confirmed them.
//!
//! A client that comes without state is sent them like any others. One that states what it holds may hold something newer, from a relay that
//! has heard more: it is sent them only if it states a version that this relay has given out. Otherwise each of them waits for a server, and
//! nothing else waits for that.

use super::ReplyContext;
use super::client::{Client, Variant};
use super::subscription::{SentState, Subscription};
use super::wildcard::Wildcard;
use crate::protocol::faults::Fault;
use crate::protocol::view::{Class, Entry, Lookup, ResourceTable};
use crate::xds::{Name, Resource, SetVersion, Type};

impl Subscription {
    /// Whether `*` has resources that this client may hold in a newer version, and that a server may still confirm.
    pub(super) fn may_hold_newer(&self, kind: &Type, view: &ReplyContext) -> bool {
        self.may_hold_newer_than(kind, view, ResourceTable::awaits_confirmation)
    }

    /// Whether what was loaded from disk of `*` is kept back from this client.
    pub(super) fn withholds(&self, kind: &Type, view: &ReplyContext) -> bool {
        self.may_hold_newer_than(kind, view, |table| table.loaded_from_disk() > 0)
    }

    fn may_hold_newer_than(&self, kind: &Type, view: &ReplyContext, concerns: fn(&ResourceTable) -> bool) -> bool {
        let Some(wildcard) = self.wildcard.as_ref().filter(|_| self.stated) else { return false };
        let table = view.state.resources(kind, Class::Wildcard).filter(|table| concerns(table));
        table.is_some_and(|table| {
            let is_known = match &wildcard.initial_versions {
                Some(stated) => stated.sum().is_some_and(|sum| table.knows_sum(sum)),
                None => self.has_past_version(table, view),
            };
            !is_known && !view.limits.faults.has(Fault::DiskOverridesClients)
        })
    }

    /// Returns what the version of this client's set has less than that of the whole one: what it was not sent.
    pub(super) fn kept_from(&self, table: &ResourceTable, view: &ReplyContext) -> SetVersion {
        let names = self.wildcard.iter().flat_map(|wildcard| wildcard.withheld.names());
        let resources = names.filter_map(|name| table.get(name)?.resource());
        resources.fold(SetVersion::EMPTY, |sum, of| sum.plus(Self::share(view, &of.name, of)))
    }

    /// Whether a resource of `*` is to be kept back from this client.
    pub(super) fn is_to_withhold(&self, kind: &Type, resource: &Resource, view: &ReplyContext) -> bool {
        let Some((wildcard, table)) = self.wildcard.as_ref().zip(view.state.resources(kind, Class::Wildcard)) else {
            return false;
        };
        let holds_it = || wildcard.initial_versions.as_ref().is_some_and(|stated| stated.has_or_was_sent(resource));
        let is_at_stake =
            table.get(&resource.name).is_some_and(|entry| wildcard.keeps_back(&resource.name, entry, view.client));
        is_at_stake && self.withholds(kind, view) && !holds_it()
    }

    /// Whether an entry of `*` is kept back from this client.
    pub(super) fn is_withheld(&self, name: &Name) -> bool {
        self.wildcard.as_ref().is_some_and(|wildcard| wildcard.withheld.has(name))
    }

    /// Returns what is known of a name, of one class. What was loaded from disk is nothing for a client that stated the name.
    pub(super) fn looked_up<'a>(
        kind: &Type,
        class: Class,
        name: &Name,
        sent: Option<&SentState>,
        view: &ReplyContext<'a>,
    ) -> Lookup<'a> {
        let found = view.state.lookup(kind, class, name);
        let states_it = sent.is_some_and(|sent| sent.held_before);
        if !states_it || view.limits.faults.has(Fault::DiskOverridesClients) {
            return found;
        }
        let entry = view.state.resources(kind, class).and_then(|table| table.get(name));
        let is_from_disk = entry.is_some_and(|entry| entry.resource().is_some() && entry.origin.from_disk);
        if is_from_disk { Lookup::Unknown } else { found }
    }
}

impl Wildcard {
    /// Whether a client that may hold something newer is not sent an entry.
    pub(super) fn keeps_back(&self, name: &Name, entry: &Entry, client: &Client) -> bool {
        let may_hold = || self.withheld.may_hold(name).unwrap_or_else(|| self.may_state(name, client));
        entry.origin.is_kept_back(may_hold)
    }

    /// Whether the client has stated that it holds something under a name. SotW states no names. A relay is sent what stays for now, whatever it
    /// states: to its clients, the end of the set without it would be its removal.
    pub(super) fn may_state(&self, name: &Name, client: &Client) -> bool {
        let states_it =
            || self.initial_versions.as_ref().map_or(client.variant == Variant::Sotw, |stated| stated.has(name));
        !client.relay && states_it()
    }
}
