//! The contents of a state file as one stream of bytes, for storage or transport: it is not encrypted, and ends with a hash.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};

use prost::Message;
use xxhash_rust::xxh3::Xxh3;

use super::file::{BODIES, FileFault, RESOURCES, VIEWS};
use super::load::{Stored, StoredResource};
use super::records::{ResourceRecord, ViewPlace, ViewRecord, place_of, resource_key, stamped};
use super::sealing::SealingKey;

/// One part of the stream.
#[derive(Clone, PartialEq, Message)]
struct StreamPart {
    #[prost(message, tag = "1")]
    view: Option<ViewRecord>,
    /// The number of the view; for a resource, the number of its set.
    #[prost(uint32, tag = "2")]
    number: u32,
    #[prost(uint32, tag = "3")]
    set: u32,
    #[prost(message, tag = "4")]
    resource: Option<ResourceRecord>,
    #[prost(string, tag = "5")]
    name: String,
    /// The hash of type and body, and the body.
    #[prost(bytes = "vec", tag = "6")]
    hash: Vec<u8>,
    #[prost(bytes = "bytes", tag = "7")]
    body: bytes::Bytes,
}

/// Why a stream cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotFault {
    #[error("not a snapshot of this version of Weir")]
    Foreign,
    #[error("it is damaged or cut off")]
    Damaged,
    #[error("{0}")]
    Disk(#[from] io::Error),
    #[error("{0}")]
    State(#[from] FileFault),
}

/// Writes everything; secrets only with `with_secrets`.
pub(super) fn write(stored: &Stored, with_secrets: bool, out: &mut impl Write) -> Result<(), SnapshotFault> {
    let mut out = Hashed { inner: out, hash: Xxh3::new() };
    out.write_all(HEADER)?;
    let mut bodies = BTreeSet::new();
    for view in &stored.views {
        let mut record = view.record.clone();
        if !with_secrets {
            let before = record.sets.len();
            record.sets.retain(|set| !set.is_secret());
            record.lacks_secrets |= record.sets.len() != before;
        }
        let sets: Vec<_> = record.sets.iter().map(|set| set.number).collect();
        part(&mut out, &StreamPart { view: Some(record), number: view.number, ..StreamPart::default() })?;
        for (set, resource) in sets.iter().flat_map(|set| view.of_set(*set).map(move |resource| (*set, resource))) {
            let StoredResource { name, record, content } = resource;
            let record = ResourceRecord { content: content.encode_to_vec(), ..record.clone() };
            let name = name.to_string();
            part(
                &mut out,
                &StreamPart { number: view.number, set, resource: Some(record), name, ..StreamPart::default() },
            )?;
            bodies.insert(content.body.clone());
        }
    }
    for hash in bodies {
        let body = stored.body(&hash).cloned().unwrap_or_default();
        part(&mut out, &StreamPart { hash, body, ..StreamPart::default() })?;
    }
    let hash = out.hash.digest();
    out.inner.write_all(&0_u32.to_le_bytes())?;
    out.inner.write_all(&hash.to_le_bytes())?;
    Ok(())
}

fn part(out: &mut impl Write, part: &StreamPart) -> io::Result<()> {
    let bytes = part.encode_to_vec();
    let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&bytes)
}

/// Fills an empty database.
pub(super) fn read(
    from: &mut impl Read,
    database: &redb::Database,
    key: Option<&SealingKey>,
) -> Result<(), SnapshotFault> {
    let mut all = Vec::new();
    from.read_to_end(&mut all)?;
    let rest = all.strip_prefix(HEADER).ok_or(SnapshotFault::Foreign)?;
    let (content, hash) = all.split_last_chunk::<8>().ok_or(SnapshotFault::Damaged)?;
    let content = content.strip_suffix(&[0; 4]).ok_or(SnapshotFault::Damaged)?;
    if xxhash_rust::xxh3::xxh3_64(content) != u64::from_le_bytes(*hash) {
        return Err(SnapshotFault::Damaged);
    }
    let mut rest = &rest[..rest.len() - 12];
    let sealed = |place: &[u8], bytes: Vec<u8>| match key {
        Some(key) => key.seal(place, &bytes).map_err(|error| SnapshotFault::State(FileFault::Disk(error.to_string()))),
        None => Ok(bytes),
    };
    let faults = |error: redb::Error| SnapshotFault::State(error.into());
    let writing = database.begin_write().map_err(|error| faults(error.into()))?;
    {
        let mut views = writing.open_table(VIEWS).map_err(|error| faults(error.into()))?;
        let mut resources = writing.open_table(RESOURCES).map_err(|error| faults(error.into()))?;
        let mut bodies = writing.open_table(BODIES).map_err(|error| faults(error.into()))?;
        let mut view: Option<(ViewRecord, ViewPlace)> = None;
        let mut used_bodies = BTreeSet::new();
        while !rest.is_empty() {
            let (length, after) = rest.split_first_chunk().ok_or(SnapshotFault::Damaged)?;
            let (bytes, after) =
                after.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(SnapshotFault::Damaged)?;
            rest = after;
            let part = StreamPart::decode(bytes).map_err(|_| SnapshotFault::Damaged)?;
            if let Some(record) = part.view {
                let mut record = record;
                if key.is_none() {
                    record.lacks_secrets |= record.sets.iter().any(|set| set.is_secret());
                    record.sets.retain(|set| !set.is_secret());
                }
                let bytes = stamped(&part.number.to_be_bytes(), record.encode_to_vec());
                views.insert(part.number, &*bytes).map_err(|error| faults(error.into()))?;
                let place = record.place();
                view = Some((record, place));
            } else if let Some(record) = part.resource {
                let (of, place) = view.as_ref().ok_or(SnapshotFault::Damaged)?;
                let Some(set) = of.sets.iter().find(|set| set.number == part.set) else { continue }; // a secret, which was left out
                let server = of.servers.get(record.server as usize).ok_or(SnapshotFault::Damaged)?;
                let content = sealed(&place_of(place, &server.name, set, &part.name), record.content.clone())?;
                let at = resource_key(part.number, part.set, &part.name);
                let record = ResourceRecord { content, ..record };
                let bytes = stamped(&at, record.encode_to_vec());
                resources.insert(&*at, &*bytes).map_err(|error| faults(error.into()))?;
                used_bodies.insert(record.body);
            } else if used_bodies.contains(&part.hash) {
                // Bodies come after all resources. Those of secrets that were left out are left out too.
                let body = sealed(&part.hash, part.body.to_vec())?;
                bodies.insert(&*part.hash, &*body).map_err(|error| faults(error.into()))?;
            }
        }
    }
    writing.commit().map_err(|error| faults(error.into()))?;
    Ok(())
}

struct Hashed<'a, W> {
    inner: &'a mut W,
    hash: Xxh3,
}

impl<W: Write> Write for Hashed<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hash.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Returns a stream with this content.
#[cfg(test)]
pub(super) fn with_frame(content: &[u8]) -> Vec<u8> {
    let content = [HEADER, content].concat();
    let hash = xxhash_rust::xxh3::xxh3_64(&content);
    [&content[..], &[0; 4], &hash.to_le_bytes()].concat()
}

const HEADER: &[u8] = b"weir snapshot 1\n";
