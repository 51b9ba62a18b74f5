//! A mutant: what is changed, and where.

use std::ops::Range;

use crate::tree::within;

/// One change at one place.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// The path from the root of the repository.
    pub file: String,
    pub line: usize,
    /// The name of the function with its type: `Backoff::next`.
    pub function: String,
    /// The description in the report: `a < b becomes a <= b`.
    pub change: String,
    pub place: Place,
}

/// How the change is written so that a switch turns it on.
#[derive(Debug, Clone)]
pub enum Place {
    /// The function returns at once. The offset is after its opening brace.
    Body { at: usize, value: String },
    /// The expression is replaced by another one.
    Expression { range: Range<usize>, other: String },
    /// The statement is omitted.
    Statement { range: Range<usize> },
    /// The arm of a `match` does not match. The offset is after its pattern; `guard`: the guard that follows, if there is one.
    Arm { at: usize, guard: Option<Range<usize>> },
}

impl Mutant {
    /// Returns the name by which docs/testing.md refers to the mutant.
    pub fn name(&self) -> String {
        let file = within(&self.file).unwrap_or(&self.file);
        format!("{file}::{}: {}", self.function, self.change)
    }
}
