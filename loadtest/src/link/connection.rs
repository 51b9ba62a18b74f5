//! One HTTP/2 connection and its streams. The task that owns it drives it.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use h2::client::{self, Connection, SendRequest};
use http::{HeaderValue, Method, Request, Uri, Version, header};

use super::StreamId;
use super::first_bytes::FirstBytes;
use super::message::{Message, framed};
use super::options::{LinkError, LinkOptions};
use super::socket::{Readable, Socket, Target};
use super::stream::{Status, Stream};

#[derive(Debug)]
pub enum Event {
    Message(StreamId, Message),
    /// The stream has ended, and its index may be reused.
    Ended(StreamId, Status),
    /// The connection has ended, with all streams that were still open. Every further call returns this too.
    Closed(String),
}

pub struct Link {
    connection: Connection<Socket, Bytes>,
    sender: SendRequest<Bytes>,
    base: String,
    max_message: usize,
    streams: Vec<Option<Stream>>,
    unopened: VecDeque<(StreamId, &'static str)>,
    /// Streams that may have something to read.
    ready: VecDeque<StreamId>,
    /// Streams that HTTP/2 has woken since the last poll. It wakes them only while the connection is polled.
    woken: Woken,
    closed: Option<String>,
    first_bytes: FirstBytes,
    readable: Readable,
}

type Woken = Arc<Mutex<Vec<StreamId>>>;

struct StreamWaker {
    stream: StreamId,
    woken: Woken,
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).push(self.stream);
    }
}

impl Link {
    pub async fn open(target: impl Into<Target>, options: &LinkOptions) -> Result<Self, LinkError> {
        let target = target.into();
        let socket = Socket::connect(&target, options).await?;
        let (first_bytes, readable) = (socket.first_bytes(), socket.readable());
        let (sender, connection) = client::Builder::new()
            .initial_window_size(options.window)
            .initial_connection_window_size(options.window)
            .max_frame_size(options.max_frame_size)
            .initial_max_send_streams(1) // the server would reject streams beyond its limit, so they wait for its settings
            .enable_push(false)
            .handshake(socket)
            .await
            .map_err(LinkError::Http2)?;
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        Ok(Self {
            connection,
            sender,
            base: match target {
                Target::Tcp(address) => format!("{scheme}://{address}"),
                Target::Unix(_) => "http://localhost".into(),
            },
            max_message: options.max_message,
            streams: Vec::new(),
            unopened: VecDeque::new(),
            ready: VecDeque::new(),
            woken: Woken::default(),
            closed: None,
            first_bytes,
            readable,
        })
    }

    /// Opens a stream as soon as the server allows it. Requests that are sent earlier are queued.
    pub fn start(&mut self, path: &'static str) -> StreamId {
        let free = self.streams.iter().position(Option::is_none);
        let id = free.unwrap_or_else(|| {
            self.streams.push(None);
            self.streams.len() - 1
        });
        let waker = Arc::new(StreamWaker { stream: id, woken: self.woken.clone() });
        self.streams[id] = Some(Stream::new(Waker::from(waker)));
        self.unopened.push_back((id, path));
        id
    }

    /// Sends one encoded request. It is queued while the server does not read, so send no faster than the server answers.
    pub fn send(&mut self, stream: StreamId, request: impl AsRef<[u8]>) {
        if let Some(Some(stream)) = self.streams.get_mut(stream) {
            stream.send(framed(request.as_ref()));
        }
    }

    /// Sends bytes as they are, without a gRPC prefix.
    pub fn send_bytes(&mut self, stream: StreamId, bytes: Bytes) {
        if let Some(Some(stream)) = self.streams.get_mut(stream) {
            stream.send(bytes);
        }
    }

    /// Whether HTTP/2 has written everything that was sent on the stream, and its windows have room for more. A stream that
    /// is not open yet has no room.
    pub fn has_room(&mut self, stream: StreamId) -> bool {
        self.streams.get_mut(stream).and_then(Option::as_mut).is_some_and(Stream::has_room)
    }

