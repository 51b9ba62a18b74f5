//! Replies on the wire: a head, then one entry after another, copied out in pieces. The whole message never exists at once.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use crate::protocol::session::{Reply, Variant};
use crate::protocol::view::NamedError;
use crate::xds::{Name, Resource, WRAPPER_TYPE};

/// A gRPC message on its way out.
#[derive(Debug)]
pub(crate) struct Encoder {
    reply: Reply,
    variant: Variant,
    /// Tags, lengths and small fields that come before the next body.
    head: BytesMut,
    /// The body that is being copied.
    body: Bytes,
    next: usize,
}

impl Encoder {
    pub(crate) fn new(reply: Reply, variant: Variant, control_plane: &str) -> Self {
        let mut start = BytesMut::new();
        write_start(&mut start, &reply, variant, control_plane);
        let entries = (0..reply.resources.len()).map(|at| entry(at, &reply, variant).len());
        let length = start.len() + entries.sum::<usize>();
        let mut head = BytesMut::with_capacity(start.len() + 5);
        head.put_u8(0); // not compressed
        head.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        head.extend_from_slice(&start);
        Self { reply, variant, head, body: Bytes::new(), next: 0 }
    }

    /// Returns the next piece, at most `limit` long; `None` at the end.
    pub(crate) fn next_piece(&mut self, limit: usize) -> Option<Bytes> {
        let mut piece = BytesMut::new();
        loop {
            let room = limit - piece.len();
            if !self.head.is_empty() {
                piece.extend_from_slice(&self.head.split_to(room.min(self.head.len())));
            } else if !self.body.is_empty() {
                piece.extend_from_slice(&self.body.split_to(room.min(self.body.len())));
            } else if let Some(resource) = self.reply.resources.get(self.next) {
                let entry = entry(self.next, &self.reply, self.variant);
                (self.head, self.body) = (entry.head, resource.body.bytes().clone());
                self.next += 1;
            } else {
                break;
            }
            if piece.len() == limit {
                break;
            }
        }
        (!piece.is_empty()).then(|| piece.freeze())
    }
}

/// Everything of an entry except its body, which comes last.
struct Entry {
    head: BytesMut,
    body: usize,
}

impl Entry {
    fn len(&self) -> usize {
        self.head.len() + self.body
    }
}

fn write_start(out: &mut BytesMut, reply: &Reply, variant: Variant, control_plane: &str) {
    let identifier = string_field(1, control_plane);
    match variant {
        Variant::Sotw => {
            put_string(out, 1, &reply.version.to_string());
            put_string(out, 4, &reply.spelling);
            put_string(out, 5, &reply.nonce.to_string());
            put_bytes(out, 6, &identifier);
            for heartbeat in &reply.heartbeats {
                // At the version that the client accepted last, which is how it knows a heartbeat (DELTA-47, EV).
                let mut wrapper = BytesMut::new();
                put_string(&mut wrapper, 1, &reply.version.to_string());
                put_string(&mut wrapper, 3, heartbeat.name.as_str());
                put_ttl(&mut wrapper, heartbeat.ttl);
                let mut any = string_field(1, &format!("type.googleapis.com/{WRAPPER_TYPE}"));
                put_bytes(&mut any, 2, &wrapper);
                put_bytes(out, 2, &any);
            }
            reply.errors.iter().for_each(|(name, error)| put_bytes(out, 7, &resource_error(name, error)));
        }
        Variant::Delta => {
            reply.set_mark.iter().for_each(|mark| put_string(out, 1, mark.text()));
            put_string(out, 4, &reply.spelling);
            put_string(out, 5, &reply.nonce.to_string());
            reply.removed.iter().for_each(|name| put_string(out, 6, name.as_str()));
            put_bytes(out, 7, &identifier);
            for heartbeat in &reply.heartbeats {
                let mut wrapper = string_field(1, &heartbeat.version.to_string());
                put_string(&mut wrapper, 3, heartbeat.name.as_str());
                put_ttl(&mut wrapper, heartbeat.ttl);
                put_bytes(out, 2, &wrapper);
            }
            for alias in &reply.unresolved {
                let mut wrapper = string_field(3, alias.as_str());
                put_string(&mut wrapper, 4, alias.as_str());
                put_bytes(out, 2, &wrapper);
            }
            for (name, constraints) in &reply.constrained {
                put_bytes(out, 8, &resource_name(name.as_str(), Some(constraints)));
            }
            reply.errors.iter().for_each(|(name, error)| put_bytes(out, 9, &resource_error(name, error)));
        }
    }
}

fn resource_name(name: &str, constraints: Option<&Bytes>) -> BytesMut {
    let mut out = string_field(1, name);
    constraints.iter().for_each(|constraints| put_bytes(&mut out, 2, constraints));
    out
}

fn resource_error(name: &Name, error: &NamedError) -> BytesMut {
    let mut out = BytesMut::new();
    put_bytes(&mut out, 1, &resource_name(name.as_str(), None));
    let mut status = BytesMut::new();
    put_number(&mut status, 1, error.code as u64);
    put_string(&mut status, 2, &error.message);
    put_bytes(&mut out, 2, &status);
    out
}

