//! Inflates gzip in slices, to a limited size.
//!
//! A message may consist of several gzip members, as RFC 1952 permits and the libraries of Go and Java accept it. Other bytes after a member are an
//! error, and so is a missing end.

use std::io::{self, BufRead, ErrorKind, Read};

use bytes::{Buf, Bytes};
use flate2::bufread::MultiGzDecoder;
use tokio::task::yield_now;

/// Inflates one message.
pub(crate) struct Inflater {
    decoder: MultiGzDecoder<Compressed>,
    /// Empty if the message states a size above the limit: it is too large, or invalid.
    inflated: Vec<u8>,
    is_kept: bool,
    /// How many bytes are inflated so far.
    length: usize,
    limit: usize,
}

/// Why a message cannot be inflated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InflateError {
    #[error("more than {limit} bytes when inflated")]
    TooLarge { limit: usize },
    #[error("gzip data ends before its end")]
    Truncated,
    #[error("invalid gzip data: {0}")]
    Invalid(String),
}

/// The remaining compressed bytes. A slice of work gets a limited number of them, because some blocks take long and yield nothing.
struct Compressed {
    left: Bytes,
    slice: usize,
}

impl Inflater {
    /// `limit` is for the inflated message.
    pub(crate) fn new(compressed: Bytes, limit: usize) -> Self {
        let stated = stated_size(&compressed);
        let is_kept = stated <= limit;
        // The memory is allocated at once: growing would need as much again for a moment.
        let inflated = Vec::with_capacity(if is_kept { stated } else { 0 });
        let decoder = MultiGzDecoder::new(Compressed { left: compressed, slice: 0 });
        Self { decoder, inflated, is_kept, length: 0, limit }
    }

    /// Inflates a slice, which takes about a millisecond. Returns whether more remains.
    pub(crate) fn step(&mut self) -> Result<bool, InflateError> {
        self.decoder.get_mut().slice = SLICE;
        let mut piece = [0; PIECE];
        let end = self.length + INFLATED_SLICE;
        while self.length < end {
            match self.decoder.read(&mut piece) {
                Ok(0) => return Ok(false),
                Ok(count) => self.append(&piece[..count])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(InflateError::Truncated),
                Err(error) => return Err(InflateError::Invalid(error.to_string())),
            }
        }
        Ok(true)
    }

    /// Returns how many bytes are inflated so far.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns the inflated bytes: the whole message, once nothing remains.
    pub(crate) fn into_bytes(self) -> Bytes {
        self.inflated.into()
    }

    /// Inflates to the end. Other tasks run between the slices.
    pub(crate) async fn finish(mut self) -> Result<Bytes, InflateError> {
        while self.step()? {
            yield_now().await;
        }
        Ok(self.into_bytes())
    }

    fn append(&mut self, piece: &[u8]) -> Result<(), InflateError> {
        let (length, limit) = (self.length + piece.len(), self.limit);
        if length > limit {
            return Err(InflateError::TooLarge { limit });
        }
        self.length = length;
        if !self.is_kept {
            return Ok(());
        }
        if length > self.inflated.capacity() {
            let capacity = (2 * self.inflated.capacity()).clamp(length, limit);
            self.inflated.reserve_exact(capacity - self.inflated.len());
        }
        self.inflated.extend_from_slice(piece);
        Ok(())
    }
}

impl BufRead for Compressed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let length = self.left.len().min(self.slice);
        if length == 0 && !self.left.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(&self.left[..length])
    }

    fn consume(&mut self, count: usize) {
        self.left.advance(count);
        self.slice -= count;
    }
}

impl Read for Compressed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(into)?;
        self.consume(count);
        Ok(count)
    }
}

/// Returns the size that a message states at its end. This is the size of its last member, so the message may be larger. The result is at most
/// what deflate can make of this number of bytes.
fn stated_size(compressed: &[u8]) -> usize {
    let stated = compressed.last_chunk().map_or(0, |size| u32::from_le_bytes(*size) as usize);
    stated.min(compressed.len().saturating_mul(MAX_RATIO))
}

