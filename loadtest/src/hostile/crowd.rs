//! Many streams on one connection, opened at a limited pace.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

use super::offender::Offender;
use crate::link::{Event, Link, StreamId};

pub struct Crowd {
    pub path: &'static str,
    /// The number of streams, which are opened in turn. A stream that has ended is opened again after all others.
    pub streams: usize,
    /// How many streams are open at a time. To open another one, the oldest is reset.
    pub open: usize,
    /// How many streams are opened in one batch, and the pause between two batches.
    pub batch: usize,
    pub pause: Duration,
}

/// The streams of a connection by number.
struct Streams {
    link: Link,
    /// The open streams, oldest first.
    open: VecDeque<(StreamId, usize)>,
    /// The closed streams, the next one to open first.
    closed: VecDeque<usize>,
    /// The last opened stream, and when it was opened.
    last: Option<(StreamId, Instant)>,
}

impl Crowd {
    /// Connects, and keeps the streams open until the connection ends. `first` returns the first bytes of a stream.
    pub async fn keep(&self, offender: &Offender, mut first: impl FnMut(usize) -> Vec<Vec<u8>>) {
        let link = offender.link().await;
        let closed = (0..self.streams).collect();
        let mut streams = Streams { link, open: VecDeque::new(), closed, last: None };
        let mut ticks = interval(offender.pause(self.pause));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = streams.link.next() => {
                    if offender.has_closed(&event) {
                        return;
                    }
                    if let Event::Ended(stream, _) = event {
                        streams.ended(stream);
                    }
                }
                _ = ticks.tick(), if !streams.closed.is_empty() => {
                    if streams.is_last_sent() {
                        (0..self.batch).for_each(|_| self.open_next(offender, &mut streams, &mut first));
                    }
                }
            }
        }
    }

    fn open_next(&self, offender: &Offender, streams: &mut Streams, first: &mut impl FnMut(usize) -> Vec<Vec<u8>>) {
        let Some(number) = streams.closed.pop_front() else { return };
        if streams.open.len() >= self.open
            && let Some((oldest, number)) = streams.open.pop_front()
        {
            streams.link.cancel(oldest);
            streams.closed.push_back(number);
        }
        let stream = offender.start(&mut streams.link, self.path);
        first(number).iter().for_each(|message| offender.send(&mut streams.link, stream, message));
        streams.open.push_back((stream, number));
        streams.last = Some((stream, Instant::now()));
    }
}

impl Streams {
    fn ended(&mut self, stream: StreamId) {
        let place = self.open.iter().position(|(open, _)| *open == stream);
        self.closed.extend(place.and_then(|place| self.open.remove(place)).map(|(_, number)| number));
    }

    /// Whether the server has read what was sent on the last stream, or had enough time to read it. Until then the bytes stay in the memory of this
    /// process.
    fn is_last_sent(&mut self) -> bool {
        let Some((stream, since)) = self.last else { return true };
        let is_open = self.open.back().is_some_and(|(last, _)| *last == stream);
        !is_open || since.elapsed() > PATIENCE || self.link.has_room(stream)
    }
}

const PATIENCE: Duration = Duration::from_secs(1);
