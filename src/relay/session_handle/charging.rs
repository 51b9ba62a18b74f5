//! The memory that is charged for a session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use weir_core::protocol::session::{KeptNames, Session};
use weir_core::xds::MemberNode;

use crate::memory::{Account, Charge, costs};
use crate::relay::clients::ClientFacts;
use crate::relay::tenants::TenantStream;

/// The charge of a client's session. Sessions within the relay have none.
pub(in crate::relay) struct SessionCharge {
    charge: Option<Charge>,
    tenant: Option<TenantStream>,
    /// The charge without names and node.
    base: usize,
    /// The part of the shown node that only this session has. Parts that it shares with others are charged to the view.
    node: AtomicUsize,
    is_reported: AtomicBool,
}

impl SessionCharge {
    pub(in crate::relay) fn of(
        account: Option<&Arc<Account>>,
        tenant: Option<TenantStream>,
        client: &ClientFacts,
        node: Option<&MemberNode>,
    ) -> Self {
        let (base, node) = (costs::SESSION + client.node_id.len(), node.map_or(0, cost_of));
        let charge = account.map(|account| account.charge(base + node));
        Self { charge, tenant, base, node: node.into(), is_reported: AtomicBool::new(false) }
    }

    #[cfg(test)]
    pub(in crate::relay) fn none() -> Self {
        Self { charge: None, tenant: None, base: 0, node: 0.into(), is_reported: AtomicBool::new(false) }
    }

    /// Returns its place among the streams of its tenant.
    pub(super) fn tenant(&self) -> Option<&TenantStream> {
        self.tenant.as_ref()
    }

    /// Charges other bytes to the connection, until the result is dropped.
    pub(super) fn beside(&self, bytes: usize) -> Option<Charge> {
        self.charge.as_ref().map(|charge| charge.beside(bytes))
    }

    /// Stops charging the names, since the view has released them.
    pub(super) fn release_names(&self) {
        self.tenant.iter().for_each(|tenant| tenant.set_names(0));
        self.node.store(0, Ordering::Relaxed);
        self.charge.iter().for_each(|charge| charge.set(self.base));
    }

    /// Charges another node, which the client states from now on.
    pub(super) fn set_node(&self, node: &MemberNode) {
        self.node.store(cost_of(node), Ordering::Relaxed);
    }

    /// Charges what the session keeps at present.
    pub(super) fn note(&self, session: &Session) {
        if self.charge.is_none() && self.tenant.is_none() {
            return;
        }
        let KeptNames { names, unsent, bytes } = session.report().kept_names();
        self.tenant.iter().for_each(|tenant| tenant.set_names(names));
        if let Some(charge) = &self.charge {
            let node = self.node.load(Ordering::Relaxed);
            charge.set(self.base + node + costs::names(names, unsent, bytes));
            if !self.is_reported.swap(true, Ordering::Relaxed) {
                charge.tell(); // worth it once: later changes are reported in larger steps
            }
        }
    }
}

fn cost_of(node: &MemberNode) -> usize {
    costs::MEMBER + node.own_bytes()
}