/// The number of compressed bytes that are read before other tasks run.
const SLICE: usize = 16 << 10;
/// The number of inflated bytes that are made before other tasks run.
const INFLATED_SLICE: usize = 256 << 10;
/// The number of bytes that are inflated at a time.
const PIECE: usize = 8 << 10;
/// The most bytes that deflate makes of one.
const MAX_RATIO: usize = 1032;

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    pub(crate) fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn inflate(compressed: &[u8], limit: usize) -> Result<Bytes, InflateError> {
        let mut inflater = Inflater::new(Bytes::copy_from_slice(compressed), limit);
        while inflater.step()? {
            assert!(inflater.len() <= limit);
        }
        Ok(inflater.into_bytes())
    }

    #[test]
    fn a_message_is_inflated_up_to_the_limit_and_not_a_byte_further() {
        for length in [0, 1, PIECE, INFLATED_SLICE, INFLATED_SLICE + 1, 5 * INFLATED_SLICE + 7] {
            let plain: Vec<u8> = (0..length).map(|at| (at * at / 7) as u8).collect();
            let compressed = gzip(&plain);
            assert_eq!(inflate(&compressed, length), Ok(plain.into()), "{length}");
            if length > 0 {
                assert_eq!(inflate(&compressed, length - 1), Err(InflateError::TooLarge { limit: length - 1 }));
            }
        }
    }

    #[test]
    fn several_members_are_one_message_and_anything_else_after_a_member_is_an_error() {
        let members = [gzip(b"one "), gzip(b""), gzip(b"two")].concat();
        assert_eq!(inflate(&members, 7), Ok("one two".into()));
        assert_eq!(inflate(&members, 6), Err(InflateError::TooLarge { limit: 6 }));
        for garbage in [&b"x"[..], b"\0\0\0\0\0\0\0\0\0\0\0\0", b"\x1f\x8b"] {
            let error = inflate(&[&gzip(b"one"), garbage].concat(), 100).unwrap_err();
            assert!(matches!(error, InflateError::Invalid(_) | InflateError::Truncated), "{garbage:?}: {error}");
        }
    }

    #[test]
    fn what_is_cut_anywhere_or_changed_is_an_error() {
        let compressed = gzip(&(0..200).collect::<Vec<u8>>());
        for length in 0..compressed.len() {
            assert_eq!(inflate(&compressed[..length], 1000), Err(InflateError::Truncated), "{length}");
        }
        let mut wrong_sum = compressed.clone();
        wrong_sum[compressed.len() - 8] ^= 1;
        assert!(matches!(inflate(&wrong_sum, 1000), Err(InflateError::Invalid(_))));
        assert!(matches!(inflate(b"no gzip at all", 1000), Err(InflateError::Invalid(_))));
    }

    #[test]
    fn i10_room_is_reserved_for_what_a_message_can_become_and_never_above_the_limit() {
        const LIMIT: usize = 1 << 20;
        let plain = vec![7; LIMIT];
        assert_eq!(Inflater::new(gzip(&plain).into(), LIMIT).inflated.capacity(), LIMIT);
        let mut large = Inflater::new(gzip(&plain).into(), LIMIT - 1);
        while large.step() != Err(InflateError::TooLarge { limit: LIMIT - 1 }) {}
        assert_eq!(large.inflated.capacity(), 0, "it has stated that it is too large");
        let mut liar = gzip(b"little");
        let at = liar.len() - 4;
        liar[at..].copy_from_slice(&[0xff; 4]);
        assert!(Inflater::new(liar.clone().into(), usize::MAX).inflated.capacity() <= liar.len() * MAX_RATIO);
        let mut modest = gzip(&plain);
        let at = modest.len() - 4;
        modest[at..].copy_from_slice(&[1, 0, 0, 0]);
        let mut inflater = Inflater::new(modest.into(), LIMIT + 1);
        let error = loop {
            assert!(inflater.inflated.capacity() <= LIMIT + 1);
            match inflater.step() {
                Ok(more) => assert!(more),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, InflateError::Invalid(_)), "{error}");
    }

    /// Blocks and members without content take work and yield nothing.
    #[test]
    fn i10_no_slice_reads_more_than_its_part_of_the_bytes() {
        let members = gzip(b"").repeat(10 * SLICE / gzip(b"").len());
        let mut inflater = Inflater::new(members.into(), 10);
        let mut steps = 1;
        loop {
            let before = inflater.decoder.get_ref().left.len();
            let more = inflater.step().unwrap();
            assert!(before - inflater.decoder.get_ref().left.len() <= SLICE);
            if !more {
                break;
            }
            steps += 1;
        }
        assert!(steps >= 10, "{steps}");
    }

    #[tokio::test]
    async fn others_run_while_a_large_message_is_inflated() {
        let plain = vec![7; 20 * INFLATED_SLICE];
        let order = std::sync::Mutex::new(Vec::new());
        let large = async {
            assert_eq!(Inflater::new(gzip(&plain).into(), plain.len()).finish().await.unwrap(), plain);
            order.lock().unwrap().push("large");
        };
        let other = async {
            for _ in 0..10 {
                yield_now().await;
            }
            order.lock().unwrap().push("other");
        };
        tokio::join!(large, other); // polled in turn, on one thread
        assert_eq!(*order.lock().unwrap(), ["other", "large"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..Default::default() })]

        #[test]
        fn i10_no_bytes_make_it_panic_or_exceed_the_limit(
            plain in proptest::collection::vec(any::<u8>(), 0..300),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            limit in 0_usize..400,
        ) {
            let mut compressed = gzip(&plain);
            for (at, byte) in &changes {
                let at = at.index(compressed.len());
                compressed[at] = *byte;
            }
            let inflated = inflate(&compressed, limit);
            prop_assert!(inflated.as_ref().map_or(0, Bytes::len) <= limit);
            if changes.is_empty() {
                prop_assert_eq!(inflated.is_ok(), plain.len() <= limit);
            }
        }
    }
}