fn put_ttl(out: &mut BytesMut, ttl: Duration) {
    let mut duration = BytesMut::new();
    put_number(&mut duration, 1, ttl.as_secs());
    put_number(&mut duration, 2, ttl.subsec_nanos().into());
    put_bytes(out, 6, &duration);
}

fn entry(at: usize, reply: &Reply, variant: Variant) -> Entry {
    let resource = &reply.resources[at];
    let ttl = reply.ttls.binary_search_by_key(&at, |(at, _)| *at).ok().map(|found| reply.ttls[found].1);
    let spelt = reply.spellings.binary_search_by_key(&at, |(at, _)| *at).ok().map(|found| &*reply.spellings[found].1);
    let name = spelt.unwrap_or(resource.name.as_str());
    let body = resource.body.bytes().len();
    let mut any = BytesMut::new();
    put_string(&mut any, 1, &reply.spelling);
    put_length(&mut any, 2, body);
    let any_len = any.len() + body;
    let mut head = BytesMut::new();
    match variant {
        Variant::Sotw if reply.wraps(resource, ttl) => {
            let wrapper = wrapper_fields(resource, name, None, ttl);
            let wrapper_len = wrapper.len() + length_len(2, any_len) + any_len;
            let mut outer = BytesMut::new();
            put_string(&mut outer, 1, &format!("type.googleapis.com/{WRAPPER_TYPE}"));
            put_length(&mut outer, 2, wrapper_len);
            put_length(&mut head, 2, outer.len() + wrapper_len);
            head.extend_from_slice(&outer);
            head.extend_from_slice(&wrapper);
            put_length(&mut head, 2, any_len);
        }
        Variant::Sotw => put_length(&mut head, 2, any_len),
        Variant::Delta => {
            let fields = wrapper_fields(resource, name, Some(resource.full.to_string()), ttl);
            put_length(&mut head, 2, fields.len() + length_len(2, any_len) + any_len);
            head.extend_from_slice(&fields);
            put_length(&mut head, 2, any_len);
        }
    }
    head.extend_from_slice(&any);
    Entry { head, body }
}

/// The fields of `discovery.v3.Resource` without the resource itself.
fn wrapper_fields(resource: &Resource, name: &str, version: Option<String>, ttl: Option<Duration>) -> BytesMut {
    let mut out = BytesMut::new();
    version.iter().for_each(|version| put_string(&mut out, 1, version));
    match resource.constraints() {
        None => put_string(&mut out, 3, name),
        // One of the two fields holds the name, never both (WIRE-4).
        Some(constraints) => put_bytes(&mut out, 8, &resource_name(name, Some(constraints))),
    }
    ttl.iter().for_each(|ttl| put_ttl(&mut out, *ttl));
    resource.aliases().iter().for_each(|alias| put_string(&mut out, 4, alias.as_str()));
    if resource.do_not_cache() {
        put_bytes(&mut out, 7, &[0x08, 0x01]);
    }
    resource.metadata().iter().for_each(|metadata| put_bytes(&mut out, 9, metadata));
    out
}

fn string_field(field: u32, text: &str) -> BytesMut {
    let mut out = BytesMut::new();
    put_string(&mut out, field, text);
    out
}

fn put_string(out: &mut BytesMut, field: u32, text: &str) {
    put_bytes(out, field, text.as_bytes());
}

