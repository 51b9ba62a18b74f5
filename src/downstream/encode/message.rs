//! The encoded form of a reply, in parts that are written one by one: an entry, a removed name, the fields of the message.
//!
//! The nonce and the version of a SotW set differ between clients. They are in the head, and not in any part.

use std::sync::Arc;
use std::time::Duration;

use weir_core::protocol::session::{Heartbeat, Reply, Variant};
use weir_core::protocol::view::NamedError;
use weir_core::xds::{Name, Resource, SetVersion, Type};

use super::sink::{Length, Sink, Window, field_len, put_bytes, put_length, put_message, put_number, put_text};

/// A reply, with everything else that determines its bytes.
#[derive(Debug)]
pub(in super::super) struct Message {
    reply: Reply,
    variant: Variant,
    control_plane: Arc<str>,
}

/// A position between two bytes of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MessageOffset {
    part: usize,
    offset: usize,
}

impl Message {
    pub(crate) fn of(reply: Reply, variant: Variant, control_plane: &Arc<str>) -> Self {
        Self { reply, variant, control_plane: control_plane.clone() }
    }

    /// Returns all parts in one buffer, without the fields that differ between clients.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        (0..self.parts()).for_each(|part| self.write_part(part, &mut bytes));
        bytes
    }

    /// Returns the length, and the positions that cut the message into pieces of this size.
    pub(super) fn measure(&self, piece: usize) -> (usize, Vec<MessageOffset>) {
        let (mut length, mut cuts) = (0, Vec::new());
        for part in 0..self.parts() {
            let mut measured = Length::default();
            self.write_part(part, &mut measured);
            let end = length + measured.0;
            while cuts.len() * piece < end {
                cuts.push(MessageOffset { part, offset: cuts.len() * piece - length });
            }
            length = end;
        }
        (length, cuts)
    }

    /// Writes `most` bytes from a position, or fewer at the end.
    pub(super) fn write(&self, from: MessageOffset, most: usize) -> Vec<u8> {
        let mut window = Window { skip: from.offset, room: most, bytes: Vec::with_capacity(most) };
        for part in from.part..self.parts() {
            if window.room == 0 {
                break;
            }
            self.write_part(part, &mut window);
        }
        window.bytes
    }

    pub(super) fn reply(&self) -> (&Reply, Variant) {
        (&self.reply, self.variant)
    }

    pub(super) fn resources(&self) -> (Type, Arc<[Arc<Resource>]>) {
        (self.reply.kind.clone(), self.reply.resources.clone())
    }

    /// Returns about how many bytes the message alone keeps: names, their spellings and errors, which its session may have forgotten.
    pub(super) fn own_bytes(&self) -> usize {
        let Reply { removed, unresolved, errors, spellings, constrained, .. } = &self.reply;
        let text = |name: &Name| ARC + name.as_str().len();
        let names = removed.iter().chain(unresolved).map(|name| size_of::<Name>() + text(name));
        let errors = errors.iter().map(|of| {
            let (name, error) = of;
            size_of_val(of) + text(name) + ARC + size_of::<NamedError>() + error.message.len()
        });
        let spellings = spellings.iter().map(|of| size_of_val(of) + ARC + of.1.len());
        let constrained = constrained.iter().map(|of| size_of_val(of) + text(&of.0) + of.1.len());
        names.chain(errors).chain(spellings).chain(constrained).sum()
    }

    /// Whether the message has secrets. If they were compressed together with text that others choose, the length would reveal something of them.
    pub(super) fn is_secret(&self) -> bool {
        self.reply.kind.is_secret()
    }

    /// Returns what messages have in common that are likely to have equally many takers.
    pub(super) fn likeness(&self) -> (&Type, Variant) {
        (&self.reply.kind, self.variant)
    }

    /// Whether the message of another reply has the same parts.
    pub(super) fn has_same_parts(&self, other: &Reply, variant: Variant) -> bool {
        let own = &self.reply;
        let resources = Arc::ptr_eq(&own.resources, &other.resources)
            || own.resources.len() == other.resources.len()
                && own.resources.iter().zip(&*other.resources).all(|(one, two)| Arc::ptr_eq(one, two));
        is_for_all(own)
            && is_for_all(other)
            && resources
            && (self.variant, own.wrappers, &own.spelling) == (variant, other.wrappers, &other.spelling)
            && (&own.removed, &own.constrained, &own.unresolved)
                == (&other.removed, &other.constrained, &other.unresolved)
            && (&own.errors, own.set_mark) == (&other.errors, other.set_mark)
    }

    fn parts(&self) -> usize {
        let Reply { resources, heartbeats, removed, constrained, unresolved, errors, .. } = &self.reply;
        let beside = heartbeats.len() + removed.len() + constrained.len() + unresolved.len() + errors.len();
        1 + beside + resources.len()
    }

    fn write_part(&self, part: usize, out: &mut dyn Sink) {
        let reply = &self.reply;
        let sotw = self.variant == Variant::Sotw;
        let Some(mut at) = part.checked_sub(1) else { return self.write_start(out) };
        if let Some(heartbeat) = reply.heartbeats.get(at) {
            return self.write_heartbeat(heartbeat, out);
        }
        at -= reply.heartbeats.len();
        if let Some(name) = reply.removed.get(at) {
            if !sotw {
                put_text(out, 6, name.as_str());
            }
            return;
        }
        at -= reply.removed.len();
        if let Some(alias) = reply.unresolved.get(at) {
            if !sotw {
                put_message(out, 2, |out| {
                    put_text(out, 3, alias.as_str());
                    put_text(out, 4, alias.as_str());
                });
            }
            return;
        }
        at -= reply.unresolved.len();
        if let Some((name, constraints)) = reply.constrained.get(at) {
            if !sotw {
                put_message(out, 8, |out| put_resource_name(out, name.as_str(), Some(constraints)));
            }
            return;
        }
        at -= reply.constrained.len();
        if let Some((name, error)) = reply.errors.get(at) {
            let field = if sotw { 7 } else { 9 };
            return put_message(out, field, |out| put_error(out, name, error));
        }
        self.write_entry(at - reply.errors.len(), out);
    }

    fn write_start(&self, out: &mut dyn Sink) {
        let identifier = |out: &mut dyn Sink| put_text(out, 1, &self.control_plane);
        put_text(out, 4, &self.reply.spelling);
        match self.variant {
            Variant::Sotw => put_message(out, 6, identifier),
            Variant::Delta => {
                self.reply.set_mark.iter().for_each(|mark| put_text(out, 1, mark.text()));
                put_message(out, 7, identifier);
            }
        }
    }

    fn write_heartbeat(&self, heartbeat: &Heartbeat, out: &mut dyn Sink) {
        match self.variant {
            // With the version that the client ACKed last, so that it recognises a heartbeat (DELTA-47, EV).
            Variant::Sotw => put_message(out, 2, |any| {
                put_text(any, 1, WRAPPER_URL);
                put_message(any, 2, |out| put_heartbeat(out, &self.reply.version.text(), heartbeat));
            }),
            Variant::Delta => put_message(out, 2, |out| put_heartbeat(out, &heartbeat.version.text(), heartbeat)),
        }
    }

    fn write_entry(&self, at: usize, out: &mut dyn Sink) {
        let reply = &self.reply;
        let Some(resource) = reply.resources.get(at) else { return };
        let ttl = beside(&reply.ttls, at).copied();
        let name = beside(&reply.spellings, at).map_or(resource.name.as_str(), |spelt| spelt);
        let body = resource.body.bytes();
        let type_url = resource.body.type_url().unwrap_or(&reply.spelling);
        let any_len = field_len(1, type_url.len()) + field_len(2, body.len());
        let any = |out: &mut dyn Sink| {
            put_text(out, 1, type_url);
            put_bytes(out, 2, body);
        };
        let wrapper = |out: &mut dyn Sink, version: bool| {
            put_wrapper_fields(out, resource, name, version, ttl);
            put_length(out, 2, any_len);
        };
        let wrapper_len = |version| {
            let mut fields = Length::default();
            wrapper(&mut fields, version);
            fields.0 + any_len
        };
        match self.variant {
            Variant::Sotw if reply.wraps(resource, ttl) => {
                let length = wrapper_len(false);
                put_length(out, 2, field_len(1, WRAPPER_URL.len()) + field_len(2, length));
                put_text(out, 1, WRAPPER_URL);
                put_length(out, 2, length);
                wrapper(out, false);
            }
            Variant::Sotw => put_length(out, 2, any_len),
            Variant::Delta => {
                put_length(out, 2, wrapper_len(true));
                wrapper(out, true);
            }
        }
        any(out);
    }
}

