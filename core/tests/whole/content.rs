//! The resources of the world: small, and real enough to be scanned for references.

use std::sync::{Arc, OnceLock};

use weir_core::proto::Any;
use weir_core::xds::TypeTable;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Clusters,
    Endpoints,
    Listeners,
    Routes,
    /// Scoped routes: a type that clients request and that many control planes do not know.
    Scopes,
}

impl Kind {
    pub const ALL: [Self; 5] = [Self::Clusters, Self::Endpoints, Self::Listeners, Self::Routes, Self::Scopes];

    pub fn url(self) -> &'static str {
        match self {
            Self::Clusters => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listeners => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Routes => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Self::Scopes => "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration",
        }
    }

    pub fn of(url: &str) -> Self {
        Self::ALL
            .into_iter()
            .find(|kind| kind.url().ends_with(url))
            .unwrap_or_else(|| panic!("{url} is no type of the world"))
    }

    /// Whether a SotW response lists all resources of the type.
    pub fn full_state(self) -> bool {
        matches!(self, Self::Clusters | Self::Listeners | Self::Scopes)
    }

    fn letter(self) -> char {
        ['c', 'e', 'l', 'r', 's'][self as usize]
    }
}

/// A name of one type. Names from [`MADE_UP`] on never exist. Endpoints have the number of their cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub Kind, pub u16);

pub const MADE_UP: u16 = 1000;

impl Key {
    pub fn text(self) -> String {
        let letter = if self.0 == Kind::Endpoints { 'c' } else { self.0.letter() };
        format!("{letter}{}", self.1)
    }

    /// Reads a name. `None` for a name that is not of this world.
    pub fn read(kind: Kind, text: &str) -> Option<Self> {
        let number = text.get(1..)?.parse().ok()?;
        let key = Self(kind, number);
        (key.text() == text).then_some(key)
    }
}

/// The content of one resource. Each change in the world has a serial of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    pub serial: u32,
    /// What the resource refers to: the cluster of a route, the route of a listener.
    pub to: u16,
}

impl Content {
    pub fn body(self, key: Key) -> bytes::Bytes {
        let nested = |field: u8, bytes: &[u8]| [&[field << 3 | 2, bytes.len() as u8], bytes].concat();
        let mut body = nested(1, key.text().as_bytes());
        match key.0 {
            Kind::Clusters => body.extend([0x1a, 4, 0x0a, 2, 0x1a, 0]), // its endpoints come over ADS, under its own name
            Kind::Routes => {
                let action = nested(1, Key(Kind::Clusters, self.to).text().as_bytes());
                body.extend(nested(2, &nested(3, &nested(2, &action))));
            }
            Kind::Endpoints | Kind::Listeners | Kind::Scopes => {}
        }
        body.extend([0xc2, 0x3e, 6]);
        body.extend(self.serial.to_be_bytes());
        body.extend(self.to.to_be_bytes());
        body.into()
    }

    pub fn read(body: &[u8]) -> Self {
        let (_, tail) = body.split_last_chunk::<6>().expect("a body of the world");
        let [a, b, c, d, e, f] = *tail;
        Self { serial: u32::from_be_bytes([a, b, c, d]), to: u16::from_be_bytes([e, f]) }
    }

    pub fn any(self, key: Key) -> Any {
        Any { type_url: key.0.url().into(), value: self.body(key) }
    }
}

pub fn table() -> Arc<TypeTable> {
    static TABLE: OnceLock<Arc<TypeTable>> = OnceLock::new();
    TABLE.get_or_init(Default::default).clone()
}
