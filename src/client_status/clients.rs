//! The relay as a server: what its clients were sent, and how they answered (CSDS-3).

use std::sync::Arc;

use weir_core::protocol::session::HeldState;

use super::Failure;
use super::matchers::Matchers;
use super::rows::{Rows, failure};
use crate::proto::status::{ClientConfig, ConfigStatus, StatusNode};
use crate::relay::{ClientHoldings, Views, questions};

/// Returns an entry for each client that matches; `None` if the process is stopping.
pub(super) async fn configs(
    views: &Views,
    matchers: Arc<Matchers>,
    mut rows: Rows,
) -> Option<Result<Vec<ClientConfig>, Failure>> {
    for source in questions::dump_sources(views) {
        let (clients, matchers) = (source.clients().await, matchers.clone());
        let added = tokio::task::spawn_blocking(move || {
            // Clients are visited one after another, because each gives a copy of all its names.
            let mut matching = clients.iter().filter(|client| matchers.take(client.node_id()));
            matching.try_for_each(|client| add(&client.holdings(), &mut rows)).map(|()| rows)
        });
        rows = match added.await.ok()? {
            Ok(rows) => rows,
            Err(status) => return Some(Err(status)),
        };
    }
    Some(Ok(rows.done()))
}

fn add(client: &ClientHoldings, rows: &mut Rows) -> Result<(), Failure> {
    let node = StatusNode { id: client.node_id.clone(), cluster: String::new() };
    rows.begin(node, format!("session={} view={} peer={}", client.session, client.view, client.peer))?;
    for of in &client.holdings.types {
        let mut added = Ok(());
        client.holdings.each(of, &client.snapshot, |held| {
            if added.is_err() {
                return;
            }
            let mut row = rows.row(&of.kind, held.name, held.entry, client.now);
            let status = match held.state {
                HeldState::NotSent => ConfigStatus::NotSent,
                HeldState::Unanswered => ConfigStatus::Stale,
                HeldState::Accepted => ConfigStatus::Synced,
                HeldState::Rejected => ConfigStatus::Error,
            };
            row.config_status = status.into();
            if let Some(nack) = held.nack {
                let version = nack.reply.map(|reply| reply.version.to_string()).unwrap_or_default();
                row.error_state = Some(failure(nack.reason, &version, Some(client.now - nack.at)));
            }
            added = rows.add(row);
        });
        added?;
    }
    Ok(())
}
