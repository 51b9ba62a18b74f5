//! The types: a table that operators can extend, and defaults for types that are not in it. [`TypeTable::resolve`] is the one place where a URL
//! becomes a type.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::built_in_types::{
    BUILT_IN, CLUSTERS, ENDPOINTS, LISTENERS, NAMED_BESIDE, Row, SCOPED_ROUTES, SECRETS, V2, VIRTUAL_HOSTS,
    is_built_in, istio,
};
use super::name::Name;
use super::type_info::{EmptyFirst, References, Role, TypeInfo};

/// The wrapper that carries a name beside a resource in SotW (SOTW-48, UP-29).
pub const WRAPPER_TYPE: &str = "envoy.service.discovery.v3.Resource";

/// A handle of a type: cheap to clone, equal by name, ordered by rank and then name.
#[derive(Debug, Clone)]
pub struct Type(Arc<TypeInfo>);

impl Type {
    /// Returns the properties of the type.
    pub fn info(&self) -> &TypeInfo {
        &self.0
    }

    /// Returns the full message name, or the whole URL if the type is known by that. [`TypeTable::resolve`] finds the type by it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the URL that servers are shown.
    pub fn url(&self) -> Cow<'_, str> {
        type_url(self.name())
    }

    /// Returns the message name, also of a type that is known by its whole URL.
    pub fn message(&self) -> &str {
        Self::message_name(self.name())
    }

    /// Returns the message name in a type URL, whatever its prefix is (TYPE-1).
    pub(crate) fn message_name(type_url: &str) -> &str {
        type_url.rsplit_once('/').map_or(type_url, |(_, name)| name)
    }

    /// Classifies a body with this URL in a response of the type. A type that is known by its whole URL may contain messages of other
    /// types, as Istiod's own configuration does. Messages of built-in types are accepted only as their own type: as another type, no rule
    /// would cover them.
    pub(crate) fn body_of(&self, type_url: &str) -> BodyType {
        let message = Self::message_name(type_url);
        match self.has_own_url() {
            false if message == self.name() => BodyType::Own,
            true if type_url == self.name() => BodyType::Own,
            true if !message.is_empty() && message != WRAPPER_TYPE && !is_built_in(message) => BodyType::Other,
            _ => BodyType::Foreign,
        }
    }

    /// Returns the empty name, if the type may have one resource without a name. Such a type has no field for the name, and its names are
    /// not always in the wrapper. For other types, an entry without a name is unreadable.
    pub fn unnamed(&self) -> Option<Name> {
        let is_beside = NAMED_BESIDE.iter().any(|name| self.is_called(name));
        (self.0.name_field.is_none() && !is_beside).then(|| Name::from(""))
    }

    /// Whether the type is known by its whole URL.
    fn has_own_url(&self) -> bool {
        self.name().contains('/')
    }

    pub(crate) fn is(&self, role: Role) -> bool {
        self.0.role == role
    }

    /// Whether this is the name of the type, or that of its successor.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        *self.0.name == *name || self.0.successor.as_deref() == Some(name)
    }

    /// Whether resources with different names can exclude one another: listeners by their addresses, scopes by their keys.
    pub(crate) fn can_conflict(&self) -> bool {
        self.is_called(LISTENERS) || self.is_called(SCOPED_ROUTES)
    }

    /// Whether a new resource belongs in one reply with the removals of others: a client rejects it beside one that has its address, its key or, for
    /// virtual hosts, its domain.
    pub(crate) fn needs_removals_beside(&self) -> bool {
        self.can_conflict() || self.is_called(VIRTUAL_HOSTS)
    }

    /// Whether resources of the type lead traffic, so that connections or requests fail when they vanish: listeners, scoped routes and clusters.
    pub(crate) fn leads_traffic(&self) -> bool {
        self.can_conflict() || self.is_called(CLUSTERS)
    }

    /// Whether resources of the type are the hosts of clusters.
    pub(crate) fn is_assignment(&self) -> bool {
        self.is_called(ENDPOINTS)
    }

    /// Whether resources of the type are private keys, passwords and the like.
    pub fn is_secret(&self) -> bool {
        self.is_called(SECRETS)
    }

    /// Whether the URL is that of a type in version 2 of the API.
    pub fn is_v2(&self) -> bool {
        self.0.successor.is_some()
    }

    /// Whether the two are equal, or are the same resource in two versions of the protocol.
    pub(crate) fn same_kind(&self, other: &Self) -> bool {
        let newest = |kind: &Self| kind.0.successor.as_deref().unwrap_or(&kind.0.name).to_owned();
        self == other || newest(self) == newest(other)
    }
}

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.name == other.0.name
    }
}

