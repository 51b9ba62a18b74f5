//! Where a view's resources come from: a ladder of servers for each authority, and each server once for all that use it (BOOT-9).
//!
//! Owns what each server is asked and how far each ladder has come down. Leaves connecting to the edge, and resources to
//! [`view`](super::view). Always: what a server says of an authority counts only while that server is its active one (I6); a
//! server that is opened is asked for all of it; a move deletes nothing.

mod ladders;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

pub use plan::{AuthorityPlan, Plan, ServerPlan};

use super::faults::Fault;
use super::ladder::{Ladder, LadderContext, LadderState, Switches};
use super::limits::Limits;
use super::moment::{Moment, earliest};
use super::upstream::{Delivery, Epoch, ReceivedResponse, ResponseMessage, Stream, Upstream, ViewContext};
use super::view::{Class, Completeness, Evidence, InterestChange, Origin, Selector, Update, View};
use crate::proto::Response;
use crate::xds::{Authority, BodyStore, Name, Type, TypeTable};

/// A stream by the server it goes to and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    pub server: usize,
    pub at: usize,
}

/// Facts of one response, and whose they are.
#[derive(Debug)]
pub struct UpdateBatch {
    pub origin: Origin,
    pub updates: Vec<Update>,
}

#[derive(Debug)]
pub struct Sources {
    plan: Arc<Plan>,
    node: Bytes,
    servers: Vec<Server>,
    ladders: BTreeMap<Authority, Ladder>,
    /// Something is wanted no more, so that a ladder may have nothing left to do.
    dropped: bool,
    /// Authorities of which something is missing, while their ladders stand still for lack of such a thing.
    missed: BTreeSet<Authority>,
    /// Servers that were let go of since that was last asked, opened anew since or not.
    closed: BTreeSet<usize>,
    /// Streams that were given up to be opened anew.
    reopened: BTreeSet<StreamId>,
    table: Arc<TypeTable>,
    limits: Arc<Limits>,
}

#[derive(Debug, Default)]
struct Server {
    /// None while no ladder has it open.
    upstream: Option<Upstream>,
    reachability: Option<Reachability>,
    /// Others that have it open find it out of reach (FB-20).
    unreachable_to_others: bool,
    /// Authorities of which the server has said that nobody behind it is in reach. Only a source within the process does.
    without: BTreeSet<Authority>,
}

/// What was found of a server since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reachability {
    Responded,
    /// The last attempt came to nothing before there was a stream.
    Unreachable,
    /// The last stream ended before anything was heard on it. That is out of reach too (FB-2), for this view: the server may not
    /// like its node.
    Refused,
}

impl Server {
    fn is_unreachable(&self) -> bool {
        self.reachability.map_or(self.unreachable_to_others, |finding| finding != Reachability::Responded)
    }
}

/// One ladder, for reports.
#[derive(Debug)]
pub struct LadderSummary<'a> {
    pub authority: &'a Authority,
    pub state: LadderState,
    pub(crate) since: Moment,
    pub(crate) switches: Switches,
    /// The active server by its place in the plan, and all that there are, the first choice first.
    pub(crate) server: Option<usize>,
    pub(crate) servers: &'a [usize],
}

impl Sources {
    pub fn new(plan: Arc<Plan>, node: Bytes, table: Arc<TypeTable>, limits: Arc<Limits>) -> Self {
        let servers = plan.servers.iter().map(|_| Server::default()).collect();
        let (ladders, dropped, missed, closed, reopened) = Default::default();
        Self { plan, node, servers, ladders, dropped, missed, closed, reopened, table, limits }
    }

    /// What other views have found of the servers, for those that this one has not tried yet (FB-20).
    pub fn on_shared_reachability(&mut self, unreachable: impl Fn(usize) -> bool) {
        for (at, server) in self.servers.iter_mut().enumerate() {
            server.unreachable_to_others = unreachable(at);
        }
    }

    /// What other views have seen of how each server sends its sets: the types that come in pieces.
    pub(crate) fn on_delivery_habits(&mut self, cut: impl Fn(usize) -> Arc<BTreeSet<Type>>) {
        for (at, server) in self.servers.iter_mut().enumerate() {
            let Some(upstream) = &mut server.upstream else { continue };
            let cut = cut(at);
            upstream.streams().iter_mut().for_each(|stream| stream.on_delivery_habits(&cut));
        }
    }

