//! The resources that the scripted control plane serves to the relay for one node cluster, and the requests that it received.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use tokio::sync::mpsc::UnboundedSender;
use weir_core::proto::Request;

use super::Variant;
use super::server::{Out, Server, Truth};
use crate::content::{Item, message_name};

/// A handle to a world. Clones refer to the same world.
#[derive(Clone, Default)]
pub struct World(Arc<Mutex<Books>>);

#[derive(Default)]
struct Books {
    truth: Truth,
    mood: Mood,
    streams: Vec<Server>,
    /// Requests that arrived while the world did not answer.
    unread: Vec<(usize, Request)>,
    heard: Vec<SeenRequest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Mood {
    #[default]
    Serving,
    /// Reads requests without answering.
    Silent,
    /// Ends every stream before the first response.
    Down,
}

/// A request from the relay.
#[derive(Debug, Clone)]
pub struct SeenRequest {
    pub stream: usize,
    pub at: Instant,
    pub request: Request,
}

impl World {
    /// Adds resources for names and for `*`. Consecutive items of one type are sent together.
    pub fn set(&self, items: &[Item]) {
        self.change(items, &[true, false]);
    }

    /// Adds resources for names only.
    pub fn set_named(&self, items: &[Item]) {
        self.change(items, &[false]);
    }

    pub fn remove(&self, url: &str, names: &[&str]) {
        let books = &mut *self.books();
        let kind = message_name(url);
        for sets in [&mut books.truth.wildcard, &mut books.truth.named] {
            let set = sets.entry(kind.into()).or_default();
            set.retain(|name, _| !names.contains(&name.as_str()));
        }
        books.push(kind);
    }

    /// Sends all resources of a type again under new versions.
    pub fn repeat(&self, url: &str) {
        let books = &mut *self.books();
        books.truth.epoch += 1;
        books.streams.iter_mut().for_each(|stream| stream.repeat(message_name(url), &books.truth));
    }

    /// Sends exactly these items, valid or not, on every stream that has requested the type. Returns the nonces.
    pub fn say(&self, url: &str, items: &[Item], version: &str) -> Vec<String> {
        let mut books = self.books();
        books.streams.iter_mut().filter_map(|stream| stream.say(message_name(url), items, version)).collect()
    }

    /// Sets in how many parts the first response to `*` on a delta stream is sent from now on.
    pub fn in_pieces(&self, pieces: usize) {
        self.books().truth.pieces = pieces;
    }

    pub fn hush(&self) {
        self.books().mood = Mood::Silent;
    }

    /// Ends all streams. New ones are ended too, until the world serves again.
    pub fn go_down(&self) {
        let mut books = self.books();
        books.mood = Mood::Down;
        books.streams.iter_mut().for_each(|stream| stream.end(UNAVAILABLE));
    }

    /// Ends all streams; new ones are served.
    pub fn end_streams(&self) {
        self.books().streams.iter_mut().for_each(|stream| stream.end(UNAVAILABLE));
    }

    /// Answers every request from now on, and also those that were not answered before.
    pub fn serve(&self) {
        let books = &mut *self.books();
        books.mood = Mood::Serving;
        for (stream, request) in std::mem::take(&mut books.unread) {
            books.streams[stream].read(request, &books.truth);
        }
        let kinds: Vec<_> = books.truth.wildcard.keys().chain(books.truth.named.keys()).cloned().collect();
        kinds.iter().for_each(|kind| books.push(kind));
    }

    pub fn heard(&self) -> Vec<SeenRequest> {
        self.books().heard.clone()
    }

    /// Returns the variant of the relay's first stream.
    pub fn variant(&self) -> Option<Variant> {
        self.books().streams.first().map(|stream| stream.variant)
    }

    /// Waits until the received requests satisfy a condition.
    pub async fn hears(
        &self,
        what: &str,
        patience: Duration,
        holds: impl Fn(&[SeenRequest]) -> bool,
    ) -> anyhow::Result<Vec<SeenRequest>> {
        let start = Instant::now();
        loop {
            let heard = self.heard();
            if holds(&heard) {
                return Ok(heard);
            }
            if start.elapsed() > patience {
                let said: Vec<_> = heard.iter().map(ToString::to_string).collect();
                bail!("upstream never heard {what}; it heard: {}", said.join("; "));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) fn join(&self, variant: Variant, out: UnboundedSender<Out>) -> usize {
        let mut books = self.books();
        let number = books.streams.len();
        books.streams.push(Server::new(number, variant, out));
        number
    }

    pub(super) fn take(&self, stream: usize, request: Request) {
        let books = &mut *self.books();
        books.heard.push(SeenRequest { stream, at: Instant::now(), request: request.clone() });
        match books.mood {
            Mood::Serving => books.streams[stream].read(request, &books.truth),
            Mood::Silent => books.unread.push((stream, request)),
            Mood::Down => books.streams[stream].end(UNAVAILABLE),
        }
    }

    fn change(&self, items: &[Item], stars: &[bool]) {
        let mut books = self.books();
        for run in items.chunk_by(|one, next| one.url == next.url) {
            let kind = message_name(run[0].url);
            for wildcard in stars {
                let sets = if *wildcard { &mut books.truth.wildcard } else { &mut books.truth.named };
                let set = sets.entry(kind.into()).or_default();
                set.extend(run.iter().map(|item| (item.name.clone(), item.clone())));
            }
            books.push(kind);
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn push(&mut self, kind: &str) {
        if self.mood == Mood::Serving {
            self.streams.iter_mut().for_each(|stream| stream.push(kind, &self.truth));
        }
    }
}

impl SeenRequest {
    pub fn is_of(&self, url: &str) -> bool {
        message_name(self.request.type_url()) == message_name(url)
    }

    pub fn nonce(&self) -> &str {
        match &self.request {
            Request::Sotw(request) => &request.response_nonce,
            Request::Delta(request) => &request.response_nonce,
        }
    }

    pub fn version(&self) -> &str {
        match &self.request {
            Request::Sotw(request) => &request.version_info,
            Request::Delta(_) => "",
        }
    }

    pub fn is_refusal(&self) -> bool {
        match &self.request {
            Request::Sotw(request) => request.error_detail.is_some(),
            Request::Delta(request) => request.error_detail.is_some(),
        }
    }

    /// Returns the names that the request has.
    pub fn names(&self) -> &[String] {
        match &self.request {
            Request::Sotw(request) => &request.resource_names,
            Request::Delta(request) => &request.resource_names_subscribe,
        }
    }

    /// Returns the names that the request unsubscribes from. Only delta lists them.
    pub fn names_left(&self) -> &[String] {
        match &self.request {
            Request::Sotw(_) => &[],
            Request::Delta(request) => &request.resource_names_unsubscribe,
        }
    }
}

impl std::fmt::Display for SeenRequest {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        let short = message_name(self.request.type_url()).rsplit('.').next().unwrap_or_default();
        write!(out, "{short} +{:?} -{:?} nonce {:?}", self.names(), self.names_left(), self.nonce())?;
        if self.is_refusal() { out.write_str(" (NACK)") } else { Ok(()) }
    }
}

const UNAVAILABLE: u8 = 14;
