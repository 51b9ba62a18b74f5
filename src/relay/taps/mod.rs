//! Taps: operators who see the requests and replies of one client as they go.
//!
//! A client's stream never waits for a tap. Without taps, a stream only reads a flag of its own for each request and reply; the same holds for
//! streams beside a tapped one. A tapped stream hands over a glance and a handle. Text is made where the tap is read.

mod buffer;
mod event;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use self::buffer::Buffer;
pub(crate) use self::buffer::Taken;
pub(crate) use self::event::{NameList, OpenedStream, ReplyGlance, RequestGlance, TapEvent, TapWhat};

/// The taps of a process.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    open: AtomicUsize,
    /// Locked for the events of tapped clients, and when a stream opens while there is a tap.
    list: Mutex<Vec<Arc<Tap>>>,
}

/// Which streams are tapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TappedClient {
    Session(u64),
    /// All streams of the node with this id, including later ones.
    Node(String),
}

#[derive(Debug)]
struct Tap {
    client: TappedClient,
    /// Whether the tap is handed whole messages.
    whole: bool,
    buffer: Mutex<Buffer>,
    news: Notify,
}

/// The reading end of a tap. Dropping it closes the tap.
#[derive(Debug)]
pub(crate) struct TapReader {
    taps: Arc<Taps>,
    tap: Arc<Tap>,
}

impl Taps {
    /// None if there are too many.
    pub(super) fn open(self: &Arc<Self>, client: TappedClient, whole: bool) -> Option<TapReader> {
        let mut list = self.lock();
        if list.len() >= MAX_TAPS {
            return None;
        }
        let tap = Arc::new(Tap { client, whole, buffer: Mutex::default(), news: Notify::new() });
        list.push(tap.clone());
        self.open.store(list.len(), Ordering::Release);
        Some(TapReader { taps: self.clone(), tap })
    }

    pub(crate) fn is_any_open(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// Whether there is a tap on this stream, and whether any of them is handed whole messages.
    pub(super) fn on(&self, session: u64, node: &str) -> Option<bool> {
        let list = self.lock();
        let mut on_it = list.iter().filter(|tap| tap.client.is(session, node)).map(|tap| tap.whole).peekable();
        on_it.peek()?;
        Some(on_it.any(|whole| whole))
    }

    /// Hands an event of a stream to those who tap it.
    pub(super) fn tell(&self, session: u64, node: &str, what: TapWhat) {
        let event = TapEvent::now(session, what);
        let tapping: Vec<_> = self.lock().iter().filter(|tap| tap.client.is(session, node)).cloned().collect();
        for tap in tapping {
            let mut event = event.clone();
            if !tap.whole {
                event.drop_body();
            }
            tap.buffer().push(event);
            tap.news.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Tap>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TappedClient {
    fn is(&self, session: u64, node: &str) -> bool {
        match self {
            Self::Session(of) => *of == session,
            Self::Node(id) => id == node,
        }
    }
}

impl Tap {
    fn buffer(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TapReader {
    /// Waits for what comes next.
    pub(crate) async fn next(&self) -> Taken {
        loop {
            if let Some(taken) = self.tap.buffer().take() {
                return taken;
            }
            self.tap.news.notified().await;
        }
    }
}

impl Drop for TapReader {
    fn drop(&mut self) {
        let mut list = self.taps.lock();
        list.retain(|tap| !Arc::ptr_eq(tap, &self.tap));
        self.taps.open.store(list.len(), Ordering::Release);
    }
}

/// How many taps there are at a time.
pub(crate) const MAX_TAPS: usize = 4;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn ended(reason: &str) -> TapWhat {
        TapWhat::Ended { status: None, reason: reason.into() }
    }

    fn read(reader: &TapReader) -> Option<u64> {
        reader.next().now_or_never().and_then(|taken| taken.event).map(|event| event.session)
    }

    #[tokio::test]
    async fn a_tap_is_told_of_its_client_alone_until_it_is_closed() {
        let taps = Arc::<Taps>::default();
        assert!(!taps.is_any_open() && taps.on(1, "a").is_none());
        let of_node = taps.open(TappedClient::Node("a".into()), true).unwrap();
        let of_session = taps.open(TappedClient::Session(2), false).unwrap();
        assert_eq!([taps.on(1, "a"), taps.on(2, "a"), taps.on(2, "b")], [Some(true), Some(true), Some(false)]);
        assert_eq!((taps.on(3, "b"), taps.is_any_open()), (None, true));
        for (session, node) in [(1, "a"), (2, "b"), (3, "b"), (2, "a")] {
            taps.tell(session, node, ended(""));
        }
        assert_eq!([read(&of_node), read(&of_node), read(&of_node)], [Some(1), Some(2), None]);
        assert_eq!([read(&of_session), read(&of_session), read(&of_session)], [Some(2), Some(2), None]);
        drop(of_node);
        assert_eq!((taps.on(1, "a"), taps.is_any_open()), (None, true));
        drop(of_session);
        assert!(!taps.is_any_open());
    }

    #[tokio::test]
    async fn a_reader_that_waits_is_woken() {
        let taps = Arc::<Taps>::default();
        let reader = taps.open(TappedClient::Session(1), false).unwrap();
        let (taken, ()) = tokio::join!(reader.next(), async { taps.tell(1, "", ended("over")) });
        assert!(matches!(taken.event.unwrap().what, TapWhat::Ended { reason, .. } if reason == "over"));
    }

    #[test]
    fn there_are_only_so_many_and_one_that_ends_leaves_room() {
        let taps = Arc::<Taps>::default();
        let mut readers: Vec<_> = (0..MAX_TAPS as u64).map(|of| taps.open(TappedClient::Session(of), false)).collect();
        assert!(readers.iter().all(Option::is_some) && taps.open(TappedClient::Session(9), false).is_none());
        readers.pop();
        assert!(taps.open(TappedClient::Session(9), false).is_some());
    }
}
