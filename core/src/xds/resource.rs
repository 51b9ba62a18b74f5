//! One named resource: an opaque body, byte for byte as the server sent it, and its wrapper fields.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;

use super::body::Body;
use super::metadata;
use super::name::Name;
use super::references::referred;
use super::store::BodyStore;
use super::types::{BodyType, Type, WRAPPER_TYPE};
use super::version::ContentHash;
use super::wire;
use crate::proto::{Any, discovery};

/// A cached resource. Two resources are equal for clients of unwrapped SotW if their bodies are, and for all clients if their `full` hashes
/// are. The TTL is in neither (I5).
#[derive(Debug, Clone)]
pub struct Resource {
    /// The name under which the resource was sent.
    pub name: Name,
    /// The body, shared by all resources with the same bytes.
    pub body: Arc<Body>,
    /// The hash of everything that a client receives of the resource: its version in delta.
    pub full: ContentHash,
    pub(crate) ttl: Option<Duration>,
    /// The resource that this one makes a client request next: the endpoints of a cluster, the virtual hosts of a route.
    pub refers_to: Option<Name>,
    /// The body contains another name, so only the wrapper can carry the name (TYPE-10).
    pub(crate) name_mismatch: bool,
    beside: Option<Box<WrapperFields>>,
}

/// Fields that most resources do not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct WrapperFields {
    aliases: Vec<Name>,
    metadata: Option<Bytes>,
    constraints: Option<Bytes>,
    do_not_cache: bool,
}

/// Why a resource is rejected (UP-22). The text goes upstream in the NACK.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the text of each says what its fields are
pub enum Malformed {
    #[error("resource {index}: type {found} in a response of {expected}")]
    ForeignType { index: usize, name: Option<Name>, found: String, expected: String },
    #[error("resource {index}: no name")]
    Nameless { index: usize },
    #[error("resource {index}: not a readable wrapper")]
    Wrapper { index: usize },
    #[error("resource {index}: no body")]
    Bodyless { index: usize, name: Option<Name>, version: String, ttl: Option<Duration> },
    #[error("{name}: named twice")]
    Duplicate { name: Name },
    #[error("{name}: both sent and removed")]
    SentAndRemoved { name: Name },
    #[error("{name}: an error that says {why}")]
    Error { name: Name, why: &'static str },
    #[error("{name}: no room for its {bytes} bytes: {why}")]
    NoRoom { name: Name, bytes: usize, why: Arc<str> },
}

impl Malformed {
    /// Returns the name of the resource if it is known: the resource exists, but is unusable (UP-25).
    pub fn name(&self) -> Option<&Name> {
        match self {
            Self::ForeignType { name, .. } | Self::Bodyless { name, .. } => name.as_ref(),
            Self::Duplicate { name } | Self::SentAndRemoved { name } => Some(name),
            Self::Error { name, .. } | Self::NoRoom { name, .. } => Some(name),
            Self::Nameless { .. } | Self::Wrapper { .. } => None,
        }
    }
}

impl Resource {
    /// Returns the hash of the resource's body.
    pub fn content(&self) -> ContentHash {
        self.body.hash()
    }

    /// Whether the two resources are equal for every client.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.name, self.full, self.ttl) == (&other.name, other.full, other.ttl)
    }

