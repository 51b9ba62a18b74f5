//! Any JSON or YAML as a `serde_json::Value`, without two silent changes of serde_json, which keeps the last of duplicate keys and turns
//! numbers that JSON cannot express into null.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::words;

pub(super) struct Tree(pub(crate) Value);

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor).map(Self)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_i128<E>(self, number: i128) -> Result<Value, E> {
        Ok(Value::from(number as f64))
    }

    fn visit_u128<E>(self, number: u128) -> Result<Value, E> {
        Ok(Value::from(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(if number.is_finite() {
            Value::from(number)
        } else if number.is_nan() {
            Value::from("NaN")
        } else {
            Value::from(if number > 0.0 { "Infinity" } else { "-Infinity" })
        })
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    /// Converts YAML's `!!binary`.
    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Value, E> {
        Ok(Value::String(words::base64_of(bytes)))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Tree(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let Tree(value) = entries.next_value()?;
            put(&mut values, key, value)?;
        }
        Ok(Value::Object(values))
    }
}

fn put<E: Error>(values: &mut Map<String, Value>, key: String, value: Value) -> Result<(), E> {
    match values.entry(key) {
        serde_json::map::Entry::Vacant(vacant) => {
            vacant.insert(value);
            Ok(())
        }
        serde_json::map::Entry::Occupied(taken) => Err(E::custom(format!("the key {:?} is there twice", taken.key()))),
    }
}

/// A document of resources: its list of items, which is the document itself or the list under `resources`, and the rest of the document, in which
/// that list is empty.
pub(super) struct Outline<T> {
    pub(crate) rest: Value,
    pub(crate) items: Vec<T>,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Outline<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OutlineVisitor(PhantomData))
    }
}

struct OutlineVisitor<T>(PhantomData<T>);

impl<T> Outline<T> {
    fn leaf(rest: Value) -> Self {
        Self { rest, items: Vec::new() }
    }
}

macro_rules! leaves {
    ($($visit:ident: $of:ty),*) => {
        $(fn $visit<E: Error>(self, value: $of) -> Result<Outline<T>, E> {
            TreeVisitor.$visit(value).map(Outline::leaf)
        })*
    };
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for OutlineVisitor<T> {
    type Value = Outline<T>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("resources")
    }

    leaves!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128, visit_f64: f64);
    leaves!(visit_str: &str, visit_bytes: &[u8]);

    fn visit_unit<E: Error>(self) -> Result<Outline<T>, E> {
        Ok(Outline::leaf(Value::Null))
    }

    fn visit_none<E: Error>(self) -> Result<Outline<T>, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Outline<T>, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Outline<T>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Outline { rest: Value::Array(Vec::new()), items })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Outline<T>, A::Error> {
        let (mut fields, mut items) = (Map::new(), Vec::new());
        while let Some(key) = entries.next_key::<String>()? {
            let value = if key == "resources" {
                let resources: Outline<T> = entries.next_value()?;
                items.extend(resources.items);
                resources.rest
            } else {
                entries.next_value::<Tree>()?.0
            };
            put(&mut fields, key, value)?;
        }
        Ok(Outline { rest: Value::Object(fields), items })
    }
}
