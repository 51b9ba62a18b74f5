//! Waking the body that waits for a reply.

use super::SessionHandle;
use crate::relay::wakes::Wakes;

impl SessionHandle {
    pub(in crate::relay) fn wake(&self) {
        self.waker.wake();
    }

    /// Wakes it together with others.
    pub(in crate::relay) fn wake_with(&self, others: &mut Wakes) {
        if let Some(body) = self.waker.take() {
            others.add(self.place.shard.as_ref(), body);
        }
    }
}
