//! Reads gRPC messages from a request body, with limits for one message and for all incomplete ones.

use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::future::poll_immediate;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use tokio::time::{Instant, sleep};

use super::incomplete::{Inbound, Incomplete, Pause};
use super::inflate::{NotInflated, inflate};
use super::pace::Pace;
use super::sent_ahead::ReadClock;
use super::slot::Status;
use crate::compression::InflateError;
use crate::limit::Limit;

pub(super) struct Frames<B = Incoming> {
    body: B,
    buffer: BytesMut,
    limit: usize,
    /// The limit for a compressed message after inflating.
    inflated: usize,
    /// Whether messages may be compressed with gzip.
    is_gzip: bool,
    inbound: Arc<Inbound>,
    /// The account of the bytes of an incomplete request. Most requests arrive in one piece and have none.
    incomplete: Option<Box<Incomplete>>,
    /// The time limit for the start of the first message and its clock, until the message begins.
    first: Option<Box<(Duration, ReadClock)>>,
}

/// A complete message as it has arrived.
enum Message {
    Plain(Bytes),
    Gzip(Bytes),
}

impl<B: Body<Data = Bytes> + Unpin> Frames<B> {
    pub(crate) fn new(body: B, limit: usize, inbound: Arc<Inbound>) -> Self {
        let (buffer, inflated) = (BytesMut::new(), limit);
        Self { body, buffer, limit, inflated, is_gzip: false, inbound, incomplete: None, first: None }
    }

    /// Sets whether the client compresses messages with gzip. Only messages with the compression flag are inflated.
    pub(crate) fn with_gzip(self, is_gzip: bool) -> Self {
        Self { is_gzip, ..self }
    }

    /// Sets the limit for an inflated message, beside the limit for every message.
    pub(crate) fn inflating_to(self, most: usize) -> Self {
        Self { inflated: self.inflated.min(most), ..self }
    }

    /// Ends the stream if nothing arrives within this time, in which its connection is read. Zero: no limit.
    pub(crate) fn begun_within(self, patience: Duration) -> Self {
        let first = (!patience.is_zero()).then(|| Box::new((patience, self.inbound.clock())));
        Self { first, ..self }
    }

