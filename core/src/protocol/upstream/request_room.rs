//! The size of one request: how many bytes are left below the server's limit, how many a name takes, and which wanted names do not fit.

use std::collections::BTreeSet;
use std::sync::Arc;

use prost::length_delimiter_len;

use crate::protocol::view::NamedError;
use crate::xds::Name;

/// What may still be added to one request.
#[derive(Debug)]
pub(super) struct RequestRoom {
    left: usize,
    /// The next name is added whatever its size. Otherwise a request without a name would be sent again and again.
    must_take_name: bool,
}

impl RequestRoom {
    /// Returns the room of a request that has `used` bytes already.
    pub(crate) fn new(limit: usize, used: usize) -> Self {
        Self { left: limit.saturating_sub(used), must_take_name: false }
    }

    pub(crate) fn with_a_name(self) -> Self {
        Self { must_take_name: true, ..self }
    }

    /// Returns the room if no more than `most` bytes may be used of it. A single name that has room without this limit may be longer.
    pub(crate) fn at_most(self, most: usize, must_take_name: bool) -> Self {
        Self { left: self.left.min(most), must_take_name }
    }

    /// Takes the bytes if they fit.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.left;
        if fits {
            self.left -= bytes;
            self.must_take_name &= bytes == 0;
        }
        fits
    }

    /// Takes a name that does not fit, if one has to be taken. No other one goes along.
    fn takes_whatever_size(&mut self) -> bool {
        let must_take = std::mem::take(&mut self.must_take_name);
        if must_take {
            self.left = 0;
        }
        must_take
    }

    /// Takes names out of a set, in order, up to the first name that does not fit.
    pub(crate) fn take_names(&mut self, names: &mut BTreeSet<Name>) -> BTreeSet<Name> {
        let mut taken = BTreeSet::new();
        while let Some(name) = names.first()
            && (self.take(name_bytes(name.as_str())) || self.takes_whatever_size())
        {
            taken.extend(names.pop_first());
        }
        taken
    }
}

/// Returns the bytes of a name in a list of names.
pub(super) fn name_bytes(name: &str) -> usize {
    field_bytes(name.len())
}

/// Returns the bytes of a name with its stated version.
pub(super) fn version_bytes(name: &Name, version: &str) -> usize {
    field_bytes(field_bytes(name.as_str().len()) + field_bytes(version.len()))
}

/// Returns the bytes of a field of a request. The field's number takes one byte, since none is above 15.
pub(super) fn field_bytes(length: usize) -> usize {
    1 + length_delimiter_len(length) + length
}

/// Wanted names that do not fit into a request: in SotW a request lists all names, and in delta a single name may be too long. For the server
/// these names are not subscribed, so its silence about them means nothing.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    names: BTreeSet<Name>,
    /// Those of `names` for which no error was reported yet.
    unreported: BTreeSet<Name>,
    /// How many names were left out since the count was last taken.
    uncounted: usize,
    error: Option<Arc<NamedError>>,
    /// Names that were subscribed since room for names was last judged. They are left out before any older name.
    new: BTreeSet<Name>,
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

    /// Removes a name. Returns whether it was there.
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

    pub(crate) fn insert_new(&mut self, name: Name) {
        self.new.insert(name);
    }

    pub(crate) fn remove_new(&mut self, name: &Name) {
        self.new.remove(name);
    }

    pub(crate) fn take_new(&mut self) -> BTreeSet<Name> {
        std::mem::take(&mut self.new)
    }

    pub(crate) fn is_to_report(&self) -> bool {
        !self.unreported.is_empty()
    }

    /// Returns the names without a reported error, and their error. They count as reported from now on.
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