    /// Returns the wrapper field by which clients could tell two resources apart, if there is one. It compares what [`Self::is_same`]
    /// compares, except name and body.
    pub fn differs_beside(&self, other: &Self) -> Option<&'static str> {
        let aliases = |of: &Self| of.aliases().iter().cloned().collect::<BTreeSet<_>>();
        let in_any_order = |of: &Self| of.metadata().map(|encoded| metadata::canonical(encoded));
        let fields = [
            ("aliases", aliases(self) != aliases(other)),
            ("ttl", self.ttl != other.ttl),
            ("metadata", in_any_order(self) != in_any_order(other)),
            ("constraints", self.constraints() != other.constraints()),
            ("do_not_cache", self.do_not_cache() != other.do_not_cache()),
        ];
        fields.into_iter().find(|(_, differs)| *differs).map(|(field, _)| field)
    }

    /// Returns the same resource with another TTL.
    pub fn with_ttl(&self, ttl: Option<Duration>) -> Self {
        Self { ttl, ..self.clone() }
    }

    /// Returns all other names of the resource, whether they were requested or not.
    pub fn aliases(&self) -> &[Name] {
        self.beside.as_ref().map_or(&[], |beside| &beside.aliases)
    }

    /// Returns the encoded metadata of the resource's wrapper.
    pub fn metadata(&self) -> Option<&Bytes> {
        self.beside.as_ref()?.metadata.as_ref()
    }

    /// Returns the encoded `DynamicParameterConstraints`, which are passed on unread.
    pub fn constraints(&self) -> Option<&Bytes> {
        self.beside.as_ref()?.constraints.as_ref()
    }

    /// Whether the server wants the resource to be sent only to clients that wait for it.
    pub fn do_not_cache(&self) -> bool {
        self.beside.as_ref().is_some_and(|beside| beside.do_not_cache)
    }

    /// Returns the wrapper that the resource would have in a delta response, without version and without the bytes of its body. The type URL of
    /// the body is kept if it differs from the type. [`Self::from_wrapper`] reads the result.
    pub fn wrapper_without_body(&self) -> discovery::Resource {
        let name = self.name.as_str().to_owned();
        let constraints = self.constraints().map(|bytes| discovery::ResourceName {
            name: name.clone(),
            dynamic_parameter_constraints: Some(bytes.to_vec().into()),
        });
        discovery::Resource {
            aliases: self.aliases().iter().map(|alias| alias.as_str().to_owned()).collect(),
            ttl: self.ttl.and_then(|ttl| prost_types::Duration::try_from(ttl).ok()),
            cache_control: self.do_not_cache().then_some(discovery::resource::CacheControl { do_not_cache: true }),
            resource_name: constraints,
            metadata: self.metadata().cloned(),
            resource: self.body.type_url().map(|url| Any { type_url: url.to_owned(), value: Bytes::new() }),
            name,
            ..Default::default()
        }
    }

    /// Reads one entry of a SotW response, with or without a wrapper (UP-29, XLAT-25).
    pub fn from_sotw(index: usize, any: Any, kind: &Type, store: &BodyStore) -> Result<Self, Malformed> {
        if Type::message_name(&any.type_url) == WRAPPER_TYPE {
            let wrapper = discovery::Resource::decode(any.value).map_err(|_| Malformed::Wrapper { index })?;
            return Self::from_wrapper(index, wrapper, kind, store);
        }
        Self::bare(index, &any.type_url, &any.value, kind, store)
    }

    /// Reads one entry of a SotW response without a wrapper.
    pub(crate) fn bare(
        index: usize,
        type_url: &str,
        body: &[u8],
        kind: &Type,
        store: &BodyStore,
    ) -> Result<Self, Malformed> {
        let own_url = own_url(index, None, type_url, kind)?;
        let name = name_of_entry(kind, None, type_url, body).ok_or(Malformed::Nameless { index })?;
        Ok(Self::assemble(name, own_url, body, kind, None, None, store))
    }

    /// Reads one entry of a delta response. The name in the wrapper takes precedence over the one in the body (TYPE-10).
    pub fn from_wrapper(
        index: usize,
        wrapper: discovery::Resource,
        kind: &Type,
        store: &BodyStore,
    ) -> Result<Self, Malformed> {
        let name = wrapper_name(&wrapper);
        let name = if wrapper.resource.is_none() { name.or_else(|| kind.unnamed()) } else { name };
        let ttl = wrapper.ttl.and_then(|ttl| Duration::try_from(ttl).ok());
        let Some(any) = wrapper.resource else {
            return Err(Malformed::Bodyless { index, name, version: wrapper.version, ttl });
        };
        let own_url = own_url(index, name.as_ref(), &any.type_url, kind)?;
        let name = name_of_entry(kind, name, &any.type_url, &any.value).ok_or(Malformed::Nameless { index })?;
        let beside = WrapperFields {
            aliases: wrapper.aliases.iter().map(|alias| Name::canonical(alias)).collect(),
            metadata: wrapper.metadata.map(|bytes| Bytes::copy_from_slice(&bytes)),
            constraints: wrapper
                .resource_name
                .and_then(|name| name.dynamic_parameter_constraints)
                .map(|bytes| Bytes::copy_from_slice(&bytes)),
            do_not_cache: wrapper.cache_control.is_some_and(|control| control.do_not_cache),
        };
        let beside = (beside != WrapperFields::default()).then(|| Box::new(beside));
        Ok(Self::assemble(name, own_url, &any.value, kind, beside, ttl, store))
    }

    fn assemble(
        name: Name,
        own_url: Option<&str>,
        bytes: &[u8],
        kind: &Type,
        beside: Option<Box<WrapperFields>>,
        ttl: Option<Duration>,
        store: &BodyStore,
    ) -> Self {
        let body = store.intern_as(kind, own_url, bytes);
        let full = beside.as_ref().map_or(body.hash(), |beside| beside.hashed_with(body.hash()));
        let refers_to = referred(kind.info().references, name.as_str(), bytes);
        let is_read = kind.info().name_field.is_some() && own_url.is_none();
        let name_mismatch = is_read && !is_named(kind, bytes, &name);
        Self { name, body, full, ttl, refers_to, name_mismatch, beside }
    }
}

