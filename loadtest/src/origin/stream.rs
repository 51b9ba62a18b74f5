//! Drives one stream of the origin.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Shared;
use super::burst::{Reply, TooFarBehind, burst};
use super::serve::{Call, Gone, INVALID_ARGUMENT, Replies, UNAVAILABLE};
use super::session::Session;

/// Serves a stream until the client disconnects.
pub async fn run(mut call: Call, shared: Arc<Shared>) {
    let _counted = Counted::new(&shared.open_streams);
    let mut session = Session::new(call.variant, shared.next_stream(), shared.faults.clone());
    let mut updates = shared.updated.subscribe();
    loop {
        tokio::select! {
            biased;
            requests = call.requests.next() => match requests {
                None => return,
                Some(Err(reason)) => return call.replies.end(INVALID_ARGUMENT, reason).await,
                Some(Ok(requests)) => requests.iter().for_each(|request| session.on_request(request, call.only)),
            },
            changed = updates.changed() => if changed.is_err() { return },
        }
        let burst = burst(&mut session, &mut shared.world());
        match burst {
            Err(TooFarBehind) => return call.replies.end(UNAVAILABLE, "too far behind; open the stream again").await,
            Ok(burst) => {
                for reply in burst {
                    if send(&call.replies, reply).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

async fn send(replies: &Replies, reply: Reply) -> Result<(), Gone> {
    match reply.hangs {
        true => Err(replies.hang(&reply.head, &reply.resources).await),
        false => replies.send(&reply.head, reply.resources).await,
    }
}

/// Counts a stream as open until this is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
