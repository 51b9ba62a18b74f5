//! The header values that one server is shown. Any of its texts may quote any of them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderValue;

use super::quotes::{Quotes, quotes_of};

/// The configured values that a server was shown, and those that its streams show of clients. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct ShownValues(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// The values of the configuration, whose number is limited by it. Values of clients replace none of them.
    configured: Configured,
    /// The quoted forms of these values; `None` after they have changed.
    quotes: Option<Arc<Quotes>>,
    /// The values that streams show, and those in `left`.
    of_clients: OfClients,
    /// The last values of clients whose streams have ended. The server may still quote them.
    left: VecDeque<HeaderValue>,
}

#[derive(Clone, Default, PartialEq)]
struct Configured {
    /// Values in the configuration, or in the environment.
    fixed: Vec<HeaderValue>,
    /// The last values of each file.
    of_files: BTreeMap<PathBuf, VecDeque<HeaderValue>>,
}

/// For each quoted form, how many values have it.
#[derive(Default)]
struct OfClients(BTreeMap<Arc<[u8]>, usize>);

/// Keeps the values of a client that a stream shows, until it is dropped.
pub(crate) struct InUse {
    values: Vec<HeaderValue>,
    shown: ShownValues,
}

impl ShownValues {
    /// Adds a value that the configuration or an environment variable has.
    pub(crate) fn add(&self, value: &HeaderValue) {
        let mut known = self.lock();
        if !known.configured.fixed.contains(value) {
            known.configured.fixed.push(value.clone());
            known.quotes = None;
        }
    }

    /// Adds the present value of a file of the configuration.
    pub(crate) fn add_of_file(&self, path: &Path, value: &HeaderValue) {
        let mut known = self.lock();
        let of_file = match known.configured.of_files.get_mut(path) {
            Some(of_file) => of_file,
            None => known.configured.of_files.entry(path.into()).or_default(),
        };
        let before = of_file.iter().position(|known| known == value);
        let was_known = before.and_then(|at| of_file.remove(at)).is_some();
        of_file.push_back(value.clone()); // the newest is kept for longest
        if was_known {
            return;
        }
        if of_file.len() > OF_FILE {
            of_file.pop_front();
        }
        known.quotes = None;
    }

    /// Adds values of a client until the result is dropped.
    pub(crate) fn keep(&self, values: Vec<HeaderValue>) -> InUse {
        let mut known = self.lock();
        values.iter().for_each(|value| known.of_clients.add(value));
        drop(known);
        InUse { values, shown: self.clone() }
    }

    /// Returns how values of the configuration may be quoted. This is prepared without the lock, so that no other thread waits for it.
    pub(super) fn configured(&self) -> Arc<Quotes> {
        let known = self.lock();
        if let Some(configured) = known.quotes.clone() {
            return configured;
        }
        let values = known.configured.clone();
        drop(known);
        let configured = Arc::new(values.quotes());
        let mut known = self.lock();
        if known.configured == values {
            known.quotes = Some(configured.clone());
        }
        configured
    }

    /// Returns for each of the first `places` positions of a text how many bytes from there on are the whole value of a client; nothing if no such
    /// values are known. The text is short, so the lock is not held for long.
    pub(super) fn of_clients_in(&self, text: &[u8], places: usize) -> Vec<usize> {
        let known = self.lock();
        if known.of_clients.0.is_empty() {
            return Vec::new();
        }
        (0..text.len().min(places)).map(|at| known.of_clients.longest_at(&text[at..])).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Removes a value whose stream has ended. It is remembered for some time.
    fn leave(&mut self, value: HeaderValue) {
        if self.left.contains(&value) {
            self.of_clients.remove(&value);
            return;
        }
        self.left.push_back(value);
        if self.left.len() > LEFT
            && let Some(first) = self.left.pop_front()
        {
            self.of_clients.remove(&first);
        }
    }
}

impl Configured {
    fn quotes(&self) -> Quotes {
        Quotes::of(self.fixed.iter().chain(self.of_files.values().flatten()))
    }
}

impl OfClients {
    fn add(&mut self, value: &HeaderValue) {
        for quote in quotes_of(value.as_bytes()) {
            *self.0.entry(quote.into_bytes().into()).or_default() += 1;
        }
    }

