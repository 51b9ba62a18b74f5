//! The available memory, and the limits that are by default a part of it.

use super::checker::Checker;
use super::form::{Located, Size, size_text};
use super::raw;
use crate::memory::{Budget, MachineMemory};

pub(super) fn check(limits: &raw::Limits, checker: &mut Checker) -> Budget {
    let budget = match checker.machine() {
        Some(bytes) => Budget::on(limits.memory.0, Some(MachineMemory::stated(bytes))),
        None => Budget::of(limits.memory.0),
    };
    if let Some(place) = limits.memory.given().filter(|_| (1..LEAST).contains(&budget.bytes)) {
        let (found, least) = (size_text(budget.bytes), size_text(LEAST));
        checker
            .fault(place, format!("{found} is too little: expected at least {least}, which the program needs itself"));
    }
    if let Some(machine) = budget.exceeds()
        && let Some(place) = limits.memory.given()
    {
        let MachineMemory { bytes, source } = machine;
        checker.warn(place, format!("more than there is: {} MiB ({source})", bytes >> 20));
    }
    let stated = [&limits.incomplete_request_bytes, &limits.outdated_reply_bytes, &limits.cached_bytes]
        .into_iter()
        .chain([&limits.stated_versions_bytes]);
    for size in stated.flatten().filter(|size| budget.bytes > 0 && size.value.0 > budget.bytes) {
        let (shown, all) = (size_text(size.value.0), budget.bytes >> 20);
        checker.warn(&size.place, format!("{shown} is more than limits.memory, which is {all} MiB here"));
    }
    budget
}

/// Returns the value in the file, or else this percentage of the memory.
pub(super) fn or_part(given: &Option<Located<Size>>, memory: &Budget, percent: usize) -> usize {
    given.as_ref().map_or_else(|| memory.part(percent), |size| size.value.0)
}

const LEAST: usize = 16 << 20;
