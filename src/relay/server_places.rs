//! Where the servers of an earlier configuration, or of a file, are in the plan of this one.

use std::sync::Arc;

use weir_core::protocol::sources::Plan;
use weir_core::protocol::view::Class;
use weir_core::xds::{Authority, Name};

/// The places of servers that are known by name. Servers with one URI and different settings have one name (BOOT-9).
pub(crate) struct ServerPlaces {
    plan: Arc<Plan>,
    /// By the earlier places of the servers.
    places: Vec<NamedPlaces>,
}

struct NamedPlaces {
    /// The place of the server itself. The first server with a name stays the first with that name, the second stays the second.
    own: Option<u16>,
    /// The places of all servers with its name.
    all: Vec<u16>,
}

impl ServerPlaces {
    /// Finds earlier servers among those of the plan, whose names are `servers`.
    pub(super) fn find<'a>(earlier: impl IntoIterator<Item = &'a str>, servers: &[String], plan: Arc<Plan>) -> Self {
        let earlier: Vec<_> = earlier.into_iter().collect();
        let place = |(at, name): (usize, &&str)| {
            let of_name = servers.iter().enumerate().filter(|(_, known)| *known == name);
            let all: Vec<_> = of_name.filter_map(|(place, _)| u16::try_from(place).ok()).collect();
            let before = earlier[..at].iter().filter(|other| *other == name).count();
            NamedPlaces { own: all.get(before).copied(), all }
        };
        let places = earlier.iter().enumerate().map(place).collect();
        Self { plan, places }
    }

    /// Returns the place of an earlier server, if it is still configured.
    pub(super) fn of_server(&self, earlier: usize) -> Option<u16> {
        self.places.get(earlier)?.own
    }

    /// Returns the place and the rank of the server that a resource of an earlier server belongs to: that server, or the first one with its name that is in
    /// the list for the resource.
    pub(crate) fn of_resource(&self, earlier: usize, class: Class, name: &Name) -> Option<(u16, u8)> {
        let NamedPlaces { own, all } = self.places.get(earlier)?;
        let authority = match class {
            Class::Wildcard => Authority::TopLevel,
            Class::Named => Authority::of(name),
        };
        let list = &self.plan.authority(&authority)?.servers;
        let rank = |place: u16| u8::try_from(list.iter().position(|at| *at == usize::from(place))?).ok();
        own.iter().chain(all).find_map(|place| Some((*place, rank(*place)?)))
    }
}
