//! Tracks incoming bytes below the message layer: when bytes last arrived, and whether a message is half-received.
//!
//! The body of the response is observed, since the decoder behind it yields complete messages alone.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::transport::{Channel, Error};

/// The state of one stream's incoming response.
#[derive(Debug)]
pub(super) struct Incoming {
    last_received: Mutex<Instant>,
    answered: AtomicBool,
    /// A message has begun, is not complete, and has not been reported yet.
    begun: AtomicBool,
    changed: Notify,
    first_answer: Notify,
}

impl Incoming {
    pub(crate) fn new() -> Self {
        let last_received = Mutex::new(Instant::now());
        let (answered, begun) = Default::default();
        Self { last_received, answered, begun, changed: Notify::new(), first_answer: Notify::new() }
    }

    /// Returns when bytes last arrived from the server, including parts of a message.
    pub(crate) fn last_received(&self) -> Instant {
        *self.last_received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note_received(&self) {
        *self.last_received.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(crate) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// Records a response. Returns whether it is the first.
    pub(crate) fn answer(&self) -> bool {
        let is_first = !self.answered.swap(true, Ordering::Relaxed);
        if is_first {
            self.first_answer.notify_one();
        }
        is_first
    }

    /// Waits for the first response. Wakes one waiter.
    pub(crate) async fn answered(&self) {
        self.first_answer.notified().await;
    }

    /// Waits until a message has begun that is still incomplete; returns once for each message. Cancel-safe.
    pub(crate) async fn receiving(&self) {
        loop {
            self.changed.notified().await;
            if self.begun.swap(false, Ordering::Relaxed) {
                return;
            }
        }
    }

    fn take(&self, progress: Progress) {
        self.note_received();
        match progress {
            Progress::Begun => {
                self.begun.store(true, Ordering::Relaxed);
                self.changed.notify_one();
            }
            // The message is complete, whether its beginning was reported or not.
            Progress::Complete => self.begun.store(false, Ordering::Relaxed),
            Progress::More => {}
        }
    }
}

/// A channel that observes the bytes of its responses.
#[derive(Clone)]
pub(super) struct Watched {
    pub(crate) channel: Channel,
    pub(crate) incoming: Arc<Incoming>,
}

impl Service<http::Request<Body>> for Watched {
    type Response = http::Response<WatchedBody>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.channel.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (response, incoming) = (self.channel.call(request), self.incoming.clone());
        Box::pin(
            async move { Ok(response.await?.map(|body| WatchedBody { body, frames: Frames::default(), incoming })) },
        )
    }
}

pub(super) struct WatchedBody {
    body: Body,
    frames: Frames,
    incoming: Arc<Incoming>,
}

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.incoming.take(this.frames.read(data));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The state of the last message in a chunk of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// It began in this chunk, with its five-byte prefix, and continues after it.
    Begun,
    /// No message is incomplete, except perhaps within its five-byte prefix.
    Complete,
    /// A message that began in an earlier chunk is still incomplete.
    More,
}

/// Counts the bytes of messages. Each message has a prefix of five bytes: a flag and the length.
#[derive(Debug, Default)]
struct Frames {
    prefix: [u8; PREFIX],
    prefix_read: usize,
    /// Bytes of the message that have not arrived, once its prefix is read.
    missing: usize,
}

impl Frames {
    fn read(&mut self, mut chunk: &[u8]) -> Progress {
        let mut progress = if self.is_inside() { Progress::More } else { Progress::Complete };
        while !chunk.is_empty() {
            if self.prefix_read < PREFIX {
                let taken = chunk.len().min(PREFIX - self.prefix_read);
                self.prefix[self.prefix_read..][..taken].copy_from_slice(&chunk[..taken]);
                self.prefix_read += taken;
                chunk = &chunk[taken..];
                if self.prefix_read == PREFIX {
                    let [_, length @ ..] = self.prefix;
                    self.missing = u32::from_be_bytes(length) as usize;
                    progress = Progress::Begun;
                }
            } else {
                let taken = chunk.len().min(self.missing);
                self.missing -= taken;
                chunk = &chunk[taken..];
            }
            if self.prefix_read == PREFIX && self.missing == 0 {
                self.prefix_read = 0;
                progress = Progress::Complete;
            }
        }
        progress
    }

    fn is_inside(&self) -> bool {
        self.prefix_read == PREFIX
    }
}

const PREFIX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(length: usize) -> Vec<u8> {
        let prefix = u32::try_from(length).unwrap().to_be_bytes();
        [&[0][..], &prefix, &vec![0xff; length]].concat()
    }

    /// Reads the stream in chunks that end at these offsets.
    fn read(stream: &[u8], ends: &[usize]) -> Vec<Progress> {
        let mut frames = Frames::default();
        let starts = std::iter::once(0).chain(ends.iter().copied());
        starts
            .zip(ends.iter().copied().chain([stream.len()]))
            .map(|(from, to)| frames.read(&stream[from..to]))
            .collect()
    }

    #[test]
    fn a_message_that_is_split_anywhere_begins_once_with_its_prefix_and_is_complete_in_the_end() {
        use Progress::*;
        let stream = message(3);
        for end in 1..stream.len() {
            let expected = if end < PREFIX { [Complete, Complete] } else { [Begun, Complete] };
            assert_eq!(read(&stream, &[end]), expected, "split at {end}");
            for second in end + 1..stream.len() {
                let expected = match (end < PREFIX, second < PREFIX) {
                    (true, true) => [Complete, Complete, Complete],
                    (true, false) => [Complete, Begun, Complete],
                    (false, _) => [Begun, More, Complete],
                };
                assert_eq!(read(&stream, &[end, second]), expected, "split at {end} and {second}");
            }
        }
        let bytes: Vec<_> = (1..stream.len()).collect();
        assert_eq!(read(&stream, &bytes), [Complete, Complete, Complete, Complete, Begun, More, More, Complete]);
    }

    #[test]
    fn what_counts_of_a_chunk_is_its_last_message() {
        use Progress::*;
        let two = [message(2), message(4)].concat();
        assert_eq!(read(&two, &[]), [Complete]);
        assert_eq!(read(&two, &[6, 9]), [Begun, Complete, Complete], "four bytes of the second prefix are none");
        assert_eq!(read(&two, &[6, 13]), [Begun, Begun, Complete], "the end of one and the beginning of the next");
        assert_eq!(read(&[message(0), message(0), message(1)].concat(), &[10, 15]), [Complete, Begun, Complete]);
        assert_eq!(Frames::default().read(&[]), Complete);
    }

    #[test]
    fn the_first_response_of_a_stream_is_its_first_once() {
        let incoming = Incoming::new();
        assert!(!incoming.has_answered());
        assert_eq!([incoming.answer(), incoming.answer()], [true, false]);
        assert!(incoming.has_answered());
    }

    #[tokio::test]
    async fn a_half_received_message_is_reported_once_and_not_when_it_is_complete() {
        use futures_util::FutureExt;
        let incoming = Incoming::new();
        let reported = || incoming.receiving().now_or_never().is_some();
        incoming.take(Progress::Begun);
        assert!(reported() && !reported());
        incoming.take(Progress::More);
        assert!(!reported());
        incoming.take(Progress::Begun);
        incoming.take(Progress::Complete);
        assert!(!reported());
        incoming.take(Progress::Begun);
        assert!(reported(), "the permit of the one before stands in nobody's way");
    }
}
