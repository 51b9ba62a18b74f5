//! Encodes replies: a head for each client, and then pieces that clients may share. The whole message never exists at once.

mod compressed;
mod form;
mod message;
mod shared;
mod sink;

use std::sync::Arc;

use bytes::Bytes;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{Reply, Variant};
use weir_core::protocol::view::LeaseProgress;
use weir_core::xds::{Resource, Type};

use crate::compression::{END, START, SharedGzip};
use crate::memory::Charge;

pub(super) use self::compressed::{
    CompressedForms, CompressionClient, FormToCome, LEAST, LIKELY_SAVED, PATIENCE, is_useful, pays,
};
use self::form::CompressedForm;
use self::message::put_own_fields;
pub(super) use self::message::{Message, PIECE};
pub(super) use self::shared::SharedMessages;
use self::shared::{Bearer, SharedMessage};
use self::sink::{Length, Sink};

/// A gRPC message that is being sent to one client.
#[derive(Debug)]
pub(super) struct Outgoing {
    messages: Arc<SharedMessages>,
    message: Arc<SharedMessage>,
    head: Head,
    next: usize,
    progress: Option<LeaseProgress>,
    compressed: Option<Compressed>,
    /// The client's place among those of which one is charged for what the message alone keeps.
    bearer: Option<Bearer>,
}

/// The compressed form of a message, and the end that belongs to one client.
#[derive(Debug)]
struct Compressed {
    form: Arc<CompressedForm>,
    end: [u8; END],
}

/// The bytes before the pieces of a message: the gRPC prefix, the nonce, and the version of a SotW set. In a compressed message, the start of the
/// gzip data goes before the nonce.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    bytes: [u8; HEAD],
    length: usize,
}

impl Outgoing {
    pub(crate) fn new(reply: Reply, variant: Variant, messages: &Arc<SharedMessages>) -> Self {
        let (nonce, version) = (reply.nonce, (variant == Variant::Sotw).then_some(reply.version));
        let progress = reply.progress.clone();
        let message = messages.message(reply, variant);
        let mut own = Length::default();
        put_own_fields(&mut own, nonce, version);
        let mut head = Head::default();
        head.put_prefix(PLAIN, own.0 + message.length);
        put_own_fields(&mut head, nonce, version);
        Self { messages: messages.clone(), message, head, next: 0, progress, compressed: None, bearer: None }
    }

    /// Charges what the message alone keeps, as soon as no other client is charged for it. `charge` makes a charge of no bytes yet.
    pub(crate) fn charge(&mut self, charge: impl FnOnce() -> Option<Charge>) {
        self.bearer = self.message.bear(charge);
    }

    /// Whether the client's connection is charged for what the message alone keeps.
    pub(crate) fn is_charged(&self) -> bool {
        self.bearer.as_ref().is_some_and(Bearer::is_charged)
    }

    /// Sends the compressed form. To be called before the first piece is taken.
    fn compress(&mut self, form: Arc<CompressedForm>) {
        let own = &self.head.bytes()[PREFIX..];
        let start = SharedGzip::start(own.len() as u16); // a few bytes
        let mut head = Head::default();
        head.put_prefix(GZIP, start.len() + own.len() + form.len() + END);
        head.put(&start);
        head.put(own);
        let end = form.end(own);
        self.head = head;
        self.compressed = Some(Compressed { form, end });
    }

    /// Returns the next piece, and before it the head if it is the first one.
    pub(crate) fn next_piece(&mut self) -> (Head, Bytes) {
        self.next += 1;
        let piece = match &self.compressed {
            Some(compressed) => compressed.form.piece(self.next - 1),
            None => self.messages.piece(&self.message, self.next - 1),
        };
        (std::mem::take(&mut self.head), piece)
    }

    pub(crate) fn has_more(&self) -> bool {
        let pieces = self.compressed.as_ref().map_or(self.message.pieces(), |compressed| compressed.form.pieces());
        self.next < pieces
    }

    /// Returns the bytes after the last piece, once that piece was taken.
    pub(crate) fn end(&self) -> Option<[u8; END]> {
        self.compressed.as_ref().filter(|_| !self.has_more()).map(|compressed| compressed.end)
    }

    /// Returns how many bytes the client gets. To be called before the first piece is taken.
    pub(crate) fn bytes(&self) -> usize {
        let shared = self.form().map_or(self.message.length, |(_, length)| length + END);
        self.head.length + shared
    }

    /// Returns the identity of the message and its length. Clients that are sent the same bytes share the message.
    pub(crate) fn message(&self) -> (usize, usize) {
        (Arc::as_ptr(&self.message).addr(), self.message.length)
    }

