//! Reads one response, a slice at a time, without the state of the stream on which it came.
//!
//! Finding, hashing and storing the resources is nearly all the work of a response, and needs no view. It is done here, so that the caller can
//! let other tasks run between slices; [`Stream`](super::Stream) applies the result as one change. Resources that a server sends again unchanged
//! are found in the sets that it sent last.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use super::parsed_response::ParsedResponse;
use super::recent_sets::{Recall, RecentSets};
use crate::proto::discovery::{self, DeltaDiscoveryResponse, DiscoveryResponse};
use crate::proto::{Any, Response};
use crate::protocol::session::Variant;
use crate::xds::wire::{self, Field, Value};
use crate::xds::{BodyStore, BodyType, Malformed, Name, Resource, Type, TypeTable, WRAPPER_TYPE};

/// A response as it was received.
#[derive(Debug)]
pub enum ResponseMessage {
    /// In the encoding of the wire.
    Encoded(Variant, Bytes),
    /// From the hub, which is in this process.
    Decoded(Response),
}

impl ResponseMessage {
    /// Returns about how many bytes have to be read.
    pub fn size(&self) -> usize {
        let body = |any: &Any| any.value.len();
        match self {
            Self::Encoded(_, message) => message.len(),
            Self::Decoded(Response::Sotw(response)) => response.resources.iter().map(body).sum(),
            Self::Decoded(Response::Delta(response)) => {
                response.resources.iter().filter_map(|wrapper| wrapper.resource.as_ref().map(body)).sum()
            }
        }
    }

    /// Decodes the response, if it is encoded.
    pub fn decode(self) -> Result<Response, UnreadableResponse> {
        Ok(match self {
            Self::Encoded(Variant::Sotw, message) => Response::Sotw(DiscoveryResponse::decode(message)?),
            Self::Encoded(Variant::Delta, message) => Response::Delta(DeltaDiscoveryResponse::decode(message)?),
            Self::Decoded(response) => response,
        })
    }
}

/// A parsed response: its resources, and everything else in it.
#[derive(Debug)]
pub struct ReceivedResponse {
    pub(super) kind: Type,
    /// The message without its resources.
    pub(super) rest: Response,
    pub(super) resources: ParsedResponse,
    /// About how many bytes the response had.
    pub(super) bytes: usize,
}

/// What is reported of a response.
#[derive(Debug, Clone)]
pub struct ResponseSummary {
    /// The type.
    pub kind: Type,
    /// The version that the server gave.
    pub version: String,
    /// About how many bytes it had.
    pub bytes: usize,
    /// How many resources were in it.
    pub resources: usize,
    /// How many names it removed.
    pub removed: usize,
}

/// How much room there is for a response.
#[derive(Debug)]
pub struct Room {
    /// By how many bytes the limit is exceeded, with the bodies of the response counted in. If negative, how many bytes are left.
    pub excess: i64,
    /// How many bytes a resource takes besides its body.
    pub each: usize,
    /// How many further bytes are left for a response whose new resources take at most a fifth of these.
    pub spare: usize,
    /// Why there is no more room.
    pub why: Arc<str>,
}

