//! What all checks share: where they report, and what they may read outside the file. The checks of each part of the file are in a file of their own.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use super::bootstrap::{self, Bootstrap};
use super::diagnostic::{Diagnostics, FilePosition};
use super::files::{self, FileFault, hash_of};
use super::form::{FilePath, Form, Located, ValueReader};
use super::raw;
use super::schema::schema;
use super::yaml::{self, Node};
use crate::upstream::Lists;

pub(super) struct Checker<'a> {
    found: Diagnostics,
    environment: &'a dyn Fn(&str) -> Option<String>,
    /// Whether to check files that the relay opens only when it needs them.
    opens_files: bool,
    /// The memory of the machine that the file is for, if it is not this one.
    machine: Option<usize>,
}

impl<'a> Checker<'a> {
    /// Continues with what the steps before have found.
    pub(crate) fn new(found: Diagnostics, environment: &'a dyn Fn(&str) -> Option<String>, opens_files: bool) -> Self {
        Self { found, environment, opens_files, machine: None }
    }

    /// Checks the file for a machine with this much memory.
    pub(crate) fn on_machine(self, machine: Option<usize>) -> Self {
        Self { machine, ..self }
    }

    pub(crate) fn machine(&self) -> Option<usize> {
        self.machine
    }

    /// Substitutes environment variables in the values of a tree, and reads it by its forms.
    pub(crate) fn read(&mut self, mut tree: Node) -> Option<raw::Root> {
        yaml::expand(&mut tree, self.environment, &mut self.found);
        raw::Root::read(&tree, &mut ValueReader::new(&mut self.found, schema))
    }

    pub(crate) fn into_diagnostics(self) -> Diagnostics {
        self.found
    }

    pub(crate) fn fault(&mut self, place: &FilePosition, reason: impl Into<String>) {
        self.found.fault(place, reason);
    }

    pub(crate) fn warn(&mut self, place: &FilePosition, reason: impl Into<String>) {
        self.found.warn(place, reason);
    }

    /// Reports that a section is incomplete, unless a fault in it may be the reason.
    pub(crate) fn lacks(&mut self, section: &FilePosition, reason: impl Into<String>) {
        self.found.lacks(section, reason);
    }

    pub(crate) fn has_fault_within(&self, path: &str) -> bool {
        self.found.has_fault_within(path)
    }

    pub(crate) fn opens_files(&self) -> bool {
        self.opens_files
    }

    /// Checks something that the relay can start without, if files are to be checked.
    pub(crate) fn look<E: Display>(&mut self, place: &FilePosition, look: impl FnOnce() -> Result<(), E>) {
        if self.opens_files
            && let Err(error) = look()
        {
            self.found.unusable(place, error.to_string());
        }
    }

    /// Resolves a path relative to the folder of the configuration file.
    pub(crate) fn path(&self, file: &FilePath) -> PathBuf {
        let own = &self.found.file;
        own.parent().unwrap_or(own).join(&file.0)
    }

    /// Resolves the path of a file that is read, and checks the file if files are to be checked.
    pub(crate) fn file(&mut self, file: &Located<FilePath>, look: fn(&Path) -> Result<(), FileFault>) -> PathBuf {
        let path = self.path(file);
        self.found.name(&path);
        self.look(&file.place, || look(&path));
        path
    }

    /// Reads a text file that the configuration depends on.
    pub(crate) fn text_of(&mut self, file: &Path, place: &FilePosition) -> Option<String> {
        self.found.name(file);
        files::text(file).map_err(|fault| self.fault(place, fault.to_string())).ok()
    }

    /// Reads a file that the configuration depends on and that is not text.
    pub(crate) fn bytes_of(&mut self, file: &Path, place: &FilePosition) -> Option<Vec<u8>> {
        self.found.name(file);
        files::bytes(file).map_err(|fault| self.fault(place, fault.to_string())).ok()
    }

    /// Reads a bootstrap. Its faults count as faults of the configuration.
    pub(crate) fn bootstrap(&mut self, path: &Path, text: &str, message_bytes: usize) -> Option<Lists> {
        self.found.bootstrap = Some(hash_of(text.as_bytes()));
        let read = bootstrap::read(path, text, message_bytes, self.opens_files);
        let Bootstrap { lists, others } = read.map_err(|faults| self.found.faults.extend(faults)).ok()?;
        self.found.unusable.extend(others.unusable);
        self.found.warnings.extend(others.warnings);
        self.found.named.extend(others.named);
        Some(lists)
    }

    /// Returns an environment variable, if it is set and not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name).filter(|value| !value.is_empty())
    }
}

/// Returns the value of a key, or its default.
pub(super) fn or<T: Copy>(given: &Option<Located<T>>, default: T) -> T {
    given.as_ref().map_or(default, |given| given.value)
}
