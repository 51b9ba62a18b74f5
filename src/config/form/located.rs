//! Values with their places, and keys without a default.

use std::ops::Deref;

use serde_json::Value as Json;

use super::reader::{Form, ValueReader};
use super::row::{Inner, Presence};
use crate::config::diagnostic::FilePosition;
use crate::config::yaml::Node;

/// A value and its place.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct Located<T> {
    pub(crate) place: FilePosition,
    pub(crate) value: T,
}

/// The value of a required key. It is `None` only if the missing key was reported.
#[derive(Debug, Clone)]
pub(in crate::config) struct Needed<T>(pub(crate) Option<Located<T>>);

/// A type that a section can declare for a key.
pub(in crate::config) trait Field: Sized {
    type Value: Form;

    const PRESENCE: Presence;

    /// Returns the value that the section has for the key, or else `self`, the default.
    fn read_key(self, node: Option<&Node>, section: &FilePosition, key: &str, reader: &mut ValueReader) -> Self;

    /// Returns where the file sets the key, if its value has the right form.
    fn given(&self) -> Option<&FilePosition>;

    /// Returns the value in force as JSON, if there is one and it is a single value.
    fn json(&self) -> Option<Json> {
        None
    }
}

impl<T> Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Default for Needed<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Form> Form for Located<T> {
    fn read(node: &Node, reader: &mut ValueReader) -> Option<Self> {
        T::read(node, reader).map(|value| Self { place: node.place.clone(), value })
    }

    fn schema() -> Json {
        T::schema()
    }

    fn name() -> String {
        T::name()
    }

    fn inner() -> Inner {
        T::inner()
    }
}

/// A key without a default.
impl<T: Form> Field for Option<Located<T>> {
    type Value = T;

    const PRESENCE: Presence = Presence::Optional;

    fn read_key(self, node: Option<&Node>, _: &FilePosition, _: &str, reader: &mut ValueReader) -> Self {
        Located::read(node?, reader)
    }

    fn given(&self) -> Option<&FilePosition> {
        self.as_ref().map(|given| &given.place)
    }

    fn json(&self) -> Option<Json> {
        self.as_ref().and_then(|given| given.value.json())
    }
}

/// A section, list or map that exists without being written: if it is left out or has the wrong form, it is empty.
impl<T: Form + Default> Field for Located<T> {
    type Value = T;

    const PRESENCE: Presence = Presence::Always;

    fn read_key(self, node: Option<&Node>, section: &FilePosition, key: &str, reader: &mut ValueReader) -> Self {
        let place = node.map_or_else(|| section.below(key), |node| node.place.clone());
        let read = node.and_then(|node| T::read(node, reader));
        let value = read.or_else(|| T::read(&Node::null_at(place.clone()), reader)).unwrap_or_default();
        Self { place, value }
    }

    fn given(&self) -> Option<&FilePosition> {
        Some(&self.place)
    }
}

impl<T: Form> Field for Needed<T> {
    type Value = T;

    const PRESENCE: Presence = Presence::Needed;

    fn read_key(self, node: Option<&Node>, section: &FilePosition, key: &str, reader: &mut ValueReader) -> Self {
        if node.is_none() {
            reader.missing_key(section, key);
        }
        Self(node.and_then(|node| Located::read(node, reader)))
    }

    fn given(&self) -> Option<&FilePosition> {
        self.0.as_ref().map(|given| &given.place)
    }
}