/// Why a response cannot be read at all, so that the stream ends.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableResponse {
    /// A part of the response is not the message that it should be.
    #[error("unreadable response: {0}")]
    Decode(#[from] prost::DecodeError),
    /// The bytes are not fields, or a field has another wire type.
    #[error("unreadable response: invalid field")]
    Field,
    /// A type URL is not text.
    #[error("unreadable response: invalid UTF-8 in a type URL")]
    Text(#[from] std::str::Utf8Error),
}

/// Reads one response.
#[derive(Debug)]
pub struct ResponseParser {
    entries: Entries,
    response: ReceivedResponse,
    recall: Recall,
}

/// The entries that are still to be read.
#[derive(Debug)]
enum Entries {
    /// A message, and up to where it was read.
    Encoded(Variant, Bytes, usize),
    Sotw(std::vec::IntoIter<Any>),
    Delta(std::vec::IntoIter<discovery::Resource>),
}

impl ResponseParser {
    /// Starts to read a response. `recent` has the last sets of the same server.
    pub fn new(
        message: ResponseMessage,
        table: &TypeTable,
        recent: &mut RecentSets,
    ) -> Result<Self, UnreadableResponse> {
        let bytes = message.size();
        let (entries, rest) = match message {
            ResponseMessage::Encoded(variant, message) => {
                let rest = without_entries(variant, &message)?;
                (Entries::Encoded(variant, message, 0), rest)
            }
            ResponseMessage::Decoded(Response::Sotw(mut response)) => {
                let entries = std::mem::take(&mut response.resources).into_iter();
                (Entries::Sotw(entries), Response::Sotw(response))
            }
            ResponseMessage::Decoded(Response::Delta(mut response)) => {
                let entries = std::mem::take(&mut response.resources).into_iter();
                (Entries::Delta(entries), Response::Delta(response))
            }
        };
        let kind = table.resolve(rest.type_url());
        let recall = recent.take(&kind);
        let response = ReceivedResponse { kind, rest, resources: ParsedResponse::default(), bytes };
        Ok(Self { entries, response, recall })
    }

    /// Reads entries until about `bytes` bytes are read. Returns whether entries are left.
    pub fn step(&mut self, store: &BodyStore, bytes: usize) -> Result<bool, UnreadableResponse> {
        let ReceivedResponse { kind, resources, .. } = &mut self.response;
        let mut spent = 0;
        while spent < bytes {
            spent += ENTRY;
            match &mut self.entries {
                Entries::Encoded(variant, message, at) => {
                    let Some(field) = next_field(message, at)? else { return Ok(false) };
                    spent += field.raw.len();
                    let Some(entry) = entry(field)? else { continue };
                    match variant {
                        Variant::Sotw => read_any(message, entry, kind, store, resources, &mut self.recall)?,
                        Variant::Delta => {
                            resources.take_wrapper(discovery::Resource::decode(message.slice_ref(entry))?, kind, store);
                        }
                    }
                }
                Entries::Sotw(entries) => {
                    let Some(any) = entries.next() else { return Ok(false) };
                    spent += any.value.len();
                    resources.take_any(any, kind, store);
                }
                Entries::Delta(entries) => {
                    let Some(wrapper) = entries.next() else { return Ok(false) };
                    spent += wrapper.resource.as_ref().map_or(0, |any| any.value.len());
                    resources.take_wrapper(wrapper, kind, store);
                }
            }
        }
        Ok(true)
    }

    /// Returns the response when nothing is left to read, and remembers its set.
    pub fn finish(self, recent: &mut RecentSets) -> ReceivedResponse {
        recent.put(&self.response.kind, self.recall);
        self.response
    }
}

impl ReceivedResponse {
    /// Reads all of a response.
    pub fn read(message: ResponseMessage, table: &TypeTable, store: &BodyStore) -> Result<Self, UnreadableResponse> {
        let mut recent = RecentSets::default();
        let mut parser = ResponseParser::new(message, table, &mut recent)?;
        while parser.step(store, usize::MAX)? {}
        Ok(parser.finish(&mut recent))
    }

    /// Returns what is reported of the response.
    pub fn summary(&self) -> ResponseSummary {
        let version = match &self.rest {
            Response::Sotw(response) => &response.version_info,
            Response::Delta(response) => &response.system_version_info,
        };
        let (kind, version, removed) = (self.kind.clone(), version.clone(), self.removed_names().count());
        ResponseSummary { kind, version, bytes: self.bytes, resources: self.resources.count, removed }
    }

    /// Returns how many names the response has something for, or removes.
    pub fn entries(&self) -> usize {
        let errors = match &self.rest {
            Response::Sotw(response) => &response.resource_errors,
            Response::Delta(response) => &response.resource_errors,
        };
        self.resources.count + self.removed_names().count() + errors.len()
    }

    /// Returns the names that the response removes, with constraints or without. A name may be repeated.
    fn removed_names(&self) -> impl Iterator<Item = &str> {
        let (names, constrained) = match &self.rest {
            Response::Sotw(_) => (&[][..], &[][..]),
            Response::Delta(response) => (&response.removed_resources[..], &response.removed_resource_names[..]),
        };
        names.iter().map(String::as_str).chain(constrained.iter().map(|name| name.name.as_str()))
    }

    /// Returns the errors that the server reports for single resources. Their texts are cut when they are applied.
    pub fn resource_errors_mut(&mut self) -> &mut Vec<discovery::ResourceError> {
        self.rest.resource_errors_mut()
    }

    /// Returns the names whose resources can be used, in order.
    pub fn usable_names(&self) -> impl Iterator<Item = &Name> {
        self.resources.good.names()
    }

    /// Returns the names that exist and whose resources cannot be used. What is cached for them stays.
    pub fn rejected_names(&self) -> impl Iterator<Item = &Name> {
        self.resources.rejected.keys()
    }

    /// Returns how many entries have no body. What they mean depends on what is cached.
    pub fn bodyless(&self) -> usize {
        self.resources.bodyless.len()
    }

    /// Returns what is wrong with single entries whatever is cached. Entries without a body are judged later.
    pub fn faults(&self) -> &[Malformed] {
        &self.resources.faults
    }

    /// Returns these faults as the text of a NACK, which is cut if it gets too long. `None` if there are no faults.
    pub fn nack_message(&self) -> Option<String> {
        self.resources.nack_message()
    }

    /// Rejects new resources that have no room. They then exist with unknown contents, like others that cannot be used. Resources whose body is
    /// used nowhere else are rejected first, from the last name on. Returns how many bytes they would take.
    pub(crate) fn fit_into(&mut self, room: &Room, freed: usize, is_new: impl Fn(&Resource) -> bool) -> usize {
        let Room { excess, each, spare, why } = room;
        let new: Vec<_> = self.resources.good.values().filter(|resource| is_new(resource)).cloned().collect();
        let size = |resource: &Resource| resource.body.bytes().len() + each;
        let mut excess =
            excess.saturating_add_unsigned((new.len() * each) as u64).saturating_sub_unsigned(freed as u64);
        if new.iter().map(|resource| size(resource)).sum::<usize>() <= spare / 5 {
            excess = excess.saturating_sub_unsigned(*spare as u64);
        }
        let is_shared = |resource: &Resource| Arc::strong_count(&resource.body) > 1;
        let (shared, own): (Vec<_>, Vec<_>) = new.into_iter().partition(|resource| is_shared(resource));
        let own = own.into_iter().rev().map(|resource| (size(&resource), resource));
        let shared = shared.into_iter().rev().map(|resource| (*each, resource));
        let mut rejected = 0;
        for (gain, resource) in own.chain(shared) {
            if excess <= 0 {
                break;
            }
            excess = excess.saturating_sub_unsigned(gain as u64);
            rejected += size(&resource);
            self.resources.reject_for_room(&resource, why);
        }
        rejected
    }

    /// Whether there may be too little room: there is if all resources are new, and applying the response frees nothing.
    pub(crate) fn may_exceed(&self, room: &Room) -> bool {
        room.excess.saturating_add_unsigned((self.resources.good.len() * room.each) as u64) > 0
    }

    /// Whether the response is a complete set, so that what it lacks is removed.
    pub(crate) fn is_set(&self) -> bool {
        matches!(self.rest, Response::Sotw(_)) && self.kind.info().full_state
    }

    /// Returns how many bytes are freed when the response is applied: of the resources that it changes or removes. `all` is read only for a
    /// complete set.
    pub(crate) fn frees<'h>(
        &self,
        each: usize,
        held: impl Fn(&Name) -> Option<&'h Arc<Resource>>,
        all: impl Iterator<Item = &'h Arc<Resource>>,
    ) -> usize {
        let size = |resource: &Arc<Resource>| resource.body.bytes().len();
        let removed: BTreeSet<Name> = self.removed_names().map(Name::canonical).collect();
        let ParsedResponse { good, rejected, bodyless, .. } = &self.resources;
        let bodyless: BTreeSet<&Name> = bodyless.iter().filter_map(|entry| entry.name.as_ref()).collect();
        let is_sent = |name: &Name| good.get(name).is_some() || rejected.contains_key(name) || bodyless.contains(name);
        // What is cached of a name that is both sent and removed stays: neither is trusted.
        let changed = good.values().filter(|now| !removed.contains(&now.name)).filter_map(|now| {
            let before = held(&now.name)?;
            (!Arc::ptr_eq(&before.body, &now.body)).then(|| size(before))
        });
        let all = self.is_set().then_some(all).into_iter().flatten();
        let left_out = all.filter(|resource| !is_sent(&resource.name)).map(|resource| size(resource) + each);
        let removed = removed.iter().filter(|name| !is_sent(name)).filter_map(&held).map(|of| size(of) + each);
        changed.chain(left_out).chain(removed).sum()
    }

    /// Whether the response is a complete set without resources.
    pub(crate) fn is_empty_set(&self) -> bool {
        self.is_set() && self.resources.count == 0
    }
}

