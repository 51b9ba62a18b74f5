//! Records of the removals that brakes hold.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_core::protocol::view::{BrakeState, Class, HeldRemoval, SetState};
use weir_core::xds::Name;

use super::records::{BrakeRecord, HeldRecord, ServerRecord};
use crate::relay::{NotedBrakes, ServerPlaces};

/// Returns the records of the held removals of a view. `names` are the names of servers by their places in the plan, and `servers` the servers of the
/// view's record. The age of a held removal only grows while a server responds (`any_responds`).
pub(super) fn records_of(
    noted: &NotedBrakes,
    any_responds: bool,
    names: &BTreeMap<u16, String>,
    servers: &[ServerRecord],
) -> Vec<BrakeRecord> {
    let since = noted.at.map(|at| at.elapsed()).filter(|_| any_responds).unwrap_or_default();
    let place = |server: u16| ServerRecord::place_among(servers, names.get(&server)?);
    let passed = |set: &SetState| if set.is_stopped { Duration::ZERO } else { since };
    let held = |held: &HeldRemoval, passed: Duration| {
        Some(HeldRecord {
            name: held.name.to_string(),
            age: milliseconds(held.age + passed),
            generation: held.generation,
            emptied: held.emptied,
            server: place(held.server)?,
        })
    };
    let record = |set: &SetState| BrakeRecord {
        type_name: set.type_name.clone(),
        glob: set.glob.as_ref().map(Name::to_string),
        start_size: set.start_size as u64,
        empty_for: set.empty_for.map(|age| milliseconds(age + passed(set))),
        removals: set.removals.iter().filter_map(|of| held(of, passed(set))).collect(),
    };
    noted.state.sets.iter().filter(|set| !set.removals.is_empty()).map(record).collect()
}

/// Returns what the brakes held. `places` are those of the servers of the view's record.
pub(super) fn state_of(records: &[BrakeRecord], places: &ServerPlaces) -> BrakeState {
    let set = |record: &BrakeRecord| {
        let class = if record.glob.is_some() { Class::Named } else { Class::Wildcard };
        let held = |held: &HeldRecord| {
            let name = Name::from(&*held.name);
            let (server, rank) = places.of_resource(held.server as usize, class, &name)?;
            let age = Duration::from_millis(held.age);
            Some(HeldRemoval { name, age, generation: held.generation, emptied: held.emptied, server, rank })
        };
        SetState {
            type_name: record.type_name.clone(),
            glob: record.glob.as_deref().map(Name::from),
            sizes: Vec::new(),
            is_stopped: false,
            start_size: usize::try_from(record.start_size).unwrap_or(usize::MAX),
            empty_for: record.empty_for.map(Duration::from_millis),
            removals: record.removals.iter().filter_map(held).collect(),
        }
    };
    BrakeState { sets: records.iter().map(set).collect() }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
