//! Checks that numbers are not too large for their purpose, and do not contradict each other.

use super::checker::Checker;
use super::diagnostic::FilePosition;
use super::form::{Counted, Located, Setting, Size, size_text};

/// A number in force, as messages show it.
#[derive(Debug, Clone)]
pub(super) struct Amount<'a> {
    /// The path of the key.
    key: &'a str,
    pub(crate) value: usize,
    /// Where the file sets it.
    place: Option<&'a FilePosition>,
    is_size: bool,
}

impl<'a, T: Counted> From<&'a Setting<T>> for Amount<'a> {
    fn from(setting: &'a Setting<T>) -> Self {
        let value = setting.value.amount();
        Self { key: &setting.place.path, value, place: setting.given(), is_size: T::IS_SIZE }
    }
}

impl<'a, T: Counted> From<&'a Located<T>> for Amount<'a> {
    fn from(given: &'a Located<T>) -> Self {
        Self { key: &given.place.path, value: given.value.amount(), place: Some(&given.place), is_size: T::IS_SIZE }
    }
}

impl Amount<'_> {
    fn shown(&self) -> String {
        format!("{} {}", if self.is_size { "size" } else { "number" }, self.bare())
    }

    fn bare(&self) -> String {
        if self.is_size { size_text(self.value) } else { self.value.to_string() }
    }
}

/// Reports a size below `least`, or above `most`, which is what the format of messages or headers allows.
pub(super) fn within(size: &Setting<Size>, least: usize, most: usize, why: &str, checker: &mut Checker) {
    let (Some(place), Size(value)) = (size.given(), size.value) else { return };
    if value < least {
        let reason = format!("invalid size {}: expected {} or more", size_text(value), size_text(least));
        checker.fault(place, reason);
    } else if value > most {
        let reason = format!("invalid size {}: expected at most {}, {why}", size_text(value), size_text(most));
        checker.fault(place, reason);
    }
}

/// Reports a share that the file sets above its total. A default share is not reported: the total limits it.
pub(super) fn is_share_of<'a>(share: impl Into<Amount<'a>>, total: impl Into<Amount<'a>>, checker: &mut Checker) {
    let (share, total) = (share.into(), total.into());
    let Some(place) = share.place.filter(|_| share.value > total.value && are_known(&share, &total, checker)) else {
        return;
    };
    checker
        .fault(place, format!("invalid {}: expected at most {}, which is {}", share.shown(), total.bare(), total.key));
}

/// Reports a total that is smaller than one part of it, at the total if the file sets it, otherwise at the part.
pub(super) fn has_room_for<'a>(total: impl Into<Amount<'a>>, part: impl Into<Amount<'a>>, checker: &mut Checker) {
    let (total, part) = (total.into(), part.into());
    if total.value >= part.value || !are_known(&total, &part, checker) {
        return;
    }
    if let Some(place) = total.place {
        let (shown, least) = (total.shown(), part.bare());
        checker.fault(place, format!("invalid {shown}: expected at least {least}, which is {}", part.key));
    } else if let Some(place) = part.place {
        let (shown, most) = (part.shown(), total.bare());
        checker.fault(place, format!("invalid {shown}: expected at most {most}, which is {}", total.key));
    }
}

/// Whether neither amount has a fault of its own. An amount with a fault has its default here, which the file did not intend.
fn are_known(one: &Amount, other: &Amount, checker: &Checker) -> bool {
    [one, other].iter().all(|amount| !checker.has_fault_within(amount.key))
}

/// The length field of a gRPC message has 32 bits.
pub(super) const LONGEST_MESSAGE: usize = u32::MAX as usize;
