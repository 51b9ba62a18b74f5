//! Stated versions as they are on the wire: in any order, since clients send maps.

use std::borrow::Cow;
use std::hash::BuildHasher;

use super::StatedVersions;
use crate::xds::name::Name;
use crate::xds::version::ContentHash;
use crate::xds::wire::{Field, Value, fields, last_bytes};

/// The entries of `initial_resource_versions` of one request.
#[derive(Debug, Default)]
pub struct StatedEntries<'a> {
    entries: Vec<(Cow<'a, str>, Option<ContentHash>)>,
}

impl<'a> StatedEntries<'a> {
    /// Splits an encoded delta request into its stated versions and all other fields. Returns none if there are no stated versions, or the
    /// request cannot be read.
    pub fn split_off(request: &'a [u8]) -> Option<(Self, Vec<u8>)> {
        let is_entry = |field: &Field| field.number == INITIAL_RESOURCE_VERSIONS;
        let count = fields(request).map_while(|field| field).filter(is_entry).count();
        if count == 0 {
            return None;
        }
        let (mut entries, mut others) = (Vec::with_capacity(count), Vec::new());
        for field in fields(request) {
            match field? {
                Field { number: INITIAL_RESOURCE_VERSIONS, value: Value::Bytes(entry), .. } => {
                    entries.push(Self::read(text(entry, 1)?, text(entry, 2)?));
                }
                Field { number: INITIAL_RESOURCE_VERSIONS, .. } => return None,
                other => others.extend_from_slice(other.raw),
            }
        }
        Some((Self { entries }, others))
    }

    /// Reads a decoded map.
    pub fn of(map: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self { entries: map.into_iter().map(|(name, version)| Self::read(name, version)).collect() }
    }

    fn read(name: &'a str, version: &str) -> (Cow<'a, str>, Option<ContentHash>) {
        (Name::canonical_text(name), version.parse().ok())
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns a sum that does not depend on the order. Only equality shows that entries are equal.
    pub(super) fn sum(&self, hashes: &impl BuildHasher) -> u64 {
        self.entries.iter().map(|entry| hashes.hash_one(entry)).fold(0, u64::wrapping_add)
    }

    /// Whether these entries equal `versions`, in any order.
    pub(super) fn are(&self, versions: &StatedVersions) -> bool {
        if self.len() != versions.len() {
            return false;
        }
        let mut found = vec![false; versions.len()];
        self.entries.iter().all(|(name, content)| {
            let place = versions.place(name).filter(|place| versions.content(*place) == *content);
            place.is_some_and(|place| !std::mem::replace(&mut found[place], true))
        })
    }

    /// Of several entries with one name the last one counts, as in a map.
    pub(super) fn into_versions(self) -> StatedVersions {
        let mut entries = self.entries;
        entries.reverse();
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        entries.dedup_by(|(later, _), (earlier, _)| later == earlier);
        StatedVersions { entries: entries.into_iter().map(|(name, content)| (Name::from(&*name), content)).collect() }
    }
}

/// Reads a text of an entry. A missing field is an empty string. `None` means that the field is not UTF-8, or the entry is not a message.
fn text(entry: &[u8], number: u32) -> Option<&str> {
    let is_message = fields(entry)
        .all(|field| field.is_some_and(|field| !matches!(field, Field { number: 1 | 2, value: Value::Number, .. })));
    is_message.then(|| std::str::from_utf8(last_bytes(entry, number).unwrap_or_default()).ok()).flatten()
}

/// The field of a delta request.
const INITIAL_RESOURCE_VERSIONS: u32 = 5;
