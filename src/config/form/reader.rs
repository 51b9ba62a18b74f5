//! Reads values and collects the faults.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use weir_core::xds::nearest;

use super::homes;
use super::row::Inner;
use crate::config::diagnostic::{Diagnostics, FilePosition};
use crate::config::yaml::{Node, YamlEntry};

/// The form of a value.
pub(in crate::config) trait Form: Sized {
    /// Reads a value as far as possible, and reports its faults.
    fn read(node: &Node, reader: &mut ValueReader) -> Option<Self>;

    /// Returns the JSON schema of all values that can be read.
    fn schema() -> Json;

    /// Returns the name of the form in documentation pages.
    fn name() -> String;

    /// Returns the keys of a section, or of the sections in a list or map.
    fn inner() -> Inner {
        Inner::NONE
    }

    /// Returns the value as a file may have it, if it is a single value.
    fn json(&self) -> Option<Json> {
        None
    }
}

pub(in crate::config) struct ValueReader<'a> {
    pub(crate) found: &'a mut Diagnostics,
    /// The schema of the whole file; finds where an unknown key would be valid.
    whole: fn() -> &'static Json,
    /// Paths of keys in place of which a misspelt key was reported.
    meant: BTreeSet<String>,
}

impl<'a> ValueReader<'a> {
    pub(crate) fn new(found: &'a mut Diagnostics, whole: fn() -> &'static Json) -> Self {
        Self { found, whole, meant: BTreeSet::new() }
    }

    /// Reports that a value has the wrong form.
    pub(crate) fn expected(&mut self, node: &Node, what: &str) {
        self.found.fault(&node.place, format!("invalid value {}: expected {what}", node.shown()));
    }

    pub(crate) fn unknown_key(&mut self, entry: &YamlEntry, section: &FilePosition, known: &[&str]) {
        let key = &entry.key;
        let expected = match nearest(key, known.iter().copied(), (key.len() / 3).max(1)) {
            Some(nearest) => {
                self.meant.insert(section.key(nearest));
                nearest.to_owned()
            }
            None => match homes::of(key, (self.whole)()) {
                homes if homes.is_empty() => format!("one of {}", known.join(", ")),
                homes => format!("it in {}", homes.join(" or ")),
            },
        };
        self.found.fault(&entry.place, format!("unknown key {key:?}: expected {expected}"));
    }

    /// Reports a missing key, unless a misspelt one was reported in its place.
    pub(crate) fn missing_key(&mut self, section: &FilePosition, key: &str) {
        if !self.meant.contains(&section.key(key)) {
            self.found.fault(section, format!("missing key {key:?}"));
        }
    }
}
