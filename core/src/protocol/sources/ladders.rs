//! The ladder of each authority: which server of its list is active, and under which origin that server's updates count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::plan::{Plan, authority_of};
use super::servers::ServerFindings;
use crate::protocol::ladder::{Ladder, LadderAction, LadderContext, LadderState, Switches};
use crate::protocol::moment::Moment;
use crate::protocol::upstream::{Recovery, ResponseSummary};
use crate::protocol::view::{Class, InterestChange, Origin, Selector, Update, View};
use crate::protocol::wait::{WaitKind, WaitList, WaitSubject};
use crate::xds::{Authority, Type};

/// The updates of one response, with their origin.
#[derive(Debug)]
pub struct UpdateBatch {
    /// The server that the updates are attributed to.
    pub origin: Origin,
    /// What changed, in order.
    pub updates: Vec<Update>,
}

/// One part of a local set's updates.
#[derive(Debug)]
pub struct SetUpdates {
    /// The index of the server in the plan.
    pub server: usize,
    /// The updates that count, by origin.
    pub batches: Vec<UpdateBatch>,
    /// What is reported of this part.
    pub summary: ResponseSummary,
    /// How many resources have another name in the body than in the wrapper.
    pub misnamed: u64,
}

/// One ladder, for status reports.
#[derive(Debug)]
pub struct LadderSummary<'a> {
    /// The authority, or the top level.
    pub authority: &'a Authority,
    /// Which server is active, or why none is.
    pub state: LadderState,
    /// Since when the ladder is in that state.
    pub since: Moment,
    /// How often the ladder has switched.
    pub switches: Switches,
    /// The index of the active server in the plan.
    pub server: Option<usize>,
    /// The indexes of all servers of the list in the plan, first choice first.
    pub servers: &'a [usize],
}

/// What a later view of the same key needs to know about the servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerHistory {
    /// The lowest open server of each authority.
    pub lowest: BTreeMap<Authority, LowestOpen>,
    /// The servers that are away, or were away a moment ago, by their indexes in the plan.
    pub recoveries: BTreeMap<u16, Recovery>,
    /// The types for which each server ends streams, by its index in the plan.
    pub refused: BTreeMap<usize, BTreeSet<Type>>,
}

/// The lowest open server of an authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LowestOpen {
    /// Its place in the plan. That of [`Origin::GONE`] stands for a server that is in no list any more.
    pub server: u16,
    /// Its place in the authority's list, or in the list of the time when it was in one.
    pub rank: u8,
}

impl ServerHistory {
    /// Records until when the view still holds what these servers said first after an outage.
    pub fn note_held(&mut self, until: BTreeMap<u16, Moment>) {
        for (server, until) in until {
            self.recoveries.entry(server).or_default().note_held(until);
        }
    }
}

/// The ladders of a view, by authority: whose updates count, and which authorities need a step.
#[derive(Debug)]
pub(super) struct Ladders {
    plan: Arc<Plan>,
    ladders: BTreeMap<Authority, Ladder>,
    /// Interest has ended since the last check, so a ladder may be unused.
    dropped: bool,
    /// Authorities with missing names whose ladders are `cached` and have no timer running.
    missed: BTreeSet<Authority>,
    /// The lowest open servers of an earlier view, for authorities that have had no active server since. If that server has another one in front of it in the
    /// list now, or had one and is gone from the list, the authority may fall back without another reason.
    earlier: BTreeMap<Authority, LowestOpen>,
}

impl Ladders {
    pub(super) fn new(plan: Arc<Plan>) -> Self {
        let (ladders, dropped, missed, earlier) = Default::default();
        Self { plan, ladders, dropped, missed, earlier }
    }

    pub(super) fn authorities(&self) -> impl Iterator<Item = &Authority> {
        self.ladders.keys()
    }

