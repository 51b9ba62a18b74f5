//! What a server has answered of names that a client claims and that do not exist. No table shows that: it is told to those that claim
//! them, which keep it until they have told their client.

use std::collections::BTreeMap;

use crate::protocol::view::{Class, ResourceTable, Revision, Snapshot};
use crate::xds::{Name, Type};

/// Claimed names that do not exist, each with the revision of the answer. An answer is evidence until the next opening.
#[derive(Debug, Default)]
pub(super) struct Answers(BTreeMap<(Class, Name), Revision>);

impl Answers {
    pub(super) fn add(&mut self, class: Class, name: &Name, answered: Revision) {
        self.0.insert((class, name.clone()), answered);
    }

    /// Whether a name does not exist, which `table` does not show. The table is the one of this class.
    pub(super) fn is_absent(&self, class: Class, name: &Name, table: Option<&ResourceTable>) -> bool {
        if self.0.is_empty() {
            return false; // the usual case
        }
        let is_back = class == Class::Wildcard && table.is_some_and(|table| table.is_unreadable(name));
        let opening = table.map_or(Revision::ZERO, |table| table.opening_of(class, name));
        !is_back && self.0.get(&(class, name.clone())).is_some_and(|answered| *answered > opening)
    }

    /// Forgets answers of earlier openings, and those that are of no use.
    pub(super) fn retain(&mut self, kind: &Type, state: &Snapshot, is_of_use: impl Fn(Class, &Name) -> bool) {
        if self.0.is_empty() {
            return;
        }
        self.0.retain(|(class, name), answered| {
            let opening = state.resources(kind, *class).map_or(Revision::ZERO, |table| table.opening_of(*class, name));
            is_of_use(*class, name) && *answered > opening
        });
    }
}