fn put_bytes(out: &mut BytesMut, field: u32, bytes: &[u8]) {
    put_length(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_number(out: &mut BytesMut, field: u32, number: u64) {
    encode_key(field, WireType::Varint, out);
    encode_varint(number, out);
}

fn put_length(out: &mut BytesMut, field: u32, length: usize) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(length as u64, out);
}

fn length_len(field: u32, length: usize) -> usize {
    key_len(field) + encoded_len_varint(length as u64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prost::Message;

    use super::*;
    use crate::proto::{Any, discovery};
    use crate::protocol::session::reply::Heartbeat;
    use crate::xds::{BodyStore, ContentHash, TypeTable};

    const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

    fn wrapper(name: &str, size: usize) -> discovery::Resource {
        let mut value = string_field(1, name);
        value.extend(string_field(9, &"x".repeat(size)));
        let any = Any { type_url: CDS.into(), value: value.freeze() };
        discovery::Resource { name: name.into(), resource: Some(any), ..Default::default() }
    }

    fn reply(wrappers: Vec<discovery::Resource>) -> Reply {
        let kind = TypeTable::new().resolve(CDS);
        let store = BodyStore::default();
        let resources = wrappers
            .into_iter()
            .map(|wrapper| Arc::new(Resource::from_wrapper(0, wrapper, &kind, &store).unwrap()))
            .collect();
        Reply { removed: vec!["gone".into()], ..Reply::sample(kind, resources) }
    }

    fn encode(reply: Reply, variant: Variant, limit: usize) -> Vec<u8> {
        let mut encoder = Encoder::new(reply, variant, "weir");
        let mut all = Vec::new();
        while let Some(piece) = encoder.next_piece(limit) {
            assert!(piece.len() <= limit);
            all.extend_from_slice(&piece);
        }
        let length = u32::from_be_bytes(all[1..5].try_into().unwrap()) as usize;
        assert_eq!((all[0], length), (0, all.len() - 5), "the prefix tells the length");
        all.split_off(5)
    }

    #[test]
    fn a_delta_reply_reads_back_as_it_was_in_pieces_of_any_size() {
        let mut aliased = wrapper("b", 0);
        aliased.aliases = vec!["other".into()];
        aliased.metadata = Some(Bytes::from_static(b"\x0a\x03\x0a\x01k"));
        aliased.cache_control = Some(discovery::resource::CacheControl { do_not_cache: true });
        let wrappers = vec![wrapper("a", 300), aliased.clone(), wrapper("c", 70_000)];
        for limit in [1, 7, 100, 65_536] {
            let bytes = encode(reply(wrappers.clone()), Variant::Delta, limit);
            let read = discovery::DeltaDiscoveryResponse::decode(&*bytes).unwrap();
            assert_eq!((read.nonce.as_str(), read.type_url.as_str()), ("7", CDS));
            assert_eq!(read.removed_resources, ["gone"]);
            let without_version = |mut resource: discovery::Resource| {
                assert!(resource.version.starts_with("1."));
                resource.version.clear();
                resource
            };
            let resources: Vec<_> = read.resources.into_iter().map(without_version).collect();
            assert_eq!(resources, wrappers);
        }
    }

    #[test]
    fn sotw_49_only_what_needs_a_wrapper_gets_one() {
        let mut aliased = wrapper("b", 5);
        aliased.aliases = vec!["other".into()];
        let bytes = encode(reply(vec![wrapper("a", 300), aliased.clone()]), Variant::Sotw, 64);
        let read = discovery::DiscoveryResponse::decode(&*bytes).unwrap();
        assert_eq!(Some(&read.resources[0]), wrapper("a", 300).resource.as_ref());
        assert!(read.resources[1].type_url.ends_with(WRAPPER_TYPE));
        assert_eq!(discovery::Resource::decode(read.resources[1].value.clone()).unwrap(), aliased);
        let plain = Reply { wrappers: false, ..reply(vec![aliased]) };
        let read = discovery::DiscoveryResponse::decode(&*encode(plain, Variant::Sotw, 64)).unwrap();
        assert_eq!(read.resources[0].type_url, CDS, "a client that cannot read wrappers gets none");
    }

    #[test]
    fn delta_39_delta_46_and_delta_49_what_goes_beside_resources_reads_back() {
        let name = |name: &str| Name::from(name);
        let error = Arc::new(NamedError { code: 14, message: "later".into() });
        let ttl = Duration::from_millis(90_500);
        let beat = || Heartbeat { name: name("alive"), version: ContentHash::of_body("t", b""), ttl };
        let full = || Reply {
            ttls: vec![(0, ttl)],
            heartbeats: vec![beat()],
            constrained: vec![(name("variant"), Bytes::from_static(b"\x0a\x00"))],
            unresolved: vec![name("r/alias")],
            errors: vec![(name("troubled"), error.clone())],
            ..reply(vec![wrapper("a", 3)])
        };
        let wanted = prost_types::Duration { seconds: 90, nanos: 500_000_000 };
        let read = discovery::DeltaDiscoveryResponse::decode(&*encode(full(), Variant::Delta, 10)).unwrap();
        let [alive, alias, a] = read.resources.as_slice() else { panic!("{:?}", read.resources) };
        assert_eq!((alive.name.as_str(), &alive.resource, alive.ttl), ("alive", &None, Some(wanted)));
        assert_eq!(alive.version, beat().version.to_string());
        assert_eq!((alias.name.as_str(), alias.aliases.as_slice()), ("r/alias", ["r/alias".to_owned()].as_slice()));
        assert_eq!((alias.resource.is_none(), a.ttl), (true, Some(wanted)));
        let variant = &read.removed_resource_names[0];
        assert_eq!((variant.name.as_str(), variant.dynamic_parameter_constraints.is_some()), ("variant", true));
        let sent = |errors: &[discovery::ResourceError]| {
            let (name, status) = (errors[0].resource_name.clone(), errors[0].error_detail.clone());
            name.zip(status).map(|(name, status)| (name.name, status.code, status.message))
        };
        assert_eq!(sent(&read.resource_errors), Some(("troubled".into(), 14, "later".into())));

        let read = discovery::DiscoveryResponse::decode(&*encode(full(), Variant::Sotw, 10)).unwrap();
        assert_eq!(sent(&read.resource_errors), Some(("troubled".into(), 14, "later".into())));
        let [alive, a] = [0, 1].map(|at| discovery::Resource::decode(read.resources[at].value.clone()).unwrap());
        assert_eq!((alive.version, alive.resource, alive.ttl), (read.version_info, None, Some(wanted)));
        assert_eq!((a.ttl, a.resource.is_some()), (Some(wanted), true));
    }
}
