//! `/live`: a picture of the relay each second, as server-sent events. All watchers share one picture; without watchers none is made.

mod picture;

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Body;
use axum::extract::{FromRef, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::answer::text;
use super::caller::Caller;
use super::guard::Effect;
use super::{AdminContext, CurrentContext};

/// The pictures that all watchers share.
pub(crate) struct Live {
    /// The newest picture, as an event; `None` without watchers.
    newest: watch::Sender<Option<Bytes>>,
    state: Mutex<Watching>,
    /// Distinguishes this process from earlier ones.
    instance: String,
}

#[derive(Default)]
struct Watching {
    watchers: usize,
    is_making: bool,
}

/// Counts a watcher until it is dropped.
struct Watcher(Arc<Live>);

/// Marks that pictures are made, until it is dropped.
struct Making(Arc<Live>);

/// Sends the newest picture whenever it changes. A slow watcher misses some pictures.
pub(super) async fn live(State(now): State<CurrentContext>, Extension(caller): Extension<Caller>) -> Response {
    let live = AdminContext::from_ref(&now).live;
    let Some(watcher) = live.watch(&now) else { return too_many() };
    let (to, from) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut newest = watcher.0.newest.subscribe();
        loop {
            let picture = match newest.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(picture)) => picture.clone(),
                _ => return,
            };
            // The stream may outlive the rights of its caller's certificate, and the configuration.
            let shown = AdminContext::from_ref(&now);
            if shown.rules.check_still(&caller, Effect::Read).is_err() || to.send(Frame::data(picture)).await.is_err() {
                return;
            }
            let is_last = shown.views.readiness().is_draining();
            drop(shown);
            tokio::select! {
                _ = newest.changed() => {}
                () = to.closed() => return,
            }
            if is_last {
                return;
            }
        }
    });
    let frames = ReceiverStream::new(from).map(Ok::<_, Infallible>);
    let mut response = Response::new(Body::new(StreamBody::new(frames)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn too_many() -> Response {
    let reason = format!(
        "too many watchers: the limit is {MAX_WATCHERS}; close a page of this relay, or read /clients and /upstreams"
    );
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, &reason);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("10"));
    response
}

impl Live {
    pub(crate) fn new(instance: String) -> Self {
        Self { newest: watch::Sender::new(None), state: Mutex::default(), instance }
    }

    /// Returns `None` if there are too many watchers. The first watcher starts the making of pictures.
    fn watch(self: &Arc<Self>, shown: &CurrentContext) -> Option<Watcher> {
        let mut state = self.lock();
        if state.watchers == MAX_WATCHERS {
            return None;
        }
        state.watchers += 1;
        if !state.is_making {
            state.is_making = true;
            tokio::spawn(make_pictures(Making(self.clone()), shown.clone()));
        }
        Some(Watcher(self.clone()))
    }

    /// Whether there are watchers. Without them the newest picture is dropped, and the next watcher starts the making again.
    fn is_watched(&self) -> bool {
        let mut state = self.lock();
        state.is_making = state.watchers > 0;
        if !state.is_making {
            self.newest.send_replace(None);
        }
        state.is_making
    }

    fn lock(&self) -> MutexGuard<'_, Watching> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes pictures until no watcher is left. A pause between pictures leaves most of the time to other work, unless a picture takes very long.
async fn make_pictures(making: Making, shown: CurrentContext) {
    let live = &making.0;
    while live.is_watched() {
        let began = Instant::now();
        let picture = picture::of(&AdminContext::from_ref(&shown), &live.instance).await;
        live.newest.send_replace(Some(event_of(&picture)));
        tokio::time::sleep((began.elapsed() * LEFT_TO_OTHERS).clamp(PERIOD, LONGEST_PERIOD)).await;
    }
}

fn event_of(picture: &[u8]) -> Bytes {
    let retry = format!("retry: {}\nevent: picture\ndata: ", RECONNECT.as_millis());
    [retry.as_bytes(), picture, b"\n\n"].concat().into()
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.lock().watchers -= 1;
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        // Only after a panic: otherwise another task may already make pictures.
        if std::thread::panicking() {
            self.0.lock().is_making = false;
        }
    }
}

const MAX_WATCHERS: usize = 16;
const PERIOD: Duration = Duration::from_secs(1);
/// The page considers a relay lost if it is silent for longer.
const LONGEST_PERIOD: Duration = Duration::from_secs(3);
/// The pause between two pictures, as a multiple of the time that the last one took.
const LEFT_TO_OTHERS: u32 = 20;
/// How long a browser waits before it connects again.
const RECONNECT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn live() -> Arc<Live> {
        Arc::new(Live::new("one".into()))
    }

    #[test]
    fn an_event_has_one_line_of_data() {
        let event = event_of(b"{\"at\":1}");
        let text = std::str::from_utf8(&event).unwrap();
        assert_eq!(text, "retry: 2000\nevent: picture\ndata: {\"at\":1}\n\n");
    }

    #[test]
    fn pictures_are_made_while_somebody_watches_and_the_next_watcher_has_them_made_again() {
        let live = live();
        live.lock().watchers = 2;
        assert!(live.is_watched() && live.lock().is_making);
        drop(Watcher(live.clone()));
        assert!(live.is_watched());
        live.newest.send_replace(Some(Bytes::from_static(b"old")));
        drop(Watcher(live.clone()));
        assert!(!live.is_watched() && !live.lock().is_making);
        assert!(live.newest.borrow().is_none(), "the next watcher gets none that is old");
    }
}
