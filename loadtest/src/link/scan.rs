//! Reads only what a client needs for the ACK of a response, without decoding its resources; and encodes common requests.

use bytes::{Buf, Bytes};
use prost::Message as _;
use prost::encoding::{WireType, decode_varint, encode_key, encode_varint, encoded_len_varint, key_len};

use super::message::{Message, Reader};

/// The fields that were read from a DiscoveryResponse or DeltaDiscoveryResponse.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    pub type_url: Bytes,
    pub version: Bytes,
    pub nonce: Bytes,
    pub resources: u32,
    /// The number of removed names, in delta.
    pub removed: u32,
    pub errors: u32,
}

/// Field numbers of a response.
struct Fields {
    version: u32,
    resources: u32,
    type_url: u32,
    nonce: u32,
    removed: u32,
    errors: u32,
}

const SOTW: Fields = Fields { version: 1, resources: 2, type_url: 4, nonce: 5, removed: 0, errors: 7 };
const DELTA: Fields = Fields { version: 1, resources: 2, type_url: 4, nonce: 5, removed: 6, errors: 9 };

/// Scans a DiscoveryResponse; `None` if it is malformed.
pub fn sotw(message: &Message) -> Option<Scan> {
    scan(message, &SOTW)
}

/// Scans a DeltaDiscoveryResponse; `None` if it is malformed.
pub fn delta(message: &Message) -> Option<Scan> {
    scan(message, &DELTA)
}

fn scan(message: &Message, fields: &Fields) -> Option<Scan> {
    let (mut reader, mut scan) = (message.reader(), Scan::default());
    while reader.has_remaining() {
        let key = decode_varint(&mut reader).ok()?;
        let field = u32::try_from(key >> 3).ok().filter(|field| *field > 0)?;
        let length = match key & 7 {
            0 => {
                decode_varint(&mut reader).ok()?;
                continue;
            }
            1 => 8,
            2 => usize::try_from(decode_varint(&mut reader).ok()?).ok()?,
            5 => 4,
            _ => return None,
        };
        if length > reader.remaining() {
            return None;
        }
        if field == fields.version {
            scan.version = text(&mut reader, length);
        } else if field == fields.type_url {
            scan.type_url = text(&mut reader, length);
        } else if field == fields.nonce {
            scan.nonce = text(&mut reader, length);
        } else {
            scan.resources += u32::from(field == fields.resources);
            scan.removed += u32::from(field == fields.removed);
            scan.errors += u32::from(field == fields.errors);
            reader.advance(length);
        }
    }
    Some(scan)
}

fn text(reader: &mut Reader<'_>, length: usize) -> Bytes {
    reader.copy_to_bytes(length)
}

/// Returns the ACK of a scanned SotW response, with the names that the client subscribes to (none for `*` of a full-state type).
pub fn sotw_ack(seen: &Scan, names: &[&str]) -> Vec<u8> {
    let names = names.iter().map(|name| (3, name.as_bytes()));
    let head = [(1, &*seen.version), (4, &*seen.type_url), (5, &*seen.nonce)];
    message(head.into_iter().chain(names))
}

/// Returns the ACK of a scanned delta response.
pub fn delta_ack(seen: &Scan) -> Vec<u8> {
    message([(2, &*seen.type_url), (6, &*seen.nonce)].into_iter())
}

/// Returns the first SotW request of a type. Without names it subscribes to `*`, if the type has a wildcard.
pub fn sotw_subscribe(type_url: &str, node: Option<&[u8]>, names: &[&str]) -> Vec<u8> {
    let node = node.map(|node| (2, node));
    let names = names.iter().map(|name| (3, name.as_bytes()));
    message(node.into_iter().chain(names).chain([(4, type_url.as_bytes())]))
}

/// Returns a delta request that subscribes to more names.
pub fn delta_subscribe(type_url: &str, node: Option<&[u8]>, names: &[&str]) -> Vec<u8> {
    let node = node.map(|node| (1, node));
    let names = names.iter().map(|name| (3, name.as_bytes()));
    message(node.into_iter().chain([(2, type_url.as_bytes())]).chain(names))
}