    /// Returns the next message; `None` once the client has half-closed or disconnected.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let next = self.read_next().await;
        if next.is_err() {
            (self.buffer, self.incomplete) = (BytesMut::new(), None);
        }
        next
    }

    async fn read_next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            match self.take_message()? {
                Some(Message::Plain(message)) => return Ok(Some(message)),
                Some(Message::Gzip(message)) => return Box::pin(self.inflate(message)).await.map(Some),
                None => {}
            }
            let frame = match self.buffer.is_empty() {
                true if self.first.is_some() => Box::pin(self.beginning()).await?,
                true => self.body.frame().await,
                false => Box::pin(self.rest()).await?,
            };
            let Some(Ok(frame)) = frame else { return Ok(None) };
            let Ok(data) = frame.into_data() else { continue };
            self.first.take_if(|_| !data.is_empty());
            self.inbound.note_taken(data.len());
            self.buffer.extend_from_slice(&data);
        }
    }

    /// Waits for the start of the first message, at most for its time limit.
    async fn beginning(&mut self) -> Result<Option<Result<Frame<Bytes>, B::Error>>, Status> {
        let Some((patience, clock)) = self.first.as_deref() else { return Ok(self.body.frame().await) };
        clock.within(*patience, self.body.frame()).await.ok_or_else(|| {
            self.inbound.requests().counters().reached(Limit::FirstMessage);
            let (patience, key) = (humantime::format_duration(*patience), Limit::FirstMessage.key());
            Status::exhausted(format!(
                "no message within {patience} ({key}); open a stream when there is something to send"
            ))
        })
    }

    /// Waits for more of an incomplete message.
    async fn rest(&mut self) -> Result<Option<Result<Frame<Bytes>, B::Error>>, Status> {
        let incomplete = self.incomplete.get_or_insert_with(|| Box::new(self.inbound.begin()));
        // The prefix does not count, so a message of the maximum size fits into a budget of that size.
        incomplete.grow_to(self.buffer.len().saturating_sub(PREFIX))?;
        incomplete.more(self.body.frame()).await
    }

    /// Records that this stream is not read until the result is dropped.
    fn pause(&self) -> Pause<'_> {
        self.inbound.pause()
    }

    /// Waits for something. A pause is recorded only if it is not there at once, because pauses may stop the clocks of the whole connection.
    pub(crate) async fn paused<T>(&self, wait: impl Future<Output = T>) -> T {
        let mut wait = pin!(wait);
        if let Some(done) = poll_immediate(wait.as_mut()).await {
            return done;
        }
        let _paused = self.pause();
        wait.await
    }

    /// Waits if the events exceed the rate. Nothing is read meanwhile.
    pub(crate) async fn keep_pace(&self, pace: Option<&Pace>, events: usize, limit: Limit) {
        let delay = pace.map_or(Duration::ZERO, |pace| pace.delay_of(events, Instant::now()));
        if !delay.is_zero() {
            self.wait(Box::pin(sleep(delay)), limit).await;
        }
    }

    /// Waits for this because of a limit. Nothing is read meanwhile.
    pub(crate) async fn wait(&self, turn: impl Future<Output = ()>, limit: Limit) {
        self.inbound.requests().counters().reached(limit);
        let _paused = self.pause();
        turn.await;
    }

    /// Reads and drops everything up to the end: after a reset, the data still in flight would count against the connection.
    pub(crate) async fn drain(&mut self) {
        while let Some(Ok(frame)) = self.body.frame().await {
            self.inbound.note_taken(frame.data_ref().map_or(0, Bytes::len));
        }
    }

    /// Inflates a message, with the same limits as a plain one.
    async fn inflate(&mut self, message: Bytes) -> Result<Bytes, Status> {
        let mut incomplete = self.incomplete.take().unwrap_or_else(|| Box::new(self.inbound.begin()));
        inflate(message, self.inflated, &mut incomplete).await.map_err(|why| match why {
            NotInflated::NoRoom(status) => status,
            NotInflated::Unreadable(error @ InflateError::TooLarge { .. }) if self.inflated < self.limit => {
                Status::exhausted(format!("request too large: {error}; a larger one has to be plain"))
            }
            NotInflated::Unreadable(error @ InflateError::TooLarge { .. }) => self.too_large(&error),
            NotInflated::Unreadable(error) => Status::internal(format!("invalid request: {error}")),
        })
    }

    fn too_large(&self, size: &dyn Display) -> Status {
        self.inbound.requests().counters().reached(Limit::MessageBytes);
        let key = Limit::MessageBytes.key();
        Status::exhausted(format!("request too large: {size}, limit {} ({key})", self.limit))
    }

    fn take_message(&mut self) -> Result<Option<Message>, Status> {
        let Some((prefix, rest)) = self.buffer.split_at_checked(PREFIX) else { return Ok(None) };
        let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
        let is_compressed = match prefix[0] {
            0 => false,
            1 if self.is_gzip => true,
            1 => return Err(Status::internal("invalid request: a compressed message without grpc-encoding")),
            flag => {
                return Err(Status::internal(format!("invalid request: compression flag {flag}, expected 0 or 1")));
            }
        };
        if length > self.limit {
            return Err(self.too_large(&format_args!("{length} bytes")));
        }
        if rest.len() < length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX);
        let message = self.buffer.split_to(length).freeze();
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new(); // an idle stream has no buffer
        }
        if is_compressed {
            return Ok(Some(Message::Gzip(message))); // its bytes count until it is inflated
        }
        self.incomplete = None;
        Ok(Some(Message::Plain(message)))
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
    use futures_util::{FutureExt, StreamExt, stream};
    use http_body_util::StreamBody;

    use super::*;
    use crate::downstream::incomplete::IncompleteRequests;
    use crate::downstream::sent_ahead::{FILLING, SentAhead, UnreadConnection};

    /// What a stream does after its chunks have arrived.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Then {
        HalfClosed,
        Broken,
        Silent,
    }

    /// Returns the stream of a client of its own on which these chunks arrive.
    fn frames(
        all: &Arc<IncompleteRequests>,
        chunks: &[&[u8]],
        then: Then,
    ) -> Frames<impl Body<Data = Bytes, Error = &'static str> + Unpin + use<>> {
        let chunks: Vec<_> = chunks.iter().map(|chunk| Ok(Frame::data(Bytes::copy_from_slice(chunk)))).collect();
        let broken = stream::iter((then == Then::Broken).then_some(Err("reset")));
        let silent = stream::pending().take(usize::from(then == Then::Silent));
        Frames::new(StreamBody::new(stream::iter(chunks).chain(broken).chain(silent)), LIMIT, all.connection())
    }

    /// Whether the budget counts nothing but this request. It is the oldest, and so would be the first to end.
    fn is_free(oldest: &mut Incomplete) -> bool {
        let is_free = oldest.grow_to(LIMIT).is_ok();
        is_free && oldest.grow_to(LIMIT / 2).is_ok()
    }

    #[tokio::test]
    async fn i8_what_broken_streams_have_half_sent_is_given_back_and_so_is_a_request_that_came_in_parts() {
        let all = IncompleteRequests::new(LIMIT, 0, Arc::default());
        let mut oldest = all.connection().begin();
        let whole = framed(&[7; 60]);
        let mut idle = Vec::new();
        for (round, then) in (0..10).flat_map(|round| [Then::HalfClosed, Then::Broken].map(|then| (round, then))) {
            let mut broken = frames(&all, &[&whole[..round], &whole[round..45]], then);
            assert_eq!(broken.next().await.ok().flatten(), None);
            drop(broken);
            assert!(is_free(&mut oldest), "{then:?} in round {round}");

            let mut parts = frames(&all, &[&whole[..45], &whole[45..]], Then::Silent);
            assert_eq!(parts.next().await.ok().flatten().unwrap(), whole[PREFIX..]);
            idle.push(parts);
            assert!(is_free(&mut oldest), "a stream without an incomplete request, in round {round}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_if_it_is_silent_from_its_beginning_and_not_if_it_is_so_later() {
        let all = IncompleteRequests::new(LIMIT, 0, Arc::default());
        let reached = || all.counters().counts().find(|(key, _)| *key == "limits.first_message").unwrap().1;
        let patience = Duration::from_millis(50);
        let begun = Instant::now();
        let mut silent = frames(&all, &[b"", b""], Then::Silent) // frames without data are silence
            .begun_within(patience);
        let status = silent.next().await.unwrap_err();
        assert_eq!((status.message.contains("within 50ms (limits.first_message)"), reached()), (true, 1));
        assert!(begun.elapsed() >= patience);
        let whole = framed(&[7; 60]);
        for chunks in [&[&whole[..]][..], &[&whole[..1], &whole[1..]]] {
            let mut later = frames(&all, chunks, Then::Silent).begun_within(patience);
            assert!(later.next().await.is_ok_and(|message| message.is_some()));
            assert!(tokio::time::timeout(3 * patience, later.next()).await.is_err(), "it may be silent now");
        }
        let mut free = frames(&all, &[], Then::Silent).begun_within(Duration::ZERO);
        assert!(tokio::time::timeout(3 * patience, free.next()).await.is_err());
        assert_eq!(reached(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn no_first_message_is_late_while_its_connection_is_not_read() {
        const PATIENCE: Duration = Duration::from_secs(30);
        const UNREAD: Duration = Duration::from_secs(40);
        let ahead = Arc::<SentAhead>::default();
        let inbound = IncompleteRequests::new(LIMIT, 0, Arc::default()).connection_with(ahead.clone());
        let silent_for = |time: Duration| {
            let message = Box::pin(async move {
                sleep(time).await;
                Ok::<_, &str>(Frame::data(framed(&[7; 60])))
            });
            Frames::new(StreamBody::new(stream::once(message)), LIMIT, inbound.clone()).begun_within(PATIENCE)
        };
        let unread = UnreadConnection::begin(ahead);
        assert!(silent_for(UNREAD).next().await.is_ok_and(|message| message.is_some()), "only the relay has waited");
        let mut silent = silent_for(10 * UNREAD);
        assert!(tokio::time::timeout(UNREAD, silent.next()).await.is_err(), "it is still not read");
        drop(unread);
        let _others = [(); FILLING - 1].map(|()| inbound.pause()); // which leave room for this stream
        let begun = Instant::now();
        assert!(silent.next().await.is_err(), "it is read again");
        let judged = begun.elapsed();
        assert!((PATIENCE..2 * PATIENCE).contains(&judged), "{judged:?}");
    }

    #[tokio::test]
    async fn i8_what_a_request_has_half_sent_is_given_back_when_it_is_too_slow_and_when_its_stream_is_dropped() {
        let all = IncompleteRequests::with_window(LIMIT, 1000, Duration::from_millis(10));
        let mut oldest = all.connection().begin();
        let whole = framed(&[7; 60]);
        let mut slow = frames(&all, &[&whole[..45]], Then::Silent);
        assert!(tokio::time::timeout(Duration::from_secs(20), slow.next()).await.expect("it is too slow").is_err());
        assert!(is_free(&mut oldest), "the stream is still drained");

        let mut abandoned = frames(&all, &[&whole[..45]], Then::Silent);
        assert!(pin!(abandoned.next()).now_or_never().is_none());
        assert!(!is_free(&mut oldest), "it counts until then");
        drop(abandoned);
        let mut oldest = all.connection().begin();
        assert!(is_free(&mut oldest));
    }

    const LIMIT: usize = 100;
}
