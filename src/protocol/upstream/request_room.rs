//! The bytes of one request: how many are left below the server's limit, and what a name takes of them.

use std::collections::BTreeSet;

use prost::length_delimiter_len;

use crate::xds::Name;

/// What may still be added to one request.
#[derive(Debug)]
pub(super) struct RequestRoom {
    left: usize,
    /// The next name is added whatever its size: a request without any would be sent for nothing, again and again.
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

    /// Takes the bytes if they fit.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.left;
        if fits {
            self.left -= bytes;
            self.must_take_name &= bytes == 0;
        }
        fits
    }

    /// Takes names out of a set, in order, up to the first that does not fit.
    pub(crate) fn take_names(&mut self, names: &mut BTreeSet<Name>) -> BTreeSet<Name> {
        let mut taken = BTreeSet::new();
        while let Some(name) = names.first()
            && (self.take(name_bytes(name.as_str())) || std::mem::take(&mut self.must_take_name))
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

/// Returns the bytes of a stated version.
pub(super) fn version_bytes(name: &Name, version: &str) -> usize {
    field_bytes(field_bytes(name.as_str().len()) + field_bytes(version.len()))
}

/// Returns the bytes of a field of requests: its number takes one, since none is above 15.
pub(super) fn field_bytes(length: usize) -> usize {
    1 + length_delimiter_len(length) + length
}
