//! Parts of an id in a key, such as the first one of `router~10.0.0.1~gateway.shop~shop.svc`.

use std::iter::repeat_n;
use std::num::NonZeroUsize;

/// One part of an id whose parts are separated by a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdPart {
    number: NonZeroUsize,
    separator: Box<str>,
}

impl IdPart {
    /// Returns the part of this number, 1 for the first one. `None` if the separator is empty.
    pub fn new(number: NonZeroUsize, separator: &str) -> Option<Self> {
        (!separator.is_empty()).then(|| Self { number, separator: separator.into() })
    }

    /// Returns the part's number: 1 is the first part.
    pub fn number(&self) -> usize {
        self.number.get()
    }

    /// Returns the text that separates the parts.
    pub fn separator(&self) -> &str {
        &self.separator
    }

    /// Returns this part of an id. It is empty if the id has fewer parts.
    pub(super) fn of<'i>(&self, id: &'i str) -> &'i str {
        id.split(self.separator()).nth(self.number() - 1).unwrap_or_default()
    }
}

/// Returns an id that has only these parts of `id`, each at its position, and is empty elsewhere. So these parts are the same in both, and the
/// result is not longer than `id`. Parts with different separators have no common positions: then the whole id is returned.
pub(super) fn kept(parts: &[&IdPart], id: &str) -> String {
    let [first, others @ ..] = parts else { return String::new() };
    let separator = first.separator();
    if others.iter().any(|other| other.separator() != separator) {
        return id.to_owned();
    }
    let (mut kept, mut due) = (String::new(), 0);
    for (at, part) in id.split(separator).enumerate() {
        if !part.is_empty() && parts.iter().any(|of| of.number() == at + 1) {
            kept.extend(repeat_n(separator, due));
            kept.push_str(part);
            due = 0;
        }
        due += 1;
    }
    kept
}
