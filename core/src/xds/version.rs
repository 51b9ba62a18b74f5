//! Versions computed from content (I5): every replica, restart and source gives the same string for the same bytes.

use std::fmt;
use std::str::FromStr;

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// Identifies how the hashes below are computed. A change makes every client receive everything once more (XLAT-8).
const SCHEME: char = '1';

/// The hash of one resource's content. Each resource has two of them, see [`super::Resource`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash(u128);

impl ContentHash {
    /// Hashes type and body: all that a client of unwrapped SotW receives.
    pub fn of_body(type_name: &str, body: &[u8]) -> Self {
        let mut hasher = Xxh3::new();
        update_delimited(&mut hasher, type_name.as_bytes());
        hasher.update(body);
        Self(hasher.digest128())
    }

    /// Returns a number below `count`. All numbers are equally likely.
    pub(super) fn remainder(self, count: usize) -> usize {
        (self.0 % count as u128) as usize
    }

    /// Hashes this content with further parts, each delimited so that different lists of parts differ.
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

/// The characters of a version: the scheme, a dot, and 22 digits of six bits each. It is short, because a request may state ten thousand of
/// them.
pub type VersionText = [u8; 24];

impl ContentHash {
    /// Returns the hash in the form in which it is stored.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Reads what `to_bytes` returned.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// Returns the version without an allocation.
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

    /// Parses a version that a relay has made. Other versions are errors.
    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = text.strip_prefix(SCHEME).and_then(|text| text.strip_prefix('.')).ok_or(())?;
        let mut value = 0;
        for (place, digit) in digits.bytes().enumerate() {
            let digit = VALUES[digit as usize];
            if digit == NO_DIGIT {
                return Err(());
            }
            value |= u128::from(digit).checked_shl(place as u32 * 6).ok_or(())?;
        }
        Some(Self(value)).filter(|hash| hash.text() == *text.as_bytes()).ok_or(())
    }
}

/// The version of a set of named resources: a sum, so that a change is one subtraction and one addition, in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetVersion(u128);

impl SetVersion {
    /// The version of a set without resources.
    pub const EMPTY: Self = Self(0);

    /// Returns the share of one named resource.
    pub fn of(name: &str, content: ContentHash) -> Self {
        let mut hasher = Xxh3::new();
        hasher.update(&content.0.to_le_bytes());
        hasher.update(name.as_bytes());
        // Zero is the version of the empty set, so a share must not be zero.
        Self(hasher.digest128().max(1))
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// Returns the sum in the form in which it is stored.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Reads what `to_bytes` returned.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    pub(crate) fn plus(self, share: Self) -> Self {
        Self(self.0.wrapping_add(share.0))
    }

    pub(crate) fn minus(self, share: Self) -> Self {
        Self(self.0.wrapping_sub(share.0))
    }

    /// Returns the version without an allocation.
    pub fn text(self) -> VersionText {
        // Hashed once more: the sum of a few shares would otherwise reveal the shares.
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
/// The value of each byte as a digit. This is a table because a request may state ten thousand versions.
const VALUES: [u8; 256] = {
    let (mut values, mut digit) = ([NO_DIGIT; 256], 0);
    while digit < DIGITS.len() {
        values[DIGITS[digit] as usize] = digit as u8;
        digit += 1;
    }
    values
};
const NO_DIGIT: u8 = u8::MAX;

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
