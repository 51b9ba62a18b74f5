//! Random outages of three servers, in virtual time, under both rules of fallback:
//! - connections are refused, hang or stay half-open, and streams end before or after the first response;
//! - servers lack what others have, or are mute, and entries have no body;
//! - sets come in parts up to a minute apart, or everything comes again, differences only, or nothing;
//! - servers answer to foreign versions or do not, and replicas have versions of their own;
//! - after a pause a server continues with earlier requests;
//! - clients connect with what they hold, and disconnect.
//!
//! Invariants:
//! - A client does not lose what the active server has had all the time.
//! - No client is sent an absence of what every server has.
//! - Nothing known is forgotten while it is wanted.
//! - No server is left too soon after a return.
//! - Silence counts only if the server was alive after it.
//! - A client without state waits only for the first response of a server that sends complete sets.
//!
//! When all servers stay up in the end, the first one is active, the view and the clients have what it sent, and clients without state do not
//! wait. Each row of the state table (FB-11) has to be reached.

mod holder;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::collections::BTreeSet;

use support::random::number;
use world::World;

/// The rows that a history can reach. While a server is active, a new subscription is row 14, and one that ends row 15.
const ROWS: [u8; 21] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21];

fn run(seed: u64) -> Result<BTreeSet<u8>, String> {
    let mut world = World::new(seed);
    world.live().map_err(|why| format!("WEIR_SEED={seed} WEIR_HISTORIES=1: {why}"))?;
    Ok(world.rows)
}

#[test]
fn no_outage_takes_anything_from_anybody_and_the_first_server_serves_in_the_end() {
    let (first, histories) = (number("WEIR_SEED").unwrap_or(1), number("WEIR_HISTORIES").unwrap_or(100));
    let mut reached = BTreeSet::new();
    for seed in first..first + histories {
        reached.extend(run(seed).unwrap());
    }
    // A fault that is planted has to be noticed by what it does, and not by what it leaves out.
    if histories > 100 && std::env::var_os("WEIR_MUTANT").is_none() {
        let missing: Vec<_> = ROWS.iter().filter(|row| !reached.contains(row)).collect();
        assert!(missing.is_empty(), "rows of the table that no history reached: {missing:?}");
    }
    println!("{histories} histories; rows reached: {reached:?}");
}
