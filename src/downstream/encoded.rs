//! A reply that is encoded, with what is counted of it. Encoding a reply visits each of its entries once, for the length of the whole. Other threads
//! encode replies with many entries that a shard would send, unless another client is sent the same.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{Reply, Variant};

use super::encode::{Outgoing, SharedMessages};
use super::to_come::Count;
use crate::relay::heavy::{HeavyKind, ThreadApart};
use crate::relay::{Blocker, SessionHandle, glance_at_reply, reply_is_late, reply_waits, tap_reply};
use crate::shared_runtime;

pub(super) struct Encoded {
    pub(super) outgoing: Outgoing,
    /// `None` without a session.
    pub(super) count: Option<Count>,
}

/// A reply that another thread encodes.
pub(super) struct Encoding {
    encoded: Pin<Box<dyn Future<Output = Encoded> + Send>>,
    handle: Arc<SessionHandle>,
    /// When the wait began.
    since: Moment,
}

impl Encoded {
    /// Encodes a reply, and reports it to those who tap its session.
    pub(super) fn of(
        reply: Reply,
        variant: Variant,
        handle: Option<&SessionHandle>,
        messages: &Arc<SharedMessages>,
    ) -> Self {
        let (kind, lag) = (reply.kind.clone(), reply.lag);
        let count = handle.map(|to| Count { place: to.deliveries().place(&kind), lag });
        let tapped = handle.and_then(|to| Some((to, glance_at_reply(to, &reply, variant)?)));
        let outgoing = Outgoing::new(reply, variant, messages);
        if let Some((to, glance)) = tapped {
            tap_reply(to, glance, outgoing.bytes());
        }
        Self { outgoing, count }
    }
}

/// Encodes a reply of this session, if there is one. `Err`: it takes long, so another thread does it.
pub(super) fn encode(
    reply: Reply,
    variant: Variant,
    handle: Option<&Arc<SessionHandle>>,
    messages: &Arc<SharedMessages>,
) -> Result<Encoded, Box<Encoding>> {
    match handle.filter(|_| takes_long(&reply, variant, messages)) {
        Some(handle) => Err(Box::new(Encoding::begin(reply, variant, handle.clone(), messages.clone()))),
        None => Ok(Encoded::of(reply, variant, handle.map(|handle| &**handle), messages)),
    }
}

/// Whether encoding the reply here would hold up other connections: this is a shard, and there is no such message yet.
fn takes_long(reply: &Reply, variant: Variant, messages: &SharedMessages) -> bool {
    entries(reply) > MANY && shared_runtime::is_elsewhere() && !messages.has(reply, variant)
}

impl Encoding {
    fn begin(reply: Reply, variant: Variant, handle: Arc<SessionHandle>, messages: Arc<SharedMessages>) -> Self {
        reply_waits(&handle, Blocker::Turn);
        let (to, since) = (handle.clone(), handle.clock().now());
        let encoded = Box::pin(async move {
            let thread = ThreadApart::free(HeavyKind::Reply, entries(&reply)).await;
            if messages.has(&reply, variant) {
                return Encoded::of(reply, variant, Some(&to), &messages); // another client was sent the same meanwhile
            }
            thread.run(move || Encoded::of(reply, variant, Some(&to), &messages)).await
        });
        Self { encoded, handle, since }
    }

    /// Waits for the encoded reply. The wait is a part of its lag.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Encoded> {
        let mut encoded = ready!(self.encoded.as_mut().poll(cx));
        let waited = self.handle.clock().now() - self.since;
        encoded.count.iter_mut().for_each(|count| count.add(waited));
        reply_is_late(&self.handle, waited);
        Poll::Ready(encoded)
    }
}

fn entries(reply: &Reply) -> usize {
    let Reply { resources, heartbeats, removed, constrained, unresolved, errors, .. } = reply;
    resources.len() + heartbeats.len() + removed.len() + constrained.len() + unresolved.len() + errors.len()
}

/// So many entries are encoded within a fraction of a millisecond.
const MANY: usize = 2000;

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Handle};
    use weir_core::xds::TypeTable;

    use super::*;

    /// Returns a reply that removes so many names.
    fn reply_of(names: usize) -> Reply {
        let kind = TypeTable::new().resolve("type.googleapis.com/own.Type");
        let removed = (0..names).map(|number| format!("n{number}").as_str().into()).collect();
        Reply { removed, ..Reply::sample(kind, Vec::new()) }
    }

    fn long(names: usize, messages: &SharedMessages) -> bool {
        takes_long(&reply_of(names), Variant::Delta, messages)
    }

    #[tokio::test]
    async fn on_a_shard_a_reply_with_many_entries_takes_long_unless_another_client_is_sent_the_same() {
        let shared = Handle::current();
        assert!(!long(MANY + 1, &SharedMessages::new("weir")), "its worker is not the only one");
        let of_shard = std::thread::spawn(move || {
            let own = Builder::new_current_thread().build().unwrap();
            shared_runtime::set_beside_this_thread(shared, own.handle().clone());
            let messages = SharedMessages::new("weir");
            assert!(!long(MANY, &messages) && long(MANY + 1, &messages));
            let sent = Encoded::of(reply_of(MANY + 1), Variant::Delta, None, &messages);
            assert!(!long(MANY + 1, &messages) && long(MANY + 2, &messages));
            assert!(!sent.outgoing.is_shared(), "nobody else is sent it yet");
        });
        of_shard.join().unwrap();
    }
}
