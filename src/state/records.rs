//! The records of the state file. Each record ends with a hash of its key and its content, which is compared when it is read.

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use prost::Message;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use weir_core::protocol::view::Class;
use weir_core::xds::TypeTable;

/// Increased with each change after which an older program cannot read the file.
pub(super) const FORMAT: u32 = 1;

/// A view: the clients that it is for, and its sets and servers.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ViewRecord {
    /// The fields of the sharing key, and a hash of the known types. If these have changed, the view may be for other clients.
    #[prost(string, tag = "1")]
    pub(crate) key_fields: String,
    #[prost(fixed64, tag = "2")]
    pub(crate) types: u64,
    /// Whether this is the view of the shared authorities.
    #[prost(bool, tag = "3")]
    pub(crate) shared: bool,
    /// The node that servers are shown for the view. Its key is made from it.
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) node: bytes::Bytes,
    #[prost(message, repeated, tag = "5")]
    pub(crate) servers: Vec<ServerRecord>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) sets: Vec<SetRecord>,
    /// Whether its clients have secrets, which are not in the file.
    #[prost(bool, tag = "7")]
    pub(crate) lacks_secrets: bool,
    /// When it was written, in milliseconds since 1970.
    #[prost(uint64, tag = "8")]
    pub(crate) written: u64,
    /// The removals that brakes hold.
    #[prost(message, repeated, tag = "9")]
    pub(crate) brakes: Vec<BrakeRecord>,
    /// The headers in the key, as its clients have sent them.
    #[prost(message, repeated, tag = "10")]
    pub(crate) headers: Vec<HeaderRecord>,
    /// Identifies the key of their hashes. With another key, no client would find the view.
    #[prost(string, tag = "11")]
    pub(crate) hashes: String,
    /// The lowest open server of each authority.
    #[prost(message, repeated, tag = "12")]
    pub(crate) lowest: Vec<LowestRecord>,
}

/// The lowest open server of an authority.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LowestRecord {
    /// Without it, this is the top level.
    #[prost(string, optional, tag = "1")]
    pub(crate) authority: Option<String>,
    /// The server's place in the list of the view.
    #[prost(uint32, tag = "2")]
    pub(crate) server: u32,
    /// Its rank in the list of the authority.
    #[prost(uint32, tag = "3")]
    pub(crate) rank: u32,
}

/// A header in the key of a view. Its value is not in the file.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderRecord {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// The hash of the value, made with `state.key`.
    #[prost(string, tag = "2")]
    pub(crate) hash: String,
}

/// What the brake of one set holds. Ages are in milliseconds.
#[derive(Clone, PartialEq, Message)]
pub(super) struct BrakeRecord {
    #[prost(string, tag = "1")]
    pub(crate) type_name: String,
    /// The glob of a collection; without it, this is the set of `*`.
    #[prost(string, optional, tag = "2")]
    pub(crate) glob: Option<String>,
    #[prost(uint64, tag = "3")]
    pub(crate) start_size: u64,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) empty_for: Option<u64>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) removals: Vec<HeldRecord>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeldRecord {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint64, tag = "2")]
    pub(crate) age: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) generation: u64,
    #[prost(bool, tag = "4")]
    pub(crate) emptied: bool,
    /// The server's place in the list of the view.
    #[prost(uint32, tag = "5")]
    pub(crate) server: u32,
}

/// A server that has sent resources of a view.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ServerRecord {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// When the view last had a stream on which the server had responded, in milliseconds since 1970; 0 if unknown.
    #[prost(uint64, tag = "2")]
    pub(crate) heard: u64,
}

impl ServerRecord {
    /// Returns the place of a server in the list of a view.
    pub(super) fn place_among(servers: &[Self], name: &str) -> Option<u32> {
        u32::try_from(servers.iter().position(|known| known.name == name)?).ok()
    }
}

/// The resources of one type and class.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SetRecord {
    #[prost(string, tag = "1")]
    pub(crate) type_name: String,
    #[prost(bool, tag = "2")]
    pub(crate) wildcard: bool,
    /// The number of the set in the keys of its resources.
    #[prost(uint32, tag = "3")]
    pub(crate) number: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) count: u32,
    #[prost(string, repeated, tag = "5")]
    pub(crate) collections: Vec<String>,
    /// Earlier versions of the set, two of 16 bytes each; the latest is last.
    #[prost(bytes = "vec", tag = "6")]
    pub(crate) past: Vec<u8>,
    #[prost(bool, tag = "7")]
    pub(crate) has_expired: bool,
}

/// A resource without its body.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceRecord {
    /// The server's place in the list of the view.
    #[prost(uint32, tag = "1")]
    pub(crate) server: u32,
    /// When it expires, in milliseconds since 1970; 0 if it does not.
    #[prost(uint64, tag = "2")]
    pub(crate) expires: u64,
    /// The hash of type and body.
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) body: Vec<u8>,
    /// A [`ContentRecord`], encrypted if there is a key.
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) content: Vec<u8>,
}

/// What clients see of a resource. Bodies are stored separately, since views share them.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContentRecord {
    /// The wrapper in a delta response, without body and version.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) wrapper: Vec<u8>,
    /// The hash of type and body once more. Here it is encrypted, which binds the body to the place of the resource.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) body: Vec<u8>,
}

