//! Wanted names that do not fit into a request: in SotW a request lists all names, and in delta one name may be too long.
//!
//! To the server these names are not subscribed, so nothing follows from its silence about them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::protocol::view::NamedError;
use crate::xds::Name;

#[derive(Debug, Default)]
pub(super) struct LeftOut {
    names: BTreeSet<Name>,
    /// Those of `names` for which no error was reported yet.
    unreported: BTreeSet<Name>,
    /// How many names were left out since that was last counted.
    uncounted: usize,
    error: Option<Arc<NamedError>>,
    /// Subscribed names that have come since names were last left out. They are left out before any older one.
    pub(crate) new: BTreeSet<Name>,
}

impl LeftOut {
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn has(&self, name: &Name) -> bool {
        self.names.contains(name)
    }

    /// Returns whether it was there.
    pub(crate) fn remove(&mut self, name: &Name) -> bool {
        self.unreported.remove(name);
        self.names.remove(name)
    }

    pub(crate) fn insert(&mut self, name: Name, error: impl FnOnce() -> NamedError) {
        self.error.get_or_insert_with(|| Arc::new(error()));
        self.uncounted += 1;
        self.unreported.insert(name.clone());
        self.names.insert(name);
    }

    pub(crate) fn is_to_report(&self) -> bool {
        !self.unreported.is_empty()
    }

    /// Returns the names without a reported error, which are reported now.
    pub(crate) fn take_unreported(&mut self) -> Option<(BTreeSet<Name>, Arc<NamedError>)> {
        let error = self.error.clone().filter(|_| self.is_to_report())?;
        Some((std::mem::take(&mut self.unreported), error))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Name> {
        self.names.iter()
    }

    /// Returns how many names were left out since the last call.
    pub(crate) fn take_count(&mut self) -> usize {
        std::mem::take(&mut self.uncounted)
    }

    /// Returns the names with their error.
    pub(crate) fn errors(&self) -> impl Iterator<Item = (&Name, &Arc<NamedError>)> {
        self.names.iter().filter_map(|name| Some((name, self.error.as_ref()?)))
    }
}
