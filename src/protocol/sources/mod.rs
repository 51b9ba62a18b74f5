//! Where a view's resources come from: a ladder of servers for each authority. Authorities share the stream to a server (BOOT-9).
//!
//! Owns what each server is asked for, and the state of each ladder. Leaves connecting to the edge, and resources to [`view`](super::view).
//! Invariants: a server's updates for an authority count only while it is the active one (I6); a server that is opened is asked for
//! everything of the authority; a move deletes nothing.

mod ladders;
mod plan;
mod stream_events;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
pub use plan::{AuthorityPlan, Plan, ServerPlan};

use super::faults::Fault;
use super::ladder::{Ladder, LadderContext, LadderState, Switches};
use super::moment::{Moment, earliest};
use super::upstream::{Delivery, Stream, Upstream, ViewContext};
use super::view::{Class, Evidence, InterestChange, Origin, Selector, Update, View};
use super::wait::{WaitKind, WaitList, WaitSubject};
use crate::protocol::upstream::UpstreamOptions;
use crate::xds::{Authority, Type, TypeTable};

/// A stream, by its server and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// The server's place in [`Plan::servers`].
    pub server: usize,
    /// The stream's place among those to this server.
    pub at: usize,
}

/// The updates of one response, and where they come from.
#[derive(Debug)]
pub struct UpdateBatch {
    /// The server that the updates are attributed to.
    pub origin: Origin,
    /// What changed, in order.
    pub updates: Vec<Update>,
}

/// The servers of one view: a ladder for each authority, and the streams that are open.
#[derive(Debug)]
pub struct Sources {
    plan: Arc<Plan>,
    node: Bytes,
    servers: Vec<Server>,
    ladders: BTreeMap<Authority, Ladder>,
    /// Interest has ended since the last check, so a ladder may be unused.
    dropped: bool,
    /// Authorities with missing names whose ladders are `cached`, without a timer that runs.
    missed: BTreeSet<Authority>,
    /// Authorities that had fallen back in a view before this one, and have had no active server since: they go on without another reason.
    fallen: BTreeSet<Authority>,
    /// Servers that were released since the last call of `take_closed`, opened again since or not.
    closed: BTreeSet<usize>,
    /// Streams that were given up in order to be opened again.
    reopened: BTreeSet<StreamId>,
    table: Arc<TypeTable>,
    options: Arc<UpstreamOptions>,
}

#[derive(Debug, Default)]
struct Server {
    /// None while no ladder uses the server.
    upstream: Option<Upstream>,
    reachability: Option<Reachability>,
    /// Other views have found it unreachable (FB-20).
    unreachable_to_others: bool,
    /// Authorities for which the server reported that no server behind it is reachable. Only sources within the process do.
    without: BTreeSet<Authority>,
}

/// The result of the last attempt to reach a server since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reachability {
    Responded,
    /// The last attempt failed before a stream was open.
    Unreachable,
    /// The last stream ended before its first response. That is unreachable too (FB-2), but only for this view: the server may reject its
    /// node.
    Refused,
}

impl Server {
    fn is_unreachable(&self) -> bool {
        self.reachability.map_or(self.unreachable_to_others, |finding| finding != Reachability::Responded)
    }
}

/// One ladder, for status reports.
#[derive(Debug)]
pub struct LadderSummary<'a> {
    /// The authority, or the top level.
    pub authority: &'a Authority,
    /// Which server is active, or why none is.
    pub state: LadderState,
    pub(crate) since: Moment,
    pub(crate) switches: Switches,
    /// The active server by its place in the plan, and all servers of the list, first choice first.
    pub(crate) server: Option<usize>,
    pub(crate) servers: &'a [usize],
}

impl Sources {
    /// Starts with every ladder idle and no stream open. `node` is the encoded node for the servers.
    pub fn new(plan: Arc<Plan>, node: Bytes, table: Arc<TypeTable>, options: Arc<UpstreamOptions>) -> Self {
        let servers = plan.servers.iter().map(|_| Server::default()).collect();
        let (ladders, dropped, missed, fallen, closed, reopened) = Default::default();
        Self { plan, node, servers, ladders, dropped, missed, fallen, closed, reopened, table, options }
    }

    /// Applies what other views have found of the servers. It matters for those that this view has not tried yet (FB-20).
    pub fn on_shared_reachability(&mut self, unreachable: impl Fn(usize) -> bool) {
        for (at, server) in self.servers.iter_mut().enumerate() {
            server.unreachable_to_others = unreachable(at);
        }
    }

    /// Applies what other views have learned: the types whose sets each server sends in several responses.
    pub(crate) fn on_delivery_habits(&mut self, cut: impl Fn(usize) -> Arc<BTreeSet<Type>>) {
        for (at, server) in self.servers.iter_mut().enumerate() {
            let Some(upstream) = &mut server.upstream else { continue };
            let cut = cut(at);
            upstream.streams_mut().iter_mut().for_each(|stream| stream.on_delivery_habits(&cut));
        }
    }