    /// Returns the identity of the compressed form and its length, if the client gets one.
    pub(crate) fn form(&self) -> Option<(usize, usize)> {
        let form = &self.compressed.as_ref()?.form;
        Some((Arc::as_ptr(form).addr(), form.len()))
    }

    /// Returns the resources that the message keeps alive.
    pub(crate) fn resources(&self) -> (Type, Arc<[Arc<Resource>]>) {
        self.message.message.resources()
    }

    /// Records that the client accepts pieces, so that its snapshot stays leased.
    pub(crate) fn note_progress(&self, now: Moment) {
        self.progress.iter().for_each(|progress| progress.note(now));
    }

    /// Whether other clients get the same bytes.
    pub(crate) fn is_shared(&self) -> bool {
        self.message.is_shared()
    }
}

impl Head {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn put_prefix(&mut self, flag: u8, length: usize) {
        self.put(&[flag]);
        self.put(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    }
}

impl Default for Head {
    fn default() -> Self {
        Self { bytes: [0; HEAD], length: 0 }
    }
}

impl Sink for Head {
    fn put(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        self.bytes[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }
}

/// The gRPC prefix, the start of the gzip data, a nonce of 20 digits and a version of 24, the last two with tag and length.
const HEAD: usize = PREFIX + START + 22 + 26;
const PREFIX: usize = 5;
/// The flag of a message that is not compressed.
const PLAIN: u8 = 0;
/// The flag of a compressed message.
const GZIP: u8 = 1;

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;
    use std::time::Duration;

    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;
    use prost::Message as _;
    use weir_core::proto::{Any, discovery};
    use weir_core::protocol::session::Heartbeat;
    use weir_core::protocol::set_mark::SetMark;
    use weir_core::protocol::view::{Leases, NamedError, Revision, View};
    use weir_core::xds::{BodyStore, ContentHash, Name, SetVersion, TypeTable, WRAPPER_TYPE};

    use super::*;

    const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

