//! A reply that is encoded, with what is counted and shown of it once it is sent. Encoding a reply visits each of its entries once, for the length of the whole. Other threads
//! encode replies with many entries that a shard would send, unless another client is sent the same.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{CloseReason, Reply, Variant};

use super::encode::{Outgoing, SharedMessages};
use super::slot::Status;
use super::to_come::Count;
use crate::relay::heavy::{HeavyKind, ThreadApart};
use crate::relay::{Blocker, SessionHandle, glance_at_reply, reply_is_late, reply_waits};
use crate::shared_runtime::{self, OwnRuntime};

pub(super) struct Encoded {
    pub(super) outgoing: Outgoing,
    /// `None` without a session.
    pub(super) count: Option<Count>,
}

/// A reply that another thread encodes. If this is dropped before that has begun, the reply is not encoded.
pub(super) struct Encoding {
    encoded: oneshot::Receiver<Encoded>,
    /// When the wait began.
    since: Moment,
}

impl Encoded {
    /// Encodes a reply.
    pub(super) fn of(
        reply: Reply,
        variant: Variant,
        handle: Option<&SessionHandle>,
        messages: &Arc<SharedMessages>,
    ) -> Self {
        let (kind, lag) = (reply.kind.clone(), reply.lag);
        let mut tapped = handle.and_then(|to| glance_at_reply(to, &reply, variant));
        let outgoing = Outgoing::new(reply, variant, messages);
        tapped.iter_mut().for_each(|glance| glance.bytes = outgoing.bytes());
        let count = handle.map(|to| Count { place: to.deliveries().place(&kind), lag, tapped });
        Self { outgoing, count }
    }
}

/// Encodes a reply. `Err`: it takes long, so another thread does it.
pub(super) fn encode(
    reply: Reply,
    variant: Variant,
    handle: Option<&Arc<SessionHandle>>,
    messages: &Arc<SharedMessages>,
) -> Result<Encoded, Box<Encoding>> {
    match held_up_by(&reply, variant, messages) {
        Some(shard) => Err(Box::new(Encoding::begin(&shard, reply, variant, handle.cloned(), messages.clone()))),
        None => Ok(Encoded::of(reply, variant, handle.map(|handle| &**handle), messages)),
    }
}

/// Returns this shard if encoding the reply here would hold up its other connections: there are many entries, and no such message yet.
fn held_up_by(reply: &Reply, variant: Variant, messages: &SharedMessages) -> Option<OwnRuntime> {
    let is_long = entries(reply) > MANY;
    is_long.then(shared_runtime::own).flatten().filter(|_| !messages.has(reply, variant))
}

impl Encoding {
    /// A task waits for the thread: nobody polls a body while its client takes nothing, and others would wait for a thread that works for none.
    ///
    /// The body keeps its turn meanwhile, and so for no longer than a client that takes nothing keeps one.
    fn begin(
        shard: &OwnRuntime,
        reply: Reply,
        variant: Variant,
        handle: Option<Arc<SessionHandle>>,
        messages: Arc<SharedMessages>,
    ) -> Self {
        handle.iter().for_each(|handle| reply_waits(handle, Blocker::Turn));
        let since = handle.as_ref().map_or(Moment::START, |handle| handle.clock().now());
        let (mut tell, encoded) = oneshot::channel();
        shard.spawn(async move {
            let thread = tokio::select! {
                biased;
                () = tell.closed() => return, // the body is gone
                thread = ThreadApart::free(HeavyKind::Reply, entries(&reply)) => thread,
            };
            let is_there = messages.has(&reply, variant); // another client was sent the same meanwhile
            let work = move || Encoded::of(reply, variant, handle.as_deref(), &messages);
            let encoded = if is_there { work() } else { thread.run(work).await };
            let _ = tell.send(encoded); // the body may be gone
        });
        Self { encoded, since }
    }

    /// Returns one whose reply a test encodes.
    #[cfg(test)]
    pub(super) fn that_ends_by(encoded: oneshot::Receiver<Encoded>) -> Box<Self> {
        Box::new(Self { encoded, since: Moment::START })
    }

    /// Waits for the encoded reply. The wait is a part of its lag. `Err`: encoding it has panicked.
    pub(super) fn poll(
        &mut self,
        handle: Option<&SessionHandle>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Encoded, Status>> {
        let Ok(mut encoded) = ready!(Pin::new(&mut self.encoded).poll(cx)) else {
            return Poll::Ready(Err(CloseReason::ViewFailed.into()));
        };
        if let Some(handle) = handle {
            let waited = handle.clock().now() - self.since;
            encoded.count.iter_mut().for_each(|count| count.add(waited));
            reply_is_late(handle, waited);
        }
        Poll::Ready(Ok(encoded))
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
    use std::time::Duration;

    use tokio::runtime::{Builder, Handle};
    use weir_core::xds::TypeTable;

    use super::*;
    use crate::relay::heavy::all_threads;

    /// Returns a reply that removes so many names.
    fn reply_of(names: usize) -> Reply {
        let kind = TypeTable::new().resolve("type.googleapis.com/own.Type");
        let removed = (0..names).map(|number| format!("n{number}").as_str().into()).collect();
        Reply { removed, ..Reply::sample(kind, Vec::new()) }
    }

    fn long(names: usize, messages: &SharedMessages) -> bool {
        held_up_by(&reply_of(names), Variant::Delta, messages).is_some()
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

    /// Nobody polls the body of a client that takes nothing.
    #[tokio::test]
    async fn a_reply_that_waits_for_a_thread_is_encoded_though_nobody_polls_it_and_not_at_all_if_its_body_is_gone() {
        let shared = Handle::current();
        let (tell, told) = oneshot::channel();
        std::thread::spawn(move || {
            let own = Builder::new_current_thread().enable_all().build().unwrap();
            shared_runtime::set_beside_this_thread(shared, own.handle().clone());
            own.block_on(async {
                for is_gone in [false, true] {
                    waits_for_a_thread(is_gone).await;
                }
            });
            let _ = tell.send(());
        });
        told.await.expect("it does not panic");
    }

    async fn waits_for_a_thread(is_gone: bool) {
        let messages = SharedMessages::new("weir");
        let is_encoded = || messages.has(&reply_of(MANY + 1), Variant::Delta);
        let threads = all_threads(HeavyKind::Reply, MANY + 1).await;
        let Err(encoding) = encode(reply_of(MANY + 1), Variant::Delta, None, &messages) else {
            panic!("it takes long")
        };
        tokio::task::yield_now().await; // its task waits for a thread
        let kept = (!is_gone).then_some(encoding);
        drop(threads);
        drop(all_threads(HeavyKind::Reply, MANY + 1).await);
        assert_eq!(is_encoded(), !is_gone);
        let Some(mut encoding) = kept else { return };
        let encoded = std::future::poll_fn(|cx| encoding.poll(None, cx));
        let encoded = tokio::time::timeout(Duration::from_secs(20), encoded).await.expect("it is there");
        assert!(encoded.is_ok_and(|encoded| encoded.outgoing.bytes() > MANY));
    }
}