    /// Returns what this view has learned of that since the last call, by the server's place in the plan.
    pub(crate) fn take_deliveries(&mut self) -> Vec<(usize, Type, Delivery)> {
        let upstreams = self.servers.iter_mut().enumerate();
        let streams = upstreams.filter_map(|(at, server)| Some((at, server.upstream.as_mut()?.streams_mut())));
        let of = |(at, streams): (usize, &mut [Stream])| -> Vec<_> {
            streams.iter_mut().flat_map(Stream::take_deliveries).map(|(kind, seen)| (at, kind, seen)).collect()
        };
        streams.flat_map(of).collect()
    }

    /// Returns what this view has found of each server, by its place in the plan.
    pub(crate) fn reachability(&self) -> impl Iterator<Item = Option<Reachability>> {
        self.servers.iter().map(|server| server.reachability)
    }

    /// Returns the places of the servers that have responded since they were last out of reach.
    pub(crate) fn responding(&self) -> impl Iterator<Item = u16> {
        let responding = |(at, server): (usize, &Server)| {
            (server.reachability == Some(Reachability::Responded)).then(|| u16::try_from(at).ok()).flatten()
        };
        self.servers.iter().enumerate().filter_map(responding)
    }

    /// Applies a change of interest. No server has names of an authority that is not in the plan (BOOT-16).
    pub fn want(&mut self, change: InterestChange, view: &View, now: Moment) {
        let authority = authority_of(&change.selector);
        let Some(servers) = self.plan.authority(&authority).map(|plan| plan.servers.clone()) else { return };
        self.dropped |= !change.on;
        let ladder = self.ladder(&authority);
        for rung in ladder.open() {
            if let Some(upstream) = self.servers.get_mut(servers[rung]).and_then(|server| server.upstream.as_mut()) {
                upstream.want(change.clone(), false);
            }
        }
        if !change.on {
            return;
        }
        match self.ladder(&authority).state() {
            LadderState::Idle => self.step(&authority, view, |ladder, around| ladder.on_interest(around, now)),
            _ => self.note_missed(&change, view),
        }
    }

    /// Sessions have subscribed to these, perhaps while interest existed already: now they may trigger fallback.
    pub fn on_names_requested(&mut self, changes: &[InterestChange], view: &View) {
        changes.iter().filter(|change| change.on).for_each(|change| self.note_missed(change, view));
    }

    /// Only a name that is missing makes a ladder check all interest, so that a client cannot cause that work with cached names.
    fn note_missed(&mut self, change: &InterestChange, view: &View) {
        let authority = authority_of(&change.selector);
        let held =
            |ladder: &Ladder| matches!(ladder.state(), LadderState::Cached(_)) && ladder.next_deadline().is_none();
        if self.ladders.get(&authority).is_some_and(held) && view.wants().is_missing(&change.kind, &change.selector) {
            self.missed.insert(authority);
        }
    }

    /// After all changes were applied: steps the ladders with missing names, and closes the servers of authorities without interest.
    pub fn close_unused(&mut self, view: &View, now: Moment) {
        for authority in std::mem::take(&mut self.missed) {
            self.step(&authority, view, |ladder, around| ladder.on_interest(around, now));
        }
        if !std::mem::take(&mut self.dropped) {
            return; // runs after every change, and the rest goes through all interest
        }
        let wanted =
            |authority: &Authority| view.wants().all().any(|(_, wanted, _)| authority_of(&wanted) == *authority);
        let awake = self.ladders.iter().filter(|(_, ladder)| ladder.state() != LadderState::Idle);
        let resting: Vec<_> = awake.map(|(authority, _)| authority.clone()).filter(|of| !wanted(of)).collect();
        for authority in resting {
            self.step(&authority, view, |ladder, _| ladder.on_idle(now));
        }
    }

    /// Returns every stream that is wanted, open or not.
    pub fn streams(&self) -> impl Iterator<Item = (StreamId, &Stream)> {
        self.servers.iter().enumerate().flat_map(|(server, of)| {
            let streams = of.upstream.iter().flat_map(|upstream| upstream.streams().iter().enumerate());
            streams.map(move |(at, stream)| (StreamId { server, at }, stream))
        })
    }

    /// The same, to change them.
    pub fn streams_mut(&mut self) -> impl Iterator<Item = (StreamId, &mut Stream)> {
        self.servers.iter_mut().enumerate().flat_map(|(server, of)| {
            let streams = of.upstream.iter_mut().flat_map(|upstream| upstream.streams_mut().iter_mut().enumerate());
            streams.map(move |(at, stream)| (StreamId { server, at }, stream))
        })
    }

    /// Returns servers whose streams were replaced since the last call. One that was closed and opened again has new streams.
    pub fn take_closed(&mut self) -> BTreeSet<usize> {
        std::mem::take(&mut self.closed)
    }