/// Writes the fields that differ between clients.
pub(super) fn put_own_fields(out: &mut dyn Sink, nonce: u64, version: Option<SetVersion>) {
    put_text(out, 5, Digits::of(nonce).text());
    version.iter().for_each(|version| put_bytes(out, 1, &version.text()));
}

/// Whether other clients may get the same parts: none depends on a single client, or on the remaining time of a TTL.
pub(super) fn is_for_all(reply: &Reply) -> bool {
    reply.ttls.is_empty() && reply.heartbeats.is_empty() && reply.spellings.is_empty()
}

fn beside<T>(list: &[(usize, T)], at: usize) -> Option<&T> {
    list.binary_search_by_key(&at, |(at, _)| *at).ok().map(|found| &list[found].1)
}

/// Writes the fields of `discovery.v3.Resource` without the resource itself.
fn put_wrapper_fields(out: &mut dyn Sink, resource: &Resource, name: &str, version: bool, ttl: Option<Duration>) {
    if version {
        put_bytes(out, 1, &resource.full.text());
    }
    match resource.constraints() {
        None => put_text(out, 3, name),
        // The name is in one of the two fields, never in both (WIRE-4).
        Some(constraints) => put_message(out, 8, |out| put_resource_name(out, name, Some(constraints))),
    }
    ttl.iter().for_each(|ttl| put_ttl(out, *ttl));
    resource.aliases().iter().for_each(|alias| put_text(out, 4, alias.as_str()));
    if resource.do_not_cache() {
        put_bytes(out, 7, &[0x08, 0x01]);
    }
    resource.metadata().iter().for_each(|metadata| put_bytes(out, 9, metadata));
}

