//! Faults and warnings of a configuration, with their places.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use super::secrets::{may_have_value, without_values};

/// One fault or warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The configuration file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: Option<u64>,
    pub(crate) column: Option<u64>,
    /// The path of keys to the value; empty for the whole file.
    pub at: String,
    /// What is wrong and what is expected.
    pub reason: String,
}

/// The place of a value: line and column, and the path of keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FilePosition {
    pub(crate) line: u64,
    pub(crate) column: u64,
    pub(crate) path: String,
}

/// The faults and warnings of one file.
#[derive(Debug)]
pub(super) struct Diagnostics {
    pub(crate) file: PathBuf,
    pub(crate) faults: Vec<Diagnostic>,
    /// Files that cannot be used now. The relay starts all the same: they may be usable later.
    pub(crate) unusable: Vec<Diagnostic>,
    /// Warnings: the relay can start, but an operator should know of them.
    pub(crate) warnings: Vec<Diagnostic>,
    /// The files that are named in the configuration file and that a relay reads.
    pub(crate) named: BTreeSet<PathBuf>,
    /// SHA-256 of the bootstrap that was read, in hexadecimal.
    pub(crate) bootstrap: Option<String>,
    /// Environment variables in values of the file, with their own values.
    pub(super) values: Vec<(String, String)>,
}

impl Diagnostics {
    pub(crate) fn of(file: &Path) -> Self {
        Self {
            file: file.into(),
            faults: Vec::new(),
            unusable: Vec::new(),
            warnings: Vec::new(),
            named: BTreeSet::new(),
            bootstrap: None,
            values: Vec::new(),
        }
    }

    pub(crate) fn fault(&mut self, place: &FilePosition, reason: impl Into<String>) {
        self.faults.push(self.diagnostic(place, reason.into()));
    }

    pub(crate) fn unusable(&mut self, place: &FilePosition, reason: impl Into<String>) {
        self.unusable.push(self.diagnostic(place, reason.into()));
    }

    pub(crate) fn warn(&mut self, place: &FilePosition, reason: impl Into<String>) {
        self.warnings.push(self.diagnostic(place, reason.into()));
    }

    /// Records a file that is read, whatever its content is.
    pub(crate) fn name(&mut self, file: &Path) {
        self.named.insert(file.into());
    }

    /// Records variables that were substituted: their values may be secret.
    pub(crate) fn note_values(&mut self, values: Vec<(String, String)>) {
        self.values.extend(values.into_iter().filter(|value| !self.values.contains(value)).collect::<Vec<_>>());
    }

    /// Returns everything that was found, with the names of variables instead of their values.
    pub(crate) fn shown(mut self) -> Self {
        for one in self.faults.iter_mut().chain(&mut self.unusable).chain(&mut self.warnings) {
            one.reason = without_values(&one.reason, &self.values);
        }
        self
    }

    /// Reports that a section is incomplete, unless a fault in it may be the reason.
    pub(crate) fn lacks(&mut self, section: &FilePosition, reason: impl Into<String>) {
        if !self.has_fault_within(&section.path) {
            self.fault(section, reason);
        }
    }

    pub(crate) fn has_fault_within(&self, path: &str) -> bool {
        self.faults.iter().any(|fault| fault.path == self.file && encloses(path, &fault.at))
    }

    fn diagnostic(&self, place: &FilePosition, reason: String) -> Diagnostic {
        let known = |number: u64| Some(number).filter(|number| *number > 0);
        let (line, column) = (known(place.line), known(place.column));
        Diagnostic { path: self.file.clone(), line, column, at: place.path.clone(), reason }
    }
}

impl FilePosition {
    /// Whether paths and messages may quote a key of this section. In a section of headers, an operator may have written a
    /// value, which may be secret, in place of a name.
    pub(crate) fn may_quote(&self, key: &str) -> bool {
        !self.path.ends_with(".headers") || !may_have_value(key)
    }

    /// Returns the path of a key of this section.
    pub(crate) fn key(&self, key: &str) -> String {
        if !self.may_quote(key) {
            return self.path.clone();
        }
        let plain = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        match (plain, self.path.is_empty()) {
            (true, true) => key.into(),
            (true, false) => format!("{}.{key}", self.path),
            (false, _) => format!("{}[{key:?}]", self.path),
        }
    }

    /// Returns the place where a key of this section would be.
    pub(crate) fn below(&self, key: &str) -> Self {
        Self { line: self.line, column: self.column, path: self.key(key) }
    }

    pub(crate) fn item(&self, index: usize) -> String {
        format!("{}[{index}]", self.path)
    }
}

fn encloses(path: &str, other: &str) -> bool {
    let rest = other.strip_prefix(path);
    path.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        for number in [self.line, self.column].into_iter().map_while(|number| number) {
            write!(f, ":{number}")?;
        }
        if !self.at.is_empty() {
            write!(f, ": {}", self.at)?;
        }
        write!(f, ": {}", self.reason)
    }
}
