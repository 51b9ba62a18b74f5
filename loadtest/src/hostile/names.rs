//! Subscriptions to many names that do not exist.

use std::sync::Arc;

use prost::Message;
use weir_core::proto::discovery::DeltaDiscoveryRequest;

use super::offender::{Offender, at_once};
use crate::content::EDS;
use crate::link::{ADS_DELTA, ADS_SOTW, scan};
use crate::wire::Variant;

pub async fn made_up(offender: Arc<Offender>) {
    let count = offender.count(90_000);
    at_once(&offender, 2, move |offender, number| async move {
        let variant = [Variant::Delta, Variant::Sotw][number];
        let names: Vec<_> = (0..count).map(|name| format!("made-up-{variant}-{name:06}-{}", "x".repeat(40))).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let mut link = offender.link().await;
        match variant {
            Variant::Delta => {
                let stream = offender.start(&mut link, ADS_DELTA);
                offender.send(&mut link, stream, &scan::delta_subscribe(EDS, Some(&offender.node), &names));
            }
            Variant::Sotw => {
                let stream = offender.start(&mut link, ADS_SOTW);
                offender.send(&mut link, stream, &scan::sotw_subscribe(EDS, Some(&offender.node), &names));
            }
        }
        offender.read_to_first_end(&mut link).await;
    })
    .await;
}

pub async fn churn(offender: Arc<Offender>) {
    let count = offender.count(30_000);
    at_once(&offender, 1, move |offender, _| async move {
        let mut link = offender.link().await;
        let stream = offender.start(&mut link, ADS_DELTA);
        let mut node = Some(offender.node.clone().into());
        let mut before = Vec::new();
        for round in 0u64.. {
            let names: Vec<_> = (0..count).map(|name| format!("churn-{round}-{name:06}")).collect();
            let request = DeltaDiscoveryRequest {
                node: node.take(),
                type_url: EDS.into(),
                resource_names_subscribe: names.clone(),
                resource_names_unsubscribe: std::mem::replace(&mut before, names),
                ..Default::default()
            };
            offender.send(&mut link, stream, &request.encode_to_vec());
            if !offender.make_room(&mut link, stream).await {
                return;
            }
        }
    })
    .await;
}
