//! What a session is charged with.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_core::protocol::session::{KeptNames, Session};

use crate::memory::{Account, Charge, costs};
use crate::relay::clients::ClientFacts;
use crate::relay::tenants::TenantStream;

/// The charge of a session, if it is that of a client: sessions within the relay have none.
pub(in crate::relay) struct SessionCharge {
    charge: Option<Charge>,
    tenant: Option<TenantStream>,
    /// Without names.
    base: usize,
    is_told: AtomicBool,
}

impl SessionCharge {
    pub(in crate::relay) fn of(
        account: Option<&Arc<Account>>,
        tenant: Option<TenantStream>,
        client: &ClientFacts,
    ) -> Self {
        let base = costs::SESSION + client.node_id.len();
        Self { charge: account.map(|account| account.charge(base)), tenant, base, is_told: AtomicBool::new(false) }
    }

    #[cfg(test)]
    pub(in crate::relay) fn none() -> Self {
        Self { charge: None, tenant: None, base: 0, is_told: AtomicBool::new(false) }
    }

    /// Returns its place among the streams of its tenant.
    pub(super) fn tenant(&self) -> Option<&TenantStream> {
        self.tenant.as_ref()
    }

    /// The view has the names no more.
    pub(super) fn release_names(&self) {
        self.tenant.iter().for_each(|tenant| tenant.set_names(0));
        self.charge.iter().for_each(|charge| charge.set(self.base));
    }

    /// Charges what the session keeps now.
    pub(super) fn note(&self, session: &Session) {
        if self.charge.is_none() && self.tenant.is_none() {
            return;
        }
        let KeptNames { names, unsent, bytes } = session.report().kept_names();
        self.tenant.iter().for_each(|tenant| tenant.set_names(names));
        if let Some(charge) = &self.charge {
            charge.set(self.base + costs::names(names, unsent, bytes));
            if !self.is_told.swap(true, Ordering::Relaxed) {
                charge.tell(); // worth it once: later changes are told in larger steps
            }
        }
    }
}
