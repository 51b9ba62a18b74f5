//! gRPC messages: split from DATA frames, and framed for requests.

use std::collections::VecDeque;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// One gRPC message, in the chunks that arrived.
#[derive(Debug, Clone, Default)]
pub struct Message {
    first: Bytes,
    rest: Vec<Bytes>,
}

impl Message {
    pub fn len(&self) -> usize {
        self.first.len() + self.rest.iter().map(Bytes::len).sum::<usize>()
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.rest.is_empty()
    }

    pub fn chunks(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// Returns the message as one buffer. Copies if there is more than one chunk.
    pub fn into_bytes(self) -> Bytes {
        if self.rest.is_empty() {
            return self.first;
        }
        let mut joined = BytesMut::with_capacity(self.len());
        self.chunks().for_each(|chunk| joined.put_slice(chunk));
        joined.freeze()
    }

    /// Returns a reader at the beginning. Nothing is copied.
    pub fn reader(&self) -> Reader<'_> {
        Reader { at: &self.first, rest: &self.rest, remaining: self.len() }
    }

    fn push(&mut self, chunk: Bytes) {
        if self.first.is_empty() {
            self.first = chunk;
        } else {
            self.rest.push(chunk);
        }
    }
}

impl From<Bytes> for Message {
    fn from(bytes: Bytes) -> Self {
        Self { first: bytes, rest: Vec::new() }
    }
}

/// The bytes of a message, chunk after chunk.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    at: &'a [u8],
    rest: &'a [Bytes],
    remaining: usize,
}

impl Buf for Reader<'_> {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.at
    }

    /// Panics beyond the end, as [`Buf`] requires.
    fn advance(&mut self, count: usize) {
        assert!(count <= self.remaining, "advance beyond the end of a message");
        self.remaining -= count;
        let mut left = count;
        while left >= self.at.len() {
            left -= self.at.len();
            let Some((next, rest)) = self.rest.split_first() else {
                self.at = &[];
                return;
            };
            (self.at, self.rest) = (next, rest);
        }
        self.at = &self.at[left..];
    }
}

/// Splits the DATA of one stream into messages.
#[derive(Debug, Default)]
pub struct Assembler {
    /// Received chunks that are not part of a message yet.
    chunks: VecDeque<Bytes>,
    buffered: usize,
}

impl Assembler {
    pub fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.buffered += chunk.len();
            self.chunks.push_back(chunk);
        }
    }

    /// Returns the next complete message, or why the remaining data is invalid.
    pub fn next(&mut self, max: usize) -> Result<Option<Message>, String> {
        let Some(prefix) = self.prefix() else { return Ok(None) };
        if prefix[0] != 0 {
            return Err("compressed messages are not supported".into());
        }
        let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
        if length > max {
            return Err(format!("message of {length} bytes; the limit is {max}"));
        }
        if self.buffered < PREFIX + length {
            return Ok(None);
        }
        self.take(PREFIX, |_| ());
        let mut message = Message::default();
        self.take(length, |chunk| message.push(chunk));
        Ok(Some(message))
    }

    fn prefix(&self) -> Option<[u8; PREFIX]> {
        if self.buffered < PREFIX {
            return None;
        }
        let mut prefix = [0; PREFIX];
        let bytes = self.chunks.iter().flat_map(|chunk| chunk.iter());
        prefix.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Some(prefix)
    }

    fn take(&mut self, mut count: usize, mut each: impl FnMut(Bytes)) {
        self.buffered -= count;
        while count > 0 {
            let Some(chunk) = self.chunks.front_mut() else { return };
            if chunk.len() > count {
                return each(chunk.split_to(count));
            }
            count -= chunk.len();
            each(self.chunks.pop_front().unwrap_or_default());
        }
    }
}

/// Returns the message with the gRPC prefix of five bytes.
pub fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(PREFIX + message.len());
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(message);
    frame.freeze()
}

const PREFIX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_the_same_however_the_bytes_were_cut() {
        let texts = ["", "a", "the second", &"long ".repeat(40)];
        let wire: Vec<u8> = texts.iter().flat_map(|text| framed(text.as_bytes())).collect();
        for size in 1..wire.len() {
            let (mut assembler, mut found) = (Assembler::default(), Vec::new());
            for chunk in wire.chunks(size) {
                assembler.push(Bytes::copy_from_slice(chunk));
                while let Some(message) = assembler.next(1000).unwrap() {
                    let mut read = vec![0; message.len()];
                    message.reader().copy_to_slice(&mut read);
                    assert_eq!(read, message.clone().into_bytes(), "chunks of {size}");
                    found.push(String::from_utf8(read).unwrap());
                }
            }
            assert_eq!(found, texts, "chunks of {size}");
        }
    }

    #[test]
    fn a_message_beyond_the_limit_is_an_error_before_it_has_arrived() {
        let mut assembler = Assembler::default();
        assembler.push(framed(&[0; 11]).slice(..6));
        assert!(assembler.next(10).unwrap_err().contains("11 bytes"));
    }
}
