//! What an HTTP/2 server announces for its whole connection: how many streams it allows, and that it accepts no more of them. The client library
//! does not report either.

/// Reads the bytes that a server sends, in chunks of any length.
#[derive(Debug, Default)]
pub(super) struct FrameScan {
    head: [u8; HEAD],
    head_read: usize,
    /// Bytes of the payload that have not arrived, once the head of the frame is read.
    missing: usize,
    entry: [u8; ENTRY],
    entry_read: usize,
    announced: Announced,
    /// The first bytes are those of another protocol. Nothing more is read.
    is_other: bool,
}

/// What the frames so far have announced.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Announced {
    /// The first frame is complete. HTTP/2 requires it to be SETTINGS.
    pub(crate) has_settings: bool,
    /// How many streams may be open at a time, if that is limited.
    pub(crate) max_streams: Option<u32>,
    /// GOAWAY: the server takes no more streams.
    pub(crate) is_leaving: bool,
}

impl FrameScan {
    /// Returns the bytes so far, if they are less than the head of the first frame.
    pub(crate) fn beginning(&self) -> &[u8] {
        if self.announced.has_settings { &[] } else { &self.head[..self.head_read] }
    }

    /// Returns the first bytes if they are those of a protocol that is known not to be HTTP/2.
    pub(crate) fn other_protocol(&self) -> Option<&[u8]> {
        self.is_other.then_some(&self.head)
    }

    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> Announced {
        while !bytes.is_empty() && !self.is_other {
            if self.head_read < HEAD {
                bytes = fill(&mut self.head, &mut self.head_read, bytes);
                if self.head_read == HEAD {
                    self.begin_frame();
                }
            } else {
                let (payload, rest) = bytes.split_at(bytes.len().min(self.missing));
                if self.kind() == SETTINGS {
                    self.read_settings(payload);
                }
                self.missing -= payload.len();
                bytes = rest;
            }
            if self.head_read == HEAD && self.missing == 0 && !self.is_other {
                self.head_read = 0;
                self.announced.has_settings = true;
            }
        }
        self.announced
    }

    fn begin_frame(&mut self) {
        let [high, middle, low, ..] = self.head;
        self.missing = u32::from_be_bytes([0, high, middle, low]) as usize;
        self.entry_read = 0;
        match self.kind() {
            SETTINGS => {}
            GOAWAY => self.announced.is_leaving = true,
            _ if !self.announced.has_settings && is_known_other(&self.head) => self.is_other = true,
            _ => self.announced.has_settings = true, // not HTTP/2: the library reports it
        }
    }

    fn read_settings(&mut self, mut payload: &[u8]) {
        while !payload.is_empty() {
            payload = fill(&mut self.entry, &mut self.entry_read, payload);
            if self.entry_read == ENTRY {
                self.entry_read = 0;
                let [id @ .., a, b, c, d] = self.entry;
                if id == MAX_CONCURRENT_STREAMS {
                    self.announced.max_streams = Some(u32::from_be_bytes([a, b, c, d]));
                }
            }
        }
    }

    fn kind(&self) -> u8 {
        self.head[3]
    }
}

/// Whether these are the first bytes of HTTP/1 or of TLS. Read as an HTTP/2 frame, they would have an impossible length.
fn is_known_other(head: &[u8]) -> bool {
    head.starts_with(b"HTTP/") || matches!(head, [0x15 | 0x16, 0x03, ..])
}

/// Copies as many bytes as fit, and returns the rest.
fn fill<'b>(into: &mut [u8], filled: &mut usize, bytes: &'b [u8]) -> &'b [u8] {
    let (taken, rest) = bytes.split_at(bytes.len().min(into.len() - *filled));
    into[*filled..][..taken.len()].copy_from_slice(taken);
    *filled += taken.len();
    rest
}

/// The head of a frame: length, kind, flags, stream.
const HEAD: usize = 9;
/// A setting: its identifier and its value.
const ENTRY: usize = 6;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const MAX_CONCURRENT_STREAMS: [u8; 2] = [0, 3];

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 0], payload].concat()
    }

    fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
        let entries = entries.iter().map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
        frame(SETTINGS, &entries.collect::<Vec<_>>().concat())
    }

    /// Reads the bytes in pieces of this length.
    fn read(bytes: &[u8], length: usize) -> Announced {
        let mut scan = FrameScan::default();
        bytes.chunks(length).map(|chunk| scan.read(chunk)).last().unwrap()
    }

    #[test]
    fn the_last_limit_counts_however_the_bytes_are_cut() {
        let data = frame(0, &settings(&[(3, 9)])); // looks like settings, within other data
        let later = settings(&[(3, 7), (4, 65_535)]);
        let bytes = [settings(&[(1, 3), (3, 100), (4, 3)]), data, later, settings(&[]), settings(&[(5, 1)])].concat();
        for length in 1..=bytes.len() {
            let expected = Announced { has_settings: true, max_streams: Some(7), is_leaving: false };
            assert_eq!(read(&bytes, length), expected, "in pieces of {length}");
        }
    }

    #[test]
    fn settings_count_once_their_frame_is_complete() {
        let bytes = settings(&[(4, 1), (2, 0)]);
        for end in 1..bytes.len() {
            assert!(!FrameScan::default().read(&bytes[..end]).has_settings, "after {end} bytes");
        }
        assert_eq!(read(&bytes, 5), Announced { has_settings: true, ..Announced::default() });
        assert!(read(&settings(&[]), 9).has_settings, "a frame without entries");
    }

    #[test]
    fn a_server_leaves_with_its_first_goaway_and_other_frames_say_nothing_of_it() {
        let before = [settings(&[]), frame(6, &[7; 8]), frame(0, &frame(GOAWAY, &[0; 8]))].concat();
        for length in 1..=before.len() {
            assert!(!read(&before, length).is_leaving);
        }
        let after = [before, frame(GOAWAY, &[0; 8])].concat();
        assert!(read(&after, after.len()).is_leaving && read(&after, 1).is_leaving);
    }

    #[test]
    fn bytes_that_are_no_http_2_end_the_wait_for_settings() {
        assert!(read(b"\x00\x00\x00\x01 is of no protocol", 100).has_settings, "the library says what is wrong");
        for length in [1, 5, 100] {
            let mut scan = FrameScan::default();
            let answer = b"HTTP/1.1 400 Bad Request\r\n";
            assert!(answer.chunks(length).all(|piece| !scan.read(piece).has_settings), "{length}");
            assert_eq!(scan.other_protocol().map(|first| &first[..5]), Some(&b"HTTP/"[..]), "{length}");
        }
        let mut scan = FrameScan::default();
        assert!(
            !scan.read(&[0x15, 3, 3, 0, 2, 2, 10, 0x15, 3, 3, 0, 2, 1, 0]).has_settings
                && scan.other_protocol().is_some()
        );
        let alert = [0x15, 3, 3, 0, 2, 2, 10];
        let mut scan = FrameScan::default();
        assert!(!scan.read(&alert).has_settings);
        assert_eq!((scan.beginning(), scan.other_protocol()), (&alert[..], None), "it is over once the server closes");
    }
}
