//! The faults of a resource file, with their places.

use std::fmt;

use crate::transcode::error::FieldPath;

/// All faults of a file.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub struct DocumentError {
    /// The first faults, in the order of the file.
    pub faults: Vec<DocumentFault>,
    /// The number of further faults.
    pub more: usize,
}

/// One fault of a file, with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentFault {
    pub(crate) line: Option<u64>,
    pub(crate) at: FieldPath,
    pub(crate) reason: String,
}

impl DocumentFault {
    /// Returns the line of the file, from 1, if it is known.
    pub fn line(&self) -> Option<u64> {
        self.line
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (number, fault) in self.faults.iter().enumerate() {
            write!(f, "{}{fault}", if number == 0 { "" } else { "; " })?;
        }
        if self.more > 0 {
            write!(f, "; and {} more", self.more)?;
        }
        Ok(())
    }
}

impl fmt::Display for DocumentFault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.at.is_empty() {
            write!(f, "{}: ", self.at)?;
        }
        f.write_str(&self.reason)
    }
}
