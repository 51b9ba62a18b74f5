//! What the command line says in place of the file.

use std::net::SocketAddr;

use super::admin::admin_may_be_at;
use super::checked::Config;
use crate::downstream::ListenAddress;

impl Config {
    /// Replaces all addresses for clients by one. What the connections of the first one have to bring still holds.
    pub fn listen_at(&mut self, address: SocketAddr) {
        self.listen.truncate(1);
        if let Some(options) = self.listen.first_mut() {
            options.address = ListenAddress::Tcp(address);
        }
        self.shown.command_line.insert("--listen".into(), address.to_string().into());
    }

    /// Replaces the address for operators. An error is why they may not be served there.
    pub fn admin_at(&mut self, address: SocketAddr) -> Result<(), String> {
        admin_may_be_at(address, self.admin.tls.is_some())?;
        self.admin.address = Some(address);
        self.shown.command_line.insert("--admin".into(), address.to_string().into());
        Ok(())
    }
}
