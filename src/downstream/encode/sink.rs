//! Protobuf fields, written and measured by the same code, so that a length always matches the bytes after it.

use prost::encoding::encoded_len_varint;

/// Accepts the bytes of a message in order.
pub(super) trait Sink {
    fn put(&mut self, bytes: &[u8]);
}

/// Counts the bytes.
#[derive(Default)]
pub(super) struct Length(pub usize);

impl Sink for Length {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Stores bytes after the first `skip` until it is full.
pub(super) struct Window {
    pub(crate) skip: usize,
    pub(crate) room: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Sink for Window {
    fn put(&mut self, bytes: &[u8]) {
        let skipped = self.skip.min(bytes.len());
        let taken = (bytes.len() - skipped).min(self.room);
        self.bytes.extend_from_slice(&bytes[skipped..skipped + taken]);
        (self.skip, self.room) = (self.skip - skipped, self.room - taken);
    }
}

pub(super) fn put_text(out: &mut dyn Sink, field: u32, text: &str) {
    put_bytes(out, field, text.as_bytes());
}

pub(super) fn put_bytes(out: &mut dyn Sink, field: u32, bytes: &[u8]) {
    put_length(out, field, bytes.len());
    out.put(bytes);
}

pub(super) fn put_number(out: &mut dyn Sink, field: u32, number: u64) {
    put_varint(out, u64::from(field) << 3);
    put_varint(out, number);
}

/// Writes a message as a field.
pub(super) fn put_message(out: &mut dyn Sink, field: u32, write: impl Fn(&mut dyn Sink)) {
    let mut length = Length::default();
    write(&mut length);
    put_length(out, field, length.0);
    write(out);
}

/// Writes the tag and length of a field with this many bytes.
pub(super) fn put_length(out: &mut dyn Sink, field: u32, length: usize) {
    put_varint(out, u64::from(field) << 3 | LENGTH_DELIMITED);
    put_varint(out, length as u64);
}

/// Returns the size of a field with this many bytes, its tag included.
pub(super) fn field_len(field: u32, length: usize) -> usize {
    encoded_len_varint(u64::from(field) << 3) + encoded_len_varint(length as u64) + length
}

fn put_varint(out: &mut dyn Sink, mut number: u64) {
    let (mut bytes, mut length) = ([0; 10], 0);
    loop {
        bytes[length] = number as u8 & 0x7f;
        number >>= 7;
        length += 1;
        if number == 0 {
            return out.put(&bytes[..length]);
        }
        bytes[length - 1] |= 0x80;
    }
}

const LENGTH_DELIMITED: u64 = 2;
