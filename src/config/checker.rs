//! Checking: from what the file says to what a relay needs. Each part of the file has its checks in a file of its own; what they
//! share is here.

use std::path::{Path, PathBuf};

use super::diagnostic::{Diagnostics, Place};
use super::files::{self, FileFault};
use super::form::{FilePath, Located};

pub(super) struct Checker<'a> {
    pub(crate) found: Diagnostics,
    /// Variables of the environment.
    pub(crate) environment: &'a dyn Fn(&str) -> Option<String>,
    /// Whether files are looked at that the relay reads only when it needs them.
    pub(crate) opens_files: bool,
}

impl Checker<'_> {
    pub(crate) fn fault(&mut self, place: &Place, reason: impl Into<String>) {
        self.found.fault(place, reason);
    }

    /// Returns a path as it is meant: from the folder of the configuration file.
    pub(crate) fn path(&self, file: &FilePath) -> PathBuf {
        let own = &self.found.file;
        own.parent().unwrap_or(own).join(&file.0)
    }

    /// The same, and looks at the file if files are to be looked at.
    pub(crate) fn file(&mut self, file: &Located<FilePath>, look: fn(&Path) -> Result<(), FileFault>) -> PathBuf {
        let path = self.path(file);
        if self.opens_files
            && let Err(fault) = look(&path)
        {
            self.found.unusable(&file.place, fault.to_string());
        }
        path
    }

    /// Reads a file that is needed to understand the configuration.
    pub(crate) fn text_of(&mut self, file: &Path, place: &Place) -> Option<String> {
        files::text(file).map_err(|fault| self.fault(place, fault.to_string())).ok()
    }
}

/// Returns the value of a key, or else its default.
pub(super) fn or<T: Copy>(given: &Option<Located<T>>, default: T) -> T {
    given.as_ref().map_or(default, |given| given.value)
}