/// Reads an entry of a SotW response. If the last response had the same bytes at this position, it is the same resource.
fn read_any(
    message: &Bytes,
    entry: &[u8],
    kind: &Type,
    store: &BodyStore,
    resources: &mut ParsedResponse,
    recall: &mut Recall,
) -> Result<(), UnreadableResponse> {
    const TYPE_URL: u32 = 1;
    const VALUE: u32 = 2;
    let (mut type_url, mut value): (&str, &[u8]) = ("", &[]);
    for field in wire::fields(entry) {
        match field.ok_or(UnreadableResponse::Field)? {
            Field { number: TYPE_URL, value: Value::Bytes(text), .. } => type_url = std::str::from_utf8(text)?,
            Field { number: VALUE, value: Value::Bytes(bytes), .. } => value = bytes,
            Field { number: TYPE_URL | VALUE, .. } => return Err(UnreadableResponse::Field),
            _ => {}
        }
    }
    if Type::message_name(type_url) == WRAPPER_TYPE {
        let value = if value.is_empty() { Bytes::new() } else { message.slice_ref(value) };
        resources.take_any(Any { type_url: type_url.to_owned(), value }, kind, store);
        return Ok(());
    }
    let is_own = kind.body_of(type_url) == BodyType::Own;
    if is_own && let Some(same) = recall.same(value) {
        resources.take(Ok(same));
        return Ok(());
    }
    let resource = Resource::bare(resources.count, type_url, value, kind, store);
    let remembered = |resource: Resource| match is_own {
        true => recall.note(Arc::new(resource)),
        false => Arc::new(resource),
    };
    resources.take(resource.map(remembered));
    Ok(())
}