    fn remove(&mut self, value: &HeaderValue) {
        for quote in quotes_of(value.as_bytes()) {
            if let Some(streams) = self.0.get_mut(quote.as_bytes()) {
                *streams -= 1;
                if *streams == 0 {
                    self.0.remove(quote.as_bytes());
                }
            }
        }
    }

    /// Returns the length of the longest value that a text begins with.
    fn longest_at(&self, mut text: &[u8]) -> usize {
        loop {
            let up_to = (Bound::Unbounded, Bound::Included(text));
            let Some((value, _)) = self.0.range::<[u8], _>(up_to).next_back() else { return 0 };
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
        self.values.drain(..).for_each(|value| known.leave(value));
    }
}

impl fmt::Debug for ShownValues {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ShownValues")
    }
}

/// The shown values do not distinguish servers, so any two are equal.
impl PartialEq for ShownValues {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ShownValues {}

/// A stream may have been opened with a value that a file had long ago.
const OF_FILE: usize = 32;
/// How many values of ended streams are remembered.
const LEFT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(shown: &ShownValues, text: &str) -> Vec<usize> {
        let (configured, text) = (shown.configured(), text.as_bytes());
        let of_clients = shown.of_clients_in(text, text.len());
        let of_client = |at| of_clients.get(at).copied().unwrap_or_default();
        (0..text.len()).map(|at| configured.length_at(&text[at..]).max(of_client(at))).collect()
    }

    #[test]
    fn values_of_the_configuration_stay_whatever_clients_show_and_a_file_has_its_last_ones() {
        let shown = ShownValues::default();
        shown.add(&HeaderValue::from_static("fix"));
        for value in ["f1", "f2", "f3", "f1"] {
            shown.add_of_file(Path::new("one"), &HeaderValue::from_static(value));
        }
        for number in 500..500 + OF_FILE - 2 {
            shown.add_of_file(Path::new("one"), &HeaderValue::from(number));
        }
        shown.add_of_file(Path::new("other"), &HeaderValue::from_static("o1"));
        for number in 1000..=1000 + LEFT {
            drop(shown.keep(vec![HeaderValue::from(number)]));
        }
        let found = |text| lengths(&shown, text)[0];
        assert_eq!(["fix", "f1", "f2", "f3", "o1"].map(found), [3, 2, 0, 2, 2], "f1 was shown again");
        assert_eq!(["1000", "1001", "1064"].map(found), [0, 4, 4], "of clients that have left");
    }

    #[test]
    fn a_value_of_a_client_is_found_while_a_stream_shows_it_and_remembered_after_that() {
        let shown = ShownValues::default();
        let values = ["ab", "abc", "abd", "abcde", "b"];
        let kept = shown.keep(values.map(HeaderValue::from_static).to_vec());
        let again = shown.keep(vec![HeaderValue::from_static("abc")]);
        let cases = [("abcd", [3, 1, 0, 0]), ("abzz", [2, 1, 0, 0]), ("abcz", [3, 1, 0, 0]), ("zabd", [0, 3, 1, 0])];
        let are_found = || {
            for (text, found) in cases {
                assert_eq!(lengths(&shown, text), found, "{text}");
            }
        };
        are_found();
        drop(kept);
        drop(again);
        are_found();
        for number in 1000..1000 + LEFT {
            drop(shown.keep(vec![HeaderValue::from(number)]));
        }
        assert_eq!(lengths(&shown, "abcde"), [0; 5]);
        assert_eq!(shown.lock().of_clients.0.len(), LEFT, "nothing else is left");
    }
}
