//! Clients that request much and read little of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::offender::{Offender, at_once};
use crate::content::EDS;
use crate::kind::Kind;
use crate::link::{ADS_DELTA, Link, LinkOptions, scan};
use crate::origin::{Change, Name};

/// Opens streams that stop in the middle of their first reply. They open one after another, so that each reply has another state of the set.
pub async fn of_nothing(offender: Arc<Offender>) {
    let mut links = Vec::new();
    loop {
        if links.len() < 20 {
            links.push(request(&offender, 65_535).await);
        }
        let all = offender.names.iter().map(|name: &Name| Change::Touch(Kind::Endpoints, name.clone())).collect();
        offender.origin.update(|_| all);
        sleep(if links.len() < 20 { EACH } else { CHANGES }).await;
        // Streams that the server has ended are replaced. Only the frames of the connection are read.
        let mut open = Vec::new();
        for mut link in links {
            match timeout(LOOK, link.next()).await {
                Ok(event) if offender.has_closed(&event) || ended(&event) => {}
                _ => open.push(link),
            }
        }
        links = open;
    }
}

pub async fn of_single_bytes(offender: Arc<Offender>) {
    at_once(&offender, 20, |offender, _| async move {
        let mut link = offender.link_with(&LinkOptions { window: 1, ..LinkOptions::default() }).await;
        subscribe(&offender, &mut link);
        offender.read_to_first_end(&mut link).await;
    })
    .await;
}

/// Opens a stream that requests everything, and reads no more than its window.
async fn request(offender: &Offender, window: u32) -> Link {
    let mut link = offender.link_with(&LinkOptions { window, ..LinkOptions::default() }).await;
    let stream = subscribe(offender, &mut link);
    link.set_paused(stream, true);
    let _ = timeout(WRITE, link.next()).await; // writes the request
    link
}

fn subscribe(offender: &Offender, link: &mut Link) -> usize {
    let names: Vec<&str> = offender.names.iter().map(|name| &**name).collect();
    let stream = offender.start(link, ADS_DELTA);
    offender.send(link, stream, &scan::delta_subscribe(EDS, Some(&offender.node), &names));
    stream
}

fn ended(event: &crate::link::Event) -> bool {
    matches!(event, crate::link::Event::Ended(..))
}

/// The pause between two streams. When all are open, `CHANGES` is the pause between two changes.
const EACH: Duration = Duration::from_millis(100);
const CHANGES: Duration = Duration::from_millis(500);
const WRITE: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(1);
