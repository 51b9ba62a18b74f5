//! Descriptors of types that are not built in, for JSON, YAML and text.

use std::sync::Arc;

use bytes::Bytes;

use crate::config::checker::Checker;
use crate::config::files;
use crate::config::form::{FilePath, Located};
use crate::transcode::Transcoder;

impl Checker<'_> {
    pub(crate) fn transcoder(&mut self, given: &Located<Vec<Located<FilePath>>>) -> Option<Arc<Transcoder>> {
        let sets: Vec<_> = given.iter().filter_map(|file| self.descriptor_set(file)).collect();
        if given.is_empty() || sets.len() < given.len() {
            return None;
        }
        let all = Transcoder::with_descriptor_sets(&sets);
        all.map_err(|error| self.fault(&given.place, format!("descriptor sets cannot be combined: {error}"))).ok()
    }

    /// Tries each file alone first, so that an error names the right one.
    fn descriptor_set(&mut self, file: &Located<FilePath>) -> Option<Bytes> {
        let path = self.path(file);
        let set = files::bytes(&path).map(Bytes::from);
        let set = set.map_err(|fault| self.fault(&file.place, fault.to_string())).ok()?;
        let alone = Transcoder::with_descriptor_sets(std::slice::from_ref(&set));
        let reason = |error| format!("cannot use {}: expected a descriptor set of protoc ({error})", path.display());
        alone.map(|_| set).map_err(|error| self.fault(&file.place, reason(error))).ok()
    }
}