    /// Ends the requests of a stream, and continues to read it.
    pub fn half_close(&mut self, stream: StreamId) {
        if let Some(Some(stream)) = self.streams.get_mut(stream) {
            stream.half_close();
        }
    }

    /// Resets a stream. It causes no further events.
    pub fn cancel(&mut self, stream: StreamId) {
        self.unopened.retain(|(unopened, _)| *unopened != stream);
        if let Some(stream) = self.streams.get_mut(stream).and_then(Option::take) {
            stream.cancel();
        }
    }

    /// Stops or continues reading a stream: the server may send as much as the window allows. To stop reading the socket as well,
    /// stop calling [`Self::next`].
    pub fn set_paused(&mut self, stream: StreamId, paused: bool) {
        if let Some(Some(found)) = self.streams.get_mut(stream) {
            found.set_paused(paused);
            self.ready.push_back(stream);
        }
    }

    /// Limits how many more bytes are read of the socket, about. `None`: no limit. To take effect, [`Self::next`] has to be called again.
    pub fn limit_reading(&mut self, bytes: Option<usize>) {
        self.readable.store(bytes.unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// Waits for the next event; reads and writes meanwhile. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Event {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        loop {
            // Reads everything that has arrived first, so that all answers are sent in one write.
            if let Some(event) = self.next_ready() {
                return Poll::Ready(event);
            }
            if let Some(reason) = &self.closed {
                return Poll::Ready(Event::Closed(reason.clone()));
            }
            self.open_streams(cx);
            match Pin::new(&mut self.connection).poll(cx) {
                Poll::Ready(Ok(())) => self.close("connection closed"),
                Poll::Ready(Err(error)) => self.close(&error.to_string()),
                Poll::Pending if self.is_idle() => return Poll::Pending,
                Poll::Pending => {}
            }
        }
    }

    fn close(&mut self, reason: &str) {
        self.closed = Some(self.first_bytes.explain(reason));
    }

    fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.woken.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn next_ready(&mut self) -> Option<Event> {
        if self.ready.is_empty() {
            self.ready.extend(self.woken.lock().unwrap_or_else(PoisonError::into_inner).drain(..));
        }
        while let Some(id) = self.ready.pop_front() {
            let Some(Some(stream)) = self.streams.get_mut(id) else { continue };
            match stream.poll(self.max_message) {
                Poll::Pending => {}
                Poll::Ready(Ok(message)) => {
                    self.ready.push_back(id); // there may be more
                    return Some(Event::Message(id, message));
                }
                Poll::Ready(Err(mut status)) => {
                    self.cancel(id);
                    if status.code.is_none() {
                        status.message = self.first_bytes.explain(&status.message);
                    }
                    return Some(Event::Ended(id, status));
                }
            }
        }
        None
    }

    fn open_streams(&mut self, cx: &mut Context<'_>) {
        while let Some((id, path)) = self.unopened.front().copied() {
            match self.sender.poll_ready(cx) {
                Poll::Pending => return,
                Poll::Ready(Err(_)) => return, // the connection reports the reason
                Poll::Ready(Ok(())) => {}
            }
            self.unopened.pop_front();
            let opened = request(&self.base, path).and_then(|request| self.sender.send_request(request, false).ok());
            if let (Some((response, requests)), Some(Some(stream))) = (opened, self.streams.get_mut(id)) {
                stream.opened(response, requests);
                self.ready.push_back(id);
            }
        }
    }
}

fn request(base: &str, path: &str) -> Option<Request<()>> {
    let uri: Uri = format!("{base}{path}").parse().ok()?;
    let mut request = Request::builder().method(Method::POST).version(Version::HTTP_2).uri(uri).body(()).ok()?;
    request.headers_mut().insert(header::TE, HeaderValue::from_static("trailers"));
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Some(request)
}
