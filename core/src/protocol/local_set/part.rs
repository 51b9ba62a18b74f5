//! A bounded part of what a local set reports, of one type.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::protocol::upstream::ResponseSummary;
use crate::protocol::view::{Class, Completeness, Evidence, Selector, Update};
use crate::xds::{Name, Resource, Type};

#[derive(Debug)]
pub(crate) struct SetPart {
    pub(crate) updates: Vec<Update>,
    pub(crate) summary: ResponseSummary,
    /// How many resources have another name in the body than in the wrapper (TYPE-10).
    pub(crate) misnamed: u64,
    /// How many names were checked for the part.
    pub(crate) looked: usize,
}

impl SetPart {
    pub(super) fn of(kind: &Type) -> Self {
        let kind = kind.clone();
        let summary = ResponseSummary { kind, version: String::new(), bytes: 0, resources: 0, removed: 0 };
        Self { updates: Vec::new(), summary, misnamed: 0, looked: 0 }
    }

    pub(super) fn add(&mut self, class: Class, key: Name, resource: Arc<Resource>) {
        self.summary.resources += 1;
        self.summary.bytes += resource.body.bytes().len();
        self.misnamed += u64::from(resource.name_mismatch);
        self.updates.push(Update::Upsert { kind: self.kind(), class, key, resource });
    }

    pub(super) fn remove(&mut self, class: Class, key: Name) {
        self.summary.removed += 1;
        self.updates.push(Update::Absent { kind: self.kind(), class, key, evidence: Evidence::Reported });
    }

    /// Adds a name whose resource had no room.
    pub(super) fn add_without_room(&mut self, class: Class, key: Name) {
        self.updates.push(Update::WithoutRoom { kind: self.kind(), class, key });
    }

    /// Adds names of `*` that exist, while nothing is known of their resources.
    pub(super) fn add_unreadable(&mut self, names: BTreeSet<Name>) {
        self.updates.push(Update::Unreadable { kind: self.kind(), of: Selector::Wildcard, names });
    }

    pub(super) fn add_progress(&mut self, of: Selector, completeness: Completeness) {
        self.updates.push(Update::Progress { kind: self.kind(), of, completeness });
    }

    fn kind(&self) -> Type {
        self.summary.kind.clone()
    }
}
