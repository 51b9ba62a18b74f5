//! The resources of an origin, their changes, and the encoded bytes that streams share.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{encode_varint, encoded_len_varint};

use crate::bodies::{self, Stamp};
use crate::kind::Kind;
use crate::wire::Variant;

pub type Name = Arc<str>;

#[derive(Debug, Clone)]
pub struct Item {
    /// The update that added the resource.
    pub created: u64,
    pub stamp: Stamp,
    pub refers_to: Vec<String>,
    pub body: Bytes,
    /// The body before the last change, for the fault that sends it.
    pub previous: Option<Bytes>,
}

/// One step of an update.
#[derive(Debug, Clone)]
pub enum Change {
    /// Adds or changes a resource, with the names that it refers to.
    Put(Kind, Name, Vec<String>),
    /// Changes only the stamp.
    Touch(Kind, Name),
    Remove(Kind, Name),
}

#[derive(Debug, Clone)]
pub struct LogEntry {
    pub update: u64,
    pub kind: Kind,
    pub name: Name,
    /// The last body, for a removal.
    pub removed: Option<Bytes>,
}

#[derive(Debug, Default)]
pub struct World {
    update: u64,
    sets: [BTreeMap<Name, Item>; 4],
    /// The last changes, oldest first.
    log: VecDeque<LogEntry>,
    /// The log is complete after this update.
    horizon: u64,
    /// Bytes of removed bodies in the log.
    removed_bytes: usize,
    /// Encoded resources of whole responses, until the next update.
    encoded: HashMap<(Kind, Variant, u64), Bytes>,
    size: usize,
    keeps_previous: bool,
}

impl World {
    /// Creates a world without resources. Each resource will have about `size` bytes.
    pub fn new(size: usize, keeps_previous: bool) -> Self {
        Self { size, keeps_previous, ..Self::default() }
    }

    /// Returns the number of the last update.
    pub fn update(&self) -> u64 {
        self.update
    }

    pub fn set(&self, kind: Kind) -> &BTreeMap<Name, Item> {
        &self.sets[kind as usize]
    }

    /// Applies all changes as one update, and returns its number and its time.
    pub fn apply(&mut self, changes: impl IntoIterator<Item = Change>) -> Stamp {
        self.update += 1;
        self.encoded.clear();
        let stamp = Stamp::now(self.update);
        for change in changes {
            match change {
                Change::Put(kind, name, refers_to) => self.put(kind, name, refers_to, stamp),
                Change::Touch(kind, name) => {
                    if let Some(refers_to) = self.set(kind).get(&name).map(|item| item.refers_to.clone()) {
                        self.put(kind, name, refers_to, stamp);
                    }
                }
                Change::Remove(kind, name) => {
                    if let Some(item) = self.sets[kind as usize].remove(&name) {
                        self.note(kind, name, Some(item.body));
                    }
                }
            }
        }
        stamp
    }

    fn put(&mut self, kind: Kind, name: Name, refers_to: Vec<String>, stamp: Stamp) {
        let body = bodies::write(kind, &name, &refers_to, stamp, self.size);
        let old = self.sets[kind as usize].get(&name);
        let created = old.map_or(stamp.update, |item| item.created);
        let item = Item {
            created,
            stamp,
            refers_to,
            body,
            previous: old.filter(|_| self.keeps_previous).map(|item| item.body.clone()),
        };
        self.sets[kind as usize].insert(name.clone(), item);
        self.note(kind, name, None);
    }

    fn note(&mut self, kind: Kind, name: Name, removed: Option<Bytes>) {
        self.removed_bytes += removed.as_ref().map_or(0, Bytes::len);
        self.log.push_back(LogEntry { update: self.update, kind, name, removed });
        let limit = LOG.max(4 * self.sets.iter().map(BTreeMap::len).sum::<usize>());
        while self.log.len() > limit || self.removed_bytes > REMOVED_BYTES {
            let Some(oldest) = self.log.pop_front() else { return };
            self.horizon = oldest.update;
            self.removed_bytes -= oldest.removed.map_or(0, |body| body.len());
        }
    }

