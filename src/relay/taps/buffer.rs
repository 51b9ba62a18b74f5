//! The events that one tap has yet to read. The buffer is bounded: events that do not fit are counted, and no stream waits.

use std::collections::VecDeque;

use super::event::TapEvent;

#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// The events, each with how many were dropped before it.
    events: VecDeque<(u64, TapEvent)>,
    /// The memory of their whole messages.
    bytes: usize,
    /// How many events were dropped after the last of these.
    dropped: u64,
}

/// The result of a read.
#[derive(Debug)]
pub(crate) struct Taken {
    /// How many events were dropped before it.
    pub(crate) dropped: u64,
    /// `None` if the dropped events were the last.
    pub(crate) event: Option<TapEvent>,
}

impl Buffer {
    /// Adds an event. Without room for its whole message, only the glance is kept. Without room for that, the event is dropped.
    pub(super) fn push(&mut self, mut event: TapEvent) {
        if self.events.len() >= MOST_EVENTS {
            self.dropped += 1;
            return;
        }
        if self.bytes + event.body_bytes() > BODY_BYTES {
            event.drop_body();
        }
        self.bytes += event.body_bytes();
        self.events.push_back((std::mem::take(&mut self.dropped), event));
    }

    pub(super) fn take(&mut self) -> Option<Taken> {
        match self.events.pop_front() {
            Some((dropped, event)) => {
                self.bytes -= event.body_bytes();
                Some(Taken { dropped, event: Some(event) })
            }
            None => {
                let dropped = std::mem::take(&mut self.dropped);
                (dropped > 0).then_some(Taken { dropped, event: None })
            }
        }
    }
}

/// How many events a tap may be behind.
const MOST_EVENTS: usize = 256;
/// What whole messages of these may keep in memory.
pub(super) const BODY_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use weir_core::proto::Request;
    use weir_core::proto::discovery::DiscoveryRequest;

    use super::super::event::{RequestGlance, TapWhat};
    use super::*;

    fn event(session: u64, body: usize) -> TapEvent {
        let mut glance = RequestGlance::of(&Request::Sotw(DiscoveryRequest::default()), 0);
        glance.body = (body > 0).then(|| Bytes::from(vec![0; body]));
        TapEvent::now(session, TapWhat::Request(Box::new(glance)))
    }

    fn read(buffer: &mut Buffer) -> (u64, Option<u64>) {
        let Taken { dropped, event } = buffer.take().expect("there is something");
        (dropped, event.map(|event| event.session))
    }

    #[test]
    fn what_does_not_fit_is_counted_where_it_is_missing() {
        let mut buffer = Buffer::default();
        let most = MOST_EVENTS as u64;
        (0..most + 7).for_each(|session| buffer.push(event(session, 0)));
        assert_eq!(read(&mut buffer), (0, Some(0)));
        buffer.push(event(1000, 0));
        buffer.push(event(1001, 0));
        for session in 1..most {
            assert_eq!(read(&mut buffer), (0, Some(session)));
        }
        assert_eq!(read(&mut buffer), (7, Some(1000)));
        assert_eq!(read(&mut buffer), (1, None), "nothing came after the last one");
        assert!(buffer.take().is_none());
    }

    #[test]
    fn whole_messages_are_bounded_in_bytes_and_what_was_read_leaves_room() {
        let (mut buffer, half) = (Buffer::default(), BODY_BYTES / 2);
        for body in [half, half, 1, BODY_BYTES + 1] {
            buffer.push(event(body as u64, body));
        }
        let bodies: Vec<_> = buffer.events.iter().map(|(_, event)| event.body_bytes()).collect();
        assert_eq!((bodies, buffer.bytes), (vec![half, half, 0, 0], 2 * half));
        assert_eq!(read(&mut buffer), (0, Some(half as u64)));
        buffer.push(event(9, half));
        assert_eq!(buffer.bytes, 2 * half);
        while buffer.take().is_some() {}
        assert_eq!(buffer.bytes, 0);
    }
}
