//! What a connection keeps for a client that reads nothing for now: a full buffer of the kernel, and its encoded replies.

use std::sync::Arc;

use crate::memory::{Account, Charge, costs};

/// The charge for this memory, for as long as the client reads nothing.
pub(super) struct Unsent {
    /// `None`: nothing is charged to the connection.
    account: Option<Arc<Account>>,
    charge: Option<Charge>,
}

impl Unsent {
    pub(super) fn of(account: Option<Arc<Account>>) -> Self {
        Self { account, charge: None }
    }

    /// Records whether a write found no room. One that finds room shows nothing: TLS takes bytes that it cannot send yet. A flush follows each write.
    pub(super) fn note_write(&mut self, is_full: bool) {
        if is_full {
            self.note(true);
        }
    }

    /// Records whether what was written waits for room. Mostly nothing waits, and then nothing changes.
    pub(super) fn note(&mut self, is_full: bool) {
        if is_full == self.charge.is_some() {
            return;
        }
        let account = self.account.as_ref().filter(|_| is_full);
        self.charge = account.map(|account| account.charge_with_kernel(costs::UNSENT, costs::UNSENT_IN_KERNEL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Budget, GroupMembership, Memory};

    #[test]
    fn a_client_that_takes_nothing_is_charged_for_it_until_it_does_or_its_connection_ends() {
        let memory = Memory::new(Budget::unlimited(), Arc::default(), Arc::default());
        let account = memory.connect(GroupMembership::default());
        let before = memory.used();
        let mut unsent = Unsent::of(Some(account.clone()));
        unsent.note(false);
        assert_eq!(memory.used(), before);
        for is_full in [true, true] {
            unsent.note(is_full);
            assert_eq!(memory.used(), before + costs::UNSENT + costs::UNSENT_IN_KERNEL);
        }
        unsent.note(false);
        assert_eq!(memory.used(), before, "it takes them again");
        unsent.note(true);
        drop(unsent);
        assert_eq!(memory.used(), before, "its connection has ended");
        drop(account);
        assert!(memory.is_empty());
        Unsent::of(None).note(true);
    }
}
