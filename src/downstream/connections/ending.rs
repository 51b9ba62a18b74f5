//! When a connection has to end, and how.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::place::ConnectionPlace;
use crate::downstream::drain::Drain;
use crate::downstream::judged_clients;
use crate::downstream::lifetime::Age;
use crate::limit::Limit;

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum End {
    /// The relay drains.
    Drain,
    /// Another connection needs its place, and it has no stream.
    Unused,
    /// Its first request is late.
    Late,
    /// Its request was refused.
    Refused,
    /// Its client was judged again, and has to end.
    Judged,
    /// It has reached its maximum age.
    Aged,
    /// The relay has too many streams: the next ones of its client had better go to another one.
    Full,
}

/// Waits until the connection has to end, also because the relay drains.
pub(in crate::downstream) async fn ends(place: &ConnectionPlace, drain: &mut Drain) -> End {
    tokio::select! {
        () = drains(place, drain) => End::Drain,
        end = closes(place) => end,
    }
}

/// Waits until the relay drains. A connection that was just accepted has a moment for its first request, which is answered.
async fn drains(place: &ConnectionPlace, drain: &mut Drain) {
    drain.begins().await;
    let _ = Box::pin(timeout(JUST_ACCEPTED, place.first_request())).await;
}

/// Waits until the connection has to end while the relay does not drain.
pub(in crate::downstream) async fn closes(place: &ConnectionPlace) -> End {
    tokio::select! {
        end = is_closed(place) => end,
        () = is_late(place) => End::Late,
        _ = judged_clients::ends(place.judged()) => End::Judged,
        () = Age::is_reached(place.age()) => {
            place.connections().count_aged();
            End::Aged
        }
    }
}

async fn is_closed(place: &ConnectionPlace) -> End {
    loop {
        place.must_leave().await;
        if place.is_refused() {
            return End::Refused;
        }
        if place.is_full() {
            return End::Full;
        }
        if place.is_idle() {
            return End::Unused;
        }
        place.stay(); // it has a stream again
    }
}

/// Waits until the first request is late. That may never be.
async fn is_late(place: &ConnectionPlace) {
    let Some(left) = place.left_for_first_request() else { return pending().await };
    // Boxed, since most connections outlive this.
    if Box::pin(timeout(left, place.first_request())).await.is_ok() {
        pending::<()>().await;
    }
    if place.is_served() {
        place.connections().reached(Limit::FirstRequestTimeout);
    }
}

/// Waits until a connection that was told to end has ended; `None` if that took too long. A connection with streams has no time limit, unless it
/// is refused, or its client or its age does not allow it to stay.
pub(in crate::downstream) async fn finish<T>(
    place: &ConnectionPlace,
    end: End,
    serving: impl Future<Output = T>,
) -> Option<T> {
    let mut serving = pin!(serving);
    let time_to_end = || sleep(place.connections().time_to_end());
    if !matches!(end, End::Drain | End::Aged | End::Full) {
        tokio::select! {
            ended = &mut serving => return Some(ended),
            () = time_to_end() => {}
        }
        if end == End::Judged || place.is_refused() || place.is_idle() {
            return None;
        }
    }
    // Boxed, since few connections come here.
    let overdue = Box::pin(async {
        tokio::select! {
            _ = judged_clients::ends(place.judged()) => {}
            () = Age::is_overdue(place.age()) => {}
        }
        time_to_end().await;
    });
    tokio::select! {
        ended = serving => Some(ended),
        () = overdue => None,
    }
}

/// How long a drain waits for the first request of a connection.
const JUST_ACCEPTED: Duration = Duration::from_secs(1);
