//! The facts of this process for operators.

use super::App;
use crate::admin::{ListenerInfo, ServerInfo};

pub(super) fn of(app: &App) -> ServerInfo {
    let info = ListenerInfo::open;
    let clients = app.listeners.iter().map(|of| info("clients", of.address().to_string(), of.tls().is_some()));
    let operators = app.admin.iter().map(|of| {
        let socket = app.admin_options.socket.iter().map(|path| format!("unix:{}", path.display()));
        match (of.of_probes(), of.of_operators()) {
            (Some(address), _) => info("probes", address.to_string(), false),
            (None, Some(address)) => info("operators", address.to_string(), of.tls().is_some()),
            (None, None) => info("operators", socket.collect(), false),
        }
    });
    let connections = app.connections.clone();
    ServerInfo {
        started: app.started,
        since: app.since,
        listeners: clients.chain(operators).collect(),
        shards: app.shards(),
        max_connections: Box::new(move || connections.max()),
    }
}
