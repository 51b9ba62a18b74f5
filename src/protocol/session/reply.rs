//! A reply on its way out: handles to shared resources and names, with what this client needs to read it.

use std::sync::Arc;

use crate::protocol::unit::Seq;
use crate::xds::{Name, Resource, SetVersion, Type};

#[derive(Debug, Clone)]
pub struct Reply {
    pub kind: Type,
    /// The type URL as this client spells it (TYPE-1, TRN-10).
    pub spelling: Arc<str>,
    pub nonce: u64,
    /// SotW only: the version of what the client holds of this type after it.
    pub version: SetVersion,
    pub resources: Vec<Arc<Resource>>,
    /// Delta only.
    pub removed: Vec<Name>,
    /// The state that it tells of.
    pub mark: Seq,
    /// This client can read wrapped resources in SotW.
    pub wrappers: bool,
}

/// What is to be said, before it has a number.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub resources: Vec<Arc<Resource>>,
    pub removed: Vec<Name>,
    pub version: SetVersion,
    pub warms: Vec<Warms>,
    pub bytes: usize,
}

/// The endpoints that a cluster in a reply waits for.
#[derive(Debug)]
pub(super) struct Warms {
    pub name: Name,
    /// The cluster answers a request, as opposed to being a change.
    pub first: bool,
}

impl Warms {
    pub fn of(cluster: &Resource, first: bool) -> Option<Self> {
        cluster.refers_to.clone().map(|name| Self { name, first })
    }
}

impl Draft {
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.removed.is_empty()
    }

    pub fn add(&mut self, resource: &Arc<Resource>) {
        self.bytes += resource.body.bytes().len() + resource.name.as_str().len() + PER_ENTRY;
        self.resources.push(resource.clone());
    }

    pub fn add_removed(&mut self, name: Name) {
        self.bytes += name.as_str().len() + PER_ENTRY;
        self.removed.push(name);
    }
}

impl Reply {
    /// Whether a resource goes in a wrapper in SotW: where something has to travel beside it and the client can read that,
    /// and always where it carries no name of its own (SOTW-49, XLAT-26).
    pub fn wraps(&self, resource: &Resource) -> bool {
        let beside = resource.full != resource.content();
        self.kind.info().name_field.is_none() || (self.wrappers && beside)
    }

    pub(super) fn new(kind: Type, spelling: Arc<str>, nonce: u64, mark: Seq, wrappers: bool, draft: Draft) -> Self {
        let Draft { resources, removed, version, .. } = draft;
        Self { kind, spelling, nonce, version, resources, removed, mark, wrappers }
    }
}

/// Roughly what one entry adds on the wire to its name and body: tags, lengths, a version.
const PER_ENTRY: usize = 48;