    fn wrapper(name: &str, size: usize) -> discovery::Resource {
        let mut value = Vec::new();
        sink::put_text(&mut value, 1, name);
        sink::put_text(&mut value, 9, &"x".repeat(size));
        let any = Any { type_url: CDS.into(), value: value.into() };
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

    /// A slow client keeps the snapshot of its reply leased as long as it reads something.
    #[test]
    fn a_lease_lasts_as_long_as_its_client_accepts_pieces() {
        let millis = |count| Moment::START + Duration::from_millis(count);
        let view = View::new(Arc::new(TypeTable::new()), Arc::default());
        for accepts in [true, false] {
            let mut leases = Leases::new(Arc::default());
            let (lease, _) = leases.take(view.snapshot(), Revision::ZERO, Moment::START);
            let reply = Reply { progress: Some(lease.progress().clone()), ..reply(vec![wrapper("a", 1)]) };
            let outgoing = Outgoing::new(reply, Variant::Delta, &SharedMessages::new("weir"));
            if accepts {
                outgoing.note_progress(millis(900));
            }
            leases.sweep(millis(1500));
            assert_eq!(leases.state(&lease, millis(1500)).is_some(), accepts);
        }
    }

    /// Returns the bytes of a reply. They must not depend on how it is cut into pieces.
    fn encode(reply: Reply, variant: Variant) -> Vec<u8> {
        let message = Message::of(reply.clone(), variant, &"weir".into());
        for size in [1, 7, 100, 65_536] {
            let (length, cuts) = message.measure(size);
            let pieces = cuts.iter().map(|cut| message.write(*cut, size)).collect::<Vec<_>>();
            assert!(pieces.iter().rev().skip(1).all(|piece| piece.len() == size));
            assert_eq!((length, pieces.concat()), (message.to_vec().len(), message.to_vec()));
        }
        let mut outgoing = Outgoing::new(reply, variant, &SharedMessages::new("weir"));
        let mut all = Vec::new();
        while outgoing.has_more() {
            let (head, piece) = outgoing.next_piece();
            assert!(piece.len() <= PIECE);
            all.extend_from_slice(head.bytes());
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
        let bytes = encode(reply(wrappers.clone()), Variant::Delta);
        let read = discovery::DeltaDiscoveryResponse::decode(&*bytes).unwrap();
        assert_eq!((read.nonce.as_str(), read.type_url.as_str()), ("7", CDS));
        assert_eq!(read.removed_resources, ["gone"]);
        assert_eq!(read.control_plane.as_deref(), Some(&b"\x0a\x04weir"[..]), "who has sent it");
        let without_version = |mut resource: discovery::Resource| {
            assert!(resource.version.starts_with("1."));
            resource.version.clear();
            resource
        };
        let resources: Vec<_> = read.resources.into_iter().map(without_version).collect();
        assert_eq!(resources, wrappers);
    }

    #[test]
    fn sotw_49_only_what_needs_a_wrapper_gets_one() {
        let mut aliased = wrapper("b", 5);
        aliased.aliases = vec!["other".into()];
        let bytes = encode(reply(vec![wrapper("a", 300), aliased.clone()]), Variant::Sotw);
        let read = discovery::DiscoveryResponse::decode(&*bytes).unwrap();
        assert_eq!(Some(&read.resources[0]), wrapper("a", 300).resource.as_ref());
        assert!(read.resources[1].type_url.ends_with(WRAPPER_TYPE));
        assert_eq!(discovery::Resource::decode(read.resources[1].value.clone()).unwrap(), aliased);
        let plain = Reply { wrappers: false, ..reply(vec![aliased]) };
        let read = discovery::DiscoveryResponse::decode(&*encode(plain, Variant::Sotw)).unwrap();
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
        let read = discovery::DeltaDiscoveryResponse::decode(&*encode(full(), Variant::Delta)).unwrap();
        let [alive, alias, a] = read.resources.as_slice() else { panic!("{:?}", read.resources) };
        assert_eq!((alive.name.as_str(), &alive.resource, alive.ttl), ("alive", &None, Some(wanted)));
        assert_eq!(alive.version, beat().version.to_string());
        assert_eq!((alias.name.as_str(), alias.aliases.as_slice()), ("r/alias", ["r/alias".to_owned()].as_slice()));
        assert_eq!((alias.resource.is_none(), a.ttl), (true, Some(wanted)));
        let variant = &read.removed_resource_names[0];
        assert_eq!((variant.name.as_str(), variant.dynamic_parameter_constraints.is_some()), ("variant", true));
        let told = |errors: &[discovery::ResourceError]| {
            let (name, status) = (errors[0].resource_name.clone(), errors[0].error_detail.clone());
            name.zip(status).map(|(name, status)| (name.name, status.code, status.message))
        };
        assert_eq!(told(&read.resource_errors), Some(("troubled".into(), 14, "later".into())));

        let read = discovery::DiscoveryResponse::decode(&*encode(full(), Variant::Sotw)).unwrap();
        assert_eq!(told(&read.resource_errors), Some(("troubled".into(), 14, "later".into())));
        let [alive, a] = [0, 1].map(|at| discovery::Resource::decode(read.resources[at].value.clone()).unwrap());
        assert_eq!((alive.version, alive.resource, alive.ttl), (read.version_info, None, Some(wanted)));
        assert_eq!((a.ttl, a.resource.is_some()), (Some(wanted), true));
    }

    /// A change of a reply that its parts may reflect.
    type Change = fn(&mut Reply);

    #[test]
    fn replies_of_equal_parts_are_one_message_and_all_others_are_not() {
        let base = reply(vec![wrapper("a", 300), wrapper("b", 9)]);
        let messages = SharedMessages::new("weir");
        let take = |reply: Reply, variant| Outgoing::new(reply, variant, &messages);
        let is_same = |one: &Outgoing, two: &Outgoing| Arc::ptr_eq(&one.message, &two.message);
        let first = take(base.clone(), Variant::Delta);
        let own: [Change; 3] = [
            |reply| reply.nonce = 8,
            |reply| reply.version = SetVersion::EMPTY,
            |reply| reply.resources = reply.resources.iter().cloned().collect(), // another list with the same resources
        ];
        for change in own {
            let mut other = base.clone();
            change(&mut other);
            assert!(is_same(&first, &take(other, Variant::Delta)));
        }
        let different: [Change; 10] = [
            |reply| reply.resources = reply.resources.iter().rev().cloned().collect(),
            |reply| reply.resources = reply.resources.iter().skip(1).cloned().collect(),
            |reply| reply.removed.clear(),
            |reply| reply.unresolved.push("alias".into()),
            |reply| reply.constrained.push(("variant".into(), Bytes::new())),
            |reply| reply.errors.push(("a".into(), Arc::new(NamedError { code: 1, message: String::new() }))),
            |reply| reply.set_mark = Some(SetMark::Complete),
            |reply| reply.spelling = "type.googleapis.com/other".into(),
            |reply| reply.ttls.push((0, Duration::from_secs(1))),
            |reply| reply.spellings.push((0, "own".into())),
        ];
        for change in different {
            let mut other = base.clone();
            change(&mut other);
            assert!(!is_same(&first, &take(other, Variant::Delta)));
        }
        assert!(!is_same(&first, &take(base, Variant::Sotw)));
    }

    #[test]
    fn threads_that_need_a_message_at_once_are_given_the_same_one() {
        let messages = SharedMessages::new("weir");
        let all = reply((0..500).map(|number| wrapper(&number.to_string(), 9)).collect());
        let together = Barrier::new(4);
        for round in 0..100 {
            let reply = Reply { removed: vec![round.to_string().into()], ..all.clone() };
            let take = || {
                together.wait();
                Outgoing::new(reply.clone(), Variant::Delta, &messages)
            };
            let made: Vec<_> = thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let is_one = made.iter().all(|outgoing| Arc::ptr_eq(&outgoing.message, &made[0].message));
            assert!(is_one && made[0].is_shared(), "round {round}");
        }
    }

    /// The parts of a reply: everything in which the replies of two clients may differ.
    #[derive(Debug, Clone)]
    struct Parts {
        delta: bool,
        resources: Vec<usize>,
        removed: Vec<usize>,
        /// What the reply has beside its resources, if anything.
        extra: u8,
        /// The resource in the middle of a long list.
        middle: Option<usize>,
        wrappers: bool,
        nonce: u64,
    }

    fn parts() -> impl Strategy<Value = Parts> {
        let some = || proptest::collection::vec(0..3_usize, 0..3);
        // Few replies differ in more than one respect, because a wrong comparison confuses those that are almost equal.
        let middle = proptest::option::weighted(0.3, 0..3_usize);
        (any::<bool>(), some(), some(), 0..16_u8, middle, any::<bool>(), 0..3_u64).prop_map(
            |(delta, resources, removed, extra, middle, wrappers, nonce)| Parts {
                delta,
                resources: if middle.is_some() { vec![0] } else { resources },
                removed: if extra > 0 { Vec::new() } else { removed },
                extra,
                middle,
                wrappers,
                nonce,
            },
        )
    }

    fn made(parts: &Parts, all: &[Arc<Resource>]) -> Reply {
        const NAMES: [&str; 3] = ["a", "b", "gone"];
        let first = parts.resources.first().map(|_| 0);
        let mut reply = reply(Vec::new());
        let mut resources = parts.resources.clone();
        if let Some(middle) = parts.middle {
            resources = [[0; 12].as_slice(), &[middle], &[0; 12]].concat();
        }
        reply.resources = resources.into_iter().map(|at| all[at].clone()).collect();
        reply.removed = parts.removed.iter().map(|at| NAMES[*at].into()).collect();
        (reply.wrappers, reply.nonce) = (parts.wrappers, parts.nonce);
        let error = |message: &str| ("a".into(), Arc::new(NamedError { code: 14, message: message.into() }));
        match parts.extra {
            1 => reply.ttls.extend(first.map(|at| (at, Duration::from_secs(9)))),
            2 => reply.spellings.extend(first.map(|at| (at, "own".into()))),
            3 => reply.errors.push(error("later")),
            4 => reply.errors.push(error("never")),
            5 => reply.unresolved.push("r/alias".into()),
            6 => reply.unresolved.push("r/other".into()),
            7 => reply.constrained.push(("b".into(), Bytes::from_static(b"\x0a\x00"))),
            8 => reply.constrained.push(("b".into(), Bytes::from_static(b"\x12\x00"))),
            9 => reply.set_mark = Some(SetMark::Complete),
            _ => {}
        }
        reply
    }

    fn sent(outgoing: &mut Outgoing) -> Vec<u8> {
        let mut all = Vec::new();
        while outgoing.has_more() {
            let (head, piece) = outgoing.next_piece();
            all.extend_from_slice(head.bytes());
            all.extend_from_slice(&piece);
        }
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..Default::default() })]

        /// I2: a client is sent the same bytes as if it were alone, whatever other clients are sent at the time.
        #[test]
        fn i2_no_client_is_sent_the_bytes_of_a_reply_that_differs(all in proptest::collection::vec(parts(), 1..40)) {
            let mut aliased = wrapper("b", 3);
            aliased.aliases = vec!["other".into()];
            let resources = reply(vec![wrapper("a", 3), wrapper("a", 4), aliased]).resources;
            let messages = SharedMessages::new("weir");
            let variant = |parts: &Parts| if parts.delta { Variant::Delta } else { Variant::Sotw };
            let mut together: Vec<_> =
                all.iter().map(|parts| Outgoing::new(made(parts, &resources), variant(parts), &messages)).collect();
            for (parts, outgoing) in all.iter().zip(&mut together) {
                let mut alone = Outgoing::new(made(parts, &resources), variant(parts), &SharedMessages::new("weir"));
                prop_assert_eq!(sent(outgoing), sent(&mut alone), "{:?}", parts);
            }
        }
    }
}
