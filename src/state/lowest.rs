//! Records of the lowest open servers of a view, where its ladders go on.

use std::collections::BTreeMap;

use weir_core::protocol::sources::LowestOpen;
use weir_core::xds::Authority;

use super::records::{LowestRecord, ServerRecord};
use crate::relay::ServerPlaces;

/// Returns the records of the lowest open servers. `names` are the names of servers by their places in the plan, and `servers` the servers of the view's
/// record.
pub(super) fn records_of(
    lowest: &BTreeMap<Authority, LowestOpen>,
    names: &BTreeMap<u16, String>,
    servers: &[ServerRecord],
) -> Vec<LowestRecord> {
    let record = |(authority, lowest): (&Authority, &LowestOpen)| {
        let authority = match authority {
            Authority::TopLevel => None,
            Authority::Named(name) => Some(name.clone()),
        };
        let server = ServerRecord::place_among(servers, names.get(&lowest.server)?)?;
        Some(LowestRecord { authority, server, rank: u32::from(lowest.rank) })
    };
    lowest.iter().filter_map(record).collect()
}

/// Returns the lowest open servers. `places` are those of the servers of the view's record.
pub(super) fn lowest_of(records: &[LowestRecord], places: &ServerPlaces) -> BTreeMap<Authority, LowestOpen> {
    let lowest = |record: &LowestRecord| {
        let authority = record.authority.clone().map_or(Authority::TopLevel, Authority::Named);
        let server = u16::try_from(record.server).unwrap_or(u16::MAX);
        let rank = u8::try_from(record.rank).unwrap_or(u8::MAX);
        let lowest = places.of_lowest(LowestOpen { server, rank }, &authority);
        (authority, lowest)
    };
    records.iter().map(lowest).collect()
}