impl WrapperFields {
    fn hashed_with(&self, body: ContentHash) -> ContentHash {
        let mut aliases: Vec<_> = self.aliases.iter().map(|name| name.as_str().as_bytes()).collect();
        aliases.sort_unstable();
        aliases.dedup();
        let metadata = self.metadata.as_deref().map(metadata::canonical).unwrap_or_default();
        let constraints = self.constraints.as_deref().unwrap_or_default();
        let flags = [u8::from(self.do_not_cache)];
        body.with([&flags, &*metadata, constraints].into_iter().chain(aliases))
    }
}

/// Returns the name, which may be in either of two fields (WIRE-4).
pub(crate) fn wrapper_name(wrapper: &discovery::Resource) -> Option<Name> {
    let long = wrapper.resource_name.as_ref().map(|name| &name.name);
    [Some(&wrapper.name), long].into_iter().flatten().find(|name| !name.is_empty()).map(|name| Name::canonical(name))
}

/// Returns the name of an entry of a response or a file: the one beside it, or else the one in its body. It is empty for a type that may have
/// one resource without a name.
pub fn name_of_entry(kind: &Type, beside: Option<Name>, type_url: &str, body: &[u8]) -> Option<Name> {
    let in_body = || match kind.body_of(type_url) {
        BodyType::Own => wire::last_text(body, kind.info().name_field?),
        // Istiod wraps its own configuration in an envelope that has the name in its field `metadata`.
        BodyType::Other if Type::message_name(type_url) == ISTIOS_ENVELOPE => {
            wire::last_text(wire::last_bytes(body, 1)?, 1)
        }
        BodyType::Other | BodyType::Foreign => None,
    };
    beside.or_else(|| in_body().map(Name::canonical)).or_else(|| kind.unnamed())
}

const ISTIOS_ENVELOPE: &str = "istio.mcp.v1alpha1.Resource";

fn is_named(kind: &Type, body: &[u8], name: &Name) -> bool {
    let own = kind.info().name_field.and_then(|field| wire::last_text(body, field));
    own.is_some_and(|own| own == name.as_str() || Name::canonical(own) == *name)
}

