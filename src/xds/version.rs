//! Versions made from content (I5): every replica, restart and source gives the same string for the same bytes.

use std::fmt;
use std::str::FromStr;

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// Says how the hashes below are made. A change here makes every client re-read everything once (XLAT-8).
const SCHEME: char = '1';

/// What identifies one resource's content. Two of them are kept for each resource, see [`super::Resource`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash(u128);

impl ContentHash {
    /// Of a type and body: all that a client of unwrapped SotW receives.
    pub(crate) fn of_body(type_name: &str, body: &[u8]) -> Self {
        let mut hasher = Xxh3::new();
        update_delimited(&mut hasher, type_name.as_bytes());
        hasher.update(body);
        Self(hasher.digest128())
    }

    /// Returns one of so many numbers, each as likely as the others.
    pub(super) fn remainder(self, count: usize) -> usize {
        (self.0 % count as u128) as usize
    }

    /// Of this content with further parts beside it, each delimited so that no two lists of parts look alike.
    pub(crate) fn with<'a>(self, parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = Xxh3::new();
        hasher.update(&self.0.to_le_bytes());
        for part in parts {
            update_delimited(&mut hasher, part);
        }
        Self(hasher.digest128())
    }
}

fn update_delimited(hasher: &mut Xxh3, part: &[u8]) {
    hasher.update(&(part.len() as u64).to_le_bytes());
    hasher.update(part);
}

/// The characters of a version: the scheme, a dot, and 22 digits of six bits each, short enough to be stated ten thousand times in one
/// request.
pub(crate) type VersionText = [u8; 24];

impl ContentHash {
    /// Its version without an allocation.
    pub fn text(self) -> VersionText {
        version_text(self.0)
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).unwrap_or_default())
    }
}

impl FromStr for ContentHash {
    type Err = ();

    /// A version that some relay has given. Those of other makers mean nothing here.
    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = text.strip_prefix(SCHEME).and_then(|text| text.strip_prefix('.')).ok_or(())?;
        let mut value = 0;
        for (place, digit) in digits.bytes().enumerate() {
            let digit = DIGITS.iter().position(|known| *known == digit).ok_or(())?;
            value |= (digit as u128).checked_shl(place as u32 * 6).ok_or(())?;
        }
        Some(Self(value)).filter(|hash| hash.to_string() == text).ok_or(())
    }
}

/// The version of a set of named contents: a sum, so that one change is one subtraction and one addition, in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetVersion(u128);

impl SetVersion {
    pub(crate) const EMPTY: Self = Self(0);

    /// The share of one named resource.
    pub(crate) fn of(name: &str, content: ContentHash) -> Self {
        let mut hasher = Xxh3::new();
        hasher.update(&content.0.to_le_bytes());
        hasher.update(name.as_bytes());
        // Zero is the version of the empty set; a share of zero could not be distinguished from it.
        Self(hasher.digest128().max(1))
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    pub(crate) fn plus(self, share: Self) -> Self {
        Self(self.0.wrapping_add(share.0))
    }

    pub(crate) fn minus(self, share: Self) -> Self {
        Self(self.0.wrapping_sub(share.0))
    }

    /// Its version without an allocation.
    pub fn text(self) -> VersionText {
        // Hashed once more: a sum of few shares would otherwise show the shares themselves.
        version_text(xxh3_128(&self.0.to_le_bytes()))
    }
}

impl fmt::Display for SetVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).unwrap_or_default())
    }
}

fn version_text(value: u128) -> VersionText {
    let mut text = [0; 24];
    (text[0], text[1]) = (SCHEME as u8, b'.');
    for (place, digit) in text[2..].iter_mut().enumerate() {
        *digit = DIGITS[((value >> (place * 6)) & 63) as usize];
    }
    text
}

const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_back_and_those_of_others_are_not() {
        let hash = ContentHash::of_body("a.B", b"body");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        for other in ["", "1.", "7", "2.wO3LTNca2xaFQUfb8TE1i1", "1.wO3LTNca2xaFQUfb8TE1i", "1.wO3LTNca2xaFQUfb8TE1i!"]
        {
            assert_eq!(other.parse::<ContentHash>(), Err(()), "{other}");
        }
        let long = format!("{hash}00000000");
        assert_eq!(long.parse::<ContentHash>(), Err(()));
    }

    #[test]
    fn xlat_2_the_strings_never_change_within_a_scheme() {
        let content = ContentHash::of_body("a.B", b"body");
        assert_eq!(content.to_string(), "1.wO3LTNca2xaFQUfb8TE1i1");
        assert_eq!(SetVersion::EMPTY.plus(SetVersion::of("n", content)).to_string(), "1.4X5UZLApFxilFqL1pwNdR2");
    }

    #[test]
    fn a_set_is_the_same_in_any_order_and_after_a_detour() {
        let share = |name| SetVersion::of(name, ContentHash::of_body("t", name.as_bytes()));
        let (a, b, c) = (share("a"), share("b"), share("c"));
        assert_eq!(a.plus(b), b.plus(a));
        assert_eq!(a.plus(c).plus(b).minus(c), a.plus(b));
        assert_eq!(a.minus(a), SetVersion::EMPTY);
        assert_ne!(a.plus(b).to_string(), a.plus(c).to_string());
    }

    #[test]
    fn parts_differ_by_where_they_end() {
        let base = ContentHash::of_body("t", b"");
        let two = [b"ab".as_slice(), b"c"];
        let other = [b"a".as_slice(), b"bc"];
        assert_ne!(base.with(two), base.with(other));
        assert_ne!(ContentHash::of_body("tx", b"y"), ContentHash::of_body("t", b"xy"));
    }
}
