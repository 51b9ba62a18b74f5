//! Checks the file and builds the parts of the configuration. Each part of the file has its checks in a file of its own; this one has what
//! they share.

use std::path::{Path, PathBuf};

use super::diagnostic::{Diagnostics, Place};
use super::files::{self, FileFault};
use super::form::{FilePath, Located};

pub(super) struct Checker<'a> {
    pub(crate) found: Diagnostics,
    /// The environment variables.
    pub(crate) environment: &'a dyn Fn(&str) -> Option<String>,
    /// Whether to check files that the relay opens only when it needs them.
    pub(crate) opens_files: bool,
}

impl Checker<'_> {
    pub(crate) fn fault(&mut self, place: &Place, reason: impl Into<String>) {
        self.found.fault(place, reason);
    }

    /// Resolves a path relative to the folder of the configuration file.
    pub(crate) fn path(&self, file: &FilePath) -> PathBuf {
        let own = &self.found.file;
        own.parent().unwrap_or(own).join(&file.0)
    }

    /// Resolves a path, and checks the file if files are to be checked.
    pub(crate) fn file(&mut self, file: &Located<FilePath>, look: fn(&Path) -> Result<(), FileFault>) -> PathBuf {
        let path = self.path(file);
        if self.opens_files
            && let Err(fault) = look(&path)
        {
            self.found.unusable(&file.place, fault.to_string());
        }
        path
    }

    /// Reads a file that the configuration depends on.
    pub(crate) fn text_of(&mut self, file: &Path, place: &Place) -> Option<String> {
        files::text(file).map_err(|fault| self.fault(place, fault.to_string())).ok()
    }
}

/// Returns the value of a key, or its default.
pub(super) fn or<T: Copy>(given: &Option<Located<T>>, default: T) -> T {
    given.as_ref().map_or(default, |given| given.value)
}