impl Eq for Type {}

impl Hash for Type {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl Ord for Type {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) {
            return Ordering::Equal;
        }
        (self.0.rank, &self.0.name).cmp(&(other.0.rank, &other.0.name))
    }
}

impl PartialOrd for Type {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What a body is in a response of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyType {
    /// A message of the type.
    Own,
    /// A message of another type, which is passed on under its own URL.
    Other,
    /// A message that must not be in such a response.
    Foreign,
}

/// All types by name. A relay has one table: types that compare equal are from the same entry.
#[derive(Debug, Clone)]
pub struct TypeTable {
    by_name: HashMap<Box<str>, Type>,
    v2: bool,
}

impl TypeTable {
    /// Returns a hash of the whole table except the built-in types of Istio, so that state files older than these types stay usable.
    pub fn fingerprint(&self) -> u64 {
        let row = |info: &TypeInfo| format!("{}={info:?}", info.name);
        let built_in: Vec<_> = istio().map(|info| row(&info)).collect();
        let mut rows: Vec<_> = self.by_name.values().map(|kind| row(kind.info())).collect();
        rows.retain(|row| !built_in.contains(row));
        rows.sort_unstable();
        xxh3_64(rows.join("\n").as_bytes())
    }

    /// Returns the table of the built-in types.
    pub fn new() -> Self {
        Self::with(Vec::new())
    }

    /// Returns the built-in types, with the operator's entries added or replaced (TYPE-7).
    pub fn with(extra: Vec<TypeInfo>) -> Self {
        let built_in = BUILT_IN.iter().map(Row::info);
        let legacy = V2.iter().filter_map(|(old, new)| {
            let row = BUILT_IN.iter().find(|row| row.name == *new)?;
            Some(TypeInfo { name: (*old).into(), successor: Some((*new).into()), ..row.info() })
        });
        let all = built_in.chain(istio()).chain(legacy).chain(extra);
        let by_name = all.map(|info| (info.name.clone(), Type(Arc::new(info)))).collect();
        Self { by_name, v2: false }
    }

    /// Returns the table with the types of v2 (TRN-8).
    pub fn with_v2(self, v2: bool) -> Self {
        Self { v2, ..self }
    }

    /// Returns the table with virtual hosts by name only: an empty first request requests none (DELTA-36).
    pub fn with_virtual_hosts_by_name(mut self) -> Self {
        for kind in self.by_name.values_mut().filter(|kind| kind.info().empty_first == EmptyFirst::UnderRoutes) {
            *kind = Type(Arc::new(TypeInfo { empty_first: EmptyFirst::EmptyAnswer, ..kind.info().clone() }));
        }
        self
    }

    pub(crate) fn serves(&self, kind: &Type) -> bool {
        self.v2 || !kind.is_v2()
    }

    /// Returns the type of a URL, or of a name ([`Type::name`]).
    ///
    /// A type in the table is known by its message name under any prefix, so that no spelling evades decisions by type. Every other type is
    /// known by its whole URL, byte for byte. If that URL has the usual prefix or none, the name is what follows the prefix. A type that is
    /// not in the table is opaque: it is served without any assumption.
    pub fn resolve(&self, type_url: &str) -> Type {
        if let Some(known) = self.by_name.get(Type::message_name(type_url)) {
            return known.clone();
        }
        let name = match type_url.strip_prefix(PREFIX) {
            Some(message) if !message.contains('/') => message,
            _ => type_url,
        };
        self.by_name.get(name).cloned().unwrap_or_else(|| Type(Arc::new(TypeInfo::opaque(name))))
    }

