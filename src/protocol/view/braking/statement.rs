//! What the updates of one response take from a set, and add to it.

use std::collections::BTreeSet;

use super::class_of;
use crate::protocol::view::View;
use crate::protocol::view::brake::SetKey;
use crate::protocol::view::interest::Selector;
use crate::protocol::view::resource_table::{Entry, ResourceTable};
use crate::protocol::view::update::{Evidence, Retain, Update};
use crate::xds::Name;

/// The difference of one response to a set, if it may matter to a brake.
#[derive(Debug, Default)]
pub(crate) struct Statement {
    /// Present resources that it removes, those included that are held.
    pub(crate) removed: BTreeSet<Name>,
    /// How many names it adds.
    added: usize,
}

impl Statement {
    pub(crate) fn shrinks(&self, before: usize) -> bool {
        self.size_after(before) < before
    }

    /// Returns the size of the set after it. Counts as if nothing were held yet.
    pub(crate) fn size_after(&self, before: usize) -> usize {
        (before + self.added).saturating_sub(self.removed.len())
    }
}

impl View {
    /// Reads the difference, unless it can have none that matters: a large set that grows is not gone through.
    pub(crate) fn read_statement(&self, set: &SetKey, updates: &[Update], before: usize) -> Statement {
        let engaged = self.brakes.hold(set).is_some();
        let may_matter = |update: &Update| match update {
            Update::Absent { evidence, .. } => *evidence == Evidence::Reported,
            Update::FullSet { resources, .. } => engaged || resources.len() < before,
            Update::Unchanged { .. } => engaged,
            _ => false,
        };
        let mut statement = Statement::default();
        if updates.iter().any(may_matter) {
            updates.iter().for_each(|update| self.add_to_statement(&mut statement, set, update));
        }
        statement
    }

    fn add_to_statement(&self, statement: &mut Statement, set: &SetKey, update: &Update) {
        let (kind, class) = (&set.0, class_of(&set.1));
        match update {
            Update::Absent { key, evidence: Evidence::Reported, .. } => match &set.1 {
                Selector::Name(glob) if glob == key => statement.removed.extend(self.removable_members(set, glob)),
                _ if self.is_removable(set, key) => drop(statement.removed.insert(key.clone())),
                _ => {}
            },
            Update::Upsert { key, .. } => statement.added += usize::from(!self.is_intended(kind, class, key)),
            Update::FullSet { resources, retain, .. } => {
                let is_new = |name: &Name| !self.is_intended(kind, class, name);
                statement.added += resources.iter().filter(|resource| is_new(&resource.name)).count();
                statement.removed.extend(self.vanished(set, resources.iter().map(|of| &of.name), retain));
            }
            Update::Unchanged { .. } => {
                let own = self.brakes.hold(set).into_iter().flat_map(|hold| hold.items());
                let own = own.filter(|(_, held)| held.is_removal() && held.source.server == self.origin.server);
                statement.removed.extend(own.map(|(name, _)| name.clone()));
            }
            _ => {}
        }
    }

    fn removable_members(&self, set: &SetKey, glob: &Name) -> Vec<Name> {
        let collection = self.tables.get(&(set.0.clone(), class_of(&set.1))).and_then(|table| table.collection(glob));
        let members = collection.into_iter().flat_map(|of| of.members());
        members.filter(|name| self.is_removable(set, name)).cloned().collect()
    }

    /// Returns the members that a complete set removes by lacking them.
    fn vanished<'a>(&self, set: &SetKey, sent: impl Iterator<Item = &'a Name>, retain: &'a Retain) -> Vec<Name> {
        let Retain::These(retained) = retain else { return Vec::new() };
        let sent: BTreeSet<&Name> = sent.chain(retained).collect();
        let table = self.tables.get(&(set.0.clone(), class_of(&set.1)));
        let here = table.into_iter().flat_map(ResourceTable::present_names);
        here.filter(|name| !sent.contains(name) && self.is_removable(set, name)).cloned().collect()
    }

    /// Whether the present server can remove it: it is there, and not kept for a server above this one.
    fn is_removable(&self, (kind, of): &SetKey, name: &Name) -> bool {
        let (class, source) = (class_of(of), self.origin);
        let higher = |entry: &Entry| source.holds_missing && entry.origin.rank < source.rank;
        self.is_intended(kind, class, name) && !self.entry(kind, class, name).is_some_and(higher)
    }
}
