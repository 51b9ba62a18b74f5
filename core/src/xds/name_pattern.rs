//! Patterns of names in rules.

use std::fmt;

/// A name, or a prefix with `*` at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamePattern {
    /// Exactly this name.
    Exactly(Box<str>),
    /// All names that begin with this.
    Under(Box<str>),
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(text) => f.write_str(text),
            Self::Under(start) => write!(f, "{start}*"),
        }
    }
}

impl NamePattern {
    /// Reads a pattern; a `*` at its end means any rest.
    pub fn parse(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some(start) => Self::Under(start.into()),
            None => Self::Exactly(text.into()),
        }
    }

    /// Whether a name matches the pattern.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exactly(text) => **text == *name,
            Self::Under(start) => name.starts_with(&**start),
        }
    }
}
