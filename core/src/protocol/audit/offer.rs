//! What can be audited of a view now.

use std::collections::BTreeSet;

use crate::protocol::ladder::LadderState;
use crate::protocol::session::Variant;
use crate::protocol::sources::{Sources, authority_of};
use crate::protocol::upstream::AuditedStream;
use crate::protocol::view::{Completeness, Selector, View};
use crate::xds::{Authority, Type};

/// What is wanted of one server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted(BTreeSet<(Type, Selector)>);

/// What of a view can be compared with what its server gives a member.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The active server, by its place in the plan.
    pub server: usize,
    /// The variant in which the view speaks to it.
    pub variant: Variant,
    /// What the view requests from it.
    pub wanted: Wanted,
    /// The part of `wanted` for which the view has nothing that its server has stopped giving.
    pub certain: Wanted,
    /// About how many bytes the server will send a member: as many as the view has.
    pub bytes: u64,
}

/// Why a view cannot be audited now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAuditable {
    /// It does not have all that it wants, or some of it waits for the order of changes. That usually ends soon.
    Incomplete,
    /// Some of what its server has said last is held by a brake, or after an outage.
    Held,
    /// A server further down the list is active.
    OnFallback,
    /// No server is active, or only one that is sent no requests.
    NoServer,
    /// The server is a relay. Both nodes share one view there, so they get the same, even if its own server would give them different
    /// resources.
    Relay,
    /// No present client has the node that the server is shown. That usually ends soon.
    NoneShown,
    /// All present clients have the node that the server is shown. This includes one client with several streams.
    AllEqual,
}

impl Wanted {
    /// Returns what is wanted, by type.
    pub fn iter(&self) -> impl Iterator<Item = (&Type, &Selector)> {
        self.0.iter().map(|(kind, of)| (kind, of))
    }

    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns what is in both.
    pub fn also_in(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).cloned().collect())
    }

    pub(super) fn has(&self, kind: &Type, of: &Selector) -> bool {
        self.0.contains(&(kind.clone(), of.clone()))
    }

    /// Whether a view knows all of it.
    pub(super) fn is_known(&self, view: &View) -> bool {
        self.iter().all(|(kind, of)| match of {
            Selector::Name(name) if !name.is_glob() => view.wants().is_cached(kind, of),
            set => view.tables().completeness_of(kind, set) >= Completeness::Settled,
        })
    }
}

impl FromIterator<(Type, Selector)> for Wanted {
    fn from_iter<I: IntoIterator<Item = (Type, Selector)>>(wanted: I) -> Self {
        Self(wanted.into_iter().collect())
    }
}

impl Offer {
    /// Returns what can be audited of a view: everything that it requests from one active server, except types that are kept off the stream to
    /// this server.
    pub fn of(view: &View, sources: &Sources) -> Result<Self, NotAuditable> {
        if view.holds().is_held() {
            return Err(NotAuditable::Held);
        }
        let ladders: Vec<_> = sources.ladders().collect();
        if ladders.iter().any(|ladder| matches!(ladder.state, LadderState::Active(rung) if rung > 0)) {
            return Err(NotAuditable::OnFallback);
        }
        let server = ladders.iter().find_map(|ladder| ladder.server).ok_or(NotAuditable::NoServer)?;
        let streams: Vec<_> = sources.streams().filter(|(id, _)| id.server == server).collect();
        let (_, first) = streams.first().ok_or(NotAuditable::NoServer)?;
        if streams.iter().any(|(_, stream)| AuditedStream::of(stream).is_of_relay) {
            return Err(NotAuditable::Relay);
        }
        let has_answered = streams.iter().all(|(_, stream)| stream.has_answered());
        if view.holds().awaits_routing() || !has_answered || view.tables().loaded_from_disk() > 0 {
            return Err(NotAuditable::Incomplete);
        }
        let of_server = ladders.iter().filter(|ladder| ladder.server == Some(server));
        let authorities: BTreeSet<&Authority> = of_server.map(|ladder| ladder.authority).collect();
        let apart: BTreeSet<&Type> =
            streams.iter().flat_map(|(_, of)| of.types_apart()).map(|(kind, _)| kind).collect();
        let is_meant = |kind: &Type, of: &Selector| authorities.contains(&authority_of(of)) && !apart.contains(kind);
        let all = view.wants().all().filter(|(kind, of, _)| is_meant(kind, of));
        let wanted: Wanted = all.map(|(kind, of, _)| (kind.clone(), of)).collect();
        if wanted.is_empty() || !wanted.is_known(view) {
            return Err(NotAuditable::Incomplete);
        }
        // Resources from an earlier opening are removed only when their set is complete, and never if deletions are ignored.
        let is_certain = |kind: &Type, of: &Selector| match of {
            Selector::Name(name) if !name.is_glob() => true,
            set => view.tables().completeness_of(kind, set) == Completeness::Complete,
        };
        let keeps_all = AuditedStream::of(first).ignores_deletions;
        let certain = wanted.iter().filter(|(kind, of)| !keeps_all && is_certain(kind, of));
        let certain = certain.map(|(kind, of)| (kind.clone(), of.clone())).collect();
        let bytes: usize = view.tables().sizes().map(|(_, _, bytes)| bytes).sum();
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        Ok(Self { server, variant: first.variant(), wanted, certain, bytes })
    }
}