fn put_heartbeat(out: &mut dyn Sink, version: &[u8], heartbeat: &Heartbeat) {
    put_bytes(out, 1, version);
    put_text(out, 3, heartbeat.name.as_str());
    put_ttl(out, heartbeat.ttl);
}

fn put_ttl(out: &mut dyn Sink, ttl: Duration) {
    put_message(out, 6, |out| {
        put_number(out, 1, ttl.as_secs());
        put_number(out, 2, ttl.subsec_nanos().into());
    });
}

fn put_resource_name(out: &mut dyn Sink, name: &str, constraints: Option<&[u8]>) {
    put_text(out, 1, name);
    constraints.iter().for_each(|constraints| put_bytes(out, 2, constraints));
}

fn put_error(out: &mut dyn Sink, name: &Name, error: &NamedError) {
    put_message(out, 1, |out| put_resource_name(out, name.as_str(), None));
    put_message(out, 2, |out| {
        put_number(out, 1, error.code as u64);
        put_text(out, 2, &error.message);
    });
}

/// A number in decimal digits, without an allocation.
struct Digits {
    digits: [u8; 20],
    from: usize,
}

impl Digits {
    fn of(mut number: u64) -> Self {
        let (mut digits, mut from) = ([b'0'; 20], 20);
        while from == 20 || number > 0 {
            from -= 1;
            digits[from] = b'0' + (number % 10) as u8;
            number /= 10;
        }
        Self { digits, from }
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.digits[self.from..]).unwrap_or_default()
    }
}

/// The counts of an `Arc`, before its value.
const ARC: usize = 16;
/// The largest payload that HTTP/2 is given at once.
pub(in super::super) const PIECE: usize = 64 << 10;
const WRAPPER_URL: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";

#[cfg(test)]
mod tests {
    use weir_core::xds::WRAPPER_TYPE;

    use super::*;

    #[test]
    fn the_url_of_wrappers_is_that_of_their_type() {
        assert_eq!(WRAPPER_URL, format!("type.googleapis.com/{WRAPPER_TYPE}"));
    }

    #[test]
    fn numbers_are_written_as_everywhere() {
        for number in [0, 1, 9, 10, 1234567890, u64::MAX] {
            assert_eq!(Digits::of(number).text(), number.to_string());
        }
    }
}
