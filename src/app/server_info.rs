//! The facts of this process for operators.

use super::App;
use crate::admin::{ListenerInfo, ServerInfo};

impl App {
    pub(super) fn server_info(&self) -> ServerInfo {
        let info = ListenerInfo::open;
        let clients = self.listeners.iter().map(|of| info("clients", of.address().to_string(), of.tls().is_some()));
        let operators = self.admin.iter().map(|of| {
            let socket = self.admin_options.socket.iter().map(|path| format!("unix:{}", path.display()));
            match (of.of_probes(), of.of_operators()) {
                (Some(address), _) => info("probes", address.to_string(), false),
                (None, Some(address)) => info("operators", address.to_string(), of.tls().is_some()),
                (None, None) => info("operators", socket.collect(), false),
            }
        });
        ServerInfo {
            started: self.started,
            since: self.since,
            listeners: clients.chain(operators).collect(),
            shards: self.shards(),
            max_connections: self.max_connections(),
        }
    }
}
