//! Numbers that must not be too large for what they are for, and numbers that must not contradict each other.

use super::checker::Checker;
use super::diagnostic::Place;
use super::form::{Located, Size, size_text};

/// A number in force: the default, unless there is a place that sets it.
#[derive(Debug, Clone)]
pub(super) struct Setting<'a> {
    /// The path of the key.
    pub(crate) key: &'static str,
    pub(crate) value: usize,
    pub(crate) place: Option<&'a Place>,
    unit: Unit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Number,
}

impl<'a> Setting<'a> {
    pub(crate) fn size(key: &'static str, value: usize, given: &'a Option<Located<Size>>) -> Self {
        Self { key, value, place: given.as_ref().map(|given| &given.place), unit: Unit::Bytes }
    }

    pub(crate) fn number<T>(key: &'static str, value: usize, given: &'a Option<Located<T>>) -> Self {
        Self { key, value, place: given.as_ref().map(|given| &given.place), unit: Unit::Number }
    }

    fn shown(&self, value: usize) -> String {
        match self.unit {
            Unit::Bytes => format!("size {}", size_text(value)),
            Unit::Number => format!("number {value}"),
        }
    }

    fn bare(&self) -> String {
        if self.unit == Unit::Bytes { size_text(self.value) } else { self.value.to_string() }
    }
}

/// Reports a size below `least`, or above what the format of messages or headers can say.
pub(super) fn within(given: &Option<Located<Size>>, least: usize, most: usize, why: &str, checker: &mut Checker) {
    let Some(Located { place, value: Size(value) }) = given else { return };
    if *value < least {
        let reason = format!("invalid size {}: expected {} or more", size_text(*value), size_text(least));
        checker.fault(place, reason);
    } else if *value > most {
        let reason = format!("invalid size {}: expected at most {}, {why}", size_text(*value), size_text(most));
        checker.fault(place, reason);
    }
}

/// Reports a share that was set above its total. A share by default is not reported: the total then bounds it.
pub(super) fn is_share_of(share: &Setting, total: &Setting, checker: &mut Checker) {
    let Some(place) = share.place.filter(|_| share.value > total.value && are_known(share, total, checker)) else {
        return;
    };
    let (shown, most) = (share.shown(share.value), total.bare());
    checker.fault(place, format!("invalid {shown}: expected at most {most}, which is {}", total.key));
}

/// Reports a total that has no room for one part. It is reported where either was set, the total first.
pub(super) fn has_room_for(total: &Setting, part: &Setting, checker: &mut Checker) {
    if total.value >= part.value || !are_known(total, part, checker) {
        return;
    }
    if let Some(place) = total.place {
        let (shown, least) = (total.shown(total.value), part.bare());
        checker.fault(place, format!("invalid {shown}: expected at least {least}, which is {}", part.key));
    } else if let Some(place) = part.place {
        let (shown, most) = (part.shown(part.value), total.bare());
        checker.fault(place, format!("invalid {shown}: expected at most {most}, which is {}", total.key));
    }
}

/// Whether neither has a fault of its own: then it has its default here, which nobody meant.
fn are_known(one: &Setting, other: &Setting, checker: &Checker) -> bool {
    [one, other].iter().all(|setting| !checker.has_fault_within(setting.key))
}

/// The length before a gRPC message has 32 bits.
pub(super) const LONGEST_MESSAGE: usize = u32::MAX as usize;
