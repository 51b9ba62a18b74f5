//! All rows of the table: each benchmark with the parameters of the gates, and with small ones.

use clap::{Args, FromArgMatches};

use super::Bench;
use super::parameters::{
    ApartArgs, ColdArgs, ConnectArgs, FanoutArgs, FrontArgs, IdleArgs, IngestArgs, MixedArgs, NeighbourArgs,
    ReconnectArgs, RestartArgs, ScaleClientsArgs, ScaleResourcesArgs, StallArgs, StormArgs,
};
use crate::wire::Variant;

/// Returns every row of the table.
pub fn all(variant: Variant) -> Vec<Box<dyn Bench>> {
    let mut benches = Vec::new();
    for line in [
        "--connections 2000 --size 1KiB",
        "--connections 100 --streams 40 --size 1KiB",
        "--connections 4000 --size 16KiB",
        "--connections 500 --size 1MiB --resources 1000",
        "--connections 500 --size 1MiB --resources 8",
        "--connections 500 --size 1MiB --resources 1",
    ] {
        benches.extend(parsed::<FanoutArgs>(line).benches(variant));
    }
    benches.extend(parsed::<MixedArgs>("").benches(variant));
    benches.extend(parsed::<ColdArgs>("").benches(variant));
    benches.extend(parsed::<StormArgs>("").benches(variant));
    benches.extend(parsed::<ConnectArgs>("").benches(variant));
    benches.extend(parsed::<IdleArgs>("").benches(variant));
    benches.extend(parsed::<StallArgs>("").benches(variant));
    benches.extend(parsed::<ScaleResourcesArgs>("").benches(variant));
    benches.extend(parsed::<ScaleClientsArgs>("").benches(variant));
    benches.extend(parsed::<IngestArgs>("").benches(variant));
    benches.extend(parsed::<NeighbourArgs>("").benches(variant));
    benches.extend(parsed::<ApartArgs>("").benches(variant));
    benches.extend(parsed::<ReconnectArgs>("").benches(variant));
    benches.extend(parsed::<RestartArgs>("").benches(variant));
    benches.extend(parsed::<FrontArgs>("").benches(variant));
    benches
}

/// Returns the same benchmarks with the smallest parameters.
pub fn quick(variant: Variant) -> Vec<Box<dyn Bench>> {
    let mut benches = Vec::new();
    for line in [
        "--connections 50 --rounds 5",
        "--connections 5 --streams 10 --rounds 5",
        "--connections 10 --size 1MiB --resources 8",
    ] {
        benches.extend(parsed::<FanoutArgs>(line).benches(variant));
    }
    benches.extend(parsed::<MixedArgs>("--connections 50 --resources 500 --seconds 1").benches(variant));
    benches.extend(parsed::<ColdArgs>("--connections 50").benches(variant));
    benches.extend(parsed::<StormArgs>("--connections 50 --resources 100").benches(variant));
    benches.extend(parsed::<ConnectArgs>("--connections 50").benches(variant));
    benches.extend(parsed::<IdleArgs>("--connections 50").benches(variant));
    benches.extend(parsed::<IdleArgs>("--connections 5 --streams 10").benches(variant));
    benches.extend(parsed::<StallArgs>("--connections 20 --size 100kB --updates 3").benches(variant));
    benches.extend(parsed::<ScaleResourcesArgs>("--connections 20 --few 100 --many 1000").benches(variant));
    benches.extend(parsed::<ScaleClientsArgs>("--few 20 --many 100 --rounds 20").benches(variant));
    benches.extend(parsed::<IngestArgs>("--resources 1000 --rounds 2").benches(variant));
    benches.extend(parsed::<NeighbourArgs>("--connections 10 --views 2 --neighbours 20").benches(variant));
    benches.extend(parsed::<ApartArgs>("--connections 50 --few 2 --rounds 3").benches(variant));
    benches.extend(parsed::<ReconnectArgs>("--connections 50 --resources 100").benches(variant));
    benches.extend(parsed::<RestartArgs>("--connections 50 --resources 100").benches(variant));
    benches.extend(parsed::<FrontArgs>("--connections 50 --changes 5 --starts 4 --seconds 1").benches(variant));
    benches
}

/// Parses parameters as on the command line.
fn parsed<A: Args + FromArgMatches>(line: &str) -> A {
    let command = A::augment_args(clap::Command::new("row").no_binary_name(true));
    let matches = command.try_get_matches_from(line.split_whitespace()).expect("a row of the table");
    A::from_arg_matches(&matches).expect("a row of the table")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_can_be_parsed_and_has_a_name_of_its_own() {
        for variant in [Variant::Delta, Variant::Sotw] {
            for rows in [all(variant), quick(variant)] {
                let names: std::collections::BTreeSet<_> = rows.iter().map(|row| row.name()).collect();
                assert_eq!(names.len(), rows.len());
                assert!(rows.iter().all(|row| !row.subjects().is_empty()));
            }
        }
    }

    #[test]
    fn every_gate_is_between_subjects_that_take_part() {
        for row in [Variant::Delta, Variant::Sotw].into_iter().flat_map(all) {
            let subjects = row.subjects();
            for gate in row.gates() {
                let mut named = gate.of.into_iter().chain(gate.against);
                assert!(named.all(|subject| subjects.contains(&subject)), "{}: {gate:?}", row.name());
            }
        }
    }
}