    /// What this view has seen of that since it was last asked, by the server's place in the plan.
    pub(crate) fn take_deliveries(&mut self) -> Vec<(usize, Type, Delivery)> {
        let upstreams = self.servers.iter_mut().enumerate();
        let streams = upstreams.filter_map(|(at, server)| Some((at, server.upstream.as_mut()?.streams())));
        let of = |(at, streams): (usize, &mut [Stream])| -> Vec<_> {
            streams.iter_mut().flat_map(Stream::take_deliveries).map(|(kind, seen)| (at, kind, seen)).collect()
        };
        streams.flat_map(of).collect()
    }

    /// What this view has found of each server, by its place in the plan.
    pub(crate) fn reachability(&self) -> impl Iterator<Item = Option<Reachability>> {
        self.servers.iter().map(|server| server.reachability)
    }

    /// Takes over a change of interest. A name of an authority that is not in the plan is nobody's (BOOT-16).
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

    /// Somebody has asked for these things, be they wanted already: it may be the first by whom that counts.
    pub fn on_names_requested(&mut self, changes: &[InterestChange], view: &View) {
        changes.iter().filter(|change| change.on).for_each(|change| self.note_missed(change, view));
    }

    /// Only what is missing by itself makes a ladder look at all that is wanted, so that nobody can have it look for nothing.
    fn note_missed(&mut self, change: &InterestChange, view: &View) {
        let authority = authority_of(&change.selector);
        let held =
            |ladder: &Ladder| matches!(ladder.state(), LadderState::Cached(_)) && ladder.next_deadline().is_none();
        if self.ladders.get(&authority).is_some_and(held) && view.is_missing(&change.kind, &change.selector) {
            self.missed.insert(authority);
        }
    }

    /// When all changes were taken over: goes on where something is missed now, and closes the servers of authorities of
    /// which nothing is wanted any more.
    pub fn close_unused(&mut self, view: &View, now: Moment) {
        for authority in std::mem::take(&mut self.missed) {
            self.step(&authority, view, |ladder, around| ladder.on_interest(around, now));
        }
        if !std::mem::take(&mut self.dropped) {
            return; // this is asked after every change, and looks at everything that is wanted
        }
        let wanted = |authority: &Authority| view.wanted().any(|(_, wanted, _)| authority_of(&wanted) == *authority);
        let awake = self.ladders.iter().filter(|(_, ladder)| ladder.state() != LadderState::Idle);
        let resting: Vec<_> = awake.map(|(authority, _)| authority.clone()).filter(|of| !wanted(of)).collect();
        for authority in resting {
            self.step(&authority, view, |ladder, _| ladder.on_idle(now));
        }
    }

    pub fn streams(&mut self) -> impl Iterator<Item = (StreamId, &mut Stream)> {
        self.servers.iter_mut().enumerate().flat_map(|(server, of)| {
            let streams = of.upstream.iter_mut().flat_map(|upstream| upstream.streams().iter_mut().enumerate());
            streams.map(move |(at, stream)| (StreamId { server, at }, stream))
        })
    }

    /// Servers whose streams are not what they were: one that was closed and opened again between two looks has new ones.
    pub fn take_closed(&mut self) -> BTreeSet<usize> {
        std::mem::take(&mut self.closed)
    }

