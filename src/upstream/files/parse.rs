//! One file's bytes as resources with names and versions.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use prost::Message;

use super::Fault;
use crate::proto::discovery::{self, DiscoveryResponse};
use crate::protocol::local::Item;
use crate::xds::{Name, Type, TypeTable, own_name};

/// A resource of a file.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub kind: Type,
    pub name: Name,
    pub item: Item,
    pub line: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct Parser {
    pub table: Arc<TypeTable>,
}

impl Parser {
    /// Whether a file's name says that it is one of resources.
    pub(super) fn takes(path: &Path) -> bool {
        path.extension().is_some_and(|extension| extension == "pb")
    }

    pub(super) fn read(&self, path: &Path, bytes: Vec<u8>) -> Result<Vec<Entry>, Fault> {
        let response = DiscoveryResponse::decode(&*bytes).map_err(|error| Fault::of(path, &error.to_string()))?;
        let (mut entries, mut seen) = (Vec::new(), HashSet::new());
        for any in response.resources {
            let kind = self.table.resolve(&any.type_url);
            let name = own_name(&kind, &any.value).ok_or_else(|| Fault::of(path, "a resource without a name"))?;
            if !seen.insert((kind.clone(), name.clone())) {
                return Err(Fault::of(path, &format!("{} {name} is in it twice", kind.name())));
            }
            let wrapper = discovery::Resource { resource: Some(any), ..Default::default() };
            let item = Item::new(&kind, &name, wrapper);
            entries.push(Entry { kind, name, item, line: None });
        }
        Ok(entries)
    }
}
