//! Gzip that is compressed once for many readers, each of which has some bytes of its own before the shared ones.
//!
//! Each reader gets a single gzip member, since some read only one: the reader's own bytes are a stored block, and the blocks after it refer to
//! nothing before them. The checksum at the end covers both parts.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// The compressed bytes that readers share.
#[derive(Debug)]
pub(crate) struct SharedGzip {
    pieces: Pieces,
    sum: SharedSum,
}

/// The checksum of the shared bytes.
#[derive(Debug)]
pub(crate) struct SharedSum(Crc);

/// Bytes in pieces of one size, except that the last may be shorter. Each piece can be freed by itself.
#[derive(Debug)]
struct Pieces {
    size: usize,
    filled: Vec<Vec<u8>>,
}

impl SharedGzip {
    /// Compresses bytes that come in pieces, into pieces of this size.
    pub(crate) fn of<T: AsRef<[u8]>>(pieces: impl IntoIterator<Item = T>, size: usize) -> io::Result<Self> {
        let compressed = Pieces { size: size.max(1), filled: Vec::new() };
        let mut encoder = DeflateEncoder::new(compressed, Compression::fast());
        let mut sum = Crc::new();
        for piece in pieces {
            sum.update(piece.as_ref());
            encoder.write_all(piece.as_ref())?;
        }
        let mut pieces = encoder.finish()?;
        pieces.filled.iter_mut().for_each(Vec::shrink_to_fit);
        Ok(Self { pieces, sum: SharedSum(sum) })
    }

    /// Returns the shared bytes that follow a reader's own, in pieces, and their checksum for the ends.
    pub(crate) fn into_parts(self) -> (Vec<Vec<u8>>, SharedSum) {
        (self.pieces.filled, self.sum)
    }

    /// Returns the length of the shared compressed bytes.
    pub(crate) fn len(&self) -> usize {
        self.pieces.filled.iter().map(Vec::len).sum()
    }

    /// Returns the bytes before a reader's own bytes, of which there are `own`: less than 64 KiB.
    pub(crate) fn start(own: u16) -> [u8; START] {
        let [least, most] = own.to_le_bytes();
        [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, FASTEST, UNKNOWN_SYSTEM, STORED, least, most, !least, !most]
    }

    /// Returns the whole message for readers without bytes of their own.
    pub(crate) fn into_bytes(self) -> Bytes {
        let mut whole = Vec::with_capacity(START + self.len() + END);
        whole.extend_from_slice(&Self::start(0));
        self.pieces.filled.iter().for_each(|piece| whole.extend_from_slice(piece));
        whole.extend_from_slice(&self.sum.end(&[]));
        whole.into()
    }
}

impl SharedSum {
    /// Returns what is after the shared bytes, for a reader with these of its own.
    pub(crate) fn end(&self, own: &[u8]) -> [u8; END] {
        let mut sum = Crc::new();
        sum.update(own);
        sum.combine(&self.0);
        let ([a, b, c, d], [e, f, g, h]) = (sum.sum().to_le_bytes(), sum.amount().to_le_bytes());
        [a, b, c, d, e, f, g, h]
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.filled.last().is_none_or(|last| last.len() >= self.size) {
            self.filled.push(Vec::new());
        }
        let Some(last) = self.filled.last_mut() else { return Ok(0) };
        let taken = bytes.len().min(self.size - last.len());
        last.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The length of the gzip header, ten bytes, and of the stored block's header.
pub(crate) const START: usize = 15;
/// The length of the checksum and of the stated size.
pub(crate) const END: usize = 8;
const FASTEST: u8 = 4;
const UNKNOWN_SYSTEM: u8 = 0xff;
/// A stored block that is not the last.
const STORED: u8 = 0;

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::bufread::GzDecoder;

    use super::*;

    /// Reads a single member, which nothing may follow.
    fn read(gzip: &[u8]) -> Vec<u8> {
        let (mut decoder, mut plain) = (GzDecoder::new(gzip), Vec::new());
        decoder.read_to_end(&mut plain).unwrap();
        assert!(decoder.into_inner().is_empty(), "one member");
        plain
    }

    #[test]
    fn each_reader_has_one_member_with_its_own_bytes_before_those_of_all() {
        let long: Vec<u8> = (0..300_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        for shared in [&b""[..], b"x", &long] {
            for size in [1_usize << 10, 64 << 10] {
                let (pieces, sum) = SharedGzip::of(shared.chunks(size), 1000).unwrap().into_parts();
                assert!(pieces.iter().rev().skip(1).all(|piece| piece.len() == 1000));
                assert!(pieces.iter().all(|piece| !piece.is_empty() && piece.capacity() <= 1000));
                for own in [&b""[..], b"*\x011", &[7; 48]] {
                    let start = SharedGzip::start(own.len() as u16);
                    let whole = [&start[..], own, &pieces.concat(), &sum.end(own)].concat();
                    assert_eq!(read(&whole), [own, shared].concat(), "{} and {}", own.len(), shared.len());
                }
            }
        }
        assert_eq!(read(&SharedGzip::of([&long], 1000).unwrap().into_bytes()), long);
    }
}
