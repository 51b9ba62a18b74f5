//! Reads the top level of an encoded message without decoding it: enough to find a name in a body that stays opaque.

/// The value of an encoded field. Only the wire types that are read here are distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// A string, a message, or packed numbers.
    Bytes(&'a [u8]),
    /// A varint or fixed-width number, or a group; the value is not read here.
    Number,
}

/// One field of an encoded message.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    /// The field number.
    pub number: u32,
    /// The value, not decoded further.
    pub value: Value<'a>,
    /// Tag and payload, as received.
    pub raw: &'a [u8],
}

impl Field<'_> {
    /// Returns the number, if it is a varint.
    pub(crate) fn varint(&self) -> Option<u64> {
        let mut rest = self.raw;
        let tag = take_varint(&mut rest)?;
        (tag & 7 == 0).then(|| take_varint(&mut rest)).flatten()
    }
}

/// Returns the top-level fields in order. `None` means that the bytes are not a valid message.
pub fn fields(bytes: &[u8]) -> impl Iterator<Item = Option<Field<'_>>> {
    let mut rest = bytes;
    let mut broken = false;
    std::iter::from_fn(move || {
        if rest.is_empty() || broken {
            return None;
        }
        let field = take_field(&mut rest);
        broken = field.is_none();
        Some(field)
    })
}

/// Returns the last occurrence of a length-delimited field, which is the one that counts in proto3.
pub(crate) fn last_bytes(bytes: &[u8], number: u32) -> Option<&[u8]> {
    let mut found = None;
    for field in fields(bytes) {
        match field? {
            Field { number: n, value: Value::Bytes(value), .. } if n == number => found = Some(value),
            _ => {}
        }
    }
    found
}

/// Returns all occurrences of a message field as one: concatenated encodings are the merged message, which is what decoders make of them. `None`
/// if the bytes are no message.
pub fn merged(bytes: &[u8], number: u32) -> Option<Vec<u8>> {
    let mut merged = Vec::new();
    for field in fields(bytes) {
        match field? {
            Field { number: n, value: Value::Bytes(value), .. } if n == number => merged.extend_from_slice(value),
            _ => {}
        }
    }
    Some(merged)
}

/// Returns the last occurrence of a string field; an empty or non-UTF-8 one counts as missing.
pub fn last_text(bytes: &[u8], number: u32) -> Option<&str> {
    std::str::from_utf8(last_bytes(bytes, number)?).ok().filter(|text| !text.is_empty())
}

fn take_field<'a>(rest: &mut &'a [u8]) -> Option<Field<'a>> {
    let start = *rest;
    let tag = u32::try_from(take_varint(rest)?).ok()?;
    let number = Some(tag >> 3).filter(|number| *number != 0)?;
    let value = match tag & 7 {
        0 => {
            take_varint(rest)?;
            Value::Number
        }
        1 => {
            take(rest, 8)?;
            Value::Number
        }
        2 => {
            let length = usize::try_from(take_varint(rest)?).ok()?;
            Value::Bytes(take(rest, length)?)
        }
        3 => {
            skip_group(rest, number)?;
            Value::Number
        }
        5 => {
            take(rest, 4)?;
            Value::Number
        }
        _ => return None,
    };
    Some(Field { number, value, raw: &start[..start.len() - rest.len()] })
}

/// Skips the fields of a group up to its end. No message read here has groups, but decoders read what comes after them.
fn skip_group(rest: &mut &[u8], number: u32) -> Option<()> {
    let mut open = vec![number];
    while let Some(innermost) = open.last() {
        let tag = u32::try_from(take_varint(rest)?).ok()?;
        let number = Some(tag >> 3).filter(|number| *number != 0)?;
        match tag & 7 {
            0 => drop(take_varint(rest)?),
            1 => drop(take(rest, 8)?),
            2 => {
                let length = usize::try_from(take_varint(rest)?).ok()?;
                take(rest, length)?;
            }
            3 if open.len() < DEEPEST => open.push(number),
            4 if number == *innermost => drop(open.pop()),
            5 => drop(take(rest, 4)?),
            _ => return None,
        }
    }
    Some(())
}

/// How deep decoders follow groups.
const DEEPEST: usize = 100;

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(head)
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        if shift == 63 && byte > 1 {
            return None; // more than 64 bits, which no decoder reads
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    #[test]
    fn the_last_occurrence_counts_and_numbers_are_skipped() {
        let bytes = [0x0a, 1, b'a', 0x10, 0x96, 0x01, 0x0a, 2, b'b', b'c'];
        assert_eq!(last_text(&bytes, 1), Some("bc"));
        assert_eq!(last_text(&bytes, 2), None);
    }

    /// A field that the scan reads differently than a decoder could evade the limits of a request.
    #[test]
    fn tags_and_numbers_of_too_many_bits_are_no_message() {
        let longest = [&[0x08][..], &[0xff; 9], &[1]].concat();
        let too_long = [&[0x08][..], &[0xff; 9], &[2]].concat();
        let last_number = [0xf8, 0xff, 0xff, 0xff, 0x0f, 0];
        let next_number = [0x80, 0x80, 0x80, 0x80, 0x10, 0];
        for (bytes, is_message) in [(&longest, true), (&too_long, false)] {
            assert_eq!(fields(bytes).all(|field| field.is_some()), is_message, "{bytes:x?}");
            assert_eq!(<() as prost::Message>::decode(bytes.as_slice()).is_ok(), is_message, "{bytes:x?}");
        }
        for (bytes, is_message) in [(last_number, true), (next_number, false)] {
            assert_eq!(fields(&bytes).all(|field| field.is_some()), is_message, "{bytes:x?}");
            assert_eq!(<() as prost::Message>::decode(bytes.as_slice()).is_ok(), is_message, "{bytes:x?}");
        }
    }

    #[test]
    fn groups_are_skipped_as_decoders_skip_them() {
        let nested = |depth: usize| [vec![0x0b; depth], vec![0x0c; depth], vec![0x10, 1]].concat();
        let inner = [0x0b, 0x10, 5, 0x1a, 1, 9, 0x25, 0, 0, 0, 0, 0x29, 0, 0, 0, 0, 0, 0, 0, 0, 0x0c].to_vec();
        for (bytes, is_message) in [
            (nested(1), true),
            (inner, true),
            (nested(100), true),
            (nested(101), false),
            (vec![0x0b, 0x14], false),
            (vec![0x0b], false),
            (vec![0x0c], false),
        ] {
            assert_eq!(<() as prost::Message>::decode(bytes.as_slice()).is_ok(), is_message, "{bytes:x?}");
            assert_eq!(fields(&bytes).all(|field| field.is_some()), is_message, "{bytes:x?}");
        }
        assert_eq!(fields(&nested(2)).map(|field| field.unwrap().number).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_varint_is_read_and_other_numbers_are_not() {
        let bytes = [0x10, 0x96, 0x01, 0x25, 1, 0, 0, 0, 0x0a, 1, 7];
        let read: Vec<_> = fields(&bytes).map(|field| field.unwrap().varint()).collect();
        assert_eq!(read, [Some(150), None, None]);
    }

    #[test]
    fn a_length_past_the_end_is_no_message() {
        assert_eq!(last_bytes(&[0x0a, 9, b'a'], 1), None);
        assert!(fields(&[0x0a, 9, b'a']).any(|field| field.is_none()));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Default::default() })]
        #[test]
        fn any_bytes_end_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(fields(&bytes).count() <= bytes.len());
        }
    }
}
