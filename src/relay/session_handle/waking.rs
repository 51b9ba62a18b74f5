//! Waking the body that waits for a reply.

use super::SessionHandle;
use crate::relay::wakes::Wakes;

pub(in crate::relay) fn wake(handle: &SessionHandle) {
    handle.waker.wake();
}

/// Wakes it together with others.
pub(in crate::relay) fn wake_with(handle: &SessionHandle, others: &mut Wakes) {
    if let Some(body) = handle.waker.take() {
        others.add(handle.place.shard.as_ref(), body);
    }
}
