//! Why clients lost connections or lack resources, counted by kind.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The first error of each kind, and the count of the kind. Errors that differ only in numbers, addresses and identifiers are of one kind.
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
        let printable = |letter: char| if letter.is_control() { ' ' } else { letter };
        let first: String = error.chars().take(MAX_LENGTH).map(printable).collect();
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

/// Returns the text without words that have a digit: numbers and identifiers differ between clients.
fn kind(error: &str) -> String {
    let text: String = error.chars().take(MAX_LENGTH).collect();
    let is_apart = |letter: char| !letter.is_alphanumeric();
    let words = text.split_inclusive(is_apart).map(|piece| {
        let word = piece.trim_end_matches(is_apart);
        match word.contains(|letter: char| letter.is_ascii_digit()) {
            true => format!("#{}", &piece[word.len()..]),
            false => piece.to_owned(),
        }
    });
    words.collect()
}

const MAX_KINDS: usize = 20;
/// How many characters of an error count and are shown.
const MAX_LENGTH: usize = 300;
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

    #[test]
    fn errors_that_differ_in_identifiers_are_counted_together() {
        let errors = Errors::default();
        for number in 0..100_u32 {
            let id = number.wrapping_mul(2_654_435_761);
            errors.count(&format!("stream 0x{id:08x} of node-{number}.a1b2c3: refused by 10.0.0.{number}:18000"));
        }
        let counted = errors.counted();
        assert_eq!(counted.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [100], "{counted:?}");
        errors.count("stream ended");
        assert_eq!(errors.counted().len(), 2);
    }

    #[test]
    fn of_a_long_error_the_beginning_is_kept() {
        let errors = Errors::default();
        let long = "é ".repeat(1_000_000);
        errors.count(&long);
        errors.count(&long);
        let counted = errors.counted();
        assert_eq!(counted.len(), 1);
        assert_eq!((counted[0].0.chars().count(), counted[0].1), (MAX_LENGTH, 2));
    }
}
