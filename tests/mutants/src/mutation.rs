//! What is changed, and where.

use std::ops::Range;

use crate::tree::within;

/// One change of one place.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// From the root of the repository.
    pub file: String,
    pub line: usize,
    /// With its type: `Backoff::next`.
    pub function: String,
    /// What a reader is told: `a < b becomes a <= b`.
    pub change: String,
    pub place: Place,
}

/// How a change is put in so that a switch turns it on.
#[derive(Debug, Clone)]
pub enum Place {
    /// The function returns at once. The offset is behind its opening brace.
    Body { at: usize, value: String },
    /// The expression is another.
    Expression { range: Range<usize>, other: String },
    /// The statement is left out.
    Statement { range: Range<usize> },
    /// The arm of a `match` does not match. The offset is behind its pattern; `guarded` if a guard follows.
    Arm { at: usize, guard: Option<Range<usize>> },
}

impl Mutant {
    /// As docs/testing.md names it.
    pub fn name(&self) -> String {
        let file = within(&self.file).unwrap_or(&self.file);
        format!("{file}::{}: {}", self.function, self.change)
    }
}
