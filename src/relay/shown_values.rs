//! The header values that one server is shown: whatever it says may quote any of them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderValue;

use super::quotes::quotes_of;

/// What a server was shown of the configuration, and what streams to it show of clients. Clones know the same.
#[derive(Clone, Default)]
pub(crate) struct ShownValues(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// Those of the configuration that were shown last, and those of clients whose streams have ended: a server may speak of them later.
    last: VecDeque<HeaderValue>,
    /// How many streams show what may be quoted so.
    of_clients: BTreeMap<Vec<u8>, usize>,
}

/// What a stream shows of a client, until it is dropped.
pub(crate) struct InUse {
    values: Vec<HeaderValue>,
    shown: ShownValues,
}

impl ShownValues {
    /// A server is shown a value of the configuration.
    pub(crate) fn add(&self, value: &HeaderValue) {
        self.lock().add(value);
    }

    /// A server is shown these for as long as what is returned is kept.
    pub(crate) fn keep(&self, values: Vec<HeaderValue>) -> InUse {
        let mut known = self.lock();
        for quote in values.iter().flat_map(|value| quotes_of(value.as_bytes())) {
            *known.of_clients.entry(quote.into_bytes()).or_default() += 1;
        }
        drop(known);
        InUse { values, shown: self.clone() }
    }

    /// Returns those of the configuration, and of clients that have left.
    pub(crate) fn last(&self) -> Vec<HeaderValue> {
        self.lock().last.iter().cloned().collect()
    }

    /// Returns of how many bytes a value of a client is that begins there, for each byte of a text.
    pub(super) fn of_clients_in(&self, text: &[u8]) -> Vec<usize> {
        let known = self.lock();
        (0..text.len()).map(|at| known.longest_at(&text[at..])).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn add(&mut self, value: &HeaderValue) {
        if !self.last.contains(value) {
            if self.last.len() >= KNOWN_VALUES {
                self.last.pop_front();
            }
            self.last.push_back(value.clone());
        }
    }

    /// Returns the length of the longest value of a client that a text begins with.
    fn longest_at(&self, mut text: &[u8]) -> usize {
        loop {
            let up_to = (Bound::Unbounded, Bound::Included(text));
            let Some((value, _)) = self.of_clients.range::<[u8], _>(up_to).next_back() else { return 0 };
            let common = value.iter().zip(text).take_while(|(one, other)| one == other).count();
            if common == value.len() {
                return common;
            }
            text = &text[..common]; // a longer beginning of the text would come after this value
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut known = self.shown.lock();
        for value in &self.values {
            for quote in quotes_of(value.as_bytes()) {
                if let Some(streams) = known.of_clients.get_mut(quote.as_bytes()) {
                    *streams -= 1;
                    if *streams == 0 {
                        known.of_clients.remove(quote.as_bytes());
                    }
                }
            }
            known.add(value);
        }
    }
}

impl fmt::Debug for ShownValues {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ShownValues")
    }
}

/// What servers were shown does not tell them apart.
impl PartialEq for ShownValues {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ShownValues {}

/// More than a server has headers. A file that is renewed leaves values of before.
const KNOWN_VALUES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_shown_is_remembered_up_to_a_limit() {
        let shown = ShownValues::default();
        for number in 0..=KNOWN_VALUES {
            shown.add(&HeaderValue::from(number));
            shown.add(&HeaderValue::from(number));
        }
        assert_eq!((shown.last().len(), &shown.last()[0]), (KNOWN_VALUES, &HeaderValue::from(1)));
    }

    #[test]
    fn a_value_of_a_client_is_found_while_a_stream_shows_it_and_remembered_after_that() {
        let shown = ShownValues::default();
        let values = ["ab", "abc", "abd", "abcde", "b"];
        let kept = shown.keep(values.map(HeaderValue::from_static).to_vec());
        let again = shown.keep(vec![HeaderValue::from_static("abc")]);
        for (text, found) in
            [("abcd", [3, 1, 0, 0]), ("abzz", [2, 1, 0, 0]), ("abcz", [3, 1, 0, 0]), ("zabd", [0, 3, 1, 0])]
        {
            assert_eq!(shown.of_clients_in(text.as_bytes()), found, "{text}");
        }
        assert!(shown.last().is_empty());
        drop(kept);
        assert_eq!(shown.of_clients_in(b"abcde"), [3, 0, 0, 0, 0]);
        assert_eq!(shown.last(), values);
        drop(again);
        assert_eq!(shown.of_clients_in(b"abc"), [0, 0, 0]);
    }
}
