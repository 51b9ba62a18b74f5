//! What the updates of one response take from a set, and add to it.

use std::collections::BTreeSet;

use super::{Brakes, SetKey};
use crate::protocol::view::collections::Collection;
use crate::protocol::view::keys::Selector;
use crate::protocol::view::resource_table::ResourceTable;
use crate::protocol::view::stage::{Facts, Unit, class_of};
use crate::protocol::view::update::{Evidence, Origin, Retain, Update};
use crate::xds::Name;

/// The difference of one response to a set, if it may matter to a brake.
#[derive(Debug, Default)]
pub(super) struct Statement {
    /// Present resources that it removes, those included that are held.
    pub(super) removed: BTreeSet<Name>,
    /// How many names it adds.
    added: usize,
}

impl Statement {
    pub(super) fn shrinks(&self, before: usize) -> bool {
        self.size_after(before) < before
    }

    /// Returns the size of the set after it. Counts as if nothing were held yet.
    pub(super) fn size_after(&self, before: usize) -> usize {
        (before + self.added).saturating_sub(self.removed.len())
    }
}

impl Brakes {
    /// Reads the difference, unless it can have none that matters: a large set that grows is not gone through.
    pub(super) fn read_statement(&self, set: &SetKey, unit: &Unit, before: usize, facts: &Facts) -> Statement {
        let engaged = self.hold(set).is_some();
        let may_matter = |update: &Update| match update {
            Update::Absent { evidence, .. } => *evidence == Evidence::Reported,
            Update::FullSet { resources, .. } => engaged || resources.len() < before,
            Update::Unchanged { .. } => engaged,
            _ => false,
        };
        let mut statement = Statement::default();
        if unit.updates.iter().any(may_matter) {
            let updates = unit.updates.iter();
            updates.for_each(|update| self.add_to_statement(&mut statement, set, update, unit.origin, facts));
        }
        statement
    }

    fn add_to_statement(
        &self,
        statement: &mut Statement,
        set: &SetKey,
        update: &Update,
        origin: Origin,
        facts: &Facts,
    ) {
        let (kind, class) = (&set.0, class_of(&set.1));
        let is_removable = |name: &Name| is_removable(set, name, origin, facts);
        match update {
            Update::Absent { key, evidence: Evidence::Reported, .. } => match &set.1 {
                Selector::Name(glob) if glob == key => {
                    let members = facts.collection(kind, glob).into_iter().flat_map(Collection::members);
                    statement.removed.extend(members.filter(|name| is_removable(name)).cloned());
                }
                _ if is_removable(key) => drop(statement.removed.insert(key.clone())),
                _ => {}
            },
            Update::Upsert { key, .. } => statement.added += usize::from(!facts.is_intended(kind, class, key)),
            Update::FullSet { resources, retain, .. } => {
                let is_new = |name: &Name| !facts.is_intended(kind, class, name);
                statement.added += resources.iter().filter(|resource| is_new(&resource.name)).count();
                if let Retain::These(retained) = retain {
                    // It removes members by lacking them.
                    let sent: BTreeSet<&Name> = resources.iter().map(|of| &of.name).chain(retained).collect();
                    let here = facts.table(kind, class).into_iter().flat_map(ResourceTable::present_names);
                    let vanished = here.filter(|name| !sent.contains(name) && is_removable(name));
                    statement.removed.extend(vanished.cloned());
                }
            }
            Update::Unchanged { .. } => {
                let own = self.hold(set).into_iter().flat_map(|hold| hold.items());
                let own = own.filter(|(_, held)| held.is_removal() && held.source.server == origin.server);
                statement.removed.extend(own.map(|(name, _)| name.clone()));
            }
            _ => {}
        }
    }
}

/// Whether a server can remove it: it is there, and not kept for a server above this one.
fn is_removable((kind, of): &SetKey, name: &Name, origin: Origin, facts: &Facts) -> bool {
    let class = class_of(of);
    facts.is_intended(kind, class, name) && facts.may_remove(&(kind.clone(), class, name.clone()), origin)
}
