//! The properties of a type.

/// The part of a type when several types change together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The targets of routing.
    Clusters,
    /// What a cluster needs before it takes traffic.
    Endpoints,
    /// Leads to clusters, and so must not be sent before them.
    Routing,
    /// Ordered by rank if pending together with others, and never delayed for them.
    Free,
}

/// How the body names another resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum References {
    None,
    ClusterEndpoints,
    /// A route configuration whose virtual hosts come by VHDS: it names all hosts under it.
    VirtualHosts,
}

/// The meaning of a first request without names (SOTW-39, DELTA-36).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyFirst {
    /// The request requests nothing.
    Nothing,
    /// It requests all resources of the type.
    Everything,
    /// All names under the route configurations that the client subscribes to.
    UnderRoutes,
    /// Nothing; the reply is empty.
    EmptyAnswer,
}

impl EmptyFirst {
    /// Whether such a request is the wildcard. Then servers are sent the wildcard in this form too, as older ones need it (UP-7).
    pub fn is_wildcard(self) -> bool {
        matches!(self, Self::Everything | Self::UnderRoutes)
    }
}

/// The properties of one resource type.
#[derive(Debug, Clone)]
pub struct TypeInfo {
    /// Full message name, without the `type.googleapis.com/` that peers may spell differently (TYPE-1). For a type that is known by its whole
    /// URL, it is that URL.
    pub name: Box<str>,
    /// The field of the body with the resource's name; `None` for types without one (TYPE-4).
    pub name_field: Option<u32>,
    /// Whether a SotW response lists the complete visible set, so that absence means deletion (TYPE-8).
    pub full_state: bool,
    /// What an empty first request means.
    pub empty_first: EmptyFirst,
    /// Whether the type exists in the delta variant only (TRN-3).
    pub delta_only: bool,
    /// Whether clients normally request aliases. A resource without a body is then unresolved, not a heartbeat (DELTA-39, DELTA-40).
    pub by_alias: bool,
    /// Position in the order of types, also for requests upstream (UP-6).
    pub rank: u8,
    /// Position among additions (ORD-2): the same, but secrets come first. Endpoints that upstream moved behind a new secret must not be
    /// sent before it (ORD-4), and an early secret does no harm.
    pub addition_rank: u8,
    /// Removals are sent in the order of this rank.
    pub removal_rank: u8,
    /// The role of the type in the order of types.
    pub role: Role,
    /// How bodies of the type name other resources.
    pub references: References,
    /// The successor of a v2 type. The two are distinct types with the same behaviour (TYPE-5).
    pub successor: Option<Box<str>>,
}

impl TypeInfo {
    /// Returns the properties of an unknown type.
    pub(super) fn opaque(name: &str) -> Self {
        Self {
            name: name.into(),
            name_field: Some(1),
            full_state: false,
            empty_first: EmptyFirst::Nothing,
            delta_only: false,
            by_alias: false,
            rank: LAST,
            addition_rank: LAST,
            removal_rank: LAST,
            role: Role::Free,
            references: References::None,
            successor: None,
        }
    }
}

/// The last place in the order of types.
pub(super) const LAST: u8 = u8::MAX - 1;
