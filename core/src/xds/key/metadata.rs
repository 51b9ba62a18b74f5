//! The part of a node's metadata that is in a key: everything except some values, or single values.

use std::collections::BTreeMap;

use prost_types::{Struct, Value, value::Kind};

/// Returns metadata without the values at these paths. A path that leads through a list or past the end of an object removes nothing.
///
/// An object that loses all its values stays as an empty object, because having it distinguishes a node from others. Metadata that loses
/// everything counts as missing, as it does if it had only a tenant.
pub(super) fn without(paths: &[Vec<String>], from: &Option<Struct>) -> Option<Struct> {
    let mut kept = from.clone()?;
    for path in paths {
        take_out(path, &mut kept);
    }
    (!kept.fields.is_empty()).then_some(kept)
}

fn take_out(path: &[String], from: &mut Struct) {
    match path {
        [] => {}
        [last] => {
            from.fields.remove(last);
        }
        [key, rest @ ..] => {
            if let Some(Value { kind: Some(Kind::StructValue(inner)) }) = from.fields.get_mut(key) {
                take_out(rest, inner);
            }
        }
    }
}

/// Copies the value at `path`, with the objects around it, from one metadata to another.
pub(super) fn copy_path(path: &[String], from: &Option<Struct>, to: &mut Option<Struct>) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut source = from.as_ref();
    for key in parents {
        source = source.and_then(|object| object.fields.get(key)).and_then(as_object);
    }
    let Some(value) = source.and_then(|object| object.fields.get(last)) else { return };
    let mut target = to.get_or_insert_default();
    for key in parents {
        let child = target.fields.entry(key.clone()).or_insert_with(empty_object);
        if as_object(child).is_none() {
            *child = empty_object();
        }
        let Some(Kind::StructValue(object)) = &mut child.kind else { return };
        target = object;
    }
    target.fields.insert(last.clone(), value.clone());
}

fn as_object(value: &Value) -> Option<&Struct> {
    match &value.kind {
        Some(Kind::StructValue(object)) => Some(object),
        _ => None,
    }
}

fn empty_object() -> Value {
    Value { kind: Some(Kind::StructValue(Struct { fields: BTreeMap::new() })) }
}