/// Returns the next field of a message, of which the bytes before `at` are read.
fn next_field<'a>(message: &'a [u8], at: &mut usize) -> Result<Option<Field<'a>>, UnreadableResponse> {
    let Some(field) = wire::fields(&message[*at..]).next() else { return Ok(None) };
    let field = field.ok_or(UnreadableResponse::Field)?;
    *at += field.raw.len();
    Ok(Some(field))
}

/// Returns the bytes of an entry, if the field is one. The field of entries has the same number in both variants.
fn entry(field: Field<'_>) -> Result<Option<&[u8]>, UnreadableResponse> {
    const RESOURCES: u32 = 2;
    match field {
        Field { number: RESOURCES, value: Value::Bytes(entry), .. } => Ok(Some(entry)),
        Field { number: RESOURCES, .. } => Err(UnreadableResponse::Field),
        _ => Ok(None),
    }
}

/// Decodes everything except the entries. The type URL may come after them.
fn without_entries(variant: Variant, message: &[u8]) -> Result<Response, UnreadableResponse> {
    let mut others = Vec::new();
    for field in wire::fields(message) {
        let field = field.ok_or(UnreadableResponse::Field)?;
        if entry(field)?.is_none() {
            others.extend_from_slice(field.raw);
        }
    }
    Ok(match variant {
        Variant::Sotw => Response::Sotw(DiscoveryResponse::decode(others.as_slice())?),
        Variant::Delta => Response::Delta(DeltaDiscoveryResponse::decode(others.as_slice())?),
    })
}

/// What an entry counts in addition to its bytes, so that a slice of many small entries takes no longer than others.
const ENTRY: usize = 256;

#[cfg(test)]
mod tests;
