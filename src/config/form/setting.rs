//! The value of a key that has a default.

use std::ops::Deref;

use serde_json::Value as Json;

use super::located::Field;
use super::reader::{Form, ValueReader};
use super::row::Presence;
use crate::config::diagnostic::FilePosition;
use crate::config::yaml::Node;

/// The value in force: the one in the file, or else the default.
#[derive(Debug, Clone)]
pub(in crate::config) struct Setting<T> {
    pub(crate) value: T,
    /// Where the file sets the key, or could set it.
    pub(crate) place: FilePosition,
    is_given: bool,
}

impl<T> Setting<T> {
    pub(crate) fn by_default(value: impl Into<T>) -> Self {
        Self { value: value.into(), place: FilePosition::default(), is_given: false }
    }

    /// Returns where the file sets the key, if it does so with a value of the right form.
    pub(crate) fn given(&self) -> Option<&FilePosition> {
        self.is_given.then_some(&self.place)
    }
}

impl<T: Copy> Setting<T> {
    /// Returns the value of the file, or else `default`, which replaces the key's own default here.
    pub(crate) fn or(&self, default: impl Into<T>) -> T {
        if self.is_given { self.value } else { default.into() }
    }
}

impl<T> Deref for Setting<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Form> Field for Setting<T> {
    type Value = T;

    const PRESENCE: Presence = Presence::Always;

    fn read_key(self, node: Option<&Node>, section: &FilePosition, key: &str, reader: &mut ValueReader) -> Self {
        let place = node.map_or_else(|| section.below(key), |node| node.place.clone());
        match node.and_then(|node| T::read(node, reader)) {
            Some(value) => Self { value, place, is_given: true },
            None => Self { place, ..self },
        }
    }

    fn given(&self) -> Option<&FilePosition> {
        self.given()
    }

    fn json(&self) -> Option<Json> {
        self.value.json()
    }
}
