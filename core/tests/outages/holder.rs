//! A client with resources, and which of them it must not lose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use weir_core::protocol::moment::Moment;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Client, Reply, Session, Step, Variant};
use weir_core::protocol::view::{InterestChange, Leases, SessionId, View};
use weir_core::xds::TypeTable;

use super::support::bounds::Bounded;
use super::support::{CDS, EDS};
use super::world::NAMES;

pub struct Holder {
    pub id: SessionId,
    variant: Variant,
    session: Session,
    leases: Leases,
    bounded: Bounded,
    /// When the client was last sent each resource, or connected with it, by type and name.
    pub holds: BTreeMap<(&'static str, &'static str), Moment>,
    /// The client has had a reply for `*`.
    pub answered: bool,
    pub came_with_nothing: bool,
}

/// A resource that a reply removed from a client, and since when the client held it.
pub type Loss = ((&'static str, &'static str), Moment);

impl Holder {
    /// Connects with these resources, under unknown versions.
    pub fn come(
        id: SessionId,
        variant: Variant,
        with: BTreeSet<&'static str>,
        table: &Arc<TypeTable>,
        options: &Arc<ProtocolOptions>,
        now: Moment,
    ) -> Self {
        let session = Session::new(Client::plain(variant), table.clone(), options.session.clone().into());
        let holds: BTreeMap<_, _> = with.iter().flat_map(|name| [((CDS, *name), now), ((EDS, *name), now)]).collect();
        let leases = Leases::new(options.view.clone().into());
        let came_with_nothing = with.is_empty();
        let bounded = Bounded::default();
        let mut holder = Self { id, variant, session, leases, bounded, holds, answered: false, came_with_nothing };
        for (url, names) in [(CDS, vec!["*".to_owned()]), (EDS, with.iter().map(ToString::to_string).collect())] {
            if names.is_empty() {
                continue;
            }
            let stated = with.iter().map(|name| (name.to_string(), "of another".to_owned()));
            let type_url = url.to_owned();
            let request = match variant {
                Variant::Delta => Request::Delta(DeltaDiscoveryRequest {
                    type_url,
                    resource_names_subscribe: names,
                    initial_resource_versions: stated.collect(),
                    ..Default::default()
                }),
                Variant::Sotw => Request::Sotw(DiscoveryRequest {
                    type_url,
                    resource_names: names,
                    version_info: if with.is_empty() { String::new() } else { "of another".into() },
                    ..Default::default()
                }),
            };
            holder.session.on_request(request, now);
        }
        holder
    }

    pub fn changes(&mut self) -> Vec<InterestChange> {
        self.session.take_interest()
    }

    pub fn counted(&mut self) {
        self.session.on_interest_applied();
    }

    pub fn on_mark(&mut self, mark: &weir_core::protocol::view::NameChanged) {
        self.session.on_name_changed(mark);
    }

    pub fn leave(&mut self) -> Vec<InterestChange> {
        self.session.close();
        self.session.take_interest()
    }

    /// Reads everything that is due, and returns which resources were lost by that.
    pub fn listen(&mut self, unit: &mut View, now: Moment) -> Vec<Loss> {
        let state = unit.snapshot().clone();
        let mut lost = Vec::new();
        while let Step::Reply(reply) = self.bounded.poll(&mut self.session, &state, &mut self.leases, now) {
            lost.extend(self.take(&reply, now));
            if self.variant == Variant::Sotw {
                let request = DiscoveryRequest {
                    type_url: reply.spelling.to_string(),
                    version_info: reply.version.to_string(),
                    response_nonce: reply.nonce.to_string(),
                    resource_names: match &*reply.spelling {
                        CDS => vec!["*".into()],
                        _ => self.names_of(EDS),
                    },
                    ..Default::default()
                };
                self.session.on_request(Request::Sotw(request), now);
            }
        }
        unit.add_claims(self.id, self.session.take_claims());
        lost
    }

    fn names_of(&self, url: &str) -> Vec<String> {
        // The names with which the client connected are the endpoints that it requests.
        let names = self.holds.keys().filter(|(of, _)| *of == url).map(|(_, name)| name.to_string());
        names.collect()
    }

    fn take(&mut self, reply: &Reply, now: Moment) -> Vec<Loss> {
        let url = if &*reply.spelling == CDS { CDS } else { EDS };
        self.answered |= url == CDS;
        let name_of = |name: &str| NAMES.into_iter().find(|known| *known == name);
        let sent: Vec<_> = reply.resources.iter().filter_map(|of| name_of(of.name.as_str())).collect();
        let mut lost = Vec::new();
        let full = self.variant == Variant::Sotw && url == CDS;
        let gone: Vec<_> = match full {
            true => {
                let held = self.holds.keys().filter(|(of, name)| *of == CDS && !sent.contains(name));
                held.map(|(_, name)| *name).collect()
            }
            false => reply.removed.iter().filter_map(|name| name_of(name.as_str())).collect(),
        };
        for name in gone {
            lost.extend(self.holds.remove(&(url, name)).map(|since| ((url, name), since)));
        }
        for name in sent {
            self.holds.insert((url, name), now);
        }
        lost
    }
}
