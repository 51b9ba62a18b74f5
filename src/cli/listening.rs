//! Listens to a server until everything that was requested is known, or can no longer become known.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::printer::plain;
use super::query_state::{Change, NameStatus, QueryState};
use super::xds_client::{Client, Event};
use super::{note, warning};

/// How long a server is listened to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) timeout: Duration,
    /// The silence after a response that ends a set.
    pub(super) quiet_period: Duration,
}

/// Why the requested resources are not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListenError {
    #[error("no response within {}", humantime::format_duration(*timeout))]
    NoResponse { timeout: Duration },
    #[error("no response for {} within {}", names.join(", "), humantime::format_duration(*timeout))]
    NoResponseFor { names: Vec<String>, timeout: Duration },
    #[error("{0}")]
    Lost(String),
}

pub(super) async fn listen(client: &mut Client, patience: Patience) -> Result<(), ListenError> {
    let Patience { timeout, quiet_period } = patience;
    let deadline = Instant::now() + timeout;
    let mut heard = Instant::now();
    loop {
        let known = client.query().is_known();
        if known && !client.query().is_open_ended() {
            return Ok(());
        }
        let until = if known { deadline.min(heard + quiet_period) } else { deadline };
        match timeout_at(until, client.next()).await {
            Err(_) if known => return Ok(()),
            Err(_) => return Err(late(client.query(), timeout)),
            Ok(Event::Open(_)) => {}
            Ok(Event::News(changes)) => {
                heard = Instant::now();
                changes.iter().for_each(note_change);
            }
            Ok(Event::Lost { turns: true, .. }) => note("the server does not support delta; using sotw"),
            Ok(Event::Lost { reason, .. }) => return Err(ListenError::Lost(reason)),
        }
    }
}

fn late(query: &QueryState, timeout: Duration) -> ListenError {
    let unknown = query.statuses().iter().filter(|(_, status)| **status == NameStatus::Unknown);
    match unknown.map(|(name, _)| plain(name.as_str())).collect::<Vec<_>>() {
        none if none.is_empty() => ListenError::NoResponse { timeout },
        // In SotW only complete sets can show that a name is absent.
        names => ListenError::NoResponseFor { names, timeout },
    }
}

fn note_change(change: &Change) {
    match change {
        Change::Removed { name, .. } => note(&format!("{} was removed", plain(name))),
        Change::Trouble { name, reason } => warning(&format!("{}: {}", plain(name), plain(reason))),
        Change::Unasked { type_url } => warning(&format!("the server sent {} without a request", plain(type_url))),
        Change::Set { .. } | Change::Absent { .. } => {}
    }
}