    pub fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.servers.get_mut(id.server)?.upstream.as_mut()?.streams().get_mut(id.at)
    }

    /// Reads a response in one go, and applies it like [`Self::on_received`].
    pub fn on_response(
        &mut self,
        id: StreamId,
        epoch: Epoch,
        response: Response,
        store: &BodyStore,
        view: &View,
        now: Moment,
    ) -> Vec<UpdateBatch> {
        let response = ReceivedResponse::read(ResponseMessage::Decoded(response), &self.table, store);
        response.map_or_else(|_| Vec::new(), |response| self.on_received(id, epoch, response, view, now))
    }

    /// Turns a response that is read into updates of those authorities for which the server is active.
    pub fn on_received(
        &mut self,
        id: StreamId,
        epoch: Epoch,
        response: ReceivedResponse,
        view: &View,
        now: Moment,
    ) -> Vec<UpdateBatch> {
        let Some(stream) = self.stream(id) else { return Vec::new() };
        if !stream.is_current(epoch) {
            return Vec::new(); // of an earlier opening
        }
        let nothing_left = response.is_empty_set();
        let mut updates = stream.on_received(epoch, response, now);
        self.servers[id.server].reachability = Some(Reachability::Responded);
        let usable = nothing_left
            || updates.iter().any(|update| matches!(update, Update::Upsert { .. } | Update::FullSet { .. }));
        let newly = self.on_server_responded(id.server, usable, view, now);
        if !newly.is_empty() {
            updates.splice(..0, interrupted_sets(view, &newly));
            let streams = self.servers[id.server].upstream.iter_mut().flat_map(|upstream| upstream.streams());
            for stream in streams {
                stream.look_anew();
                updates.extend(stream.findings());
            }
            if self.limits.faults.has(Fault::SwitchDeletes) {
                updates.extend(is_from_others(id.server, view));
            }
        }
        self.authoritative_updates(id.server, updates)
    }

    /// A source that is no server says how much of a collection has been told.
    pub(crate) fn on_progress(
        &mut self,
        id: StreamId,
        epoch: Epoch,
        url: &str,
        glob: Name,
        completeness: Completeness,
    ) -> Vec<UpdateBatch> {
        let kind = self.table.resolve(url);
        let current = self.stream(id).is_some_and(|stream| stream.is_current(epoch));
        let of = Selector::Name(glob);
        // What it knew to be all may have grown since.
        let less =
            (completeness < Completeness::Complete).then(|| Update::Interrupted { kind: kind.clone(), of: of.clone() });
        let updates = less.into_iter().chain([Update::Progress { kind, of, completeness }]);
        self.authoritative_updates(id.server, updates.filter(|_| current).collect())
    }

    /// A source that stands for several servers says of which authorities none is in reach.
    pub(crate) fn on_outage(&mut self, id: StreamId, epoch: Epoch, authorities: BTreeSet<Authority>) {
        if self.stream(id).is_some_and(|stream| stream.is_current(epoch)) {
            self.servers[id.server].without = authorities;
        }
    }

    /// A stream is up. The server is there, though it has said nothing yet: that is no finding for others.
    pub(crate) fn opened(&mut self, id: StreamId) -> Option<Epoch> {
        let server = &mut self.servers[id.server];
        server.reachability = server
            .reachability
            .map(|found| if found == Reachability::Unreachable { Reachability::Refused } else { found });
        self.stream(id).map(Stream::opened)
    }

    /// A stream has ended, or could not be opened.
    pub fn ended(
        &mut self,
        id: StreamId,
        epoch: Option<Epoch>,
        answered: bool,
        view: &View,
        now: Moment,
    ) -> Vec<UpdateBatch> {
        let was_well = epoch.is_some_and(|epoch| {
            self.stream(id).is_some_and(|stream| stream.is_current(epoch) && stream.is_healthy(now))
        });
        let batches = epoch.map(|epoch| self.interrupt(id, epoch, view)).unwrap_or_default();
        let server = &mut self.servers[id.server];
        server.without.clear();
        let had_answered = server.reachability == Some(Reachability::Responded);
        let mut others = server.upstream.iter_mut().flat_map(|upstream| upstream.streams().iter());
        // Another stream that has had a response vouches for the server. So does any, this one too, on which the server had nothing
        // to say but what it has said before, and kept quiet (FB-3).
        let vouches = |of: &Stream| of.has_answered() || had_answered && of.is_wanted() && of.is_healthy(now);
        let vouched = others.any(vouches) || had_answered && was_well;
        if !answered && !vouched {
            let finding = if epoch.is_some() { Reachability::Refused } else { Reachability::Unreachable };
            self.servers[id.server].reachability = Some(finding);
            let streams = self.servers[id.server].upstream.iter_mut().flat_map(|upstream| upstream.streams());
            streams.for_each(Stream::clear_one_version_per_type);
            for (authority, rung) in self.users(id.server) {
                self.step(&authority, view, |ladder, around| ladder.on_unreachable(rung, around, now));
            }
        }
        batches
    }

    /// A stream is over. Sets that were not all there are said again from the beginning.
    fn interrupt(&mut self, id: StreamId, epoch: Epoch, view: &View) -> Vec<UpdateBatch> {
        let Some(stream) = self.stream(id) else { return Vec::new() };
        let updates = stream.ended(epoch);
        for update in &updates {
            if let Update::Interrupted { kind, of } = update
                && view.completeness_of(kind, of) < Completeness::Settled
            {
                stream.clear_set_versions(kind, of);
            }
        }
        self.authoritative_updates(id.server, updates)
    }

    pub fn on_time(&mut self, view: &View, now: Moment) -> Vec<UpdateBatch> {
        let authorities: Vec<_> = self.ladders.keys().cloned().collect();
        for authority in authorities {
            self.step(&authority, view, |ladder, around| ladder.on_time(around, now));
        }
        let mut batches = Vec::new();
        if self.limits.faults.has(Fault::AbsentWhileDown) && !self.down().is_empty() {
            let uncached = view.wanted().filter(|(_, wanted, cached)| !cached && *wanted != Selector::Wildcard);
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
            batches.extend(self.authoritative_updates(server, updates));
            let streams = self.streams().filter(|(id, _)| id.server == server);
            let again = streams.filter_map(|(id, stream)| stream.take_reopen(now).then(|| (id, stream.epoch())));
            for (id, epoch) in again.collect::<Vec<_>>() {
                self.reopened.insert(id);
                batches.extend(self.interrupt(id, epoch, view));
            }
        }
        batches
    }

    /// Lets the streams of one server judge what its silence means.
    fn run_stream_timers(&mut self, server: usize, view: &View, now: Moment) -> Vec<Update> {
        let Some(mut upstream) = self.servers[server].upstream.take() else { return Vec::new() };
        let updates = {
            let speaks = |wanted: &Selector| self.speaks(server, &authority_of(wanted));
            let at = ViewContext { view, authority_of: &speaks };
            upstream.streams().iter_mut().flat_map(|stream| stream.on_time(&at, now)).collect()
        };
        self.servers[server].upstream = Some(upstream);
        updates
    }

    /// Streams that are to be opened anew, since they were given up to ask once more.
    pub fn take_reopened(&mut self) -> BTreeSet<StreamId> {
        std::mem::take(&mut self.reopened)
    }

    /// The next time at which something happens by itself, leaving out streams that cannot take requests now.
    pub(crate) fn next_deadline(&mut self, blocked: impl Fn(StreamId) -> bool) -> Option<Moment> {
        let ladders = self.ladders.values().filter_map(Ladder::next_deadline).min();
        let streams = self.streams().filter(|(id, _)| !blocked(*id)).filter_map(|(_, stream)| stream.next_deadline());
        earliest(ladders, streams.min())
    }
}

