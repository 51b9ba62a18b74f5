//! Where the servers of an earlier configuration, or of a file, are in the plan of this one.

use std::sync::Arc;

use weir_core::protocol::sources::{LowestOpen, Plan};
use weir_core::protocol::view::{Class, Origin};
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

    /// Returns the place and the rank of the server that a resource of an earlier server belongs to.
    pub(crate) fn of_resource(&self, earlier: usize, class: Class, name: &Name) -> Option<(u16, u8)> {
        match class {
            Class::Wildcard => self.in_list(earlier, &Authority::TopLevel),
            Class::Named => self.in_list(earlier, &Authority::of(name)),
        }
    }

    /// Returns the place and the rank that an earlier server has in the list of an authority: that server, or the first one with its name there.
    pub(crate) fn in_list(&self, earlier: usize, authority: &Authority) -> Option<(u16, u8)> {
        let NamedPlaces { own, all } = self.places.get(earlier)?;
        let list = &self.plan.authority(authority)?.servers;
        let rank = |place: u16| u8::try_from(list.iter().position(|at| *at == usize::from(place))?).ok();
        own.iter().chain(all).find_map(|place| Some((*place, rank(*place)?)))
    }

    /// Finds the lowest open server of an authority in its present list. One that is gone from the list keeps its rank.
    pub(crate) fn of_lowest(&self, earlier: LowestOpen, authority: &Authority) -> LowestOpen {
        let gone = (Origin::GONE.server, earlier.rank);
        let (server, rank) = self.in_list(usize::from(earlier.server), authority).unwrap_or(gone);
        LowestOpen { server, rank }
    }
}
