//! Reads from a response only what a client needs: the fields for the ACK, and the round of each resource. Bodies are not decoded.

use bytes::Buf;
use prost::encoding::decode_varint;

use super::resources::round_of;
use crate::link::scan::Scan;
use crate::link::{Message, Reader};
use crate::wire::Variant;

/// Reads a response, and calls `each` with the round of each of its resources. `None` if the response is malformed.
pub fn read(message: &Message, variant: Variant, mut each: impl FnMut(u32)) -> Option<Scan> {
    let (mut reader, mut scan) = (message.reader(), Scan::default());
    while let Some((field, length)) = next_field(&mut reader)? {
        match field {
            1 => scan.version = reader.copy_to_bytes(length),
            2 => {
                scan.resources += 1;
                let any = match variant {
                    Variant::Sotw => Some((reader.clone(), length)),
                    Variant::Delta => field_of(reader.clone(), length, 2)?,
                };
                if let Some(round) = any.and_then(|(any, length)| last_round(any, length)) {
                    each(round);
                }
                reader.advance(length);
            }
            4 => scan.type_url = reader.copy_to_bytes(length),
            5 => scan.nonce = reader.copy_to_bytes(length),
            6 if variant == Variant::Delta => {
                scan.removed += 1;
                reader.advance(length);
            }
            _ => reader.advance(length),
        }
    }
    Some(scan)
}

/// Reads up to the value of the next field, and returns the field's number and length. `Some(None)` at the end.
fn next_field(reader: &mut Reader<'_>) -> Option<Option<(u64, usize)>> {
    while reader.has_remaining() {
        let key = decode_varint(reader).ok()?;
        let length = match key & 7 {
            0 => {
                decode_varint(reader).ok()?;
                continue;
            }
            1 => 8,
            2 => usize::try_from(decode_varint(reader).ok()?).ok()?,
            5 => 4,
            _ => return None,
        };
        return (length <= reader.remaining()).then_some(Some((key >> 3, length)));
    }
    Some(None)
}

/// Finds a field in a message of this length. Returns a reader at the field's value, and the value's length.
fn field_of(mut reader: Reader<'_>, length: usize, wanted: u64) -> Option<Option<(Reader<'_>, usize)>> {
    let end = reader.remaining() - length;
    while reader.remaining() > end {
        let Some((field, length)) = next_field(&mut reader)? else { break };
        if field == wanted {
            return Some(Some((reader, length)));
        }
        reader.advance(length);
    }
    Some(None)
}

/// Returns the round in a body. The body is the last field of an `Any`, and ends with the round.
fn last_round(mut any: Reader<'_>, length: usize) -> Option<u32> {
    let mut mark = [0; 8];
    any.advance(length.checked_sub(mark.len())?);
    any.copy_to_slice(&mut mark);
    round_of(&mark)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::encode::response;
    use super::super::{Kind, Resources};
    use super::*;

    #[test]
    fn a_client_sees_nonce_version_and_rounds() {
        let resources = Resources { kind: Kind::Clusters, count: 9, size: 700 };
        for variant in [Variant::Sotw, Variant::Delta] {
            let bytes = Bytes::from(response(&resources, variant, [(1, 5), (8, 0), (2, 6)], "version", "nonce"));
            let mut rounds = Vec::new();
            let scan = read(&bytes.clone().into(), variant, |round| rounds.push(round)).unwrap();
            assert_eq!((&scan.version[..], &scan.nonce[..], scan.resources), (&b"version"[..], &b"nonce"[..], 3));
            assert_eq!(rounds, [5, 0, 6], "{variant}");
            assert_eq!(read(&bytes.slice(..bytes.len() - 1).into(), variant, |_| ()), None);
        }
    }
}
