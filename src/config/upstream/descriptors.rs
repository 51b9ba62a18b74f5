//! Descriptors of types that are not built in, for JSON, YAML and text.

use std::sync::Arc;

use bytes::Bytes;

use crate::config::checker::Checker;
use crate::config::form::{FilePath, Located};
use crate::transcode::Transcoder;

pub(in crate::config) fn transcoder(
    given: &Located<Vec<Located<FilePath>>>,
    checker: &mut Checker,
) -> Option<Arc<Transcoder>> {
    let sets: Vec<_> = given.iter().filter_map(|file| descriptor_set(file, checker)).collect();
    if given.is_empty() || sets.len() < given.len() {
        return None;
    }
    let all = Transcoder::with_descriptor_sets(&sets);
    all.map_err(|error| checker.fault(&given.place, format!("descriptor sets cannot be combined: {error}"))).ok()
}

/// Reads a file of descriptors. Each file is tried alone first, so that an error names the right one.
fn descriptor_set(file: &Located<FilePath>, checker: &mut Checker) -> Option<Bytes> {
    let path = checker.path(file);
    let set = checker.bytes_of(&path, &file.place).map(Bytes::from)?;
    let alone = Transcoder::with_descriptor_sets(std::slice::from_ref(&set));
    let reason = |error| format!("cannot use {}: expected a descriptor set of protoc ({error})", path.display());
    alone.map(|_| set).map_err(|error| checker.fault(&file.place, reason(error))).ok()
}
