//! Headers that the configuration has for a server, and what it was shown of them.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{HeaderName, HeaderValue};

/// A header of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerHeader {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderSource,
}

/// Where the value of a header is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HeaderSource {
    /// In the configuration.
    Given(HeaderValue),
    /// In this environment variable, which does not change while the relay runs.
    Variable(String, HeaderValue),
    /// In this file, which is read each time.
    File(PathBuf),
}

/// Returns the value that a text has, without the spaces and line breaks around it.
pub(crate) fn header_value(text: &[u8]) -> Option<HeaderValue> {
    let text = text.trim_ascii();
    let mut value = HeaderValue::from_bytes(text).ok().filter(|_| !text.is_empty() && text.len() <= LONGEST)?;
    value.set_sensitive(true);
    Some(value)
}

/// The values that a server was shown last: what it says may quote them. Clones know the same.
#[derive(Clone, Default)]
pub(crate) struct ShownValues(Arc<Mutex<VecDeque<HeaderValue>>>);

impl ShownValues {
    pub(super) fn add(&self, value: &HeaderValue) {
        let mut values = self.lock();
        if !values.contains(value) {
            if values.len() >= KNOWN_VALUES {
                values.pop_front();
            }
            values.push_back(value.clone());
        }
    }

    pub(super) fn all(&self) -> Vec<HeaderValue> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<HeaderValue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

/// How many bytes a value may have. Servers limit the headers of a request to 8 KiB or more.
pub(super) const LONGEST: usize = 4 << 10;
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
        assert_eq!((shown.all().len(), &shown.all()[0]), (KNOWN_VALUES, &HeaderValue::from(1)));
    }
}
