//! Writes a dump, a resource at a time.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde_json::{Value as Json, json};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{HeldState, Holding, RejectedReply};
use weir_core::protocol::view::{Class, Snapshot, TableEntry};
use weir_core::xds::{Name, Type};

use super::Wanted;
use super::sections::{ENDPOINTS, Row, SECTIONS, Section, has_its_own};
use crate::relay::ClientHoldings;
use crate::transcode::Transcoder;

/// The resources that are dumped.
pub(super) struct Source {
    /// If set, only the resources that this client was sent are dumped.
    pub(super) client: Option<ClientHoldings>,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) now: Moment,
}

/// The pieces of a response on their way to the reader.
pub(super) struct Pieces {
    to: mpsc::Sender<Bytes>,
    runtime: Handle,
    buffer: Vec<u8>,
}

pub(super) struct Writer<'a> {
    pub(super) transcoder: &'a Transcoder,
    pub(super) source: &'a Source,
    pub(super) wanted: &'a Wanted,
}

/// Writes the entries of one list.
struct List<'a> {
    section: &'static Section,
    writer: &'a Writer<'a>,
    pieces: &'a mut Pieces,
    count: usize,
    is_read: bool,
}

impl Pieces {
    pub(super) fn new(to: mpsc::Sender<Bytes>, runtime: Handle) -> Self {
        Self { to, runtime, buffer: Vec::new() }
    }

    /// Returns `None` if the reader has left.
    fn write(&mut self, text: &str) -> Option<()> {
        self.buffer.extend_from_slice(text.as_bytes());
        if self.buffer.len() >= PIECE { self.flush() } else { Some(()) }
    }

    fn flush(&mut self) -> Option<()> {
        let piece = std::mem::take(&mut self.buffer).into();
        self.runtime.block_on(timeout(STALL, self.to.send(piece))).ok()?.ok()
    }
}

impl Writer<'_> {
    /// Returns `None` if the reader has left.
    pub(super) fn write(&self, pieces: &mut Pieces) -> Option<()> {
        pieces.write("{\n\"configs\": [")?;
        let mut count = 0;
        for section in &SECTIONS {
            count = self.section(section, count, pieces)?;
        }
        pieces.write("\n]\n}\n")?;
        pieces.flush()
    }

    /// Returns how many entries `configs` then has.
    fn section(&self, section: &'static Section, before: usize, pieces: &mut Pieces) -> Option<usize> {
        let Wanted { resource, mask, include_eds } = self.wanted;
        if section.list == ENDPOINTS && !include_eds || resource.as_ref().is_some_and(|of| of != section.list) {
            return Some(before);
        }
        if resource.is_some() {
            return self.list(section, before, pieces);
        }
        let of_list = mask.as_ref().map(|mask| mask.within(section.list));
        let of_version = mask.as_ref().is_none_or(|mask| mask.within("version_info").is_some());
        if self.types(section).next().is_none() || of_list == Some(None) && !(section.has_version && of_version) {
            return Some(before);
        }
        let url = format!("type.googleapis.com/{}", section.message);
        let comma = if before > 0 { "," } else { "" };
        pieces.write(&format!("{comma}\n{{\n\"@type\": {}", json!(url)))?;
        if section.has_version && of_version {
            pieces.write(&format!(",\n\"version_info\": {}", json!(self.version(section))))?;
        }
        if of_list != Some(None) {
            pieces.write(&format!(",\n\"{}\": [", section.list))?;
            self.list(section, 0, pieces)?;
            pieces.write("\n]")?;
        }
        pieces.write("\n}")?;
        Some(before + 1)
    }

    /// Returns the types of a part. The last part may have several.
    fn types(&self, section: &'static Section) -> impl Iterator<Item = Type> {
        let is_of = |kind: &Type| match section.kind {
            Some(name) => kind.name() == name,
            None => !has_its_own(kind.name()),
        };
        let mut found: Vec<Type> = match &self.source.client {
            Some(client) => client.holdings.types.iter().map(|of| of.kind.clone()).collect(),
            None => self.source.snapshot.tables().map(|(kind, ..)| kind.clone()).collect(),
        };
        found.retain(is_of);
        found.dedup();
        found.into_iter()
    }

    /// Returns the version of the set: the last one that the client was sent, or else the view's.
    fn version(&self, section: &'static Section) -> String {
        let snapshot = &self.source.snapshot;
        let of_type = |kind: Type| match &self.source.client {
            Some(client) => {
                let of = client.holdings.types.iter().find(|of| of.kind == kind)?;
                Some(of.newest?.version.to_string())
            }
            None => Some(snapshot.resources(&kind, Class::Wildcard)?.sums().version(false).to_string()),
        };
        self.types(section).find_map(of_type).unwrap_or_default()
    }

    fn list(&self, section: &'static Section, count: usize, pieces: &mut Pieces) -> Option<usize> {
        let mut list = List { section, writer: self, pieces, count, is_read: true };
        for kind in self.types(section) {
            match &self.source.client {
                Some(client) => {
                    let all = client.holdings.types.iter().filter(|of| of.kind == kind);
                    all.for_each(|of| list.of_client(client, of));
                }
                None => list.of_view(&kind, &self.source.snapshot),
            }
        }
        list.is_read.then_some(list.count)
    }

    fn row(&self, kind: &Type, name: &Name, entry: &TableEntry) -> Option<Row> {
        let resource = entry.resource()?;
        let url = kind.url();
        let body = match self.transcoder.dumped_json(kind.name(), resource.body.bytes()) {
            Ok(Json::Object(fields)) => {
                let mut body = Json::Object(fields);
                body["@type"] = (*url).into();
                body
            }
            Ok(other) => json!({"@type": url, "value": other}),
            Err(error) => json!({"@type": url, "[not shown]": error.to_string()}),
        };
        let last_updated = self.time(self.source.now - entry.since);
        Some(Row { name: name.to_string(), version: resource.full.to_string(), last_updated, body })
    }

    fn time(&self, ago: Duration) -> String {
        let at = SystemTime::now().checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH);
        humantime::format_rfc3339_millis(at).to_string()
    }
}