/// Returns the first message of a stream of load reports.
pub fn load_report(node: &[u8]) -> Vec<u8> {
    message(std::iter::once((1, node)))
}

/// Returns an encoded node with the fields that identify clients.
pub fn node(id: &str, cluster: &str) -> Vec<u8> {
    weir_core::proto::node::Node { id: id.into(), cluster: cluster.into(), ..Default::default() }.encode_to_vec()
}

fn message<'a>(fields: impl Iterator<Item = (u32, &'a [u8])> + Clone) -> Vec<u8> {
    let size = |(field, value): (u32, &[u8])| key_len(field) + encoded_len_varint(value.len() as u64) + value.len();
    let mut message = Vec::with_capacity(fields.clone().map(size).sum());
    for (field, value) in fields {
        encode_key(field, WireType::LengthDelimited, &mut message);
        encode_varint(value.len() as u64, &mut message);
        message.extend_from_slice(value);
    }
    message
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use weir_core::proto::Any;
    use weir_core::proto::discovery::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource, ResourceError,
    };

    use super::*;

    #[test]
    fn a_scan_finds_what_a_full_decode_does() {
        let any = Any { type_url: "t/A".into(), value: vec![7; 300].into() };
        let response = DiscoveryResponse {
            version_info: "v1".into(),
            resources: vec![any.clone(), any.clone()],
            type_url: "t/A".into(),
            nonce: "n1".into(),
            canary: true,
            resource_errors: vec![ResourceError::default()],
            ..Default::default()
        };
        let expected = |version: &'static str, removed| Scan {
            type_url: "t/A".into(),
            version: version.into(),
            nonce: "n1".into(),
            resources: 2,
            removed,
            errors: 1,
        };
        assert_eq!(sotw(&Bytes::from(response.encode_to_vec()).into()), Some(expected("v1", 0)));
        let response = DeltaDiscoveryResponse {
            system_version_info: "s".into(),
            resources: vec![Resource { resource: Some(any), ..Default::default() }, Resource::default()],
            type_url: "t/A".into(),
            nonce: "n1".into(),
            removed_resources: vec!["x".into(), "y".into(), "z".into()],
            resource_errors: vec![ResourceError::default()],
            ..Default::default()
        };
        assert_eq!(delta(&Bytes::from(response.encode_to_vec()).into()), Some(expected("s", 3)));
    }

    #[test]
    fn truncated_and_invalid_responses_are_malformed() {
        let response = DiscoveryResponse { version_info: "v1".into(), nonce: "n".into(), ..Default::default() };
        let bytes = Bytes::from(response.encode_to_vec());
        assert_eq!(sotw(&bytes.slice(..bytes.len() - 1).into()), None);
        assert_eq!(sotw(&Bytes::from_static(&[0xff]).into()), None);
        assert_eq!(sotw(&Bytes::from_static(&[0x0b]).into()), None);
    }

    #[test]
    fn requests_are_what_prost_makes_of_them() {
        let seen = Scan { type_url: "t/A".into(), version: "v".into(), nonce: "n".into(), ..Default::default() };
        let ack = DiscoveryRequest::decode(&*sotw_ack(&seen, &["a", "b"])).unwrap();
        assert_eq!((&*ack.type_url, &*ack.version_info, &*ack.response_nonce), ("t/A", "v", "n"));
        assert_eq!(ack.resource_names, ["a", "b"]);
        let ack = DeltaDiscoveryRequest::decode(&*delta_ack(&seen)).unwrap();
        assert_eq!((&*ack.type_url, &*ack.response_nonce), ("t/A", "n"));
        let first = DeltaDiscoveryRequest::decode(&*delta_subscribe("t/A", Some(&node("i", "c")), &["*"])).unwrap();
        assert_eq!((&*first.type_url, first.resource_names_subscribe), ("t/A", vec!["*".to_owned()]));
        assert_eq!(first.node.as_deref(), Some(&*node("i", "c")));
        let first = DiscoveryRequest::decode(&*sotw_subscribe("t/A", None, &[])).unwrap();
        assert_eq!((&*first.type_url, first.node), ("t/A", None));
    }
}