/// A hash that identifies a view in the associated data of its resources: a node may be long.
pub(super) struct ViewPlace([u8; SHA256_OUTPUT_LEN]);

impl ViewRecord {
    pub(crate) fn place(&self) -> ViewPlace {
        let shared = [u8::from(self.shared)];
        let headers = self.headers.iter().flat_map(|header| [header.name.as_bytes(), header.hash.as_bytes()]);
        let parts: Vec<&[u8]> = [self.key_fields.as_bytes(), &self.node, &shared].into_iter().chain(headers).collect();
        let parts = joined(&parts);
        let mut hash = [0; SHA256_OUTPUT_LEN];
        hash.copy_from_slice(digest(&SHA256, &parts).as_ref());
        ViewPlace(hash)
    }
}

/// Returns the associated data of an encrypted resource.
pub(super) fn place_of(view: &ViewPlace, server: &str, set: &SetRecord, name: &str) -> Vec<u8> {
    let class = [u8::from(set.wildcard)];
    joined(&[&view.0, server.as_bytes(), set.type_name.as_bytes(), &class, name.as_bytes()])
}

/// Joins parts so that different lists of parts have different results.
fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().flat_map(|part| (part.len() as u64).to_le_bytes().into_iter().chain(part.iter().copied())).collect()
}

impl SetRecord {
    /// Whether the set's resources are private keys, passwords and the like.
    pub(crate) fn is_secret(&self) -> bool {
        TypeTable::new().resolve(&self.type_name).is_secret()
    }

    pub(crate) fn class(&self) -> Class {
        if self.wildcard { Class::Wildcard } else { Class::Named }
    }
}

/// A record whose content is not what was written under its key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a record is damaged")]
pub(super) struct DamagedRecord;

/// Returns the bytes of a record with their hash.
pub(super) fn stamped(key: &[u8], mut record: Vec<u8>) -> Vec<u8> {
    let hash = hash_of(key, &record);
    record.extend(hash);
    record
}

/// Returns the bytes of a record if the hash fits its key and its bytes.
pub(super) fn verified<'a>(key: &[u8], record: &'a [u8]) -> Result<&'a [u8], DamagedRecord> {
    let (record, hash) = record.split_last_chunk::<HASH>().ok_or(DamagedRecord)?;
    if hash_of(key, record) == *hash { Ok(record) } else { Err(DamagedRecord) }
}

fn hash_of(key: &[u8], record: &[u8]) -> [u8; HASH] {
    xxh3_64_with_seed(record, xxh3_64_with_seed(key, key.len() as u64)).to_le_bytes()
}

const HASH: usize = 8;

/// Returns the key of a resource: the numbers of its view and set, and the name that it was requested under.
pub(super) fn resource_key(view: u32, set: u32, name: &str) -> Vec<u8> {
    [&view.to_be_bytes(), &set.to_be_bytes(), name.as_bytes()].concat()
}

/// Returns the range of the keys in a set.
pub(super) fn keys_of_set(view: u32, set: u32) -> std::ops::Range<[u8; 8]> {
    let at = u64::from(view) << 32 | u64::from(set);
    at.to_be_bytes()..at.saturating_add(1).to_be_bytes()
}

/// Returns the range of the keys in a view.
pub(super) fn keys_of_view(view: u32) -> std::ops::Range<[u8; 8]> {
    let at = u64::from(view) << 32;
    at.to_be_bytes()..at.saturating_add(1 << 32).to_be_bytes()
}

/// Splits the key of a resource.
pub(super) fn parts_of_key(key: &[u8]) -> Result<(u32, u32, &str), DamagedRecord> {
    let (view, rest) = key.split_first_chunk().ok_or(DamagedRecord)?;
    let (set, name) = rest.split_first_chunk().ok_or(DamagedRecord)?;
    let name = std::str::from_utf8(name).map_err(|_| DamagedRecord)?;
    Ok((u32::from_be_bytes(*view), u32::from_be_bytes(*set), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_damaged_if_a_bit_of_it_or_of_its_key_is_another() {
        let key = resource_key(1, 2, "name");
        let good = stamped(&key, b"a record".to_vec());
        assert_eq!(verified(&key, &good).unwrap(), b"a record");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verified(&key, &bad), Err(DamagedRecord), "bit {bit}");
        }
        for length in 0..good.len() {
            assert_eq!(verified(&key, &good[..length]), Err(DamagedRecord), "{length} bytes");
        }
        assert_eq!(verified(&resource_key(1, 2, "other"), &good), Err(DamagedRecord), "moved to another key");
    }

    #[test]
    fn the_keys_of_a_set_are_in_its_range_and_in_no_other() {
        for (view, set) in [(0, 0), (1, 0), (1, 7), (u32::MAX - 1, u32::MAX)] {
            let key = resource_key(view, set, "some name");
            assert_eq!(parts_of_key(&key).unwrap(), (view, set, "some name"));
            let within = |range: std::ops::Range<[u8; 8]>| range.start[..] <= key[..] && key[..] < range.end[..];
            assert!(within(keys_of_set(view, set)) && within(keys_of_view(view)));
            assert!(!within(keys_of_set(view, set.wrapping_add(1))) && !within(keys_of_view(view.wrapping_add(1))));
        }
        assert_eq!(parts_of_key(b"short"), Err(DamagedRecord));
    }
}
