//! What a client is sent of resources that were loaded from disk, while no server has confirmed them.
//!
//! A client that comes without state is sent them like any others. One that states what it holds may hold something newer, from a relay that
//! has heard more: it is sent them only if it states a version that this relay has given out. Otherwise each of them waits for a server, and
//! nothing else waits for that.

use super::ReplyContext;
use super::subscription::{SentState, Subscription};
use crate::protocol::faults::Fault;
use crate::protocol::view::{Class, Lookup, ResourceTable};
use crate::xds::{Name, SetVersion, Type};

impl Subscription {
    /// Whether `*` has resources that this client may hold in a newer version.
    pub(super) fn may_hold_newer(&self, kind: &Type, view: &ReplyContext) -> bool {
        let Some(wildcard) = self.wildcard.as_ref().filter(|_| self.stated) else { return false };
        let table = view.state.resources(kind, Class::Wildcard).filter(|table| table.loaded_from_disk() > 0);
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