    /// Returns a stream, if it is still wanted.
    pub fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.servers.get_mut(id.server)?.upstream.as_mut()?.streams_mut().get_mut(id.at)
    }

    /// Runs the timers that are due, and returns what follows from them.
    pub fn on_time(&mut self, view: &View, now: Moment) -> Vec<UpdateBatch> {
        self.on_time_with(view, now, |_| true)
    }

    /// Returns the servers of which a stream is to be opened again now.
    pub(crate) fn due_reopenings(&mut self, now: Moment) -> BTreeSet<usize> {
        self.streams_mut().filter(|(_, stream)| stream.is_reopen_due(now)).map(|(id, _)| id.server).collect()
    }

    /// Like [`Self::on_time`]. Streams are opened again only to servers that `may_reopen`; the others stay until then.
    pub(crate) fn on_time_with(
        &mut self,
        view: &View,
        now: Moment,
        may_reopen: impl Fn(usize) -> bool,
    ) -> Vec<UpdateBatch> {
        let authorities: Vec<_> = self.ladders.keys().cloned().collect();
        for authority in authorities {
            self.step(&authority, view, |ladder, around| ladder.on_time(around, now));
        }
        let mut batches = Vec::new();
        if self.options.faults.has(Fault::AbsentWhileDown) && !self.down().is_empty() {
            let uncached = view.wants().all().filter(|(_, wanted, cached)| !cached && *wanted != Selector::Wildcard);
            let gone = |(kind, wanted, _): (&Type, Selector, bool)| match wanted {
                Selector::Name(key) => {
                    Some(Update::Absent { kind: kind.clone(), class: Class::Named, key, evidence: Evidence::Reported })
                }
                Selector::Wildcard => None,
            };
            batches.push(UpdateBatch { origin: Origin::default(), updates: uncached.filter_map(gone).collect() });
        }
        for server in 0..self.servers.len() {
            let updates = self.run_stream_timers(server, view, now);
            batches.extend(self.on_concluded(server, updates, view, now));
            let streams = self.streams_mut().filter(|(id, _)| id.server == server && may_reopen(server));
            let again = streams.filter_map(|(id, stream)| stream.take_reopen(now).then(|| (id, stream.epoch())));
            for (id, epoch) in again.collect::<Vec<_>>() {
                self.reopened.insert(id);
                batches.extend(self.interrupt(id, epoch, view));
            }
        }
        batches
    }

    /// Lets the streams of one server decide what its silence means.
    fn run_stream_timers(&mut self, server: usize, view: &View, now: Moment) -> Vec<Update> {
        let Some(mut upstream) = self.servers[server].upstream.take() else { return Vec::new() };
        let updates = {
            let speaks = |wanted: &Selector| self.speaks(server, &authority_of(wanted));
            let at = ViewContext { view, authority_of: &speaks };
            upstream.streams_mut().iter_mut().flat_map(|stream| stream.on_time(&at, now)).collect()
        };
        self.servers[server].upstream = Some(upstream);
        updates
    }

    /// Returns streams to open again, in order to request names once more.
    pub fn take_reopened(&mut self) -> BTreeSet<StreamId> {
        std::mem::take(&mut self.reopened)
    }

    /// The next deadline, leaving out streams that cannot send requests now.
    pub fn next_deadline(&mut self, blocked: impl Fn(StreamId) -> bool) -> Option<Moment> {
        let ladders = self.ladders.values().filter_map(Ladder::next_deadline).min();
        let streams =
            self.streams_mut().filter(|(id, _)| !blocked(*id)).filter_map(|(_, stream)| stream.next_deadline());
        earliest(ladders, streams.min())
    }
}

struct AuthorityContext<'a> {
    authority: &'a Authority,
    /// A fallback that has begun is not undone because everything is cached.
    goes_on: bool,
    unreachable: Vec<bool>,
    view: &'a View,
}

impl LadderContext for AuthorityContext<'_> {
    fn anything_uncached(&self) -> bool {
        self.goes_on || self.view.wants().misses_any(|wanted| authority_of(wanted) == *self.authority)
    }

    fn is_unreachable(&self, rung: usize) -> bool {
        self.unreachable.get(rung).copied().unwrap_or_default()
    }
}

fn authority_of(wanted: &Selector) -> Authority {
    match wanted {
        Selector::Wildcard => Authority::TopLevel,
        Selector::Name(name) => Authority::of(name),
    }
}

impl Sources {
    /// Adds what waits for servers.
    pub fn add_waits(&self, view: &View, now: Moment, list: &mut WaitList) {
        for (server, of) in self.servers.iter().enumerate() {
            let streams = of.upstream.iter().flat_map(|upstream| upstream.all());
            streams.for_each(|stream| stream.add_waits(server, view, now, list));
        }
        for (authority, ladder) in &self.ladders {
            if let Some((age, bound)) = ladder.wait(now) {
                list.add(WaitKind::Ladder, age, bound, || WaitSubject::authority(authority));
            }
        }
    }
}

#[cfg(test)]
mod tests;