    /// Returns the full names of the types whose `*` sets are full state and have no v2 name.
    pub fn full_state(&self) -> impl Iterator<Item = &str> {
        self.by_name.values().filter(|kind| kind.info().full_state && !kind.is_v2()).map(Type::name)
    }

    /// Returns the type of clusters.
    pub fn clusters(&self) -> Type {
        self.resolve(CLUSTERS)
    }

    /// Returns the full names of all types in the table.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.values().map(Type::name)
    }

    /// Whether a message name is in the table.
    pub fn knows(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Returns the type that references of `from` refer to.
    pub fn referred_by(&self, from: &Type) -> Option<Type> {
        let name = match from.info().references {
            References::None => return None,
            References::ClusterEndpoints => ENDPOINTS,
            References::VirtualHosts => VIRTUAL_HOSTS,
        };
        let old = V2.iter().find(|(_, new)| from.is_v2() && *new == name).map(|(old, _)| *old);
        Some(self.resolve(old.unwrap_or(name)))
    }
}

impl Default for TypeTable {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the URL of the type with this name ([`Type::name`]).
pub fn type_url(name: &str) -> Cow<'_, str> {
    if name.contains('/') { name.into() } else { format!("{PREFIX}{name}").into() }
}

/// The usual prefix of type URLs.
const PREFIX: &str = "type.googleapis.com/";

#[cfg(test)]
mod tests {
    use super::super::built_in_types::ROUTES;
    use super::*;

    #[test]
    fn type_1_only_what_follows_the_last_slash_counts() {
        let table = TypeTable::new();
        let long = table.resolve("type.googleapis.com/envoy.config.cluster.v3.Cluster");
        assert_eq!(long, table.resolve("example.org/a/envoy.config.cluster.v3.Cluster"));
        assert_eq!(long, table.resolve("envoy.config.cluster.v3.Cluster"));
    }

    #[test]
    fn type_1_a_type_that_is_not_in_the_table_is_its_whole_url() {
        let table = TypeTable::with(vec![TypeInfo { full_state: true, ..TypeInfo::opaque("acme.io/v1/Kind") }]);
        let urls =
            ["istio.io/debug", "networking.istio.io/v1/ServiceEntry", "a/own.Type", "/own.Type", "acme.io/v1/Kind"];
        for url in urls.into_iter().chain(["type.googleapis.com/own.Type", "type.googleapis.com/a/own.Type"]) {
            let kind = table.resolve(url);
            assert_eq!((&*kind.url(), &table.resolve(kind.name())), (url, &kind), "the name stands for the URL");
        }
        assert_eq!(table.resolve("own.Type"), table.resolve("type.googleapis.com/own.Type"));
        assert_ne!(table.resolve("a/own.Type"), table.resolve("b/own.Type"));
        assert!(
            table.resolve("acme.io/v1/Kind").info().full_state && !table.resolve("acme.io/v2/Kind").info().full_state
        );
    }

    #[test]
    fn type_1_no_prefix_makes_another_type_of_one_in_the_table() {
        let table = TypeTable::with(vec![TypeInfo::opaque("own.Type")]);
        for name in [SECRETS, "envoy.api.v2.auth.Secret", "istio.workload.Address", "own.Type"] {
            for prefix in
                ["", "/", "x/", "a/b/", "type.googleapis.com/", "type.googleapis.com/type.googleapis.com/", "//"]
            {
                let kind = table.resolve(&format!("{prefix}{name}"));
                assert_eq!((kind.name(), kind.is_secret()), (name, name.ends_with("Secret")), "{prefix}");
                assert_eq!(kind.url(), format!("type.googleapis.com/{name}"));
            }
        }
    }

