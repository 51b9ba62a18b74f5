//! The errors of conversions, with their places.

use std::fmt;

/// One step of the path to a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Field(String),
    Index(usize),
    Key(String),
}

/// The path to a field, outermost step first. Fields are spelled as in the input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldPath(pub(crate) Vec<Step>);

impl FieldPath {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (number, step) in self.0.iter().enumerate() {
            match step {
                Step::Field(name) if number == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => write!(f, "[{key:?}]")?,
            }
        }
        Ok(())
    }
}

/// Why a message cannot be converted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TranscodeError {
    /// A type has no descriptor.
    #[error("{}there is no descriptor of {type_name}", context(message, at, *line))]
    UnknownType {
        /// The outermost message.
        message: String,
        /// The type without a descriptor.
        type_name: String,
        /// Where in the message.
        at: FieldPath,
        /// The line of the text, from 1, if it was a text.
        line: Option<u64>,
    },
    /// The value cannot be converted.
    #[error("{}{reason}", context(message, at, *line))]
    Refused {
        /// The outermost message.
        message: String,
        /// Where in the message.
        at: FieldPath,
        /// The line of the text, from 1, if it was a text.
        line: Option<u64>,
        /// What is wrong and what is expected.
        reason: String,
    },
    /// The operator's descriptors cannot be used.
    #[error("{0}")]
    Descriptors(String),
}

impl TranscodeError {
    pub(crate) fn place(&self) -> Option<&FieldPath> {
        match self {
            Self::UnknownType { at, .. } | Self::Refused { at, .. } => Some(at),
            Self::Descriptors(_) => None,
        }
    }

    /// Returns the line in the text, if there was a text and the line is known.
    pub fn line(&self) -> Option<u64> {
        match self {
            Self::UnknownType { line, .. } | Self::Refused { line, .. } => *line,
            Self::Descriptors(_) => None,
        }
    }

    /// Returns the reason without the place.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::UnknownType { type_name, .. } => format!("there is no descriptor of {type_name}"),
            Self::Refused { reason, .. } | Self::Descriptors(reason) => reason.clone(),
        }
    }
}

fn context(message: &str, at: &FieldPath, line: Option<u64>) -> String {
    let mut text = message.to_owned();
    if !at.is_empty() {
        text += &format!(", {at}");
    }
    if let Some(line) = line {
        text += &format!(", line {line}");
    }
    if !text.is_empty() {
        text += ": ";
    }
    text
}

/// An error that is returned level by level, each of which adds its step. So no path is built unless there is an error.
#[derive(Debug)]
pub(super) struct Problem {
    pub(crate) kind: ProblemKind,
    /// The steps of the path, the innermost first.
    pub(crate) steps: Vec<Step>,
    pub(crate) line: Option<u64>,
}

#[derive(Debug)]
pub(super) enum ProblemKind {
    UnknownType(String),
    Refused(String),
}

pub(super) type Outcome<T> = Result<T, Problem>;

impl Problem {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { kind: ProblemKind::Refused(reason.into()), steps: Vec::new(), line: None }
    }

    pub(crate) fn unknown_type(name: &str) -> Self {
        Self { kind: ProblemKind::UnknownType(name.into()), steps: Vec::new(), line: None }
    }

    pub(crate) fn under(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub(crate) fn of(mut self, message: &str) -> TranscodeError {
        self.steps.reverse();
        let (message, at, line) = (message.to_owned(), FieldPath(self.steps), self.line);
        match self.kind {
            ProblemKind::UnknownType(type_name) => TranscodeError::UnknownType { message, type_name, at, line },
            ProblemKind::Refused(reason) => TranscodeError::Refused { message, at, line, reason },
        }
    }
}

pub(super) fn refuse<T>(reason: impl Into<String>) -> Outcome<T> {
    Err(Problem::new(reason))
}
