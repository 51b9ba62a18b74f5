//! Several behaviours at once, none of them fast.

use std::sync::Arc;

use super::offender::Offender;
use super::{connections, keys, streams};

pub async fn slow(offender: Arc<Offender>) {
    let slow = Arc::new(Offender { slowness: SLOWNESS, ..Offender::clone(&offender) });
    tokio::join!(
        keys::name_floods(slow.clone()),
        streams::bare(slow.clone()),
        streams::silent(slow.clone()),
        keys::load_pools(slow.clone()),
        keys::views(slow.clone()),
        connections::to_probes(slow),
    );
}

const SLOWNESS: u32 = 10;