    #[test]
    fn a_body_of_a_built_in_type_is_taken_under_no_url_but_its_own() {
        let table = TypeTable::new();
        let body = |kind: &str, url: &str| table.resolve(kind).body_of(url);
        assert_eq!(
            body("networking.istio.io/v1/ServiceEntry", "type.googleapis.com/istio.mcp.v1alpha1.Resource"),
            BodyType::Other
        );
        assert_eq!(body("istio.io/debug", "istio.io/debug"), BodyType::Own);
        for url in [SECRETS, "x/envoy.api.v2.auth.Secret", WRAPPER_TYPE, "istio.workload.Address", "", "x/"] {
            assert_eq!(body("istio.io/debug", url), BodyType::Foreign, "{url}");
        }
        assert_eq!(body("own.Type", "x/own.Type"), BodyType::Own);
        assert_eq!(body("own.Type", "x/other.Type"), BodyType::Foreign);
        assert_eq!(body(SECRETS, "x/other.Type"), BodyType::Foreign);
    }

    #[test]
    fn one_resource_without_a_name_is_for_types_that_have_no_field_for_it() {
        let own = TypeInfo { name_field: None, ..TypeInfo::opaque("own.Type") };
        let table = TypeTable::with(vec![own]);
        let unnamed: Vec<_> = table.names().filter(|name| table.resolve(name).unnamed().is_some()).collect();
        let unnamed: std::collections::BTreeSet<_> = unnamed.into_iter().collect();
        let expected = ["istio.mesh.v1alpha1.ProxyConfig", "istio.networking.nds.v1.NameTable", "own.Type"];
        assert_eq!(unnamed, expected.into());
        assert!(table.resolve("a.B").unnamed().is_none());
    }

    #[test]
    fn istios_types_are_requested_by_an_empty_list_and_leave_the_fingerprint_of_state_files_alone() {
        let table = TypeTable::new();
        for info in istio() {
            assert!(table.knows(&info.name) && info.empty_first == EmptyFirst::Everything, "{}", info.name);
        }
        let full = |name: &str| table.resolve(name).info().full_state;
        assert!(full("istio.networking.nds.v1.NameTable") && !full("istio.workload.Workload"));
        assert_eq!(table.fingerprint(), 0x39df_7456_5b8c_6942, "as it was before the rows of Istio");
        let changed = TypeInfo { full_state: true, ..table.resolve("istio.workload.Workload").info().clone() };
        assert_ne!(TypeTable::with(vec![changed]).fingerprint(), table.fingerprint());
    }

    #[test]
    fn type_2_and_type_3_full_state_types_are_lds_cds_and_srds() {
        let mut full: Vec<_> = BUILT_IN.iter().map(Row::info).filter(|info| info.full_state).collect();
        full.sort_by_key(|info| info.rank);
        let names: Vec<_> = full.iter().map(|info| &*info.name).collect();
        assert_eq!(names, [CLUSTERS, LISTENERS, SCOPED_ROUTES]);
    }

    #[test]
    fn type_7_an_unknown_type_is_opaque_and_an_operator_may_say_more() {
        let opaque = TypeTable::new().resolve("a/b.C");
        let nothing = opaque.info().empty_first == EmptyFirst::Nothing;
        assert!(!opaque.info().full_state && nothing && opaque.info().name_field == Some(1));
        let sent = TypeInfo { full_state: true, ..opaque.info().clone() };
        assert!(TypeTable::with(vec![sent]).resolve("a/b.C").info().full_state);
    }

    #[test]
    fn ord_2_types_sort_by_the_order_in_which_they_are_sent() {
        let table = TypeTable::new();
        let mut types: Vec<_> =
            ["x.Y", SCOPED_ROUTES, ROUTES, ENDPOINTS, CLUSTERS].map(|name| table.resolve(name)).into();
        types.sort();
        let names: Vec<_> = types.iter().map(Type::name).collect();
        assert_eq!(names, [CLUSTERS, ENDPOINTS, ROUTES, SCOPED_ROUTES, "x.Y"]);
    }
}
