//! Reads gRPC messages from a request body, with limits for one message and for all incomplete ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::slot::Status;

/// Bounds the bytes of incomplete messages, over all clients of the process.
#[derive(Debug)]
pub(crate) struct Budget {
    left: AtomicUsize,
}

impl Budget {
    pub(crate) fn of(bytes: usize) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(bytes) })
    }

    pub(super) fn take(&self, bytes: usize) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

pub(super) struct Frames {
    body: Incoming,
    buffer: BytesMut,
    limit: usize,
    budget: Arc<Budget>,
}

impl Frames {
    pub(crate) fn new(body: Incoming, limit: usize, budget: Arc<Budget>) -> Self {
        Self { body, buffer: BytesMut::new(), limit, budget }
    }

    /// Returns the next message; `None` once the client has half-closed or disconnected.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = self.take_message()? {
                return Ok(Some(message));
            }
            let Some(Ok(frame)) = self.body.frame().await else { return Ok(None) };
            let Ok(data) = frame.into_data() else { continue };
            if !self.budget.take(data.len()) {
                return Err(Status::exhausted("too many incomplete requests; retry"));
            }
            self.buffer.extend_from_slice(&data);
        }
    }

    /// Reads to the end and drops everything: after a reset, the data still in flight would count against the connection.
    pub(crate) async fn drain(&mut self) {
        while let Some(Ok(_)) = self.body.frame().await {}
    }

    fn take_message(&mut self) -> Result<Option<Bytes>, Status> {
        let Some((prefix, rest)) = self.buffer.split_at_checked(PREFIX) else { return Ok(None) };
        let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
        if prefix[0] != 0 {
            return Err(Status::unimplemented("compressed requests are not supported"));
        }
        if length > self.limit {
            return Err(Status::exhausted(format!(
                "request too large: {length} bytes, limit {} (limits.message_bytes)",
                self.limit
            )));
        }
        if rest.len() < length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX);
        let message = self.buffer.split_to(length).freeze();
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new(); // an idle stream has no buffer
        }
        self.budget.give_back(PREFIX + length);
        Ok(Some(message))
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.budget.give_back(self.buffer.len());
    }
}

/// Returns a message with its gRPC prefix.
pub(super) fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(PREFIX + message.len());
    frame.put_u8(0); // not compressed
    frame.put_u32(u32::try_from(message.len()).unwrap_or_default());
    frame.extend_from_slice(message);
    frame.freeze()
}

/// One byte for compression, four for the length.
const PREFIX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_half_received_is_bounded_over_all_clients_and_given_back() {
        let budget = Budget::of(100);
        assert!(budget.take(60) && !budget.take(60));
        budget.give_back(60);
        assert!(budget.take(100));
    }
}
