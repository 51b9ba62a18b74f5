//! Many streams of one client, and many requests on one stream.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, Status};

use super::crowd::Crowd;
use super::offender::{CLUSTER, Offender, at_once};
use crate::content::EDS;
use crate::link::{ADS_DELTA, Event, scan};
use crate::origin::LOADS;

pub async fn loads(offender: Arc<Offender>) {
    let count = offender.count(3000);
    at_once(&offender, 1, move |offender, _| async move {
        let request = scan::load_report(&offender.node);
        let mut link = offender.link().await;
        for _ in 0..count {
            let stream = offender.start(&mut link, LOADS);
            offender.send(&mut link, stream, &request);
        }
        offender.read_to_end(&mut link).await;
    })
    .await;
}

pub async fn made_up_nodes(offender: Arc<Offender>) {
    let count = offender.count(3000);
    at_once(&offender, 1, move |offender, _| async move {
        let mut link = offender.link().await;
        for number in 0..count {
            let node = scan::node(&format!("made-up-{number}"), &format!("made-up-{number}"));
            let stream = offender.start(&mut link, ADS_DELTA);
            offender.send(&mut link, stream, &scan::delta_subscribe(EDS, Some(&node), &[&offender.names[2]]));
        }
        offender.read_to_end(&mut link).await;
    })
    .await;
}

/// Opens streams that send one small request and stay open. Every other one has a node of its own.
pub async fn bare(offender: Arc<Offender>) {
    let (connections, streams) = offender.spread(100, 100 * 4096);
    at_once(&offender, connections, move |offender, connection| async move {
        let crowd = Crowd { path: ADS_DELTA, streams, open: streams, batch: 10, pause: BARE };
        let first = |number: usize| {
            let own = scan::node(&format!("bare-{connection}-{number}"), CLUSTER);
            let node = if number.is_multiple_of(2) { &own } else { &offender.node };
            vec![scan::delta_subscribe(EDS, Some(node), &["made-up-bare"])]
        };
        crowd.keep(&offender, first).await;
    })
    .await;
}

/// Opens streams, and sends no message on them.
pub async fn silent(offender: Arc<Offender>) {
    let (connections, streams) = offender.spread(10, 20_000);
    at_once(&offender, connections, move |offender, _| async move {
        let crowd = Crowd { path: ADS_DELTA, streams, open: streams, batch: 10, pause: SILENT };
        crowd.keep(&offender, |_| Vec::new()).await;
    })
    .await;
}

pub async fn nacks(offender: Arc<Offender>) {
    at_once(&offender, 1, |offender, _| async move {
        let node = scan::node(&format!("node\n{FORGED}"), CLUSTER);
        let mut link = offender.link().await;
        let stream = offender.start(&mut link, ADS_DELTA);
        offender.send(&mut link, stream, &scan::delta_subscribe(EDS, Some(&node), &[&offender.names[2]]));
        loop {
            let event = link.next().await;
            let Event::Message(_, response) = &event else {
                if offender.has_closed(&event) || matches!(event, Event::Ended(..)) {
                    return;
                }
                continue;
            };
            let Some(seen) = scan::delta(response) else { continue };
            let nack = nack(&String::from_utf8_lossy(&seen.nonce));
            // A NACK may repeat the last nonce, since the resource does not change.
            loop {
                offender.send(&mut link, stream, &nack);
                if !offender.make_room(&mut link, stream).await {
                    return;
                }
            }
        }
    })
    .await;
}

fn nack(nonce: &str) -> Vec<u8> {
    let message = format!("rejected\n{FORGED} {}", "x".repeat(1000));
    DeltaDiscoveryRequest {
        type_url: EDS.into(),
        response_nonce: nonce.into(),
        error_detail: Some(Status { code: 13, message }),
        ..Default::default()
    }
    .encode_to_vec()
}

/// A text that no log line may begin with.
pub const FORGED: &str = "2026-01-01T00:00:00Z ERROR weir: this line is forged";
/// The pause between two batches of ten streams on a connection.
const BARE: Duration = Duration::from_millis(100);
const SILENT: Duration = Duration::from_millis(10);