    /// Returns the changes of one type after an update, or `None` if some of them are forgotten.
    pub fn changes_after(&self, kind: Kind, update: u64) -> Option<impl Iterator<Item = &LogEntry>> {
        let start = self.log.partition_point(|entry| entry.update <= update);
        let entries = self.log.iter().skip(start).filter(move |entry| entry.kind == kind);
        (update >= self.horizon).then_some(entries)
    }

    /// Returns the names that were changed after an update and still exist.
    pub fn changed_after(&self, kind: Kind, update: u64) -> Option<BTreeSet<Name>> {
        let names = self.changes_after(kind, update)?.filter(|entry| entry.removed.is_none());
        Some(names.filter(|entry| self.set(kind).contains_key(&entry.name)).map(|entry| entry.name.clone()).collect())
    }

    /// Returns the names that were removed after an update and do not exist now, with their last bodies.
    pub fn removed_after(&self, kind: Kind, update: u64) -> Option<BTreeMap<Name, Bytes>> {
        let removed =
            self.changes_after(kind, update)?.filter_map(|entry| Some((&entry.name, entry.removed.as_ref()?)));
        let removed = removed.filter(|(name, _)| !self.set(kind).contains_key(*name));
        Some(removed.map(|(name, body)| (name.clone(), body.clone())).collect())
    }

    /// Returns the encoded resources of a response with everything (`after` is 0), or with all changes after an update. Each is
    /// encoded once.
    pub fn shared(&mut self, kind: Kind, variant: Variant, after: u64) -> Option<Bytes> {
        if let Some(encoded) = self.encoded.get(&(kind, variant, after)) {
            return Some(encoded.clone());
        }
        let mut buffer = BytesMut::new();
        if after == 0 {
            self.set(kind).iter().for_each(|(name, item)| item.encode(&mut buffer, kind, name, variant));
        } else {
            for name in self.changed_after(kind, after)? {
                self.set(kind).get(&name)?.encode(&mut buffer, kind, &name, variant);
            }
        }
        let encoded = buffer.freeze();
        if self.encoded.len() < MAX_ENCODED {
            self.encoded.insert((kind, variant, after), encoded.clone());
        }
        Some(encoded)
    }
}

impl Item {
    pub fn version(&self) -> String {
        format!("u{}", self.stamp.update)
    }

    pub fn encode(&self, buffer: &mut BytesMut, kind: Kind, name: &str, variant: Variant) {
        encode(buffer, kind, name, &self.version(), &self.body, variant);
    }
}

/// Appends a resource as an entry of a response's resources, which have the same number in both variants.
pub fn encode(buffer: &mut BytesMut, kind: Kind, name: &str, version: &str, body: &[u8], variant: Variant) {
    let any = field_len(kind.url().len()) + field_len(body.len());
    match variant {
        Variant::Sotw => head(buffer, RESOURCES, any),
        Variant::Delta => {
            head(buffer, RESOURCES, field_len(version.len()) + field_len(any) + field_len(name.len()));
            field(buffer, 1, version.as_bytes());
            field(buffer, 3, name.as_bytes());
            head(buffer, 2, any);
        }
    }
    field(buffer, 1, kind.url().as_bytes());
    field(buffer, 2, body);
}

pub fn field(buffer: &mut BytesMut, number: u8, value: &[u8]) {
    head(buffer, number, value.len());
    buffer.put_slice(value);
}

fn head(buffer: &mut BytesMut, number: u8, length: usize) {
    buffer.put_u8(number << 3 | 2);
    encode_varint(length as u64, buffer);
}

fn field_len(length: usize) -> usize {
    1 + encoded_len_varint(length as u64) + length
}

const RESOURCES: u8 = 2;
/// How many changes are stored. If there are more resources than this, as many as there are resources.
const LOG: usize = 65_536;
const REMOVED_BYTES: usize = 256 << 20;
/// How many different encoded responses are stored.
const MAX_ENCODED: usize = 64;
