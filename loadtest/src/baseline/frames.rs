//! The few HTTP/2 frames that the floor sends and reads.

/// The first frames of a server, with windows so large that no benchmark fills them and they need no updates.
pub fn greeting() -> Vec<u8> {
    let mut settings = Vec::new();
    settings.extend_from_slice(&INITIAL_WINDOW_SIZE.to_be_bytes());
    settings.extend_from_slice(&MAX_WINDOW.to_be_bytes());
    let mut out = frame(SETTINGS, 0, 0, &settings);
    out.extend(frame(WINDOW_UPDATE, 0, 0, &(MAX_WINDOW - DEFAULT_WINDOW).to_be_bytes()));
    out
}

pub fn settings_ack() -> Vec<u8> {
    frame(SETTINGS, ACK, 0, &[])
}

/// `:status: 200` and `content-type: application/grpc`, without compression of either.
pub fn response_headers() -> Vec<u8> {
    let mut block = vec![0x88, 0x0f, 0x10, 16];
    block.extend_from_slice(b"application/grpc");
    frame(HEADERS, END_HEADERS, STREAM, &block)
}

/// Frames a message as DATA, in frames of a size that every client accepts.
pub fn data(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + (message.len() / MAX_FRAME + 1) * HEAD);
    message.chunks(MAX_FRAME).for_each(|chunk| out.extend(frame(DATA, 0, STREAM, chunk)));
    out
}

/// Reads the first bytes of a client as they arrive.
#[derive(Debug, Default)]
pub struct Opening {
    received: Vec<u8>,
    has_preface: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Settings,
    /// DATA of the request arrived: the client has subscribed.
    Request,
}

impl Opening {
    pub fn read(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.received.extend_from_slice(bytes);
        let mut events = Vec::new();
        if !self.has_preface && self.received.len() >= PREFACE.len() {
            self.received.drain(..PREFACE.len());
            self.has_preface = true;
        }
        while self.has_preface
            && let Some(length) = self.received.get(..HEAD).map(frame_length)
            && self.received.len() >= length
        {
            match (self.received[3], self.received[4]) {
                (SETTINGS, flags) if flags & ACK == 0 => events.push(Event::Settings),
                (DATA, _) if length > HEAD => events.push(Event::Request),
                _ => {}
            }
            self.received.drain(..length);
        }
        events
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame is small").to_be_bytes();
    let mut out = Vec::with_capacity(HEAD + payload.len());
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

fn frame_length(head: &[u8]) -> usize {
    HEAD + (usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]))
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;
const MAX_FRAME: usize = 16_384;
/// The first stream of a client. No other stream is served.
const STREAM: u32 = 1;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const INITIAL_WINDOW_SIZE: u16 = 4;
const DEFAULT_WINDOW: u32 = 65_535;
const MAX_WINDOW: u32 = (1 << 31) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opening_is_read_in_any_pieces() {
        let mut bytes = PREFACE.to_vec();
        bytes.extend(frame(SETTINGS, 0, 0, &[0; 6]));
        bytes.extend(frame(SETTINGS, ACK, 0, &[]));
        bytes.extend(frame(HEADERS, END_HEADERS, 1, &[0; 40]));
        bytes.extend(frame(DATA, 0, 1, &[0; 40]));
        for size in [1, 7, bytes.len()] {
            let mut opening = Opening::default();
            let events: Vec<_> = bytes.chunks(size).flat_map(|piece| opening.read(piece)).collect();
            assert_eq!(events, [Event::Settings, Event::Request], "pieces of {size}");
        }
    }

    #[test]
    fn a_message_is_cut_into_frames_that_fit() {
        let out = data(&vec![7; 40_000]);
        assert_eq!(out.len(), 40_000 + 3 * HEAD);
        assert_eq!(frame_length(&out), HEAD + MAX_FRAME);
    }
}