impl List<'_> {
    fn of_client(&mut self, client: &ClientHoldings, of: &Holding) {
        let writer = self.writer;
        client.holdings.each(of, &writer.source.snapshot, |held| {
            let Some(entry) = held.entry.filter(|_| held.state != HeldState::NotSent) else { return };
            let status = match held.state {
                HeldState::Accepted => Some("ACKED"),
                HeldState::Rejected => Some("NACKED"),
                HeldState::Unanswered | HeldState::NotSent => None,
            };
            self.entry(&of.kind, held.name, entry, status, held.nack);
        });
    }

    /// Writes the wildcard set, and then the names that clients subscribe to, without those whose resource is equal in the wildcard set.
    fn of_view(&mut self, kind: &Type, snapshot: &Snapshot) {
        let wildcard = snapshot.resources(kind, Class::Wildcard);
        for (name, entry) in wildcard.iter().flat_map(|table| table.entries()) {
            self.entry(kind, name, entry, None, None);
        }
        let same = |name: &Name, entry: &TableEntry| {
            let other = wildcard.and_then(|table| table.get(name)).and_then(TableEntry::resource);
            other.is_some_and(|other| entry.resource().is_some_and(|own| own.full == other.full))
        };
        for (name, entry) in snapshot.resources(kind, Class::Named).iter().flat_map(|table| table.entries()) {
            if !same(name, entry) {
                self.entry(kind, name, entry, None, None);
            }
        }
    }

    fn entry(
        &mut self,
        kind: &Type,
        name: &Name,
        entry: &TableEntry,
        status: Option<&'static str>,
        nack: Option<RejectedReply<'_>>,
    ) {
        if !self.is_read {
            return;
        }
        let Some(row) = self.writer.row(kind, name, entry) else { return };
        let mut written = (self.section.form)(row);
        if let Some(status) = status {
            written["client_status"] = status.into();
        }
        if let Some(nack) = nack {
            let at = self.writer.time(self.writer.source.now - nack.at);
            let mut error = json!({"last_update_attempt": at});
            if let Some(reply) = nack.reply {
                error["details"] = nack.reason.into();
                error["version_info"] = reply.version.to_string().into();
            }
            written["error_state"] = error;
        }
        let Wanted { resource, mask, .. } = self.writer.wanted;
        let mask = match resource {
            Some(_) => mask.clone(),
            None => mask.as_ref().and_then(|mask| mask.within(self.section.list)),
        };
        if let Some(mask) = mask {
            mask.apply(&mut written);
        }
        if resource.is_some() {
            written["@type"] = format!("type.googleapis.com/{}", self.section.entry).into();
        }
        let comma = if self.count > 0 { "," } else { "" };
        self.count += 1;
        let text = serde_json::to_string_pretty(&written).unwrap_or_default();
        self.is_read = self.pieces.write(&format!("{comma}\n{text}")).is_some();
    }
}

/// The size at which a piece is sent.
const PIECE: usize = 64 << 10;
/// How long a reader may take no piece.
const STALL: Duration = Duration::from_secs(30);
