//! Why clients do not get on, counted by kind.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The first error of each kind, and how many there were. Errors that differ in numbers alone are of one kind.
#[derive(Debug, Default)]
pub struct Errors(Mutex<BTreeMap<String, Counted>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Counted {
    first: String,
    count: u64,
}

impl Errors {
    pub fn count(&self, error: &str) {
        let mut kinds = self.kinds();
        let kind = kind(error);
        if let Some(counted) = kinds.get_mut(&kind) {
            counted.count += 1;
            return;
        }
        let first: String = error.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        let (kind, first) = if kinds.len() < MAX_KINDS { (kind, first) } else { (OTHERS.into(), OTHERS.into()) };
        kinds.entry(kind).or_insert(Counted { first, count: 0 }).count += 1;
    }

    /// Returns the first error of each kind with its count, the most frequent first.
    pub fn counted(&self) -> Vec<(String, u64)> {
        let mut counted: Vec<_> = self.kinds().values().map(|of| (of.first.clone(), of.count)).collect();
        counted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counted
    }

    fn kinds(&self) -> MutexGuard<'_, BTreeMap<String, Counted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The text without its numbers, which differ from one client to the next.
fn kind(error: &str) -> String {
    let mut kind = String::new();
    for letter in error.chars().take(MAX_KIND) {
        match letter.is_ascii_digit() {
            true if kind.ends_with('#') => {}
            true => kind.push('#'),
            false => kind.push(letter),
        }
    }
    kind
}

const MAX_KINDS: usize = 20;
const MAX_KIND: usize = 300;
const OTHERS: &str = "other errors";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_differ_in_numbers_are_counted_together_and_the_kinds_are_bounded() {
        let errors = Errors::default();
        (1..=30).for_each(|client| errors.count(&format!("client {client} refused\r\n")));
        errors.count("reset");
        assert_eq!(errors.counted(), [("client 1 refused  ".to_owned(), 30), ("reset".to_owned(), 1)]);
        (0..100u8).for_each(|at| errors.count(&"x".repeat(usize::from(at) + 1)));
        let counted = errors.counted();
        assert_eq!(counted.len(), MAX_KINDS + 1);
        assert_eq!(counted[0], (OTHERS.to_owned(), 82));
    }
}