/// Returns the type URL of a body if it differs from the type of the response.
fn own_url<'u>(
    index: usize,
    name: Option<&Name>,
    type_url: &'u str,
    kind: &Type,
) -> Result<Option<&'u str>, Malformed> {
    match kind.body_of(type_url) {
        BodyType::Own => Ok(None),
        BodyType::Other => Ok(Some(type_url)),
        BodyType::Foreign => Err(Malformed::ForeignType {
            index,
            name: name.cloned(),
            found: Type::message_name(type_url).into(),
            expected: kind.name().into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::TypeTable;

    const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

    fn wrapper(change: impl FnOnce(&mut discovery::Resource)) -> discovery::Resource {
        let any = Any { type_url: CLUSTER.into(), value: Bytes::from_static(b"\x0a\x01c") };
        let mut wrapper = discovery::Resource { name: "c".into(), resource: Some(any), ..Default::default() };
        change(&mut wrapper);
        wrapper
    }

    fn read(change: impl FnOnce(&mut discovery::Resource)) -> Result<Resource, Malformed> {
        let kind = TypeTable::new().resolve(CLUSTER);
        Resource::from_wrapper(0, wrapper(change), &kind, &BodyStore::default())
    }

    #[test]
    fn xlat_2_everything_a_delta_client_sees_is_in_the_full_hash_and_a_ttl_is_not() {
        let plain = read(|_| {}).unwrap();
        assert_eq!(plain.full, plain.content());
        let same = read(|w| w.ttl = Some(prost_types::Duration { seconds: 9, nanos: 0 })).unwrap();
        assert_eq!((same.full, same.ttl), (plain.full, Some(Duration::from_secs(9))));
        let aliased = read(|w| w.aliases = vec!["a".into(), "b".into()]).unwrap();
        assert_eq!(aliased.content(), plain.content());
        assert_ne!(aliased.full, plain.full);
        assert_eq!(aliased.full, read(|w| w.aliases = vec!["b".into(), "a".into()]).unwrap().full);
        let held = read(|w| w.cache_control = Some(discovery::resource::CacheControl { do_not_cache: true })).unwrap();
        assert!(held.do_not_cache() && held.full != plain.full);
        let metadata = read(|w| w.metadata = Some(Bytes::from_static(b"\x0a\x03\x0a\x01k"))).unwrap();
        assert_ne!(metadata.full, plain.full);
        let fields = [&same, &aliased, &held, &metadata, &plain].map(|other| plain.differs_beside(other));
        assert_eq!(fields, [Some("ttl"), Some("aliases"), Some("do_not_cache"), Some("metadata"), None]);
    }

    #[test]
    fn metadata_is_equal_in_any_map_order() {
        let (one, two) = (b"\x0a\x03\x0a\x01a", b"\x0a\x03\x0a\x01b");
        let forward = read(|w| w.metadata = Some([one.as_slice(), two].concat().into())).unwrap();
        let backward = read(|w| w.metadata = Some([two.as_slice(), one].concat().into())).unwrap();
        assert_eq!(forward.full, backward.full);
        assert_ne!(forward.metadata(), backward.metadata(), "the bytes themselves pass unchanged");
        assert_eq!(forward.differs_beside(&backward), None);
    }

    #[test]
    fn wire_4_the_name_may_stand_in_either_field() {
        let long = discovery::ResourceName { name: "long".into(), dynamic_parameter_constraints: None };
        let named = read(|w| (w.name, w.resource_name) = (String::new(), Some(long))).unwrap();
        assert_eq!(named.name.as_str(), "long");
    }

    #[test]
    fn up_22_what_cannot_be_a_resource_says_why() {
        let bodyless = read(|w| w.resource = None).unwrap_err();
        assert!(matches!(&bodyless, Malformed::Bodyless { index: 0, name: Some(name), .. } if name.as_str() == "c"));
        let foreign = read(|w| w.resource.as_mut().unwrap().type_url = "x/y.Z".into()).unwrap_err();
        assert!(matches!(foreign, Malformed::ForeignType { .. }));
        let nameless = read(|w| {
            w.name.clear();
            w.resource.as_mut().unwrap().value = Bytes::new();
        });
        assert_eq!(nameless.unwrap_err(), Malformed::Nameless { index: 0 });
    }

    #[test]
    fn type_4_a_nameless_type_takes_its_name_from_the_wrapper_and_is_rejected_without() {
        let url = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpointCollection";
        let kind = TypeTable::new().resolve(url);
        let bare = Any { type_url: url.into(), value: Bytes::new() };
        let store = BodyStore::default();
        let rejected = Resource::from_sotw(3, bare.clone(), &kind, &store).unwrap_err();
        assert_eq!(rejected, Malformed::Nameless { index: 3 });
        let wrapped = discovery::Resource { name: "l".into(), resource: Some(bare), ..Default::default() };
        let any =
            Any { type_url: format!("type.googleapis.com/{WRAPPER_TYPE}"), value: wrapped.encode_to_vec().into() };
        assert_eq!(Resource::from_sotw(0, any, &kind, &store).unwrap().name.as_str(), "l");
    }

    #[test]
    fn type_4_the_one_resource_of_a_type_without_names_has_the_empty_name() {
        let url = "type.googleapis.com/istio.networking.nds.v1.NameTable";
        let (kind, store) = (TypeTable::new().resolve(url), BodyStore::default());
        let bare = Any { type_url: url.into(), value: Bytes::from_static(b"\x0a\x01c") };
        let one = Resource::from_sotw(0, bare.clone(), &kind, &store).unwrap();
        let wrapped = discovery::Resource { resource: Some(bare), ..Default::default() };
        let other = Resource::from_wrapper(0, wrapped, &kind, &store).unwrap();
        assert!(one.is_same(&other) && one.name.as_str().is_empty() && one.full == one.content());
        let bodyless = Resource::from_wrapper(0, discovery::Resource::default(), &kind, &store).unwrap_err();
        assert_eq!(bodyless.name(), Some(&Name::from("")));
    }

    #[test]
    fn a_body_of_another_type_keeps_its_url_under_a_type_that_is_known_by_its_whole_url() {
        let kind = TypeTable::new().resolve("networking.istio.io/v1/ServiceEntry");
        let (store, envelope) = (BodyStore::default(), "type.googleapis.com/istio.mcp.v1alpha1.Resource");
        let any = |url: &str| Any { type_url: url.into(), value: Bytes::from_static(b"\x0a\x05\x0a\x03n/e\x12\x01b") };
        let bare = |url: &str| Resource::from_sotw(0, any(url), &kind, &store);
        let entry = bare(envelope).unwrap();
        assert_eq!((entry.name.as_str(), entry.body.type_url()), ("n/e", Some(envelope)));
        assert!(!entry.name_mismatch && entry.full == entry.content(), "it needs no wrapper");
        assert_eq!(bare("a/other.Type").unwrap_err(), Malformed::Nameless { index: 0 });
        let wrapped = |url: &str| discovery::Resource { resource: Some(any(url)), ..entry.wrapper_without_body() };
        let other = Resource::from_wrapper(0, wrapped("a/other.Type"), &kind, &store).unwrap();
        assert_ne!(other.content(), entry.content(), "the URL is a part of what clients get");
        let again = Resource::from_wrapper(0, wrapped(envelope), &kind, &store).unwrap();
        assert!(again.is_same(&entry) && Arc::ptr_eq(&again.body, &entry.body));
        assert_eq!(entry.wrapper_without_body().resource.unwrap().type_url, envelope);
    }

    #[test]
    fn xlat_2_constraints_are_in_the_full_hash_and_aliases_count_once() {
        let constrained = |bytes: &'static [u8]| {
            let constraints = Some(bytes.into());
            let long = discovery::ResourceName { name: "c".into(), dynamic_parameter_constraints: constraints };
            read(|w| w.resource_name = Some(long)).unwrap()
        };
        let (plain, one, other) = (read(|_| {}).unwrap(), constrained(b"\x0a\x01k"), constrained(b"\x0a\x01l"));
        assert!(plain.full != one.full && one.full != other.full && one.content() == other.content());
        let aliased =
            |aliases: &[&str]| read(|w| w.aliases = aliases.iter().map(ToString::to_string).collect()).unwrap().full;
        assert_eq!(aliased(&["a", "b", "a"]), aliased(&["a", "b"]));
        assert_ne!(aliased(&["a", "b"]), aliased(&["a"]));
    }

    #[test]
    fn two_resources_are_the_same_only_with_name_content_and_ttl() {
        let plain = read(|_| {}).unwrap();
        let seconds = |seconds| plain.with_ttl(Some(Duration::from_secs(seconds)));
        assert!(plain.is_same(&read(|_| {}).unwrap()) && seconds(1).is_same(&seconds(1)));
        assert!(!plain.is_same(&seconds(1)) && !seconds(1).is_same(&seconds(2)));
        assert!(!plain.is_same(&read(|w| w.name = "d".into()).unwrap()));
        assert!(!plain.is_same(&read(|w| w.aliases = vec!["a".into()]).unwrap()));
    }
}
