//! Connections with streams of many sharing keys.

use std::sync::Arc;
use std::time::Duration;

use super::crowd::Crowd;
use super::offender::{Offender, at_once};
use crate::content::{EDS, RDS};
use crate::link::{ADS_DELTA, scan};
use crate::origin::LOADS;

/// Opens streams that begin with the maximum of made-up names, in messages of the maximum size.
pub async fn name_floods(offender: Arc<Offender>) {
    let (connections, streams) = offender.spread(1, 100);
    let names = offender.count(100_000);
    at_once(&offender, connections, move |offender, connection| async move {
        let crowd = Crowd { path: ADS_DELTA, streams, open: streams, batch: 1, pause: FLOODS };
        let mut opened = 0;
        let first = |number: usize| {
            opened += 1; // other names each time
            let key = format!("made-up-{connection}-{number}");
            let node = scan::node(&key, &key);
            let names: Vec<_> = (0..names).map(|name| format!("{key}-{opened}-{name:06}-{}", "x".repeat(30))).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            vec![scan::delta_subscribe(EDS, Some(&node), &names), scan::delta_subscribe(RDS, None, &names)]
        };
        crowd.keep(&offender, first).await;
    })
    .await;
}

/// Opens streams of load reports, with more keys than a connection may have streams. The oldest streams end for new ones.
pub async fn load_pools(offender: Arc<Offender>) {
    let (connections, streams) = offender.spread(1, 12_000);
    at_once(&offender, connections, move |offender, connection| async move {
        let open = streams.min(offender.count(4000));
        let crowd = Crowd { path: LOADS, streams, open, batch: 10, pause: POOLS };
        let first = |number: usize| {
            let key = format!("pool-{connection}-{number}");
            vec![scan::load_report(&scan::node(&key, &key))]
        };
        crowd.keep(&offender, first).await;
    })
    .await;
}

/// Opens streams with a key and a resource of their own, which stay open.
pub async fn views(offender: Arc<Offender>) {
    let (connections, streams) = offender.spread(1, 60);
    at_once(&offender, connections, move |offender, connection| async move {
        let crowd = Crowd { path: ADS_DELTA, streams, open: streams, batch: 1, pause: VIEWS };
        let first = |number: usize| {
            let key = format!("key-{connection}-{number}");
            vec![scan::delta_subscribe(EDS, Some(&scan::node(&key, &key)), &[&offender.names[2]])]
        };
        crowd.keep(&offender, first).await;
    })
    .await;
}

/// The pause between two streams of a connection, or between two batches of ten.
const FLOODS: Duration = Duration::from_millis(100);
const POOLS: Duration = Duration::from_millis(10);
const VIEWS: Duration = Duration::from_millis(20);