    /// Returns the state of the ladder of each authority that is in use.
    pub(super) fn summaries(&self) -> impl Iterator<Item = LadderSummary<'_>> {
        self.ladders.iter().map(|(authority, ladder)| {
            let servers = self.plan.authority(authority).map_or(&[][..], |plan| &plan.servers);
            let server = ladder.active().and_then(|rung| servers.get(rung).copied());
            LadderSummary {
                authority,
                state: ladder.state(),
                since: ladder.since(),
                switches: ladder.switches(),
                server,
                servers,
            }
        })
    }

    /// Returns the rung of the active server.
    pub(super) fn active(&self, authority: &Authority) -> Option<usize> {
        self.ladders.get(authority)?.active()
    }

    /// Returns the authorities whose ladders have a server open, each with the rung of the server.
    pub(super) fn users(&self, server: usize) -> Vec<(Authority, usize)> {
        let rung = |(authority, ladder): (&Authority, &Ladder)| {
            let servers = &self.plan.authority(authority)?.servers;
            let rung = ladder.open().find(|rung| servers[*rung] == server)?;
            Some((authority.clone(), rung))
        };
        self.ladders.iter().filter_map(rung).collect()
    }

    /// Passes an event to a ladder. Returns the actions that its moves demand.
    pub(super) fn step(
        &mut self,
        authority: &Authority,
        findings: &[ServerFindings],
        view: &View,
        event: impl FnOnce(&mut Ladder, &AuthorityContext) -> Vec<LadderAction>,
    ) -> Vec<LadderAction> {
        let servers = self.plan.authority(authority).map_or(&[][..], |plan| &plan.servers);
        let is_unreachable =
            |(rung, server): (usize, &usize)| findings[*server].is_unreachable(rung + 1 == servers.len());
        let unreachable = servers.iter().enumerate().map(is_unreachable).collect();
        let lowest = self.ladders.get(authority).and_then(|ladder| servers.get(ladder.open().next_back()?));
        let refused = lowest.map(|server| findings[*server].refused());
        let goes_on = self.earlier.get(authority).is_some_and(|lowest| lowest.rank > 0);
        let around = AuthorityContext { authority, goes_on, unreachable, refused, view };
        let ladder = self.ladder(authority);
        let actions = event(ladder, &around);
        if ladder.active().is_some() {
            self.earlier.remove(authority);
        }
        actions
    }

    /// Records whether interest has ended. Returns the ladder of the authority.
    pub(super) fn on_interest_change(&mut self, authority: &Authority, on: bool) -> &Ladder {
        self.dropped |= !on;
        self.ladder(authority)
    }

    fn ladder(&mut self, authority: &Authority) -> &mut Ladder {
        let plan = &self.plan;
        self.ladders.entry(authority.clone()).or_insert_with(|| {
            let of = plan.authority(authority);
            let (servers, rule) = of.map(|of| (of.servers.len(), of.rule)).unwrap_or_default();
            Ladder::new(servers, rule, plan.timers)
        })
    }

    /// Records that a name is missing. Only missing names make a ladder check all interest, so that clients cannot cause that work with cached names.
    pub(super) fn note_missed(&mut self, change: &InterestChange, view: &View) {
        let authority = authority_of(&change.selector);
        let held =
            |ladder: &Ladder| matches!(ladder.state(), LadderState::Cached(_)) && ladder.next_deadline().is_none();
        if self.ladders.get(&authority).is_some_and(held) && view.wants().is_reason(&change.kind, &change.selector) {
            self.missed.insert(authority);
        }
    }

    pub(super) fn take_missed(&mut self) -> BTreeSet<Authority> {
        std::mem::take(&mut self.missed)
    }

    /// Returns the authorities that have servers open and no interest. Looks for them only if interest has ended since the last call.
    pub(super) fn take_unused(&mut self, view: &View) -> Vec<Authority> {
        if !std::mem::take(&mut self.dropped) {
            return Vec::new(); // the usual case: this runs after every change
        }
        let wanted = |authority: &Authority| view.wants().is_any_of(authority);
        let awake = self.ladders.iter().filter(|(_, ladder)| ladder.state() != LadderState::Idle);
        awake.map(|(authority, _)| authority.clone()).filter(|of| !wanted(of)).collect()
    }

    /// Returns the lowest open server of each authority, here or in an earlier view.
    pub(super) fn lowest(&self) -> BTreeMap<Authority, LowestOpen> {
        let mut all = self.earlier.clone();
        for (authority, ladder) in &self.ladders {
            let servers = self.plan.authority(authority).map_or(&[][..], |plan| &plan.servers);
            let Some((rung, server)) = ladder.open().next_back().and_then(|rung| Some((rung, *servers.get(rung)?)))
            else {
                continue;
            };
            let here = LowestOpen {
                server: u16::try_from(server).unwrap_or(u16::MAX),
                rank: u8::try_from(rung).unwrap_or(u8::MAX),
            };
            let lowest = all.entry(authority.clone()).or_insert(here);
            if here.rank >= lowest.rank {
                *lowest = here;
            }
        }
        all
    }

    pub(super) fn go_on(&mut self, lowest: BTreeMap<Authority, LowestOpen>) {
        self.earlier = lowest.into_iter().filter(|(of, _)| self.plan.authority(of).is_some()).collect();
    }

    /// Returns authorities with interest whose servers are all unreachable.
    pub(super) fn down(&self, findings: &[ServerFindings]) -> BTreeSet<Authority> {
        let is_down = |(authority, ladder): &(&Authority, &Ladder)| {
            let heard = self.authoritative(authority, findings);
            ladder.state() == LadderState::Down
                || heard.is_some_and(|(_, server)| findings[server].is_without(authority))
        };
        self.ladders.iter().filter(is_down).map(|(authority, _)| authority.clone()).collect()
    }

    /// Returns the rung and the server whose updates count for an authority. A first server that has responded for another authority counts
    /// before it responds for this one (FB-33).
    fn authoritative(&self, authority: &Authority, findings: &[ServerFindings]) -> Option<(usize, usize)> {
        let (ladder, plan) = (self.ladders.get(authority)?, self.plan.authority(authority)?);
        let first = || {
            let tried_first = ladder.state() == LadderState::Trying(0);
            plan.servers.first().filter(|server| tried_first && findings[**server].has_responded()).map(|_| 0)
        };
        let rung = ladder.authoritative().or_else(first)?;
        Some((rung, *plan.servers.get(rung)?))
    }

    /// Returns the origin of a server's updates for an authority, if they count.
    pub(super) fn origin_if_counts(
        &self,
        server: usize,
        authority: &Authority,
        findings: &[ServerFindings],
    ) -> Option<Origin> {
        let (rank, _) = self.authoritative(authority, findings).filter(|(_, at)| *at == server)?;
        let server_plan = self.plan.servers.get(server)?;
        Some(Origin {
            server: u16::try_from(server).unwrap_or(u16::MAX),
            rank: u8::try_from(rank).unwrap_or(u8::MAX),
            holds_missing: self.plan.holds_missing,
            from_disk: false,
            is_removed: false,
            skips_brakes: server_plan.skips_brakes(),
            is_polled: server_plan.is_polled(),
        })
    }

    /// Keeps the updates that count: those of authorities for which the server is active.
    pub(super) fn authoritative_updates(
        &self,
        server: usize,
        updates: Vec<Update>,
        findings: &[ServerFindings],
    ) -> Vec<UpdateBatch> {
        let mut batches: BTreeMap<Authority, UpdateBatch> = BTreeMap::new();
        for update in updates {
            let authority = match update.subject() {
                (_, Some((Class::Named, key))) => Authority::of(key),
                _ => Authority::TopLevel,
            };
            let Some(origin) = self.origin_if_counts(server, &authority, findings) else { continue };
            batches.entry(authority).or_insert(UpdateBatch { origin, updates: Vec::new() }).updates.push(update);
        }
        batches.into_values().collect()
    }

    pub(super) fn next_deadline(&self) -> Option<Moment> {
        self.ladders.values().filter_map(Ladder::next_deadline).min()
    }

    pub(super) fn add_waits(&self, now: Moment, list: &mut WaitList) {
        for (authority, ladder) in &self.ladders {
            if let Some((age, bound)) = ladder.wait(now) {
                list.add(WaitKind::Ladder, age, bound, || WaitSubject::authority(authority));
            }
        }
    }
}

/// What a ladder needs to know about its surroundings.
pub(super) struct AuthorityContext<'a> {
    authority: &'a Authority,
    /// A fallback of an earlier view goes on, even if everything is cached by now.
    pub(super) goes_on: bool,
    unreachable: Vec<bool>,
    /// The types that the lowest open server refuses. Their names are unknown, but like names in error they are no reason to leave the server (FB-5).
    refused: Option<&'a BTreeSet<Type>>,
    view: &'a View,
}

impl LadderContext for AuthorityContext<'_> {
    fn anything_uncached(&self) -> bool {
        let is_refused = |kind: &Type| self.refused.is_some_and(|refused| refused.contains(kind));
        let counts = |kind: &Type, selector: &Selector| authority_of(selector) == *self.authority && !is_refused(kind);
        self.goes_on || self.view.wants().has_reason(counts)
    }

    fn is_unreachable(&self, rung: usize) -> bool {
        self.unreachable.get(rung).copied().unwrap_or_default()
    }
}