/// What a server that is left may have been in the middle of, and has said to be gone: its rest will not come, and who serves now has
/// all of its own to say first (XLAT-12).
fn interrupted_sets(view: &View, of: &BTreeSet<Authority>) -> Vec<Update> {
    let is_told = |kind: &Type, wanted: &Selector| match wanted {
        Selector::Wildcard => true,
        Selector::Name(name) => name.is_glob() || view.is_gone(kind, name),
    };
    let sent = view.wanted().filter(|(kind, wanted, _)| of.contains(&authority_of(wanted)) && is_told(kind, wanted));
    sent.map(|(kind, of, _)| Update::Interrupted { kind: kind.clone(), of }).collect()
}

/// The fault of a move that deletes.
fn is_from_others(server: usize, view: &View) -> Vec<Update> {
    let wanted = view.wanted().map(|(kind, wanted, _)| match wanted {
        Selector::Wildcard => (kind.clone(), Class::Wildcard),
        Selector::Name(_) => (kind.clone(), Class::Named),
    });
    let gone = |(kind, class): (Type, Class)| {
        let others = view.here(&kind, class).filter(|(_, entry)| usize::from(entry.origin.server) != server);
        let gone =
            |key: &Name| Update::Absent { kind: kind.clone(), class, key: key.clone(), evidence: Evidence::Reported };
        others.map(|(key, _)| gone(key)).collect::<Vec<_>>()
    };
    wanted.collect::<BTreeSet<_>>().into_iter().flat_map(gone).collect()
}

struct AuthorityContext<'a> {
    authority: &'a Authority,
    unreachable: Vec<bool>,
    view: &'a View,
}

impl LadderContext for AuthorityContext<'_> {
    fn anything_uncached(&self) -> bool {
        self.view.misses_any(|wanted| authority_of(wanted) == *self.authority)
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
