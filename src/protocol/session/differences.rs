//! What a client was sent, against what there is for it: names that it lacks, has in an earlier version, or should no longer have.

use std::collections::BTreeSet;

use super::explain::Sent;
use super::subscription::Subscription;
use super::{ReplyContext, Session};
use crate::protocol::moment::Moment;
use crate::protocol::view::{Class, Lookup, Snapshot};
use crate::xds::{Name, Type};

/// The differences of one type: the first names of each kind, and how many there are.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// They exist, and the client was not sent them.
    pub(crate) missing: Names,
    /// The client was sent an earlier version.
    pub(crate) outdated: Names,
    /// They do not exist, and the client was not sent the removal.
    pub(crate) surplus: Names,
    /// The client subscribes to them, and nothing is known of them.
    pub(crate) unknown: Names,
}

/// The first names in order, and the count of all.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) first: Vec<Name>,
    pub(crate) count: usize,
}

impl Names {
    fn add(&mut self, name: &Name, limit: usize) {
        self.count += 1;
        if self.first.len() < limit {
            self.first.push(name.clone());
        }
    }
}

impl Session {
    /// Compares what the client was sent with the newest snapshot of its view, by type. Of each list it keeps so many names.
    pub(crate) fn differences<'a>(
        &'a self,
        newest: &'a Snapshot,
        limit: usize,
        now: Moment,
    ) -> impl Iterator<Item = (&'a Type, Differences)> {
        let view = ReplyContext { state: newest, client: &self.client, limits: &self.limits, now };
        self.subscriptions().map(move |(kind, of)| (kind, of.differences(kind, &view, limit)))
    }
}

impl Subscription {
    fn differences(&self, kind: &Type, view: &ReplyContext, limit: usize) -> Differences {
        let mut differences = Differences::default();
        for name in self.unsent_names(kind, view) {
            let (sent, known) = (self.sent_of(kind, name, view), self.known(kind, name, view));
            let list = match (known, sent) {
                (Lookup::Present(resource), _) if !view.client.can_have(kind, resource) => continue,
                (Lookup::Present(_), Sent::Nothing | Sent::HeldBefore) => &mut differences.missing,
                (Lookup::Present(_), Sent::Earlier) => &mut differences.outdated,
                (Lookup::Absent(_), Sent::Earlier | Sent::HeldBefore) => &mut differences.surplus,
                (Lookup::Unknown, _) => &mut differences.unknown,
                (Lookup::Present(_), Sent::Current) | (Lookup::Absent(_), Sent::Current | Sent::Nothing) => continue,
            };
            list.add(name, limit);
        }
        differences
    }

    /// Returns every name of which something may be due.
    fn unsent_names<'a>(&'a self, kind: &Type, view: &ReplyContext<'a>) -> BTreeSet<&'a Name> {
        let mut names: BTreeSet<&Name> = self.pending.keys().chain(self.awaiting_data.keys()).collect();
        let table = view.state.resources(kind, Class::Wildcard);
        if let Some((wildcard, table)) = self.wildcard.as_ref().zip(table) {
            let allowed = |name: &&Name| wildcard.covers(name) && view.client.clearance.allows(kind, name);
            let changed = table.changed_since(wildcard.added).map(|(name, _)| name);
            names.extend(changed.chain(wildcard.withheld.names()).filter(allowed));
            let removed = wildcard.progress.iter().flat_map(|progress| {
                table.removals(progress.removals()).filter(|(_, entry)| progress.client_may_hold(entry))
            });
            names.extend(removed.map(|(name, _)| name).filter(allowed));
        }
        names
    }
}
