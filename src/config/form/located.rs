//! Values with their places, and defaults of missing keys.

use std::ops::Deref;

use serde_json::Value as Json;

use super::reader::{Form, Reader};
use crate::config::diagnostic::Place;
use crate::config::yaml::Node;

/// A value and its place. As the value of a key it has a default.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct Located<T> {
    pub(crate) place: Place,
    pub(crate) value: T,
}

/// The value of a required key. It is missing only if that was reported.
#[derive(Debug, Clone)]
pub(in crate::config) struct Needed<T>(pub(crate) Option<Located<T>>);

/// The type of a key's value.
pub(in crate::config) trait Field: Sized {
    const IS_NEEDED: bool;

    fn read_key(node: Option<&Node>, section: &Place, key: &str, reader: &mut Reader) -> Self;

    fn value_schema() -> Json;
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
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        T::read(node, reader).map(|value| Self { place: node.place.clone(), value })
    }

    fn schema() -> Json {
        T::schema()
    }
}

impl<T: Form> Field for Option<Located<T>> {
    const IS_NEEDED: bool = false;

    fn read_key(node: Option<&Node>, _: &Place, _: &str, reader: &mut Reader) -> Self {
        Located::read(node?, reader)
    }

    fn value_schema() -> Json {
        T::schema()
    }
}

impl<T: Form + Default> Field for Located<T> {
    const IS_NEEDED: bool = false;

    fn read_key(node: Option<&Node>, section: &Place, key: &str, reader: &mut Reader) -> Self {
        let read = node.and_then(|node| <Self as Form>::read(node, reader));
        let place =
            || node.map_or_else(|| Place { path: section.key(key), ..section.clone() }, |node| node.place.clone());
        read.unwrap_or_else(|| Self { place: place(), value: T::default() })
    }

    fn value_schema() -> Json {
        T::schema()
    }
}

impl<T: Form> Field for Needed<T> {
    const IS_NEEDED: bool = true;

    fn read_key(node: Option<&Node>, section: &Place, key: &str, reader: &mut Reader) -> Self {
        if node.is_none() {
            reader.missing_key(section, key);
        }
        Self(node.and_then(|node| Located::read(node, reader)))
    }

    fn value_schema() -> Json {
        T::schema()
    }
}
